"""What an operator changes of a job: in which states, all of it or nothing, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from queues import AT, asked, submitted

from scheduler.config import Paths
from scheduler.errors import Fenced, NoSuchJob, UsageError
from scheduler.model.states import JOB
from scheduler.store import events, operator, peek, queue, schema
from scheduler.store.engine import Store

STATES = tuple(state for state in JOB if state != "(insert)")
NEW: dict[str, Any] = {
    "priority": 5, "revision": "r2", "params": '{"seed":2}', "size": 7.5, "timeout_s": 60.0, "max_attempts": 9,
    "on_lost": "fail", "retry_on": "error",
}  # fmt: skip
DECIDED = {
    "priority": ("admitted", "running"), "revision": ("admitted", "running"), "params": ("admitted", "running"),
    "size": ("admitted", "running"), "timeout_s": ("running",), "max_attempts": (), "on_lost": (), "retry_on": (),
}  # fmt: skip
"""Where it is too late for a change, beside the states in which a job has ended."""


def put(tx: Any, state: str, job_id: int = 1, **columns: Any) -> None:
    terms = "".join(f", {name} = ?" for name in columns)
    tx.exec_driver_sql(f"UPDATE jobs SET state = ?{terms} WHERE id = ?", (state, *columns.values(), job_id))


@pytest.mark.parametrize("state", STATES)
def test_a_column_changes_until_what_it_decides_is_decided(paths: Paths, store: Store, state: str) -> None:
    ids = submitted(paths, len(NEW))
    with store.write() as tx:
        for job_id, (column, value) in zip(ids, NEW.items(), strict=True):
            put(tx, state, job_id)
            before = operator.row(tx, job_id)
            if state in schema.JOB_STATES[4:] or state in DECIDED[column]:
                with pytest.raises(UsageError, match=f"job {job_id} is {state}: ") as caught:
                    operator.update(tx, job_id, AT, {column: value})
                assert ("has ended" in str(caught.value)) is (state in schema.JOB_STATES[4:])
                assert operator.row(tx, job_id) == before and events.story(tx, job_id=job_id) == ""
            else:
                assert operator.update(tx, job_id, AT, {column: value})
                assert operator.row(tx, job_id) == before._replace(**{column: value})


def test_a_change_is_all_or_nothing_and_told_in_words(paths: Paths, store: Store) -> None:
    submitted(paths, 2, timeout_s=90.0)
    with store.write() as tx:
        put(tx, "running", 1)
        with pytest.raises(UsageError, match="--priority"):
            operator.update(tx, 1, AT, {"max_attempts": 3, "priority": 2})
        assert operator.row(tx, 1).max_attempts is None
        columns = {"priority": -2, "timeout_s": 60.0, "max_attempts": 3, "retry_on": "", "on_lost": "hold"}
        told = operator.update(tx, 2, AT, columns)
        assert told == (
            "--priority 0 -> -2, --timeout 90 s -> 60 s, --max-attempts the provider's -> 3,"
            " --retry-on the provider's -> none, --on-lost requeue -> hold"
        )
        assert operator.update(tx, 2, AT, columns) == ""
        with pytest.raises(NoSuchJob, match="no job 9"):
            operator.update(tx, 9, AT, columns)
    [line] = [each for each in peek.job(paths, 2)["story"] if each["event"] == "update"]
    assert line["text"] == told
    assert asked(paths, "SELECT priority, n FROM depth WHERE n > 0 ORDER BY 1") == [(-2, 1), (0, 1)]


def test_a_job_that_waited_for_its_revision_is_in_the_line_again_and_one_that_waits_for_its_time_is_not(
    paths: Paths, store: Store
) -> None:
    submitted(paths, 2)
    with store.write() as tx:
        put(tx, "queued", 1, blocked="revision")
        put(tx, "queued", 2, blocked="backoff", not_before_at=AT)
        for job_id in (1, 2):
            operator.update(tx, job_id, AT, {"revision": "r2"})
        assert [(head.id, head.revision) for head in queue.heads(tx)] == [(1, "r2")]
        assert operator.row(tx, 2).blocked == "backoff"


def test_a_change_of_what_another_operator_moved_meanwhile_is_fenced(
    paths: Paths, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(paths)
    with store.write() as tx:
        seen = operator.row(tx, 1)
        operator.hold(tx, 1, AT)
        monkeypatch.setattr(operator, "row", lambda *_: seen)
        with pytest.raises(Fenced, match="no longer queued"):
            operator.update(tx, 1, AT, {"priority": 1})
