"""What `status` shows of the night ahead: calls that are due within a day, one that runs, notices that nobody took.

Standard library only: the fast paths read it.
"""

from __future__ import annotations

import json

from scheduler.clock import stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

AHEAD_S = 86400.0
SHOWN = 3
NEXT = (
    "SELECT id, argv, next_at FROM schedules WHERE next_at IS NOT NULL AND removed_at IS NULL AND next_at < ?"
    " ORDER BY next_at LIMIT ?"
)
RUNNING = (
    "SELECT s.id, s.argv, r.began_at FROM runs AS r JOIN schedules AS s ON s.id = r.schedule_id"
    " WHERE r.ended_at IS NULL ORDER BY r.id LIMIT 1"
)
UNSENT = "SELECT count(*), max(id) FROM incidents WHERE next_try_at IS NOT NULL AND sent_at IS NULL AND tries > 0"
GIVEN_UP = (
    "SELECT count(*), max(id) FROM incidents WHERE at > ? AND next_try_at IS NULL AND sent_at IS NULL AND tries > 0"
)


def ahead(connection: sqlite3.Connection, at_s: float) -> dict[str, Any]:
    """`schedules`: the calls that are due within a day, the first of them, and one that runs; `notices`: what nobody
    took of late, and why, None if there is nothing.
    """
    due = [
        {"id": row[0], "call": json.loads(row[1]), "next_at": row[2], "began_at": None}
        for row in connection.execute(NEXT, (stamp(at_s + AHEAD_S), SHOWN))
    ]
    running = [
        {"id": row[0], "call": json.loads(row[1]), "next_at": None, "began_at": row[2]}
        for row in connection.execute(RUNNING)
    ]
    return {"schedules": running + due, "notices": _notices(connection, at_s)}


def _notices(connection: sqlite3.Connection, at_s: float) -> dict[str, Any] | None:
    waiting, last = connection.execute(UNSENT).fetchone()
    lost, last_lost = connection.execute(GIVEN_UP, (stamp(at_s - 2 * AHEAD_S),)).fetchone()
    if not waiting and not lost:
        return None
    error = connection.execute("SELECT error FROM incidents WHERE id = ?", (last or last_lost,)).fetchone()[0]
    return {"waiting": waiting, "given_up": lost, "error": error}
