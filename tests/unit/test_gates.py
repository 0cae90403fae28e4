"""Jobs that come after others, as they go in: which gates they wait at, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from queues import asked, row, submitted, writing

from scheduler.after import words
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Refused, SchedqError, UsageError
from scheduler.store import intake
from scheduler.store.gates import BAD_OF


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


def after(*texts: str, **over: Any) -> dict[str, Any]:
    return row(beside={"after": list(texts)}, **over)


def gates(paths: Paths) -> list[tuple[Any, ...]]:
    return asked(paths, "SELECT parent_id, batch, upto_id, need, open, bad, changed FROM gates ORDER BY id")


def blocked(paths: Paths, job_id: int) -> Any:
    return asked(paths, "SELECT blocked FROM jobs WHERE id = ?", job_id)[0][0]


def end(paths: Paths, state: str, *ids: int) -> None:
    with writing(paths) as db:
        for job_id in ids:
            db.execute(
                "UPDATE jobs SET state = ?, ended_at = submitted_at, outcome = ?, outcome_text = 'boom', blocked = NULL"
                " WHERE id = ?",
                (state, "ok" if state == "succeeded" else "error", job_id),
            )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", [("id", 7, "ok")]),
        ("7:any", [("id", 7, "any")]),
        ("3-5,9:ok", [("id", 3, "ok"), ("id", 4, "ok"), ("id", 5, "ok"), ("id", 9, "ok")]),
        ("last", [("last", 0, "ok")]),
        ("last:any", [("last", 0, "any")]),
        ("night", [("name", 0, "ok")]),
        ("night:2", [("name", 0, "ok")]),
        ("batch:2026:any", [("batch", 0, "any")]),
        ("batch:last", [("batch", 0, "ok")]),
    ],
)
def test_a_word_of_digits_is_an_id_and_every_other_a_batch_or_a_name(text: str, found: list[Any]) -> None:
    assert [(each.kind, each.id, each.need) for each in words(text)] == found


@pytest.mark.parametrize("text", ["", ":any", "batch:", "9-3", "3-", "1-99999", "-"])
def test_a_word_that_names_nothing_is_refused(text: str) -> None:
    if text == "-":
        assert words(text)[0].kind == "name"
        return
    with pytest.raises(UsageError, match="--after"):
        words(text)


def test_a_job_after_a_job_is_blocked_until_that_one_ended(paths: Paths) -> None:
    (first,) = submitted(paths)
    (second,) = intake.submit(paths, [after(str(first))])
    assert gates(paths) == [(first, None, None, "ok", 1, 0, 0)] and blocked(paths, second) == "after"
    end(paths, "succeeded", first)
    assert gates(paths) == [(first, None, None, "ok", 0, 0, 1)]


def test_a_job_after_one_that_has_succeeded_waits_for_nothing(paths: Paths) -> None:
    (first,) = submitted(paths)
    end(paths, "succeeded", first)
    (second,) = intake.submit(paths, [after("last")])
    assert blocked(paths, second) is None
    assert asked(paths, "SELECT job_id FROM waits") == [(second,)] and gates(paths)[0][6] == 0


def test_who_waits_for_the_same_shares_one_gate(paths: Paths) -> None:
    submitted(paths, 3, batch="night")
    intake.submit(paths, [after("night"), after("night")])
    submitted(paths)
    intake.submit(paths, [after("night"), after("night:any")])
    assert gates(paths) == [(None, "night", 3, "ok", 3, 0, 0), (None, "night", 3, "any", 3, 0, 0)]
    end(paths, "succeeded", 1)
    end(paths, "failed", 2)
    assert gates(paths) == [(None, "night", 3, "ok", 1, 1, 1), (None, "night", 3, "any", 1, 1, 0)]
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'queued', ended_at = NULL WHERE id = 2")
    assert [each[4:6] for each in gates(paths)] == [(2, 0), (2, 0)]


def test_a_job_of_a_batch_may_come_after_the_batch_as_it_was(paths: Paths) -> None:
    submitted(paths, 2, batch="night")
    (third,) = intake.submit(paths, [after("night", batch="night")])
    assert gates(paths) == [(None, "night", 2, "ok", 2, 0, 0)]
    (fourth,) = intake.submit(paths, [after("night", batch="night")])
    assert gates(paths)[1] == (None, "night", third, "ok", 3, 0, 0) and blocked(paths, fourth) == "after"


def test_rows_of_one_call_may_name_one_another_by_key_or_name_in_any_order(paths: Paths) -> None:
    rows = [
        after("fold", name="design"), row(key="fold", name="f"), after("design", "fold:any", name="count"),
    ]  # fmt: skip
    assert intake.submit(paths, rows) == [1, 2, 3]
    assert asked(paths, "SELECT w.job_id, g.parent_id, g.need FROM waits w JOIN gates g ON g.id = w.gate_id") == [
        (1, 2, "ok"), (3, 1, "ok"), (3, 2, "any"),
    ]  # fmt: skip
    assert [blocked(paths, each) for each in (1, 2, 3)] == ["after", None, "after"]


def test_a_key_names_a_job_of_an_earlier_call_and_a_row_that_is_known_already(paths: Paths) -> None:
    submitted(paths, key="fold")
    assert intake.submit(paths, [after("fold")]) == [2]
    assert intake.submit(paths, [row(key="fold"), after("fold")]) == [1, 3]
    assert [each[0] for each in gates(paths)] == [1]


def test_a_word_that_means_a_batch_and_another_row_is_refused_until_it_says_which(paths: Paths) -> None:
    submitted(paths, batch="night")
    rows = [after("night", name="a"), row(name="night")]
    with pytest.raises(UsageError, match="write batch:night for the batch"):
        intake.submit(paths, rows)
    intake.submit(paths, [after("batch:night", name="a"), after("night", name="night")])
    assert [each[:2] for each in gates(paths)] == [(None, "night")]


def test_a_number_that_is_a_row_s_key_means_that_row_and_never_a_stranger(paths: Paths) -> None:
    submitted(paths)
    rows = [row(key="1"), after("1", key="2")]
    with pytest.raises(UsageError, match=r"1 is a job of this queue, and the key of another row.*write job:1"):
        intake.submit(paths, rows)
    intake.submit(paths, [row(key="1"), after("job:1", key="2")])
    intake.submit(paths, [row(key="77"), after("77", key="78")])
    assert [each[0] for each in gates(paths)] == [1, 4]


REFUSED: list[tuple[list[dict[str, Any]], type[SchedqError], str]] = [
    ([after("77")], NoSuchJob, "there is no job 77 in this queue"),
    ([after("4")], NoSuchJob, "there is no job 4 in this queue"),
    ([after("nihgt")], NoSuchJob, "no job has the batch 'nihgt' yet; did you mean night?"),
    ([after("fold", batch="fold")], NoSuchJob, "and those of this call are not meant"),
    ([after("2")], Refused, r"job 2 \(boltz ligand\) failed: error: boom, and this needs it to succeed: schedq"),
    ([after("night")], Refused, "1 of 3 jobs of batch night did not succeed, the first is job 2"),
    ([after("b", key="a"), after("a", key="b")], UsageError, "waits for itself: a -> b -> a"),
    ([after("b", key="a"), after("c", key="b"), after("a", key="c")], UsageError, "waits for itself: a -> b -> c -> a"),
    ([after("b", key="a"), after("a", "77", key="b")], UsageError, r"2 of 3 (.|\n)*waits for itself(.|\n)*no job 77"),
    ([after("me", name="me")], UsageError, "waits for itself: 'me' is its own name"),
    ([after("x"), row(name="x"), row(name="x")], UsageError, "'x' is the name of 2 other rows of this call"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "error", "text"), REFUSED, ids=[each[2][:40] for each in REFUSED])
def test_what_can_never_start_is_refused_and_nothing_is_queued(
    paths: Paths, rows: list[dict[str, Any]], error: type[SchedqError], text: str
) -> None:
    submitted(paths, 3, batch="night")
    end(paths, "failed", 2)
    with pytest.raises(error, match=text):
        intake.submit(paths, [row(), *rows])
    assert asked(paths, "SELECT count(*) FROM jobs") == [(3,)]
    assert gates(paths) == [] and asked(paths, "SELECT * FROM waits") == []


def test_a_parent_that_failed_is_no_reason_for_any_and_for_hold(paths: Paths) -> None:
    submitted(paths)
    end(paths, "failed", 1)
    intake.submit(paths, [after("1:any"), after("1", on_parent="hold")])
    assert blocked(paths, 2) is None and blocked(paths, 3) == "after"
    assert [each[3:] for each in gates(paths)] == [("any", 0, 1, 0), ("ok", 0, 1, 1)]


def test_every_bad_row_is_named(paths: Paths) -> None:
    submitted(paths)
    rows = [row(), after("77", name="b", where="line 2"), after("88", name="c", where="line 3")]
    with pytest.raises(NoSuchJob, match="2 of 3 jobs cannot be queued") as caught:
        intake.submit(paths, rows)
    assert "line 2: --after 77" in str(caught.value) and "line 3: --after 88" in str(caught.value)
    assert [index for index, _where, _error in caught.value.faults] == [1, 2]


def test_a_dry_run_says_the_same_and_writes_nothing(paths: Paths) -> None:
    submitted(paths)
    fates, faults = intake.foretold(paths, [after("1"), after("77")])
    assert fates == ["added", "added"] and [str(each[2])[:30] for each in faults] == ["--after 77: there is no job 77"]
    assert gates(paths) == []


def test_no_statement_over_gates_walks_through_jobs_or_gates(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many jobs and gates there are, what is looked at is who waits at one, or what a call names (P12)."""
    from contextlib import suppress

    from test_scans import noted

    from scheduler.store import passing, peek
    from scheduler.store.engine import Store

    at = "2027-01-15T08:00:00.000000Z"
    submitted(paths, 3, batch="night", key=None)
    with noted(monkeypatch) as seen:
        intake.submit(paths, [after("night"), after("2:any", "last"), after("1", on_parent="hold")])
        with suppress(SchedqError):
            intake.submit(paths, [after("nihgt")])
        end(paths, "failed", 1)
        end(paths, "succeeded", 2, 3)
        store = Store(paths)
        with store.write() as tx:
            passing.look_again(tx)
            for gate in passing.changed(tx, 100):
                passing.broken(tx, gate, at, 0, 10), passing.let_through(tx, gate.id, at, 0, 10)
                passing.to_make(tx, gate.id, 0, 10), passing.settle(tx, gate.id)
            passing.blocked_again(tx, 5), passing.look_at(tx, 5), passing.untie(tx, 6, at)
            passing.pin(tx, 5, {}, None, None, at), passing.refuse(tx, 5, "refused", "x", at)
        store.close()
        for job_id in range(1, 7):
            peek.job(paths, job_id)
        peek.status(paths)
    with writing(paths) as db:
        for statement in sorted(seen):
            if statement.lstrip()[:6] in ("SELECT", "INSERT", "UPDATE", "DELETE") and "gates" in statement:
                plan = [step for *_, step in db.execute("EXPLAIN QUERY PLAN " + statement).fetchall()]
                few = ("gates_changed", "drafts_open", "json_each", "CONSTANT ROW", "CO-ROUTINE")
                scans = [each for each in plan if each.startswith("SCAN") and not any(word in each for word in few)]
                assert not scans, statement


