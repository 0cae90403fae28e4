"""What is worth telling: written in the transaction of what happened, and sent afterwards until somebody took it.

Record and outbox in one. `next_try_at`: it is to be sent, then; NULL with `sent_at`: it was; NULL without: nobody is to
be told, or, where `tries` > 0, it was given up. `took` = which of the receivers have it already.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import seconds
from scheduler.store import rows

BATCH_ENDED, BREAKER_OPENED, BREAKER_CLOSED = "batch_ended", "breaker_opened", "breaker_closed"
COUNTED_MOST = 5000
"""Of a batch of so many jobs at most, those that did not succeed are told by their states."""

ENDED_BATCHES = "SELECT * FROM batches WHERE open = 0 AND told_at IS NULL ORDER BY ended_at LIMIT 20"
UNJUDGED = "SELECT 1 FROM checks AS c JOIN jobs AS j ON j.id = c.job_id WHERE c.open = 1 AND j.batch = :batch LIMIT 1"
BY_STATE = "SELECT state, count(*) AS n FROM jobs WHERE batch = :batch GROUP BY state ORDER BY state"
CASES = (
    "SELECT count(*) AS cases, coalesce(sum(c.verdict = 'passed'), 0) AS passed FROM jobs AS j"
    " JOIN checks AS c ON c.job_id = j.id WHERE j.batch = :batch"
)
DUE = (
    "SELECT * FROM incidents WHERE next_try_at IS NOT NULL AND sent_at IS NULL AND next_try_at <= :now_at"
    " ORDER BY next_try_at, id LIMIT 1"
)
SOONEST = (
    "SELECT (SELECT ended_at FROM batches WHERE open = 0 AND told_at IS NULL ORDER BY ended_at LIMIT 1) AS batch_at,"
    " (SELECT next_try_at FROM incidents WHERE next_try_at IS NOT NULL AND sent_at IS NULL"
    " ORDER BY next_try_at LIMIT 1) AS try_at"
)


def record(
    tx: Connection, kind: str, at: str, text: str, body: dict[str, Any], *, slug: str | None = None,
    batch: str | None = None, to_tell: bool = True,
) -> int:  # fmt: skip
    """Write down what happened, to be sent at once if it is `to_tell`; its id."""
    done = rows.write(
        tx,
        "INSERT INTO incidents (at, kind, slug, batch, text, body, next_try_at)"
        " VALUES (:at, :kind, :slug, :batch, :text, :body, :next_try_at)",
        {
            "at": at, "kind": kind, "slug": slug, "batch": batch, "text": text,
            "body": json.dumps(body, ensure_ascii=False), "next_try_at": at if to_tell else None,
        },
    )  # fmt: skip
    return int(done.lastrowid)


def ended_batches(tx: Connection) -> list[Any]:
    """Batches whose jobs have all ended, of which nobody was told yet: the first of them, by when they ended."""
    return rows.found(tx, ENDED_BATCHES)


def unjudged(tx: Connection, batch: str) -> bool:
    """Whether answers of a batch's validation cases are still to be held against what was expected."""
    return rows.value(tx, UNJUDGED, {"batch": batch}) is not None


def tell_batch(tx: Connection, batch: Any, at: str) -> int:
    """A batch, a row of `ended_batches`, is over: written down, and not again until a job of it is opened anew."""
    body: dict[str, Any] = {
        "batch": batch.batch, "jobs": batch.jobs, "succeeded": batch.succeeded, "first_at": batch.first_at,
        "ended_at": batch.ended_at,
    }  # fmt: skip
    words = [f"{batch.succeeded} of {batch.jobs} succeeded"]
    if batch.jobs <= COUNTED_MOST:
        states = {row.state: row.n for row in rows.found(tx, BY_STATE, {"batch": batch.batch})}
        body["states"] = states
        words += [f"{n} {state.replace('_', ' ')}" for state, n in states.items() if state != "succeeded"]
        cases = rows.first(tx, CASES, {"batch": batch.batch})
        if cases.cases:
            body["cases"] = {"cases": cases.cases, "passed": cases.passed}
            words.append(f"{cases.passed} of {cases.cases} validation cases passed")
    body["took_s"] = round(seconds(batch.ended_at or at) - seconds(batch.first_at), 3)
    text = f"batch {batch.batch} ended: {', '.join(words)}"
    rows.write(tx, "UPDATE batches SET told_at = :at WHERE batch = :batch", {"at": at, "batch": batch.batch})
    return record(tx, BATCH_ENDED, at, text, body, batch=batch.batch)


def soonest(tx: Connection) -> Any:
    """`batch_at`: when the first batch was over that nobody was told of; `try_at`: when the next incident is to be
    sent; None where there is none.
    """
    return rows.first(tx, SOONEST)


def due(tx: Connection, now_at: str) -> Any:
    """The incident that has been due longest, None if none is."""
    return rows.first(tx, DUE, {"now_at": now_at})


def newest(tx: Connection, most: int) -> list[Any]:
    """The newest incidents, newest first."""
    return rows.found(tx, "SELECT * FROM incidents ORDER BY at DESC, id DESC LIMIT :most", {"most": most})


def row(tx: Connection, incident_id: int) -> Any:
    """The incident of that id, None if it was pruned."""
    return rows.first(tx, "SELECT * FROM incidents WHERE id = :id", {"id": incident_id})


def untold(tx: Connection, incident_id: int) -> None:
    """Nobody is to be told of it."""
    rows.write(tx, "UPDATE incidents SET next_try_at = NULL WHERE id = :id", {"id": incident_id})


def sent(tx: Connection, incident_id: int, at: str, took: str) -> None:
    """Every receiver has it."""
    rows.write(
        tx,
        "UPDATE incidents SET sent_at = :at, tries = tries + 1, next_try_at = NULL, took = :took, error = NULL"
        " WHERE id = :id AND sent_at IS NULL",
        {"id": incident_id, "at": at, "took": took},
    )


def failed(tx: Connection, incident_id: int, took: str, error: str, next_try_at: str | None) -> None:
    """Somebody did not take it; it is sent to those again then, or, None, never more."""
    rows.write(
        tx,
        "UPDATE incidents SET tries = tries + 1, next_try_at = :next, took = :took, error = :error"
        " WHERE id = :id AND sent_at IS NULL",
        {"id": incident_id, "next": next_try_at, "took": took, "error": error},
    )
