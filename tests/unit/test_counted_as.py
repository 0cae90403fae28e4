"""`--state refused` and `--state failed`: as the report counts them, whoever refused and whichever verb asks."""

from __future__ import annotations

import itertools

import pytest
from queues import submitted, writing

from scheduler.config import Paths
from scheduler.store import filters, history, peek

JOBS = (
    ("failed", "error"), ("failed", "refused"), ("refused", "refused"), ("cancelled", "cancelled"),
    ("succeeded", "ok"), ("timed_out", "timed_out"), ("queued", None),
)  # fmt: skip
"""By id, from 1."""


def became(state: str, outcome: str | None) -> str:
    return "refused" if outcome == "refused" else state


@pytest.fixture
def queue(paths: Paths) -> Paths:
    submitted(paths, len(JOBS), batch="night")
    with writing(paths) as db:
        for job_id, (state, outcome) in enumerate(JOBS, 1):
            ended = None if state == "queued" else "2026-11-29T12:00:00.000000Z"
            db.execute("UPDATE jobs SET state = ?, outcome = ?, ended_at = ? WHERE id = ?",
                       (state, outcome, ended, job_id))  # fmt: skip
    return paths


@pytest.mark.parametrize("more", [{}, {"batch": "night"}, {"slug": "boltz"}, {"since": "2000-01-01T00:00:00.000000Z"}])
def test_a_job_is_found_by_the_state_that_the_report_counts_it_as(queue: Paths, more: dict[str, str]) -> None:
    words = sorted({state for state, _ in JOBS})
    for count in (1, 2, 3):
        for asked in itertools.combinations(words, count):
            meant = [n for n, job in enumerate(JOBS, 1) if became(*job) in asked]
            given = {**more, "state": list(asked)}
            assert peek.ids(queue, given) == meant, asked
            assert sorted(row["id"] for part in history.parts(queue, given, 99) for row in part) == meant, asked
            assert sorted(row["id"] for part in history.parts(queue, given, None) for row in part) == meant, asked


def test_who_asks_for_an_outcome_besides_means_the_state_in_the_queue(queue: Paths) -> None:
    assert peek.ids(queue, {"state": ["failed"], "outcome": ["refused"]}) == [2]
    assert peek.ids(queue, {"state": ["refused"], "outcome": ["refused"]}) == [3]
    assert peek.ids(queue, {"outcome": ["refused"]}) == [2, 3]


def test_status_counts_them_and_where_there_are_too_many_says_that_nobody_did(
    queue: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = peek.status(queue)
    assert (found["counts"]["failed"], found["refused_by_worker"]) == (2, 1)
    monkeypatch.setattr(peek, "REFUSED_COUNTED", 1)
    assert peek.status(queue)["refused_by_worker"] is None


def test_only_filters_that_somebody_named_are_changed() -> None:
    assert filters.as_counted({"batch": "b"}) == {"batch": "b"}
    assert filters.as_counted({"state": ["failed", "refused"]}) == {"state": ["failed", "refused"]}