def test_a_batch_goes_on_with_a_job_only_if_its_parent_does_too(paths: Paths) -> None:
    """Opened again it would only fail again, each night; unless a row of the same call opens its parent."""
    submitted(paths, 2, batch="a")
    child = after("a", batch="b", name="child", key=None)
    intake.submit(paths, [child])
    end(paths, "failed", 2, 3)
    text = (
        "job 3 comes after a job that did not succeed, and would fail again: job 2 .*; schedq requeue --batch a first"
    )
    with pytest.raises(Refused, match=text):
        intake.submit(paths, [child], resume=True)
    [(index, _where, error)] = intake.foretold(paths, [child], resume=True)[1]
    assert index == 0 and re.match(text, str(error))
    assert asked(paths, "SELECT state FROM jobs WHERE id = 3") == [("failed",)]
    both = [child, row(batch="a"), row(batch="a")]
    assert intake.foretold(paths, both, resume=True) == (["reopened", "unended", "reopened"], [])
    assert intake.submit(paths, both, resume=True) == [3, 1, 2]


def test_a_batch_has_its_first_bad_job_found_at_once(paths: Paths) -> None:
    """However many of it succeeded before (P12)."""
    from scheduler.store import passing

    submitted(paths)
    with writing(paths) as db:
        for statement in (passing.BAD_ONE.replace(":batch", "?").replace(":upto", "?"), BAD_OF):
            values = ("a", 1)[: statement.count("?")]
            plan = [step for *_, step in db.execute("EXPLAIN QUERY PLAN " + statement, values).fetchall()]
            assert len(plan) == 1 and "jobs_bad" in plan[0]


