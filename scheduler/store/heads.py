"""Which jobs are heads, since when, and whose end a closed one waits for; and when waiting jobs should start.

A head's victims are chosen once: the set that is stored may only shrink.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection

from scheduler.model.plan import Predict
from scheduler.store import alone, rows


def open_head(tx: Connection, job_id: int, at: str) -> None:
    """This job is a head, from `at` on if it was none already."""
    rows.write(
        tx,
        "UPDATE jobs SET head_since_at = :at WHERE id = :id AND head_since_at IS NULL"
        " AND state = 'queued' AND blocked IS NULL",
        {"at": at, "id": job_id},
    )


def close_heads(tx: Connection, keep: Iterable[int]) -> None:
    """No job is a head any more, but those in `keep`; whoever becomes one again opens a new window."""
    those = rows.found(tx, alone.HEADS)
    kept = {*keep, *alone.mates(those, set(keep))}
    for head in those:
        if head.id not in kept:
            rows.write(tx, "UPDATE jobs SET head_since_at = NULL WHERE id = :id", {"id": head.id})


def destinations(tx: Connection, ids: Iterable[int]) -> dict[int, str]:
    """The destinations that these jobs ask for, by job id; those that ask for none are left out."""
    asked = "SELECT id, out FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND out IS NOT NULL"
    return {int(row.id): str(row.out) for row in rows.found(tx, asked, {"ids": json.dumps(list(ids))})}


def victims(tx: Connection) -> dict[int, tuple[int, ...]]:
    """The workers whose end each closed head waits for, by job id."""
    found: dict[int, tuple[int, ...]] = {}
    for row in rows.found(tx, "SELECT job_id, worker_id FROM victims ORDER BY job_id, worker_id"):
        found[row.job_id] = (*found.get(row.job_id, ()), row.worker_id)
    return found


def set_victims(tx: Connection, those: dict[int, tuple[int, ...]]) -> None:
    """Store whose end each closed head waits for, in place of everything that was stored."""
    rows.write(tx, "DELETE FROM victims")
    for job_id, worker_ids in sorted(those.items()):
        for worker_id in worker_ids:
            rows.write(
                tx,
                "INSERT INTO victims (job_id, worker_id) VALUES (:job_id, :worker_id)",
                {"job_id": job_id, "worker_id": worker_id},
            )


def set_forecasts(tx: Connection, those: Iterable[tuple[Predict, str]]) -> None:
    """Store when each provider's next job should be sent, as stamps, in place of everything that was stored."""
    rows.write(tx, "DELETE FROM forecasts")
    for each, starts_at in those:
        rows.write(
        tx, "INSERT INTO forecasts (slug, variant, starts_at, run_s, workers)"
            " VALUES (:slug, :variant, :starts_at, :run_s, :workers)",
            {
                "slug": each.slug, "variant": each.variant, "starts_at": starts_at, "run_s": each.run_s,
                "workers": each.workers,
            },
        )  # fmt: skip
