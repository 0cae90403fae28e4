"""What an operator may do to a job: hold it, let it go, open it again; by the table of states."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.errors import NoSuchJob, Refused, UsageError
from scheduler.model.outcome import Outcome
from scheduler.model.states import JOB, SAME, SAYS, advance
from scheduler.store import events
from scheduler.store.ending import close_attempt, move


def hold(tx: Connection, job_id: int, at: str) -> str:
    """Set a waiting or admitted job aside until `release`; its state then. UsageError where that cannot be."""
    job, state = _asked(tx, job_id, "hold")
    if state != job.state:
        if job.state == "admitted":
            close_attempt(tx, job, Outcome("interrupted", "held by an operator"), None, at)
        move(tx, job, state, blocked=None, head_since_at=None, worker_id=None, progress=None)
        events.record(tx, at, job_id=job_id, event="hold")
    return state


def release(tx: Connection, job_id: int, at: str) -> str:
    """Put a held job back into the line, at its old place; its state then. UsageError if it is not held."""
    job, state = _asked(tx, job_id, "release")
    if state != job.state:
        begin = job.not_before_at is not None and job.not_before_at > at
        move(tx, job, state, blocked="begin" if begin else None, not_before_at=job.not_before_at if begin else None)
        events.record(tx, at, job_id=job_id, event="release")
    return state


def requeue(tx: Connection, job_id: int, at: str) -> str:
    """Open a failed, cancelled, timed out or refused job again under its id; its state then.

    Its tries count anew, its attempts go on. UsageError for any other state; Refused if another job has its
    destination by now.
    """
    job, state = _asked(tx, job_id, "requeue")
    if job.out is not None:
        other = tx.exec_driver_sql(
            "SELECT id, state FROM jobs WHERE out = :out AND out IS NOT NULL AND id <> :id"
            " AND state IN ('queued', 'held', 'admitted', 'running', 'succeeded')",
            {"out": job.out, "id": job_id},
        ).first()
        if other is not None:
            raise Refused(
                f"job {other.id} ({other.state}) has the destination {job.out} of job {job_id} now;"
                " submit it again with another --out"
            )
    move(
        tx, job, state, tries=0, laters=0, deaths=0, worker_id=None, started_at=None, ended_at=None,
        cancel_requested_at=None, outcome=None, outcome_text=None, exit_code=None, progress=None, not_before_at=None,
    )  # fmt: skip
    events.record(tx, at, job_id=job_id, event="requeue", text=f"was {job.state}")
    return state


def _asked(tx: Connection, job_id: int, event: str) -> tuple[Any, str]:
    job = tx.exec_driver_sql("SELECT * FROM jobs WHERE id = :id", {"id": job_id}).first()
    if job is None:
        raise NoSuchJob(f"no job {job_id} in this queue; `schedq status` lists those that wait and run")
    cell = advance(JOB, job.state, event, lambda: events.story(tx, job_id=job_id))
    if cell == SAYS:
        raise UsageError(f"job {job_id} is {job.state}: {event} does nothing there{_HINTS.get((event, job.state), '')}")
    return job, job.state if cell == SAME else cell


_HINTS = {
    ("hold", "running"): "; `schedq cancel` stops it",
    ("release", "queued"): "; it waits for its turn, `schedq status` says for what",
    ("requeue", "succeeded"): "; submit it again, its result stays",
    ("requeue", "queued"): "; it is in the line already",
    ("requeue", "held"): "; release lets it go",
}
