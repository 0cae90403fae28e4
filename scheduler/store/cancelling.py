"""What `cancel` does to jobs, in each of their states. Imported by the fast paths: standard library only."""

from __future__ import annotations

import sqlite3

from scheduler.clock import now_at
from scheduler.config import Paths
from scheduler.store import identity
from scheduler.store.absent import missing
from scheduler.store.connection import checkpoint, open_writer, require_current, revision, told
from scheduler.store.folders import prepare
from scheduler.store.kept import is_made
from scheduler.store.opening import record, restore
from scheduler.store.turnstile import PATIENCE_S, Turnstile

CANCEL = {
    "queued": "cancelled", "held": "cancelled", "admitted": "cancelled", "running": "ask",
    "succeeded": "says", "failed": "says", "cancelled": "same", "timed_out": "says", "refused": "says",
}  # fmt: skip
"""What `cancel` does in each state, as the table of states has it. `ask` = the scheduler stops the worker."""


def cancel(paths: Paths, ids: list[int], *, timeout_s: float = PATIENCE_S) -> list[tuple[int, str, str]]:
    """Cancel jobs, and answer with (id, state before, state now) of each, in order.

    One whose request was not sent is cancelled at once, and a worker that loads for it goes on loading; one that is
    running is marked, and the scheduler stops it; one that has ended stays as it is. NoSuchJob names every id that is
    not there; then nothing changed.
    """
    with told(paths):
        if not is_made(paths):
            raise missing(ids, paths)
        prepare(paths)
        with Turnstile(paths).section(timeout_s):
            connection = open_writer(paths)
            try:
                require_current(revision(connection, paths), paths)
                restore(connection, paths)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    answer = _cancel(connection, paths, ids)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                checkpoint(connection, paths)
            finally:
                connection.close()
    return answer


def _cancel(connection: sqlite3.Connection, paths: Paths, ids: list[int]) -> list[tuple[int, str, str]]:
    before: dict[int, tuple[str, int]] = {}
    for job_id in ids:
        found = connection.execute("SELECT state, attempt FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if found is not None:
            before[job_id] = found
    if len(before) < len(set(ids)):
        raise missing([job_id for job_id in ids if job_id not in before], paths)
    at, text = now_at(), f"asked by {identity.user()}"
    now: dict[int, str] = {}
    for job_id, (state, attempt) in before.items():
        cell = CANCEL[state]
        now[job_id] = "cancelled" if cell == "cancelled" else state
        if cell == "cancelled":
            connection.execute(
                "UPDATE jobs SET state = 'cancelled', blocked = NULL, head_since_at = NULL, ended_at = ?,"
                " cancel_requested_at = ?, outcome = 'cancelled', outcome_text = ?"
                " WHERE id = ? AND state = ? AND attempt = ?",
                (at, at, f"cancelled before it ran, {text}", job_id, state, attempt),
            )
            connection.execute(
                "UPDATE attempts SET ended_at = ?, outcome = 'cancelled', outcome_text = ?"
                " WHERE job_id = ? AND attempt = ? AND ended_at IS NULL",
                (at, text, job_id, attempt),
            )
        elif cell == "ask":
            connection.execute(
                "UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, ?) WHERE id = ?", (at, job_id)
            )
        else:
            continue
        record(connection, job_id, attempt or None, "cancel", text)
    return [(job_id, before[job_id][0], now[job_id]) for job_id in ids]
