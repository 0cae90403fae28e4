"""The jobs that run alone: who is first of each kind, and behind whom one is put that ran over its budget.

Such a job is queued, blocked as `after`, and has `behind`: the newest job there was when it was put back. All of one
batch stand together, behind the same one, and share one window as a head. What keeps the jobs of one provider, or a
command, from going keeps no other: the first of each are seen.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows

LIVE = "behind IS NOT NULL AND state IN ('queued', 'admitted', 'running')"
WAITS = "behind IS NOT NULL AND state = 'queued' AND blocked = 'after'"
IN_LINE = "priority DESC, behind, batch, id"
SEEN = 32
"""So many commands that run alone are planned for at once, the first of them: each is a provider of its own."""

COMMANDS = (
    f"SELECT id FROM jobs INDEXED BY jobs_alone_commands WHERE slug = 'exec' AND {WAITS}"
    f" ORDER BY {IN_LINE} LIMIT {SEEN}"
)
NEXT = (
    f"(SELECT id FROM jobs INDEXED BY jobs_alone_firsts WHERE {WAITS} AND slug <> 'exec' {{}}"
    f" ORDER BY slug, variant, measures, {IN_LINE} LIMIT 1)"
)
AFTER = (
    "AND slug = last.slug AND variant = last.variant AND measures > last.measures",
    "AND slug = last.slug AND variant > last.variant",
    "AND slug > last.slug",
)
FIRSTS = (
    f"WITH RECURSIVE firsts (id) AS (SELECT {NEXT.format('')} UNION ALL SELECT"
    f" coalesce({', '.join(map(NEXT.format, AFTER))}) FROM firsts JOIN jobs AS last ON last.id = firsts.id)"
    " SELECT id, slug, variant, priority, revision, size, behind, measures, batch, head_since_at FROM jobs"
    f" WHERE id IN (SELECT id FROM firsts UNION ALL SELECT * FROM ({COMMANDS})) ORDER BY {IN_LINE}"
)
MATES = f"SELECT min(behind) FROM jobs WHERE {LIVE} AND batch = :batch AND priority = :priority AND measures = 0"
NEWEST = "SELECT max(id) FROM jobs"
OPEN = (
    f"UPDATE jobs SET head_since_at = coalesce(head_since_at, :at) WHERE {LIVE} AND state = 'queued' AND"
    " (id = :id OR (batch, priority, measures) = (SELECT batch, priority, measures FROM jobs WHERE id = :id))"
)
HEADS = "SELECT id, batch, priority, measures, behind FROM jobs WHERE head_since_at IS NOT NULL"


def firsts(tx: Connection) -> list[Any]:
    """The first of the jobs that run alone and wait, of each provider, and of those that are measured, in their order.

    Each command is one of its own, the first of them are seen. Costs O(providers), however many wait.
    """
    return rows.found(tx, FIRSTS)


def stands_behind(tx: Connection, batch: str | None, priority: int) -> int:
    """The job behind which one is put now: with those of its batch that run alone already, else behind everybody."""
    found = rows.value(tx, MATES, {"batch": batch, "priority": priority}) if batch is not None else None
    return int(found if found is not None else rows.value(tx, NEWEST) or 0)


def open_head(tx: Connection, job_id: int, at: str) -> None:
    """It is a head, and with it those of its batch: they are counted as one, from the first of them on."""
    rows.write(tx, OPEN, {"id": job_id, "at": at})


def mates(heads: list[Any], keep: set[int]) -> set[int]:
    """Those of these heads that are one with a head in `keep`."""
    kept = {(h.batch, h.priority, h.measures) for h in heads if h.id in keep and h.behind is not None and h.batch}
    return {h.id for h in heads if h.behind is not None and (h.batch, h.priority, h.measures) in kept}