@pytest.mark.parametrize("word", ["1", "1:any", "1-2", "last", "k"])
def test_a_word_that_means_a_job_and_a_batch_is_refused_until_it_says_which(paths: Paths, word: str) -> None:
    name = word.removesuffix(":any")
    submitted(paths, 2, batch=name)
    submitted(paths, key="k")
    said = rf"--after {name} (.|\n)*batch:{name} for the batch"
    with pytest.raises(UsageError, match=said):
        intake.submit(paths, [after(word)])
    assert re.match(said, str(intake.foretold(paths, [after(word)])[1][0][2]))
    intake.submit(paths, [after(f"batch:{name}"), after({"k": "job:3", "last": "3"}.get(name, "job:1"))])
    assert [each[:2] for each in gates(paths)] == [(None, name), (1 if name[0] == "1" else 3, None)]


def test_an_id_that_is_the_key_of_another_job_is_refused_until_it_says_which(paths: Paths) -> None:
    submitted(paths)
    submitted(paths, key="1")
    with pytest.raises(
        UsageError, match=r"--after 1 is a job's id, and job 2 has '1' as its key; write job:1 or job:2"
    ):
        intake.submit(paths, [after("1")])
    assert intake.submit(paths, [after("job:1"), after("2")]) == [3, 4]


