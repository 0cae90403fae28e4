"""What a report says of a time is about that time alone, stays so afterwards, and tells what to do next in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_nights import BEGIN_S, made
from queues import row, submitted, writing

from scheduler.cli import report_page
from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.night import gathering
from scheduler.night.causes import causes
from scheduler.night.gathering import gathered
from scheduler.night.html_pictures import axis
from scheduler.night.report import Report
from scheduler.night.stepping import with_steps
from scheduler.night.words import in_local_time, moment, same_reason
from scheduler.rules.breaker import OWN_TIME
from scheduler.store import intake, operator
from scheduler.store.engine import Store


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


def changed(paths: Paths, statement: str, *values: Any) -> None:
    with writing(paths) as db:
        db.execute(statement, values)


def brief(paths: Paths, ended_s: float = 40.0) -> None:
    """A night of one job that ran from BEGIN_S for so many seconds, and neither samples nor charges."""
    made(paths, 1, providers=1, failing=0.0)
    for table in ("samples", "leases", "peaks"):
        changed(paths, f"DELETE FROM {table}")
    changed(paths, "UPDATE attempts SET sent_at = ?, ended_at = ?", stamp(BEGIN_S), stamp(BEGIN_S + ended_s))
    times = (stamp(BEGIN_S), stamp(BEGIN_S), stamp(BEGIN_S + ended_s))
    changed(paths, "UPDATE jobs SET submitted_at = ?, started_at = ?, ended_at = ?", *times)


def sampled(paths: Paths, after_s: float, charged_gib: float, used_gib: float | None) -> None:
    values = (stamp(BEGIN_S + after_s), charged_gib, used_gib)
    changed(paths, "INSERT INTO samples VALUES (?, 'h', 'host', 128.0, 4.0, ?, ?, 100.0)", *values)


def charged(paths: Paths, gib: float, since_s: float, until_s: float | None) -> None:
    until = None if until_s is None else stamp(BEGIN_S + until_s)
    changed(
        paths,
        "INSERT INTO leases (worker_id, slug, pool, charge_gib, state, host_id, reserved_at, released_at)"
        " SELECT max(id), 'x', 'host', ?, ?, 'h', ?, ? FROM workers",
        gib, "held" if until is None else "released", stamp(BEGIN_S + since_s), until,
    )  # fmt: skip


def steps(report: Report) -> list[str]:
    return [step.command.removeprefix("schedq ") for step in with_steps(report).steps]


def test_figures_of_a_time_are_the_same_whatever_comes_after_it(paths: Paths) -> None:
    brief(paths)
    sampled(paths, 10, 0.35, 0.04)
    before = gathered(paths, "night").pools
    for after_s in (42, 70, 99):
        sampled(paths, after_s, 2.65, 0.63)
        charged(paths, 9.0, after_s, None)
    sampled(paths, -5, 7.0, 7.0)
    assert gathered(paths, "night").pools == before
    [pool] = before
    assert (pool.most_charged_gib, pool.most_used_gib) == (0.35, 0.04)
    assert pool.most == "at most 0.35 charged, 0.040 used when it was looked at"


def test_a_charge_between_two_looks_counts_and_so_does_one_that_began_before(paths: Paths) -> None:
    brief(paths)
    sampled(paths, 1, 2.0, 0.1)
    charged(paths, 2.0, -3600.0, None)
    charged(paths, 5.0, 3.0, 4.0)
    charged(paths, 1.0, 3.5, 50.0)
    charged(paths, 3.0, -7200.0, -1.0)
    [pool] = gathered(paths, "night").pools
    assert pool.most_charged_gib == 8.0
    assert [(round(each.at_s - BEGIN_S, 1), each.charged_gib) for each in pool.points] == [
        (0.0, 2.0), (1.0, 2.0), (3.0, 7.0), (3.5, 8.0), (4.0, 3.0),
    ]  # fmt: skip


def test_a_night_of_a_second_knows_what_was_charged_though_nobody_looked(paths: Paths) -> None:
    brief(paths, 0.4)
    charged(paths, 1.5, 0.0, 0.4)
    sampled(paths, 30, 0.0, 0.0)
    [pool] = gathered(paths, "night").pools
    assert pool.most == "at most 1.50 charged; nobody looked at what was used"


def test_a_small_use_of_a_large_machine_is_seen_in_the_picture_and_its_scale_is_said(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    brief(paths)
    charged(paths, 0.5, 0.0, 20.0)
    charged(paths, 0.5, 10.0, 20.0)
    sampled(paths, 5, 0.5, 0.2)
    text = "\n".join(report_page.page(gathered(paths, "night")))
    assert "the line below is 1.00 GiB high" in " ".join(text.split())
    assert "▄█" in text


def test_the_times_below_a_picture_are_never_the_same_twice(paths: Paths) -> None:
    for whole_s in (1.0, 2.5, 3.0, 4.0, 119.0, 1300.0):
        brief(paths, whole_s)
        told = axis(gathered(paths, "night")).count("<span>")
        named = axis(gathered(paths, "night")).split("<span>")[1:]
        assert len(set(named)) == told >= 2
        changed(paths, "DELETE FROM attempts")
        changed(paths, "DELETE FROM results")
        changed(paths, "DELETE FROM jobs")


@pytest.mark.parametrize("again", ["requeue", "resume"])
def test_the_retries_of_a_job_are_counted_on_after_it_was_opened_again(paths: Paths, again: str) -> None:
    submitted(paths, 1, batch="night")
    changed(
        paths, "UPDATE jobs SET state = 'failed', ended_at = submitted_at, outcome = 'crashed', tries = 3, attempt = 3"
    )
    assert gathered(paths, "night").retries == 2
    if again == "requeue":
        with Store(paths).write() as tx:
            operator.requeue(tx, 1, stamp(BEGIN_S + 1e5))
    else:
        assert intake.submit(paths, [row(batch="night")], resume=True) == [1]
    assert gathered(paths, "night").retries == 2
    changed(paths, "UPDATE jobs SET state = 'succeeded', tries = 2, attempt = 5")
    assert gathered(paths, "night").retries == 3


def bad(paths: Paths, kind: str, text: str, count: int = 1, **over: Any) -> None:
    """The first jobs of the night ended so."""
    state = over.pop("state", "failed")
    changed(paths, "UPDATE jobs SET state = ?, outcome = ?, outcome_text = ? WHERE id <= ?", state, kind, text, count)


def test_of_cases_that_failed_their_checks_each_reason_says_of_how_many_it_is_one(paths: Paths) -> None:
    made(paths, 4, providers=1, failing=0.0, cases=True)
    for job_id, place in ((1, "/iptm"), (2, "/plddt")):
        faults = json.dumps([{"place": place, "expected": "1", "found": "2"}])
        changed(paths, "UPDATE checks SET verdict = 'failed', faults = ? WHERE job_id = ?", faults, job_id)
    told = {step.command: step.why for step in with_steps(gathered(paths, "night")).steps}
    assert told["schedq result 1"] == "the reply that is not as expected"
    assert told["schedq result 2"] == "the reply that is not as expected: one of 2 that failed their check"


@pytest.mark.parametrize(
    ("place", "command"),
    [("files a.csv", "artifacts 1"), ("/iptm", "result 1"), ("the reply", "result 1")],
)
def test_where_only_a_file_is_missing_the_files_are_shown(paths: Paths, place: str, command: str) -> None:
    made(paths, 1, providers=1, failing=0.0, cases=True)
    faults = json.dumps([{"place": place, "expected": "a file", "found": "none"}])
    changed(paths, "UPDATE checks SET verdict = 'failed', faults = ?", faults)
    assert steps(gathered(paths, "night"))[0] == command


def test_what_was_pruned_is_offered_to_nobody(paths: Paths) -> None:
    made(paths, 3, providers=1, failing=0.0)
    changed(paths, "UPDATE jobs SET pruned_at = ended_at WHERE id = 1")
    assert steps(gathered(paths, "night"))[:3] == ["measure boltz --write", "table --batch night", "result 2"]
    changed(paths, "UPDATE jobs SET pruned_at = ended_at")
    assert not [each for each in steps(gathered(paths, "night")) if each.startswith(("table", "result"))]
    bad(paths, "crashed", "signal 9")
    assert steps(gathered(paths, "night"))[0] == "show 1"


def test_held_jobs_are_to_be_released_and_nobody_is_sent_to_wait_for_them(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "scheduler_runs", lambda paths: True)
    made(paths, 4, providers=1, failing=0.0, open_jobs=3)
    changed(paths, "DELETE FROM peaks")
    changed(paths, "UPDATE jobs SET state = 'held' WHERE id >= 3")
    assert steps(gathered(paths, "night")) == ["release --batch night", "why 2", "wait 2"]
    changed(paths, "UPDATE jobs SET state = 'held' WHERE id >= 2")
    found = steps(gathered(paths, "night"))
    assert found[:2] == ["release --batch night", "why 2"]
    assert not [each for each in found if each.startswith("wait")]
    assert steps(gathered(paths, None, BEGIN_S - 1))[0] == "release 2-4"


def test_what_took_longer_than_it_was_given_is_told_with_its_time_and_is_given_more(paths: Paths) -> None:
    made(paths, 3, providers=1, failing=0.0)
    bad(paths, "timed_out", OWN_TIME, 2, state="timed_out")
    changed(paths, "UPDATE jobs SET timeout_s = 60 * id")
    found = gathered(paths, "night")
    [(_, why)] = causes(found.providers)
    assert why.count == 2 and why.text == "it took longer than its --timeout of 1m 00s"
    assert steps(found)[1] == "requeue --batch night --outcome timed_out --timeout 4m"
    bad(paths, "timed_out", "no sign of life for request_timeout_s = 60 s", 2, state="timed_out")
    assert steps(gathered(paths, "night"))[1] == "requeue --batch night --outcome timed_out"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("chain A has no residues", "chain B has no residues", True),
        ("KeyError: 'H100A'", "KeyError: 'L27B'", True),
        ("1ubi has 3 models", "2lzm has 1 models", True),
        ("no file at /data/a.pdb", "no file at /data/x/b.pdb", True),
        ("out of memory", "out of patience", False),
        ("cannot read the header", "cannot read the trailer", False),
    ],
)
def test_reasons_that_differ_in_numbers_or_names_only_are_one(one: str, other: str, same: bool) -> None:
    assert (same_reason(one) == same_reason(other)) is same


def test_a_reason_with_the_jobs_own_name_in_it_is_one_with_that_of_another_job(paths: Paths) -> None:
    texts = [("error", "cannot fold {name}: its chain ends too early")]
    made(paths, 6, providers=2, failing=1.0, texts=texts, names=lambda n: ("lysozyme", "ubiquitin", "barnase")[n % 3])
    [(providers, why)] = causes(gathered(paths, "night").providers)
    assert why.count == 6 and len(providers) == 2


def test_a_subset_is_compared_with_the_newest_batch_that_has_its_cases(paths: Paths) -> None:
    made(paths, 9, batch="monday", providers=3, cases=True)
    made(paths, 4, batch="tuesday", providers=2, cases=True, begin_s=BEGIN_S + 86400)
    made(paths, 2, batch="wednesday", providers=1, cases=True, begin_s=BEGIN_S + 2 * 86400)
    made(paths, 12, batch="thursday", providers=4, cases=True, begin_s=BEGIN_S + 3 * 86400)
    assert gathering.earlier(paths, "wednesday") == "tuesday"
    assert gathering.earlier(paths, "tuesday") == "monday"
    assert gathering.earlier(paths, "thursday") == "wednesday"  # none has all of its cases
    assert gathering.earlier(paths, "monday") is None


def test_batches_called_alike_that_have_no_case_in_common_are_not_compared(paths: Paths) -> None:
    made(paths, 3, batch="validate-1", providers=1, cases=True)
    made(paths, 3, batch="validate-2", providers=1, cases=True, begin_s=BEGIN_S + 86400)
    changed(paths, "UPDATE jobs SET slug = 'other' WHERE id > 3")
    changed(paths, "UPDATE checks SET slug = 'other' WHERE job_id > 3")
    assert gathering.earlier(paths, "validate-2") is None


def test_stamps_in_what_others_wrote_are_told_in_this_machines_time() -> None:
    at = "2026-12-01T03:04:05Z"
    assert in_local_time(f"left alone until {at}: 3 crashes") == (
        f"left alone until {moment(1796094245.0, day=True)}: 3 crashes"
    )
    assert in_local_time("9999-99-99T99:99:99Z") == "9999-99-99T99:99:99Z"
