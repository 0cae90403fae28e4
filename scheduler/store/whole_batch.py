"""Many jobs as a whole: how many of a batch there are, have ended and succeeded, and when the last of some will end.

What it costs does not grow with the jobs: a batch's counts are kept by triggers, and of each provider as many of the
last waiting jobs are looked at as it takes to find one that is meant, COUNTED at most. Imported by the fast paths:
standard library only.
"""

from __future__ import annotations

import sqlite3

from scheduler.clock import now_s, seconds
from scheduler.store import peek
from scheduler.store.outlook import COUNTED, Outlook
from scheduler.wake import scheduler_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from scheduler.config import Paths

    Meant = Callable[[sqlite3.Row], bool]

LATELY, RECENT = 200, 10
"""Among so many jobs that ended last are those looked for that tell what such jobs take; and how many of a provider."""

COUNTS = "SELECT batch, jobs, open, succeeded, first_at, ended_at FROM batches WHERE batch = ?"
ELIGIBLE = "SELECT DISTINCT slug, variant FROM depth WHERE state = 'queued' AND n > 0"
COLUMNS = "id, slug, variant, state, blocked, priority, attempt, worker_id, progress, batch"
LAST = (
    f"SELECT {COLUMNS} FROM (SELECT {COLUMNS} FROM jobs WHERE slug = ? AND variant = ? AND state = 'queued'"
    f" AND blocked IS NULL ORDER BY priority, id DESC LIMIT {COUNTED})"
)
LIVE = f"SELECT {COLUMNS} FROM jobs WHERE state IN ('held', 'admitted', 'running')"
ENDED = (
    f"SELECT * FROM (SELECT {COLUMNS}, tries, started_at, ended_at FROM jobs WHERE ended_at IS NOT NULL"
    f" ORDER BY ended_at DESC LIMIT {LATELY})"
)
BLOCKED = f"SELECT * FROM (SELECT id, batch FROM jobs WHERE state = 'queued' AND blocked IS NOT NULL LIMIT {COUNTED})"


def batch(paths: Paths, name: str, *, foretold: bool = True) -> dict[str, Any] | None:
    """{"batch", "jobs", "open", "succeeded", "first_at", "ended_at", "ends_in_s"}; None for a batch that is none.

    Not `foretold`: without a look at when it ends, which is None.
    """
    runs = scheduler_runs(paths)

    def question(connection: sqlite3.Connection) -> dict[str, Any] | None:
        counted = connection.execute(COUNTS, (name,)).fetchone()
        if counted is None:
            return None
        ends_in = None
        if foretold and counted["open"]:
            ends_in = _ends_in_s(connection, runs, lambda row: True, " WHERE +batch = ?", (name,))
        return {**dict(counted), "ends_in_s": ends_in}

    return peek.looked(paths, question, None)


def ends_in_s(paths: Paths, ids: Iterable[int], ended: Iterable[int] = ()) -> float | None:
    """In how many seconds the last of these jobs is expected to end.

    `ended`: others that belong to them; what these took says more than what such jobs usually take. None if none has
    still to end, if one of them may not start yet (held, or blocked), or if nobody can tell.
    """
    asked, runs = frozenset(ids).union(ended), scheduler_runs(paths)
    return peek.looked(paths, lambda connection: _ends_in_s(connection, runs, lambda row: row["id"] in asked), None)


def _own_s(
    connection: sqlite3.Connection, meant: Meant, where: str, values: tuple[str, ...]
) -> dict[tuple[str, str], float]:
    """What the last of these jobs took that ended well at the first try, by (slug, variant): a mean, in seconds."""
    took: dict[tuple[str, str], list[float]] = {}
    for row in connection.execute(ENDED + where, values):
        of = took.setdefault((row["slug"], row["variant"]), [])
        if row["state"] == "succeeded" and row["tries"] == 1 and row["started_at"] and len(of) < RECENT and meant(row):
            of.append(max(0.0, seconds(row["ended_at"]) - seconds(row["started_at"])))
    return {key: sum(of) / len(of) for key, of in took.items() if of}


def _ends_in_s(
    connection: sqlite3.Connection, runs: bool, meant: Meant, where: str = "", values: tuple[str, ...] = ()
) -> float | None:
    """`where`, a condition with its values, is for SQLite what `meant` is here: one of the two tells which rows."""
    outlook = Outlook(connection, now_s(), runs, _own_s(connection, meant, where, values))
    if any(map(meant, connection.execute(BLOCKED + where, values))):
        return None
    rows = []
    for row in connection.execute(LIVE + where.replace("WHERE", "AND"), values):
        if meant(row) and row["state"] == "held":
            return None
        rows += [row] if meant(row) else []
    for slug, variant in connection.execute(ELIGIBLE).fetchall():
        waiting = connection.execute(LAST + where, (slug, variant, *values))
        last = next((row for row in waiting if meant(row)), None)
        rows += [last] if last is not None else []
    ends = [outlook.of(row)[1] for row in rows]
    known = [each for each in ends if each is not None]
    return max(known) if known and len(known) == len(ends) else None