def test_an_id_that_there_is_none_of_may_be_a_batch_that_has_to_be_said(paths: Paths) -> None:
    submitted(paths, batch="77")
    with pytest.raises(NoSuchJob, match="there is no job 77 in this queue; batch:77 is the batch"):
        intake.submit(paths, [after("77")])


def own(*texts: str, **over: Any) -> dict[str, Any]:
    """A row that names what it alone comes after."""
    return row(beside={"after": list(texts), "own": list(texts)}, **over)


def test_a_row_that_names_its_own_parent_is_queued_and_fails_with_that(paths: Paths) -> None:
    """As if the parent had ended a moment later; what the call names for all of its rows is refused as ever."""
    submitted(paths, 3, batch="night")
    end(paths, "failed", 2)
    counts: dict[str, int] = {}
    rows = [own("1"), own("2"), own("night"), own("2:any"), own("2", on_parent="hold")]
    assert intake.foretold(paths, rows, counts=counts) == (["added"] * 5, [])
    assert counts == {"doomed": 2, "unclear": 0}
    assert intake.submit(paths, rows, counts=counts) == [4, 5, 6, 7, 8] and counts["doomed"] == 2
    assert [blocked(paths, each) for each in (4, 5, 6, 7, 8)] == ["after", "after", "after", None, "after"]
    assert [each for each in gates(paths) if each[5] and each[3] == "ok"] == [
        (2, None, None, "ok", 0, 1, 1), (None, "night", 3, "ok", 2, 1, 1),
    ]  # fmt: skip
    mixed = row(beside={"after": ["2", "1"], "own": ["1"]})
    with pytest.raises(Refused, match=r"job 2 .* failed: error: boom, and this needs it to succeed"):
        intake.submit(paths, [mixed])


def test_a_resume_lets_a_child_of_its_own_parent_fail_once_more(paths: Paths) -> None:
    submitted(paths)
    child = own("1", batch="b", name="child")
    intake.submit(paths, [child])
    end(paths, "failed", 1, 2)
    for fates in (["reopened"], ["replaced"]):
        counts: dict[str, int] = {}
        assert intake.foretold(paths, [child], resume=True) == (fates, [])
        assert intake.submit(paths, [child], resume=True, counts=counts) == [2] and counts["doomed"] == 1
        assert blocked(paths, 2) == "after" and gates(paths)[0][6] == 1
        end(paths, "failed", 2)
        child = {**child, "data": b"new"}
