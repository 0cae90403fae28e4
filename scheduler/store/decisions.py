"""What the scheduler decided on a job so far: each ruling while it was first of its provider, and its admissions.

Standard library only.
"""

from __future__ import annotations

import sqlite3

from scheduler.clock import now_s, stamp
from scheduler.store.reason import Reasons, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RULINGS = (
    "undeclared", "no_device", "unreadable", "too_big", "unknown_holding", "pool_full", "no_room_now", "busy",
    "starting", "reserved", "cores", "backoff", "breaker", "paused", "held", "begin", "after", "revision",
    "not_installed", "disk", "scheduler_down", "lock",
)  # fmt: skip
"""The events that tell why a job did not start: the rulings of model.outcome but `admit`."""

ADMITTED = ("admit", "confirm")
"""The events that tell of a start: the claim, and the same question once everybody could see it."""

RAISED = "raised: "
"""How the sentence of a claim begins whose worker was ready, and is charged more for it."""

EVENTS = (
    "SELECT at, worker_id, event, text, evidence FROM events WHERE job_id = ? AND job_id IS NOT NULL ORDER BY id DESC"
)


def decisions(connection: sqlite3.Connection, job: sqlite3.Row, runs: bool) -> list[dict[str, Any]]:
    """[{"at", "ruling", "text", "evidence", "worker_id"}], newest first; of a job that waits why it does, before all.

    `evidence` is every number as rules.evidence has it, None where the sentence has them all. `runs`: whether a
    scheduler holds the queue's lock.
    """
    found = [_decision(row) for row in connection.execute(EVENTS, (job["id"],)) if row["event"] in RULINGS + ADMITTED]
    reason = Reasons(connection, runs).in_full(job)
    if reason is None:
        return found
    current = {**reason, "at": reason["at"] or stamp(now_s()), "worker_id": None}
    same = [each for each in found[:1] if (each["at"], each["ruling"]) == (current["at"], current["ruling"])]
    return [current, *found[len(same) :]]


def _decision(row: sqlite3.Row) -> dict[str, Any]:
    event, text, worker = row["event"], row["text"], row["worker_id"]
    if event == "admit" and text == "warm":
        text = f"sent to worker {worker}, which was ready: it needed no further room"
    elif event == "admit" and text.startswith(RAISED):
        text = f"worker {worker} was ready, and is charged more for it: {text.removeprefix(RAISED)}"
    elif event == "admit":
        text = f"worker {worker} was started for it" + (f": {text}" if text else "")
    elif event == "confirm":
        text = f"worker {worker} may begin, still so when everybody could see its claim: {text}"
    elif worker is not None:
        text = f"worker {worker} was ended before anything was spent: {text}"
    ruling = "admit" if event in ADMITTED else event
    return {"at": row["at"], "ruling": ruling, "text": text, "evidence": parsed(row["evidence"]), "worker_id": worker}
