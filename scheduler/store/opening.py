"""The queue's database as a writer of the fast paths opens it: made at first use, and what lay aside put back.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler.clock import now_at
from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.store.connection import open_writer, require_current, revision
from scheduler.store.folders import settle
from scheduler.store.kept import is_made, leave_mark


def open_or_create(paths: Paths) -> sqlite3.Connection:
    """The queue's database for writing, made from the migrations if it is not there. Inside the turnstile.

    The schema is written when every name that leads to it is durable, whoever made it: where it is, they are (P1).
    Corrupt if the database is gone or empty and the folder shows that jobs were in it.
    """
    if not is_made(paths):
        os.close(os.open(paths.database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        crashpoint("intake.created")
    connection = open_writer(paths)
    try:
        found = revision(connection, paths)
        if not found:
            from scheduler.store.migrate import migrate

            settle(paths.home)
            migrate(connection)
            found = revision(connection, paths)
        require_current(found, paths)
        leave_mark(connection, paths)
        restore(connection, paths)
    except BaseException:
        connection.close()
        raise
    return connection


def restore(connection: sqlite3.Connection, paths: Paths) -> None:
    """Move back what submitters that were killed before their commit had moved aside; see `destinations.restore`."""
    if os.path.lexists(paths.asides):
        from scheduler.store import destinations

        destinations.restore(connection, paths)


def record(
    connection: sqlite3.Connection, job_id: int, attempt: int | None, event: str, text: str, evidence: str | None = None
) -> None:
    """Write one line of a job's story, as it stands in `show`. `evidence` is JSON."""
    connection.execute(
        "INSERT INTO events (at, job_id, attempt, event, text, evidence) VALUES (?, ?, ?, ?, ?, ?)",
        (now_at(), job_id, attempt, event, text, evidence),
    )
