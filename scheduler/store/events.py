"""What is recorded of jobs and workers, one row an event, in the transaction of the change that it tells of."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows

INSERT = (
    "INSERT INTO events (at, job_id, worker_id, attempt, event, text, evidence)"
    " VALUES (:at, :job_id, :worker_id, :attempt, :event, :text, :evidence)"
)


def record(
    tx: Connection,
    at: str,
    *,
    event: str,
    job_id: int | None = None,
    worker_id: int | None = None,
    attempt: int | None = None,
    text: str = "",
    evidence: dict[str, Any] | None = None,
) -> None:
    """Add one line to the story of a job or a worker (or of both). `at` is a stamp.

    `evidence` is what a decision was made from, as rules.evidence has it.
    """
    rows.write(
        tx,
        INSERT,
        {
            "at": at, "job_id": job_id, "worker_id": worker_id, "attempt": attempt, "event": event, "text": text,
            "evidence": as_text(evidence),
        },
    )  # fmt: skip


def as_text(evidence: dict[str, Any] | None) -> str | None:
    """Evidence as it is stored. ValueError if a number of it is none that JSON has."""
    if evidence is None:
        return None
    return json.dumps(evidence, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def story(tx: Connection, *, job_id: int | None = None, worker_id: int | None = None) -> str:
    """The events of a job or of a worker, in order, on one line; for the error of an illegal event."""
    column, value = ("job_id", job_id) if job_id is not None else ("worker_id", worker_id)
    past = rows.found(
        tx,
        f"SELECT at, event, attempt, text FROM events WHERE {column} = :value AND {column} IS NOT NULL ORDER BY id",
        {"value": value},
    )
    return "; ".join(
        f"{row.at} {row.event}" + (f" #{row.attempt}" if row.attempt else "") + (f" ({row.text})" if row.text else "")
        for row in past
    )
