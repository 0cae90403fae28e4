"""Names that a half-typed word may become: recent jobs, batches, labels, workers, schedules.

Each a bounded read along an index, newest first. Standard library only.
"""

from __future__ import annotations

import json

from scheduler.store import brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    Offer = tuple[str, str]

MOST, LOOKED_AT = 60, 2000
"""How many of a kind are offered, and among how many of the newest jobs they are looked for."""

LIVE = (
    f"SELECT id, state, slug, variant, {brief.NAMED} FROM jobs WHERE state IN ('held', 'admitted', 'running')"
    " AND state IN ('admitted', 'running') AND state IN ({}) ORDER BY id LIMIT ?"
)
RECENT = (
    f"SELECT id, state, slug, variant, {brief.NAMED} FROM jobs WHERE id > (SELECT max(id) FROM jobs) - ?"
    " AND state IN ({})"
    " AND CAST(id AS TEXT) LIKE ? || '%' ORDER BY id DESC LIMIT ?"
)
BATCHES = "SELECT batch FROM batches ORDER BY first_at DESC LIMIT ?"
WORKERS = "SELECT id, slug, variant, state FROM workers WHERE state <> 'gone' ORDER BY id LIMIT ?"
SCHEDULES = "SELECT id, cron, argv FROM schedules WHERE removed_at IS NULL ORDER BY id LIMIT ?"
POOLS = "SELECT DISTINCT pool FROM leases WHERE state <> 'released' LIMIT ?"


def jobs(connection: sqlite3.Connection, states: Iterable[str], begun: str) -> list[Offer]:
    """(id, what it is) of jobs in one of these states whose id begins so: those that run, then the newest."""
    among = tuple(states)
    marks = ",".join("?" * len(among))
    rows = [row for row in connection.execute(LIVE.format(marks), (*among, MOST)) if str(row[0]).startswith(begun)]
    rows += connection.execute(RECENT.format(marks), (LOOKED_AT, *among, begun, MOST)).fetchall()
    found = {}
    for job_id, state, slug, variant, name in rows:
        provider = f"{slug}:{variant}" if variant else slug
        found[str(job_id)] = f"{state.replace('_', ' ')}, {provider}" + (f" {name}" if name else "")
    return list(found.items())[:MOST]


def batches(connection: sqlite3.Connection) -> list[Offer]:
    """The batches that began last."""
    return [(row[0], "batch") for row in connection.execute(BATCHES, (MOST,))]


def labels(connection: sqlite3.Connection) -> list[Offer]:
    """The labels that jobs have, of very many the first."""
    return [(row[0], "label") for row in connection.execute(brief.LABELS, (MOST,))]


def workers(connection: sqlite3.Connection) -> list[Offer]:
    """The workers that are there."""
    rows = connection.execute(WORKERS, (MOST,))
    return [(str(row[0]), f"{row[3]}, {row[1]}" + (f":{row[2]}" if row[2] else "")) for row in rows]


def schedules(connection: sqlite3.Connection) -> list[Offer]:
    """The calls that are repeated."""
    rows = connection.execute(SCHEDULES, (MOST,))
    return [(str(row[0]), f"{row[1]}  {' '.join(json.loads(row[2]))}") for row in rows]


def pools(connection: sqlite3.Connection) -> list[Offer]:
    """The pools that something is charged to."""
    return [(row[0], "pool") for row in connection.execute(POOLS, (MOST,))]
