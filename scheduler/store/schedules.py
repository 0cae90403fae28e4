"""Calls that are repeated, and each time that they ran.

A time that is due is one row of `runs`, written with the move of `next_at` before anything is started: whatever comes
in between, no time is run twice. Functions over the connection of a write or a read; `at` is a stamp.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows

NEXT = (
    "SELECT (SELECT next_at FROM schedules WHERE next_at IS NOT NULL AND removed_at IS NULL ORDER BY next_at LIMIT 1)"
    " AS next_at, EXISTS (SELECT 1 FROM runs WHERE ended_at IS NULL) AS running"
)
DUE = (
    "SELECT * FROM schedules WHERE next_at IS NOT NULL AND removed_at IS NULL AND next_at <= :now_at"
    " ORDER BY next_at, id LIMIT 1"
)
ALL = "SELECT * FROM schedules WHERE removed_at IS NULL ORDER BY id"
ONE = "SELECT * FROM schedules WHERE id = :id AND removed_at IS NULL"
RUNS = "SELECT * FROM runs WHERE schedule_id = :id ORDER BY due_at DESC LIMIT :most"
LAST_RUN = "SELECT * FROM runs WHERE schedule_id = :id ORDER BY due_at DESC LIMIT 1"
UNENDED = "SELECT * FROM runs WHERE ended_at IS NULL ORDER BY id"
BATCH = (
    "SELECT jobs, open, succeeded - (SELECT count(*) FROM jobs AS j JOIN checks AS c ON c.job_id = j.id"
    " WHERE j.batch = :batch AND j.batch IS NOT NULL AND j.state = 'succeeded' AND c.verdict IS NOT 'passed') AS good"
    " FROM batches WHERE batch = :batch"
)
KEPT_RUNS = 100
"""So many times of each schedule are remembered."""


def add(
    tx: Connection, *, cron: str, zone: str, argv: list[str], cwd: str, environment: dict[str, str], user: str, at: str,
    next_at: str,
) -> int:  # fmt: skip
    """Keep a call that is repeated; its id."""
    done = rows.write(
        tx,
        "INSERT INTO schedules (cron, zone, argv, cwd, environment, user, created_at, next_at)"
        " VALUES (:cron, :zone, :argv, :cwd, :environment, :user, :at, :next_at)",
        {
            "cron": cron, "zone": zone, "argv": json.dumps(argv), "cwd": cwd, "environment": json.dumps(environment),
            "user": user, "at": at, "next_at": next_at,
        },
    )  # fmt: skip
    return int(done.lastrowid)


def remove(tx: Connection, schedule_id: int, at: str) -> bool:
    """Repeat it no more; False if there is none of that id. What runs of it goes on, and what ran is remembered."""
    done = rows.write(
        tx,
        "UPDATE schedules SET removed_at = :at WHERE id = :id AND removed_at IS NULL",
        {"id": schedule_id, "at": at},
    )
    return bool(done.rowcount)


def all_of(tx: Connection) -> list[Any]:
    """Every schedule that is not removed, by id."""
    return rows.found(tx, ALL)


def last_run(tx: Connection, schedule_id: int) -> Any:
    """The row of the newest time that it ran, None if it never did."""
    return rows.first(tx, LAST_RUN, {"id": schedule_id})


def batch_of(tx: Connection, batch: str | None) -> Any:
    """`jobs`, `open` and `good` of the batch that a run queued: how many there are, have not ended, and ended well: of
    a validation case, that it passed. None without a batch, and for one of which no job is left.
    """
    return None if batch is None else rows.first(tx, BATCH, {"batch": batch})


def with_runs(tx: Connection, schedule_id: int, most: int) -> tuple[Any, list[Any]] | None:
    """A schedule that is not removed, and its newest runs, newest first; None if there is none of that id."""
    found = rows.first(tx, ONE, {"id": schedule_id})
    return None if found is None else (found, rows.found(tx, RUNS, {"id": schedule_id, "most": most}))


def around(tx: Connection, run_id: int, most: int) -> tuple[Any, list[Any]]:
    """The schedule of a run, removed or not, and its newest runs up to that one, newest first."""
    found = rows.first(tx, "SELECT s.* FROM schedules AS s JOIN runs AS r ON r.schedule_id = s.id WHERE r.id = :id",
                       {"id": run_id})  # fmt: skip
    return found, rows.found(tx, RUNS, {"id": found.id, "most": most})


def hasten(tx: Connection, schedule_id: int, at: str) -> bool:
    """Let it be due now, if it is not already; False if there is none of that id."""
    done = rows.write(
        tx,
        "UPDATE schedules SET next_at = min(coalesce(next_at, :at), :at) WHERE id = :id AND removed_at IS NULL",
        {"id": schedule_id, "at": at},
    )
    return bool(done.rowcount)


def soonest(tx: Connection) -> Any:
    """`next_at`: when the next schedule is due, None if there is none; `running`: whether a run has no end yet."""
    return rows.first(tx, NEXT)


def due(tx: Connection, now_at: str) -> Any:
    """The schedule that has been due longest, None if none is."""
    return rows.first(tx, DUE, {"now_at": now_at})


def move(tx: Connection, schedule_id: int, next_at: str | None) -> None:
    """It is due next at that time; None = never, as far as anybody can tell."""
    rows.write(tx, "UPDATE schedules SET next_at = :next_at WHERE id = :id", {"id": schedule_id, "next_at": next_at})


def begin(tx: Connection, schedule_id: int, due_at: str, at: str) -> int | None:
    """A run for that time; its id, None if that time had its run. The oldest beyond KEPT_RUNS are forgotten."""
    done = rows.write(
        tx,
        "INSERT INTO runs (schedule_id, due_at, began_at) VALUES (:id, :due_at, :at)"
        " ON CONFLICT (schedule_id, due_at) DO NOTHING",
        {"id": schedule_id, "due_at": due_at, "at": at},
    )
    run_id = int(done.lastrowid)
    if not done.rowcount:
        return None
    rows.write(
        tx,
        "DELETE FROM runs WHERE schedule_id = :id AND ended_at IS NOT NULL AND due_at <"
        " (SELECT due_at FROM runs WHERE schedule_id = :id ORDER BY due_at DESC LIMIT 1 OFFSET :kept)",
        {"id": schedule_id, "kept": KEPT_RUNS - 1},
    )
    return run_id


def end(tx: Connection, run_id: int, at: str, exit_code: int | None, text: str) -> None:
    """A run has ended so; None = nobody saw its exit code. One that was ended before stays as it is."""
    rows.write(
        tx,
        "UPDATE runs SET ended_at = :at, exit_code = :code, text = :text WHERE id = :id AND ended_at IS NULL",
        {"id": run_id, "at": at, "code": exit_code, "text": text},
    )


def unended(tx: Connection) -> list[Any]:
    """The rows of runs without an end: they run, or were cut off."""
    return rows.found(tx, UNENDED)
