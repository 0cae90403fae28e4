"""A batch that is submitted once more: only one that is there; and an input that was mended takes its job's place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from queues import asked, row, submitted, writing

from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Refused, SchedqError, UsageError
from scheduler.store import identity, intake

NEW = b'{"n": 2}'
OLD_SHA, NEW_SHA = (identity.digest(each)[:12] for each in (b'{"n": 1}', NEW))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


def end(paths: Paths, state: str, *ids: int) -> None:
    with writing(paths) as db:
        for job_id in ids:
            db.execute(
                "UPDATE jobs SET state = ?, ended_at = submitted_at, outcome = 'error', blocked = NULL, attempt = 1,"
                " tries = 1 WHERE id = ?",
                (state, job_id),
            )


def resume(paths: Paths, *rows: dict[str, Any]) -> tuple[list[int], list[str]]:
    """(ids, fates), foretold alike."""
    foretold, faults = intake.foretold(paths, [dict(each) for each in rows], resume=True)
    fates: list[str] = []
    ids = intake.submit(paths, [dict(each) for each in rows], resume=True, fates=fates)
    assert (foretold, faults) == (fates, [])
    return ids, fates


def state(paths: Paths, job_id: int, *columns: str) -> tuple[Any, ...]:
    return asked(paths, f"SELECT {', '.join(columns or ('state',))} FROM jobs WHERE id = ?", job_id)[0]


@pytest.mark.parametrize("there", [True, False])
def test_a_batch_that_is_not_there_is_not_begun_by_a_resume(paths: Paths, there: bool) -> None:
    if there:
        submitted(paths, batch="night")
    said = "did you mean night" if there else "the first time, leave out --resume"
    for ask in (intake.foretold, intake.submit):
        with pytest.raises(NoSuchJob, match=f"no job has the batch 'nigth'.*{said}") as caught:
            ask(paths, [row(batch="nigth", name=name) for name in "ab"], resume=True)
        assert not caught.value.faults and caught.value.exit_code == 4
    assert asked(paths, "SELECT count(*) FROM jobs") == [(int(there),)]


def test_one_row_whose_batch_is_not_there_is_named_and_nothing_goes_in(paths: Paths) -> None:
    submitted(paths, batch="night")
    with pytest.raises(
        NoSuchJob, match=r"2 of 3 jobs cannot(.|\n)*line 2, line 3: --resume(.|\n)*'nigth'; did you mean night"
    ):
        intake.submit(
            paths, [row(batch="night"), *(row(batch="nigth", where=f"line {n}") for n in (2, 3))], resume=True
        )
    assert asked(paths, "SELECT count(*) FROM jobs") == [(1,)]


@pytest.mark.parametrize("bad", ["failed", "cancelled", "timed_out", "refused"])
@pytest.mark.parametrize("key", [None, "n-ligand"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": NEW}, f"input (sha256 {OLD_SHA} -> {NEW_SHA})"),
        ({"params": {"seed": 2}}, "parameters"),
        ({"data": NEW, "params": {}}, f"input (sha256 {OLD_SHA} -> {NEW_SHA}), parameters"),
        ({"out": "/nowhere/{id}"}, "destination (none -> /nowhere/2)"),
    ],
)
def test_what_was_mended_takes_the_place_of_what_did_not_succeed(
    paths: Paths, bad: str, key: str | None, change: dict[str, Any], said: str
) -> None:
    intake.submit(paths, [row(batch="b", name="other"), row(batch="b", key=key)])
    end(paths, "succeeded", 1)
    end(paths, bad, 2)
    rows = [row(batch="b", name="other"), row(**{"batch": "b", "key": key, **change})]
    assert resume(paths, *rows) == ([1, 2], ["succeeded", "replaced"])
    with_it = row(**change)
    assert state(paths, 2, "state", "input", "params", "key", "tries", "attempt", "outcome", "ended_at") == (
        "queued", with_it["data"], json.dumps(with_it["params"], separators=(",", ":")), key, 0, 1, None, None,
    )  # fmt: skip
    assert asked(paths, "SELECT text, evidence FROM events WHERE job_id = 2 ORDER BY id") == [
        (f"was {bad}; its batch was submitted again", '{"tries": 1}'),
        (f"replaced: {said}; attempts up to 1 had those", None),
    ]
    assert asked(paths, "SELECT jobs, open, succeeded FROM batches") == [(2, 1, 1)]
    assert asked(paths, "SELECT state, n FROM depth ORDER BY state") == [("queued", 1), ("succeeded", 1)]
    assert resume(paths, *rows)[1] == ["succeeded", "unended"]
    end(paths, "succeeded", 2)
    assert asked(paths, "SELECT jobs, open, succeeded FROM batches") == [(2, 0, 2)]
    assert resume(paths, *rows)[1] == ["succeeded", "succeeded"]


def test_what_asks_for_the_same_is_found_first_and_names_only_after_that(paths: Paths) -> None:
    intake.submit(paths, [row(batch="b", data=b"1"), row(batch="b", data=b"2")])
    end(paths, "failed", 1, 2)
    assert resume(paths, row(batch="b", data=b"3"), row(batch="b", data=b"1")) == ([2, 1], ["replaced", "reopened"])


@pytest.mark.parametrize(("jobs", "rows"), [(2, 1), (1, 2), (2, 2)])
def test_where_more_than_one_could_be_meant_all_are_added_and_that_is_said(paths: Paths, jobs: int, rows: int) -> None:
    intake.submit(paths, [row(batch="b", data=b"%d" % n) for n in range(jobs)])
    end(paths, "failed", *range(1, jobs + 1))
    again = [row(batch="b", data=b"new %d" % n) for n in range(rows)]
    for ask in (intake.foretold, intake.submit):
        counts: dict[str, int] = {}
        ask(paths, again, resume=True, counts=counts)
        assert counts == {"doomed": 0, "unclear": rows}
    assert asked(paths, "SELECT count(*) FROM jobs") == [(jobs + rows,)]
    assert {each for (each,) in asked(paths, f"SELECT state FROM jobs WHERE id <= {jobs}")} == {"failed"}


def test_a_key_is_whose_job_it_is_whatever_has_its_name(paths: Paths) -> None:
    intake.submit(paths, [row(batch="b", key="k1"), row(batch="b", key="k2"), row(batch="c", key="k3")])
    end(paths, "failed", 1, 2, 3)
    assert resume(paths, row(batch="b", key="k2", data=NEW, name="called anew")) == ([2], ["replaced"])
    assert state(paths, 2, "name", "key") == ("called anew", "k2")
    assert resume(paths, row(batch="b", key="k9", data=NEW))[1] == ["added"]
    for wrong in (
        {"key": "k3", "data": NEW}, {"key": "k1", "slug": "esm"}, {"key": "k1", "variant": "big"},
    ):  # fmt: skip
        with pytest.raises(Refused, match=r"the key 'k\d' belongs to job \d, which asks boltz for something else"):
            intake.submit(paths, [row(**{"batch": "b", **wrong})], resume=True)
    end(paths, "succeeded", 1)
    with pytest.raises(Refused, match="the key 'k1' belongs to job 1, which asks boltz for something else"):
        intake.submit(paths, [row(batch="b", key="k1", data=NEW)], resume=True)
    end(paths, "failed", 1)
    with pytest.raises(Refused, match="the key 'k1' belongs to another row of this call"):
        intake.submit(paths, [row(batch="b", key="k1", data=data) for data in (NEW, b"3")], resume=True)
    assert resume(paths, *[row(batch="b", key="k1", data=NEW)] * 2) == ([1, 1], ["replaced", "known"])


def test_a_row_without_success_and_without_a_key_gets_that_of_the_row(paths: Paths) -> None:
    submitted(paths, batch="b")
    end(paths, "failed", 1)
    assert resume(paths, row(batch="b", key="k", data=NEW)) == ([1], ["replaced"])
    assert resume(paths, row(batch="b", key="k", data=NEW)) == ([1], ["unended"])


def test_what_a_row_says_counts_and_what_it_does_not_say_stays(paths: Paths, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    intake.submit(paths, [row(batch="b", out=out, key="k", beside={"labels": ["x"]}, priority=1)])
    end(paths, "failed", 1)
    more = {"priority": 7, "timeout_s": 9.0, "max_attempts": 4, "on_parent": "hold", "retry_on": "crashed", "size": 3.0}
    assert resume(paths, row(batch="b", data=NEW, beside={"labels": ["x", "y"]}, **more))[1] == ["replaced"]
    assert state(paths, 1, *more, "out", "key") == (*more.values(), out, "k")
    assert asked(paths, "SELECT label FROM labels ORDER BY label") == [("x",), ("y",)]
    end(paths, "failed", 1)
    assert resume(paths, row(batch="b", data=b"3", state="held"))[1] == ["replaced"]
    assert state(paths, 1, "state", "blocked") == ("held", None)
    end(paths, "failed", 1)
    begin = "2999-01-01T00:00:00.000000Z"
    assert resume(paths, row(batch="b", data=b"4", not_before_at=begin, blocked="begin"))[1] == ["replaced"]
    assert state(paths, 1, "state", "blocked", "not_before_at") == ("queued", "begin", begin)


def test_nothing_is_replaced_if_one_row_of_the_call_is_refused(paths: Paths, tmp_path: Path) -> None:
    submitted(paths, batch="b")
    end(paths, "failed", 1)
    work = Path(paths.job(1), "work")
    work.mkdir(parents=True)
    before = asked(paths, "SELECT * FROM jobs"), asked(paths, "SELECT count(*) FROM events")
    (tmp_path / "there").touch()
    for bad in (row(batch="b", name="x", out=str(tmp_path / "there")), row(batch=None)):
        with pytest.raises(SchedqError):
            intake.submit(paths, [row(batch="b", data=NEW), bad], resume=True)
        assert (asked(paths, "SELECT * FROM jobs"), asked(paths, "SELECT count(*) FROM events")) == before
        assert work.is_dir()


def test_what_a_job_kept_of_its_request_before_is_set_aside(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(paths, batch="b")
    end(paths, "failed", 1)
    work = Path(paths.job(1), "work")
    work.mkdir(parents=True)
    (work / "half.npz").touch()
    with monkeypatch.context() as patched:
        patched.setattr(intake, "crashpoint", lambda name: 1 / 0 if name == "intake.inserted" else None)
        with pytest.raises(ZeroDivisionError):
            intake.submit(paths, [row(batch="b", data=NEW)], resume=True)
    assert os.listdir(paths.job(1)) == ["work"]
    assert resume(paths, row(batch="b", data=NEW))[1] == ["replaced"]
    assert os.listdir(paths.job(1)) == ["work.1"] and os.listdir(f"{work}.1") == ["half.npz"]


def test_a_destination_is_claimed_anew_only_where_it_is_another(paths: Paths, tmp_path: Path) -> None:
    outs = [str(tmp_path / name) for name in "ab"]
    submitted(paths, batch="b", out=outs[0])
    end(paths, "failed", 1)
    os.mkdir(outs[0])  # what it left there keeps nobody out: its own place
    assert resume(paths, row(batch="b", data=NEW, out=outs[0])) == ([1], ["replaced"])
    end(paths, "failed", 1)
    os.mkdir(outs[1])
    with pytest.raises(Refused, match=f"the destination {outs[1]} exists"):
        intake.submit(paths, [row(batch="b", data=b"3", out=outs[1])], resume=True)
    assert resume(paths, row(batch="b", data=b"3", out=f"{outs[0]}/deep")) == ([1], ["replaced"])
    assert state(paths, 1, "out") == (f"{outs[0]}/deep",)


def test_a_file_that_an_input_names_counts_by_what_is_in_it(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "a.pdb"

    def named() -> dict[str, Any]:
        data = file.read_bytes()
        entry = {"path": str(file), "sha256": identity.digest(data), "bytes": len(data), "mtime_ns": 1}
        return row(batch="b", files={"/pdb": entry})

    file.write_text("ATOM 1")
    intake.submit(paths, [named()])
    end(paths, "failed", 1)
    assert resume(paths, named()) == ([1], ["reopened"])
    end(paths, "failed", 1)
    file.write_text("ATOM 2")
    assert resume(paths, named()) == ([1], ["replaced"])
    assert identity.digest(b"ATOM 2") in state(paths, 1, "files")[0]
    assert os.path.exists(paths.content_of(identity.digest(b"ATOM 2")))


def test_an_input_too_large_for_a_row_is_replaced_by_a_small_one_and_back(paths: Paths) -> None:
    large = b"1" * 300_000
    submitted(paths, batch="b", data=large)
    for data, kept in ((NEW, NEW), (large, None)):
        end(paths, "failed", 1)
        assert resume(paths, row(batch="b", data=data)) == ([1], ["replaced"])
        assert state(paths, 1, "input", "input_bytes", "input_sha256") == (kept, len(data), identity.digest(data))
    assert os.path.exists(paths.content_of(identity.digest(large)))


def test_a_validation_case_keeps_its_request(paths: Paths) -> None:
    submitted(paths, batch="b", beside={"check": {"case": "c", "expect": []}})
    end(paths, "failed", 1)
    assert resume(paths, row(batch="b", data=NEW)) == ([2], ["added"])


# What it comes after, and what comes after it


def after(*texts: str, **over: Any) -> dict[str, Any]:
    return row(**{"batch": "b", "name": "child", **over, "beside": {"after": list(texts), **over.pop("beside", {})}})


def waits(paths: Paths, job_id: int) -> list[tuple[Any, ...]]:
    question = "SELECT g.parent_id, g.batch, g.upto_id, g.open, g.bad FROM waits w JOIN gates g ON g.id = w.gate_id"
    return asked(paths, f"{question} WHERE w.job_id = ? ORDER BY g.id", job_id)


def test_who_waits_for_a_job_waits_for_it_with_its_new_request(paths: Paths) -> None:
    submitted(paths, batch="a")
    intake.submit(paths, [after("1"), after("a:any", name="any")])
    end(paths, "failed", 1, 2)
    assert resume(paths, row(batch="a", data=NEW), after("1", data=NEW)) == ([1, 2], ["replaced", "replaced"])
    assert waits(paths, 2) == [(1, None, None, 1, 0)] and waits(paths, 3) == [(None, "a", 1, 1, 0)]
    assert state(paths, 2, "state", "blocked") == ("queued", "after")


def test_a_job_comes_after_what_its_row_says_or_after_what_it_did(paths: Paths) -> None:
    submitted(paths, 2, batch="a")
    intake.submit(paths, [after("1")])
    intake.submit(paths, [after("b", name="last of all")])
    end(paths, "succeeded", 1)
    for again, found in ((row(batch="b", name="child", data=NEW), 1), (after("2", data=b"3"), 2)):
        end(paths, "failed", 3)
        assert resume(paths, again) == ([3], ["replaced"])
        assert [each[0] for each in waits(paths, 3)] == [found]
    assert state(paths, 3, "blocked") == ("after",)
    end(paths, "failed", 4)
    assert resume(paths, after("b", name="last of all", data=NEW)) == ([4], ["replaced"])
    assert waits(paths, 4) == [(None, "b", 3, 1, 0)]  # the batch as it was, and not itself


def test_a_job_that_would_come_after_what_waits_for_it_is_refused(paths: Paths) -> None:
    submitted(paths, batch="b", name="child")
    intake.submit(paths, [after("1:any", name="x", batch="x")])
    intake.submit(paths, [after("2", name="y", batch="y")])
    end(paths, "failed", 1)
    for word in ("2", "3", "1", "y", "b"):
        with pytest.raises(UsageError, match="waits for itself"):
            intake.submit(paths, [after(word, data=NEW)], resume=True)
    two = [after("2", data=NEW), after("1", name="x", batch="x", data=NEW)]
    end(paths, "failed", 2)
    with pytest.raises(UsageError, match="waits for itself: child -> x -> child"):
        intake.submit(paths, two, resume=True)


def test_a_mended_job_whose_parent_stays_bad_would_fail_again_and_is_refused(paths: Paths) -> None:
    submitted(paths, batch="a")
    intake.submit(paths, [after("1")])
    end(paths, "failed", 1, 2)
    for again in (after("1", data=NEW), row(batch="b", name="child", data=NEW)):
        for ask in (intake.submit, intake.foretold):
            try:
                faults = ask(paths, [again], resume=True)[1]  # type: ignore[operator]
                assert "needs it to succeed" in str(faults[0][2])
            except Refused as error:
                assert "needs it to succeed" in str(error)
    assert state(paths, 2) == ("failed",)
