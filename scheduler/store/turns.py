"""Where one command stands, as its caller looks: whether it is its turn, and what its keeper's claim has to be.

Standard library only: a caller that waits is light.
"""

from __future__ import annotations

from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from scheduler.config import Paths

JOB = "SELECT state, attempt, worker_id, outcome, outcome_text, cancel_requested_at FROM jobs WHERE id = ?"
WORKER = "SELECT slug, variant, revision, mode, device, state, keeper_pid FROM workers WHERE id = ?"
LEASES = "SELECT id, pool, charge_gib FROM leases WHERE worker_id = ? AND state <> 'released' ORDER BY id"


class Claim:
    """What is reserved for a worker, as its keeper's argv has to say it (host.workers.spawn)."""

    __slots__ = ("charges", "device", "lease_ids", "mode", "revision", "slug", "variant", "worker_id")

    def __init__(self, worker_id: int, row: sqlite3.Row, leases: list[sqlite3.Row]) -> None:
        self.worker_id, self.slug, self.variant = worker_id, str(row["slug"]), str(row["variant"])
        self.revision, self.mode, self.device = str(row["revision"]), str(row["mode"]), str(row["device"] or "")
        self.charges = {str(each["pool"]): float(each["charge_gib"]) for each in leases}
        self.lease_ids = {str(each["pool"]): int(each["id"]) for each in leases}


class Turn:
    """One look: the job's state, its worker (None = none), and the claim while its keeper is waited for."""

    __slots__ = ("attempt", "cancelled", "claim", "outcome", "queue_id", "state", "text", "worker_id")

    def __init__(self, job: sqlite3.Row, queue_id: str, claim: Claim | None) -> None:
        self.state, self.worker_id, self.attempt = str(job["state"]), job["worker_id"], int(job["attempt"])
        self.outcome, self.text = str(job["outcome"] or ""), str(job["outcome_text"] or "")
        self.cancelled, self.queue_id, self.claim = job["cancel_requested_at"] is not None, queue_id, claim


def variant_of(paths: Paths, job_id: int) -> str:
    """The variant of that command; "-" if that job is none."""
    asked = "SELECT variant FROM jobs WHERE id = ? AND slug = 'exec'"
    found = peek.looked(paths, lambda connection: connection.execute(asked, (job_id,)).fetchone(), None)
    return "-" if found is None else str(found[0])


def look(paths: Paths, job_id: int) -> Turn | None:
    """Where that job stands now; None if there is no such job."""

    def question(connection: sqlite3.Connection) -> Turn | None:
        job = connection.execute(JOB, (job_id,)).fetchone()
        if job is None:
            return None
        queue_id = str(connection.execute("SELECT queue_id FROM queue").fetchone()[0])
        worker_id = job["worker_id"] if job["state"] in ("admitted", "running") else None
        row = connection.execute(WORKER, (worker_id,)).fetchone() if worker_id is not None else None
        claim: Any = None
        if worker_id is not None and row is not None and row["state"] == "parked":
            claim = Claim(int(worker_id), row, connection.execute(LEASES, (worker_id,)).fetchall())
        return Turn(job, queue_id, claim)

    return peek.looked(paths, question, None)
