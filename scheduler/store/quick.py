"""A look at a queue for `doctor`, in one snapshot and a bounded time: is it whole, what waits, what keeps failing.

Reads only, and leaves nothing behind. Standard library only.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler.clock import monotonic_s, now_s, seconds, stamp
from scheduler.config import Paths
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WITHIN_S, SMALL = 3.0, 1 << 30
"""How long the database is looked at, and from what size on not at all."""
STEPS = 10_000
"""How many steps of SQLite's machine go by until the time is looked at."""

WAITING = "SELECT slug, variant, sum(n) FROM depth WHERE state IN ('queued', 'blocked') GROUP BY slug, variant"
NEWEST = (
    "SELECT max(at) FROM (SELECT max(at) AS at FROM facts UNION ALL SELECT started_at FROM schedulers"
    " WHERE epoch = (SELECT max(epoch) FROM schedulers) UNION ALL SELECT submitted_at FROM jobs"
    " WHERE id = (SELECT max(id) FROM jobs))"
)
BROKEN = "SELECT slug, failures, last_error FROM breakers WHERE opened_at IS NOT NULL ORDER BY slug"
UNSENT = (
    "SELECT kind, slug, batch, tries, error, next_try_at FROM incidents WHERE at > ? AND sent_at IS NULL"
    " AND error IS NOT NULL ORDER BY at DESC LIMIT 3"
)
UNTIMELY = (
    "SELECT s.id, s.argv, s.next_at, r.id AS run_id, r.exit_code, r.text, r.due_at"
    " FROM schedules AS s LEFT JOIN runs AS r ON r.id ="
    " (SELECT id FROM runs WHERE schedule_id = s.id AND ended_at IS NOT NULL ORDER BY due_at DESC LIMIT 1)"
    " WHERE s.removed_at IS NULL"
    " AND (s.next_at IS NULL OR (r.id IS NOT NULL AND coalesce(r.exit_code, -1) <> 0)) ORDER BY s.id"
)
WEEK_S = 7 * 86400.0


def whole(paths: Paths, *, at_rest: bool, within_s: float = WITHIN_S) -> tuple[bool | None, list[str]]:
    """Whether SQLite finds the database whole at a quick look, None = it is too large for one; and what it found."""
    if os.path.getsize(paths.database) > SMALL:
        return None, []
    until_s = monotonic_s() + within_s

    def question(connection: sqlite3.Connection) -> tuple[bool | None, list[str]]:
        connection.set_progress_handler(lambda: monotonic_s() > until_s, STEPS)
        try:
            said = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                return None, []
            raise
        faults = [each for each in said if each != "ok"]
        return not faults, faults

    none: tuple[bool | None, list[str]] = (None, [])
    return peek.looked(paths, question, none, at_rest=at_rest)


def state(paths: Paths, *, at_rest: bool) -> dict[str, Any]:
    """{"queue_id", "waiting": {(slug, variant): jobs}, "ahead_s", "paused_at", "broken", "unsent", "untimely"}.

    `ahead_s`: how far the newest stamp lies ahead of the clock, below 0 = behind it. {} where there is no queue yet.
    """
    now = now_s()

    def question(connection: sqlite3.Connection) -> dict[str, Any]:
        newest = connection.execute(NEWEST).fetchone()[0]
        queue = connection.execute("SELECT queue_id, paused_at, drained_at FROM queue").fetchone()
        return {
            "queue_id": queue["queue_id"],
            "waiting": {(row[0], row[1]): int(row[2]) for row in connection.execute(WAITING) if row[2]},
            "ahead_s": None if newest is None else seconds(newest) - now,
            "paused_at": queue["paused_at"] or queue["drained_at"],
            "broken": [dict(row) for row in connection.execute(BROKEN)],
            "unsent": [dict(row) for row in connection.execute(UNSENT, (stamp(now - WEEK_S),))],
            "untimely": [dict(row) for row in connection.execute(UNTIMELY)],
        }

    return peek.looked(paths, question, {}, at_rest=at_rest)
