"""What a new scheduler finds of the last one's: every live row made true again, inside one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds
from scheduler.handover import adoption
from scheduler.loose import loose
from scheduler.model.host import Adopt, Loose
from scheduler.model.outcome import Outcome
from scheduler.record import Recorder
from scheduler.store import leases, queue, workers
from scheduler.view import Memory


def reconcile(
    tx: Connection, recorder: Recorder, memory: Memory, clock: SystemClock
) -> tuple[list[Adopt], list[Loose]]:
    """The workers that the host is asked to take over, and those without a row whose charge is still out.

    Claims that were never sent are given back; a worker that nobody had let go yet is ended.
    """
    rows = workers.live(tx)
    bound = {row.worker_id: row for row in queue.live(tx)}
    adopt = [adoption(row, bound.get(row.id), leases.by_pool(tx, row.id)) for row in rows]
    for row in rows:
        job = bound.get(row.id)
        _remember(tx, memory, clock, row, job)
        if job is not None and job.state == "admitted":
            recorder.give_back(job.id, job.attempt, "the scheduler ended before the request was sent")
        if row.state == "parked":
            workers.move(tx, row.id, "abort", recorder.at, why="its scheduler ended before it was let go")
    living = {row.id for row in rows}
    for job in bound.values():
        if job.worker_id not in living:
            _strand(recorder, job)
    left = {row.worker_id for row in leases.charged(tx) if row.state in ("reserved", "held")} - living
    for worker_id in sorted(left):
        leases.move(tx, worker_id, "exit", recorder.at, "found without a worker at start-up")
    return adopt, loose(tx, clock)


def _remember(tx: Connection, memory: Memory, clock: SystemClock, row: Any, job: Any) -> None:
    """Patience with a worker begins anew with its new scheduler; what a job was given in all does not."""
    now = clock.monotonic_s()
    memory.state_since[row.id] = memory.alive_at[row.id] = now
    sent_at = queue.sent_at(tx, job.id, job.attempt) if job is not None and job.state == "running" else None
    if sent_at is None:
        return
    ran_s = max(0.0, clock.now_s() - seconds(sent_at))
    memory.sent_at[row.id] = now - ran_s
    if job.timeout_s is not None:
        memory.deadline[row.id] = now + max(0.0, job.timeout_s - ran_s)


def _strand(recorder: Recorder, job: Any) -> None:
    """A job whose worker's row has ended while it was still bound: finish what a crash left half done."""
    if job.state == "admitted":
        recorder.give_back(job.id, job.attempt, "its worker was gone at start-up")
    else:
        recorder.finish(job.id, job.attempt, Outcome("lost", "its worker was gone at start-up"))
