"""Jobs in a line each, and whether a name that a filter gives is one that any job has. Standard library only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from typing import Any

NAMED = 'coalesce((SELECT "case" FROM checks WHERE job_id = jobs.id), name)'
"""What a job is called where jobs are listed: a validation case by its case, any other by its name."""

AT_ONCE = 500
"""Ids asked for in one statement."""

LOOKED_AT = 20_000
"""The jobs, the last submitted ones, among whose batches a near name is looked for."""

BATCHES = "SELECT DISTINCT batch FROM (SELECT batch FROM jobs ORDER BY id DESC LIMIT ?) WHERE batch IS NOT NULL"

LABELS = (
    "WITH RECURSIVE each (label) AS (SELECT min(label) FROM labels UNION ALL"
    " SELECT (SELECT min(label) FROM labels WHERE label > each.label) FROM each WHERE each.label IS NOT NULL)"
    " SELECT label FROM each WHERE label IS NOT NULL LIMIT ?"
)
"""Every label, found from each to the next in the table that begins with them."""


def states(connection: sqlite3.Connection, ids: list[int]) -> dict[int, str]:
    """The state of each of these jobs; one that is not there is not in the answer."""
    return {row[0]: row[1] for row in _found(connection, "id, state", ids)}


def jobs(connection: sqlite3.Connection, ids: list[int]) -> dict[int, dict[str, Any]]:
    """{"id", "slug", "variant", "name", "state"} of each of these jobs that is there, by id. `name`: as NAMED."""
    return {row["id"]: dict(row) for row in _found(connection, f"id, slug, variant, {NAMED} AS name, state", ids)}


def _found(connection: sqlite3.Connection, columns: str, ids: list[int]) -> Iterator[sqlite3.Row]:
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        yield from connection.execute(f"SELECT {columns} FROM jobs WHERE id IN ({','.join('?' * len(some))})", some)


def batches(connection: sqlite3.Connection, name: str) -> list[str] | None:
    """None if a job has this batch; else the batches of the jobs that were submitted last."""
    if connection.execute("SELECT 1 FROM jobs WHERE batch = ? AND batch IS NOT NULL LIMIT 1", (name,)).fetchone():
        return None
    return sorted(row[0] for row in connection.execute(BATCHES, (LOOKED_AT,)))


def labels(connection: sqlite3.Connection, label: str) -> list[str] | None:
    """None if a job has this label; else the labels that there are, of very many the first."""
    if connection.execute("SELECT 1 FROM labels WHERE label = ? LIMIT 1", (label,)).fetchone():
        return None
    return [row[0] for row in connection.execute(LABELS, (LOOKED_AT,))]


def providers(connection: sqlite3.Connection) -> list[str]:
    """What has jobs, ended ones too: each slug, and each `slug:variant`."""
    rows = connection.execute("SELECT DISTINCT slug, variant FROM depth WHERE n > 0 ORDER BY slug, variant").fetchall()
    return list(
        dict.fromkeys(name for slug, variant in rows for name in (slug, f"{slug}:{variant}" if variant else slug))
    )
