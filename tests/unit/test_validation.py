"""Which cases a validation queues, which it refuses and leaves out, and how it is told how they went."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from manifests_made import BASE, Manifests
from queues import AT, asked, writing

from scheduler import config
from scheduler.catalog import load
from scheduler.cli import looking, recalling, validating
from scheduler.cli.fast import parse
from scheduler.cli.grammar import VERBS
from scheduler.cli.verbs_validate import VALIDATE
from scheduler.client import Client
from scheduler.errors import UnknownProvider, UsageError, WaitTimedOut
from scheduler.night import gathering, validation
from scheduler.store import history, offered, peek
from scheduler.store.cases import LAST

HERE = BASE.replace('"~/envs/x/bin/python"', f'"{sys.executable}"')
HERE = HERE.replace('policy = "required"\nvram_budget_gb = 28.0', 'policy = "none"').replace("= 6.0", "= 0.1")
CASE = '\n[[validation]]\nname = "{name}"\ninput = "{input}"\nexpect = {expect}\n'
FACTS = {"pools": [{"id": "host", "kind": "host", "capacity_gib": 64.0, "reserve_gib": 2.0}], "accelerators": 0}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    monkeypatch.setattr(validation, "facts", lambda client: FACTS)
    migrations = config.migrations_folder()
    monkeypatch.setattr(config, "migrations_folder", lambda: migrations)
    return Manifests(tmp_path, monkeypatch)


def case(name: str = "a", input: str = "in.json", expect: str = '{"/x" = 1}', head: str = "[[validation]]") -> str:
    return CASE.format(name=name, input=input, expect=expect).replace("[[validation]]", head)


def provider(made: Manifests, slug: str = "fold", more: str = "", text: str = HERE, **inputs: Any) -> None:
    folder = made.add(slug, text, more)
    for name, body in {"in": {"sequences": [{"id": "A", "aa": "MK"}]}, **inputs}.items():
        (folder / f"{name}.json").write_text(json.dumps(body))


def validate(*argv: str) -> int:
    return validating.validate(parse(VALIDATE, list(argv)))


def cases() -> list[tuple[Any, ...]]:
    asked_for = (
        'SELECT j.slug, j.variant, c."case", j.state, j.outcome_text FROM jobs j JOIN checks c ON c.job_id = j.id'
        " ORDER BY j.id"
    )
    return asked(Client().paths, asked_for)


def test_every_case_becomes_a_job_of_one_batch_whose_name_is_all_that_stdout_gets(
    made: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    provider(made, more=case("a") + case("b", expect='{"/x" = {min = 0.5}, files = ["*.pdb"]}'))
    provider(made, "dock", more=case())
    assert validate("--all", "--fresh") == 0
    out, err = capfd.readouterr()
    batch = out.strip()
    assert re.fullmatch(r"validate-\d{4}-\d\d-\d\d-\d{4}\n", out)
    assert f"batch {batch}: 3 cases of 2 providers queued (jobs 1-3)" in err and f"schedq report {batch}" in err
    assert [each[:4] for each in cases()] == [
        ("dock", "", "a", "queued"), ("fold", "", "a", "queued"), ("fold", "", "b", "queued"),
    ]  # fmt: skip
    [row] = asked(Client().paths, "SELECT expect, fresh, open, verdict, faults, at FROM checks WHERE job_id = 3")
    assert json.loads(row[0]) == {"/x": {"min": 0.5}, "files": ["*.pdb"]} and row[1:] == (1, 0, None, "[]", None)
    assert asked(Client().paths, "SELECT DISTINCT batch, name FROM jobs") == [(batch, "in")]


def test_a_second_batch_of_the_same_minute_has_a_name_of_its_own(made: Manifests) -> None:
    provider(made, more=case())
    validate("fold", "--batch", "night")
    assert validating.unused(Client().paths, "night") == "night-2"
    validate("fold", "--batch", "night-2")
    assert validating.unused(Client().paths, "night") == "night-3"
    assert validating.unused(Client().paths, "other") == "other"


def test_two_at_once_never_share_a_batch_that_neither_has_named(
    made: Manifests, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    provider(made, more=case())
    real, inside = Client.enqueue, [True]

    def meanwhile(self: Client, *given: Any, **more: Any) -> list[int]:
        if inside and inside.pop():
            validate("fold")
        return real(self, *given, **more)

    monkeypatch.setattr(Client, "enqueue", meanwhile)
    validate("fold")
    found = asked(Client().paths, "SELECT batch, jobs FROM batches ORDER BY first_at")
    assert [jobs for _, jobs in found] == [1, 1]
    assert capfd.readouterr().out.split() == [batch for batch, _ in found]
    validate("fold", "--batch", "mine")
    validate("fold", "--batch", "mine")
    assert asked(Client().paths, "SELECT jobs FROM batches WHERE batch = 'mine'") == [(2,)]
    assert capfd.readouterr().err.count("note: batch mine had 1 job before; its report counts all of them") == 1


def test_what_can_never_run_here_is_queued_as_refused_and_the_others_go_on(
    made: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    provider(made, "fold", case("good") + case("bad", "bad.json"), bad={"seed": 1})
    provider(made, "huge", case(), HERE.replace("= 0.1", "= 640.0"))
    provider(made, "gpu", case(), BASE.replace("~/envs/x/bin/python", sys.executable))
    provider(made, "open", case(), BASE.replace("vram_budget_gb = 28.0", ""))
    provider(made, "lost", case(), HERE.replace(sys.executable, "/nowhere/python"))
    provider(made, "slip", case(expect='{"/x" = {mni = 1}}'))
    provider(made, "none")
    assert validate("--all") == 0
    found = {(slug, name): (state, text) for slug, _, name, state, text in cases()}
    assert found.pop(("fold", "good")) == ("queued", None)
    assert {state for state, _ in found.values()} == {"refused"}
    said = {key[0]: text for key, (_, text) in found.items()}
    assert said["fold"].startswith("its input is refused: ") and "sequences" in said["fold"]
    assert said["huge"].startswith("too_big: huge needs 640 GiB")
    assert said["open"].startswith("undeclared: ") and "gpu" not in said
    assert "/nowhere/python" in said["lost"]
    assert "did you mean min?" in said["slip"] and found.keys() >= {("slip", "provider.toml")}
    err = capfd.readouterr().err
    assert "1 case of 1 provider queued, 5 refused" in err and "without a [[validation]] case: none" in err
    assert asked(Client().paths, "SELECT DISTINCT outcome, ended_at IS NOT NULL FROM jobs WHERE state = 'refused'") == [
        ("refused", 1)
    ]
    assert asked(Client().paths, "SELECT jobs, open, succeeded FROM batches") == [(6, 1, 0)]


GPU = BASE.replace("~/envs/x/bin/python", sys.executable)


def test_where_there_is_no_device_all_leaves_out_who_needs_one_and_its_name_asks_for_it_all_the_same(
    made: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    provider(made, "gpu", case("a") + case("b"), GPU)
    provider(made, "absent", case(), GPU.replace(sys.executable, "/nowhere/python"))
    assert validate("--all") == 0
    err = capfd.readouterr().err
    assert "gpu: 2 cases left out: this machine has no device; schedq validate gpu queues them all even so" in (
        " ".join(err.split())
    )
    assert "absent: 1 case left out" in " ".join(err.split()) and "nothing was queued" in err
    provider(made, more=case())
    assert validate("--all", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert [each["slug"] for each in told["cases"]] == ["fold"]
    assert [(each["provider"], each["cases"]) for each in told["left_out"]] == [("absent", 1), ("gpu", 2)]
    assert "requires an accelerator and this machine has none" in told["left_out"][1]["why"]
    validate("gpu")
    assert [each[3] for each in cases() if each[0] == "gpu"] == ["refused", "refused"]


def test_a_job_is_called_what_submit_of_its_input_calls_it_and_lists_show_the_case(
    made: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    provider(
        made,
        more=case("by IMGT", "1ubi.json") + case("bad", "bad.json"),
        bad={"seed": 1},
        **{"1ubi": {"sequences": [{"id": "A", "aa": "M"}]}},
    )
    validate("fold")
    paths = Client().paths
    assert asked(paths, "SELECT name FROM jobs ORDER BY id") == [("1ubi",), ("bad",)]
    assert ("1ubi", "by IMGT") in [(each["name"], each["case"]) for each in peek.status(paths)["jobs"]]
    assert [(each["name"], each["case"]) for each in peek.jobs(paths, [1, 2])] == [("1ubi", "by IMGT"), ("bad", "bad")]
    [[last, first]] = history.parts(paths, {"slug": "fold"}, None)
    assert (first["name"], first["case"], last["case"]) == ("1ubi", "by IMGT", "bad")
    assert peek.briefly(paths, [1])[1]["name"] == "by IMGT"
    assert peek.looked(paths, lambda reader: offered.jobs(reader, ("queued",), "1"), []) == [
        ("1", "queued, fold by IMGT")
    ]
    capfd.readouterr()
    for verb, show in (("history", recalling.history), ("status", looking.status)):
        assert show(parse(VERBS[verb], [])) == 0
    told = capfd.readouterr().out
    assert told.count("by IMGT") == 2 and "1ubi" not in told
    report = gathering.gathered(paths, None, 0.0)
    assert [each.first_name for each in report.providers[0].waits] == ["by IMGT"]


def test_a_provider_means_its_variants_that_declare_cases_too_and_one_variant_itself_alone(made: Manifests) -> None:
    more = "\n[variants.small]\ntitle = 's'\n[variants.large]\ntitle = 'l'\n" + case(
        "l", head="[[variants.large.validation]]"
    )
    provider(made, more=case("a") + more)
    known = load(Client().paths)
    assert [validation.name_of(each) for each in validation.chosen(known, ["fold"])] == ["fold", "fold:large"]
    assert [validation.name_of(each) for each in validation.chosen(known, ["fold:small"])] == ["fold:small"]
    assert [validation.name_of(each) for each in validation.chosen(known, ["fold:large", "fold", "fold"])] == [
        "fold:large", "fold",
    ]  # fmt: skip
    validate("fold", "fold:small")
    assert [each[:3] for each in cases()] == [("fold", "", "a"), ("fold", "large", "l"), ("fold", "small", "a")]


def test_each_case_may_be_queued_several_times(made: Manifests) -> None:
    provider(made, more=case("a") + case("b"))
    validate("fold", "--repeat", "3")
    assert [each[2] for each in cases()] == ["a", "b"] * 3 or [each[2] for each in cases()] == ["a"] * 3 + ["b"] * 3


def judged(verdict: str, *, least: int = 0) -> None:
    with writing(Client().paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = ?, outcome = 'ok' WHERE id > ?", (AT, least))
        db.execute("UPDATE checks SET verdict = ?, open = 0 WHERE job_id > ?", (verdict, least))


def test_only_what_changed_since_it_passed_is_queued_if_asked_so(
    made: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    provider(made, more=case("a") + case("b"))
    provider(made, "dock", more=case())
    validate("--all")
    judged("passed")
    capfd.readouterr()
    assert validate("--all", "--changed") == 0
    out, err = capfd.readouterr()
    assert out == "" and "unchanged since all of its cases passed: dock, fold" in err and "nothing was queued" in err

    provider(made, more=case("a") + case("b", expect='{"/x" = 2}'))
    validate("--all", "--changed")
    assert [each[0] for each in cases()][3:] == ["fold", "fold"]
    judged("passed", least=3)

    (made.root / "dock" / "worker.py").write_text("import other\n")
    validate("--all", "--changed")
    assert [each[0] for each in cases()][5:] == ["dock"]
    judged("failed", least=5)
    validate("--all", "--changed")
    assert [each[0] for each in cases()][6:] == ["dock"]
    judged("passed", least=6)

    (made.root / "dock" / "in.json").write_text('{"sequences": [{"id": "B"}]}')
    validate("--all", "--changed")
    assert [each[0] for each in cases()][7:] == ["dock"]


def test_a_case_whose_weights_were_replaced_or_are_gone_is_no_unchanged_one(
    made: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = made.root / "w.bin"
    weights.write_bytes(b"old")
    provider(made, more=f'\n[[files]]\npath = "{weights}"\n' + case())
    validate("--all", "--changed")
    judged("passed")
    validate("--all", "--changed")
    assert len(cases()) == 1, "nothing changed"
    weights.write_bytes(b"others")
    validate("--all", "--changed")
    assert len(cases()) == 2
    judged("passed")
    weights.unlink()
    capfd.readouterr()
    validate("--all", "--changed")
    assert [each[3] for each in cases()][2:] == ["refused"] and "is not there" in capfd.readouterr().err


def test_how_a_case_went_last_is_found_without_a_look_at_those_of_other_providers(made: Manifests) -> None:
    provider(made, more=case())
    provider(made, "dock", more=case())
    validate("--all")
    found = asked(Client().paths, 'SELECT slug, variant, "case" FROM checks ORDER BY job_id')
    assert found == [("dock", "", "a"), ("fold", "", "a")]
    plan = asked(Client().paths, f"EXPLAIN QUERY PLAN {LAST}", "fold", "", "a")
    assert "SEARCH c USING INDEX checks_case (slug=? AND variant=? AND case=?)" in str(plan)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "name providers, or say --all"),
        (["fold", "--all"], "fold and --all were given"),
        (["fold", "--timeout", "5s"], "add --wait"),
        (["fold", "--repeat", "0"], "between 1 and 1000"),
        (["fold", "--repeat", "x"], "not a whole number"),
        (["empty"], "no [[validation]] case to queue, of empty"),
    ],
)
def test_a_call_that_means_nothing_queues_nothing_and_says_why(made: Manifests, argv: list[str], told: str) -> None:
    provider(made, more=case())
    provider(made, "empty")
    with pytest.raises(UsageError, match=re.escape(told)):
        validate(*argv)
    assert not Path(Client().paths.database).exists()


def test_an_unknown_provider_among_the_named_queues_nothing(made: Manifests) -> None:
    provider(made, more=case())
    with pytest.raises(UnknownProvider, match="did you mean fold"):
        validate("fold", "fald")
    assert not Path(Client().paths.database).exists()


def test_a_dry_run_lists_and_queues_nothing(made: Manifests, capfd: pytest.CaptureFixture[str]) -> None:
    provider(made, more=case("a") + case("bad", "bad.json"), bad={})
    assert validate("fold", "--dry-run") == 0
    out, err = capfd.readouterr()
    assert re.search(r"fold +a +to be queued\n", out) and re.search(r"fold +bad +refused\n +its input is refused", out)
    assert max(map(len, out.split("\n")[:3])) <= 80 and "1 case would be queued in batch" in err
    assert validate("fold", "--dry-run", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["schema_version"] == 1 and told["dry_run"] and told["cases"][0]["id"] is None
    assert not Path(Client().paths.database).exists()


def test_as_json_the_batch_and_each_cases_job_are_told(made: Manifests, capfd: pytest.CaptureFixture[str]) -> None:
    provider(made, more=case("a"))
    provider(made, "empty")
    validate("--all", "--json", "--batch", "n")
    told = json.loads(capfd.readouterr().out)
    assert told == {
        "schema_version": 1, "batch": "n", "without_cases": ["empty"], "unchanged": [], "left_out": [],
        "cases": [{"id": 1, "slug": "fold", "variant": "", "case": "a", "refused": None}],
    }  # fmt: skip


def shown(**over: Any) -> dict[str, Any]:
    return {
        "id": 7, "slug": "fold", "variant": "", "case": "a", "state": "succeeded", "outcome": "ok", "text": "",
        "faults": [], "verdict": "passed", "standing": "passed", **over,
    }  # fmt: skip


def test_the_page_says_how_each_case_went_and_why_and_the_sums_in_one_line() -> None:
    fault = {"place": "/x", "expected": "1", "found": "2"}
    rows = [
        shown(),
        shown(id=8, case="b" * 60, standing="failed", faults=[fault, {**fault, "place": "/y"}]),
        shown(id=9, slug="dock", state="refused", outcome="refused", text="too_big: it is", standing="refused"),
        shown(id=10, slug="dock", state="refused", outcome="refused", text="too_big: it is", standing="refused"),
        shown(id=11, slug="dock", state="failed", outcome="crashed", text="exit 1", standing="did not run"),
        shown(id=12, slug="dock", state="timed_out", outcome="timed_out", text="after 5 s", standing="did not run"),
    ]
    sums = {"passed": 1, "failed": 1, "refused": 2, "did not run": 2}
    text = "\n".join(validating.page(rows, sums))
    assert max(map(len, text.split("\n"))) <= 80
    assert "        /x: expected 1, found 2\n        /y: expected 1, found 2" in text
    assert text.count("too_big: it is") == 1
    assert "failed: crashed: exit 1" in text and "timed out: after 5 s" in text
    assert text.endswith("6 cases of 2 providers: 1 passed, 1 failed, 2 refused, 2 did not run")


def test_at_a_glance_a_batch_says_how_far_it_is_and_what_runs() -> None:
    rows = [shown(), shown(standing="failed"), *(shown(state="running", standing="waits") for _ in range(2))]
    assert validating.at_a_glance("n", rows) == "n: 2 of 4 ended (1 passed, 1 failed); runs: fold a and 1 more"
    assert validating.at_a_glance("n", [shown(state="queued", standing="waits")]) == "n: 0 of 1 ended"


def test_waiting_ends_with_the_sums_once_all_is_judged(made: Manifests, capfd: pytest.CaptureFixture[str]) -> None:
    provider(made, "lost", case(), HERE.replace(sys.executable, "/nowhere/python"))
    assert validate("lost", "--wait", "--timeout", "5s") == 1
    out = capfd.readouterr().out
    assert out.endswith("1 case of 1 provider: 0 passed, 0 failed, 1 refused, 0 did not run\n")


def test_who_waits_no_longer_is_told_how_many_go_on(made: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    provider(made, more=case())
    monkeypatch.setattr("scheduler.cli.starting.ensure", lambda paths: None)
    monkeypatch.setattr(Client, "ended", lambda self, ids, timeout_s=None: (_ for _ in ()).throw(WaitTimedOut("")))
    with pytest.raises(WaitTimedOut, match="1 of 1 case had not ended after 50ms and go on; schedq report n shows"):
        validate("fold", "--wait", "--timeout", "50ms", "--batch", "n")
    assert [each[3] for each in cases()] == ["queued"]


def test_who_waits_for_verdicts_looks_once_a_second(made: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    provider(made, more=case())
    slept: list[float] = []
    ended = [{**shown(id=1), "standing": "not judged"}]
    monkeypatch.setattr(validating, "_stand", lambda client, ids: ended if len(slept) < 2 else [shown(id=1)])
    monkeypatch.setattr("scheduler.wake.scheduler_runs", lambda paths: True)
    monkeypatch.setattr("scheduler.clock.SystemClock.sleep", lambda self, seconds: slept.append(seconds))
    assert validate("fold", "--wait") == 0
    assert slept == [1.0, 1.0]
