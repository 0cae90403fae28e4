"""What happened to a job, from its submission to its end, in order. Standard library only."""

from __future__ import annotations

import sqlite3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVENTS = (
    "SELECT at, worker_id, attempt, event, text FROM events WHERE job_id = ? AND job_id IS NOT NULL"
    " AND event <> 'confirm' ORDER BY id"
)
"""All but the second look at an admission, which `store.decisions` tells."""


def story(connection: sqlite3.Connection, job: sqlite3.Row) -> list[dict[str, Any]]:
    """[{"at", "event", "attempt", "worker_id", "text"}]: the submission, what was recorded, the end."""
    first = f"submitted by {job['user']}" + (f" in batch {job['batch']}" if job["batch"] else "")
    told = [_line(job["submitted_at"], "submit", first)]
    told += [dict(row) for row in connection.execute(EVENTS, (job["id"],))]
    if job["ended_at"] is not None:
        kind, text = job["outcome"] or "", job["outcome_text"] or ""
        last = text if text.startswith(kind) else f"{kind}: {text}"
        told.append({**_line(job["ended_at"], job["state"], last), "attempt": job["attempt"] or None})
    return told


def _line(at: str, event: str, text: str) -> dict[str, Any]:
    return {"at": at, "worker_id": None, "attempt": None, "event": event, "text": text}
