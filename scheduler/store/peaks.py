"""What attempts were seen to use of memory, by provider, variant, host and size bucket; and what follows for charges.

A row is written in the transaction that ends its attempt. Of each bucket the newest are kept, as many as count.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.model.provider import Learned
from scheduler.rules.peaks import KEPT_RUNS, learned_from, on_device_gib
from scheduler.store import rows

INSERT = (
    "INSERT INTO peaks (slug, variant, host_id, bucket, device_gib, host_gib, at, device, job_id, attempt, worker_id,"
    " outcome) VALUES (:slug, :variant, :host_id, :bucket, :device_gib, :host_gib, :at, :device, :job_id, :attempt,"
    " :worker_id, :outcome)"
)
OF_BUCKET = "slug = :slug AND variant = :variant AND host_id = :host_id AND bucket IS :bucket"
LAST = f"SELECT id, device_gib, host_gib FROM peaks WHERE {OF_BUCKET} ORDER BY id DESC LIMIT {KEPT_RUNS + 1}"
SUM_UP = (
    "INSERT INTO learned (slug, variant, host_id, bucket, device_gib, host_gib, runs, at)"
    " VALUES (:slug, :variant, :host_id, :bucket, :device_gib, :host_gib, :runs, :at)"
    " ON CONFLICT (slug, variant, host_id, bucket) DO UPDATE SET device_gib = excluded.device_gib,"
    " host_gib = excluded.host_gib, runs = excluded.runs, at = excluded.at"
)

Key = tuple[str, str, int]


def add(
    tx: Connection,
    slug: str,
    variant: str,
    host_id: str,
    at: str,
    *,
    bucket: int | None,
    device_gib: float | None,
    host_gib: float | None,
    device: str = "",
    job_id: int | None = None,
    attempt: int | None = None,
    worker_id: int | None = None,
    outcome: str = "",
) -> Learned:
    """Keep what one attempt was seen to use at most, GiB, None = not seen; what its bucket has learned by now.

    `bucket` None: what a worker held after its load, which is shown and charged to nobody. `device` is the device's
    own name.
    """
    of = {"slug": slug, "variant": variant, "host_id": host_id, "bucket": bucket}
    rows.write(
        tx, INSERT,
        {
            **of, "device_gib": device_gib, "host_gib": host_gib, "at": at, "device": device or None, "job_id": job_id,
            "attempt": attempt, "worker_id": worker_id, "outcome": outcome,
        },
    )  # fmt: skip
    newest = rows.found(tx, LAST, of)
    for row in newest[KEPT_RUNS:]:
        rows.write(tx, f"DELETE FROM peaks WHERE {OF_BUCKET} AND id <= :id", {**of, "id": row.id})
    found = learned_from([(row.device_gib, row.host_gib) for row in reversed(newest[:KEPT_RUNS])])
    if bucket is not None and found.runs:
        values = {"device_gib": found.device_gib, "host_gib": found.host_gib, "runs": found.runs}
        rows.write(tx, SUM_UP, {**of, **values, "at": at})
    return found


def known(tx: Connection, host_id: str) -> dict[Key, Learned]:
    """What each bucket has learned on this host, by (slug, variant, bucket). Costs O(buckets)."""
    asked = "SELECT slug, variant, bucket, device_gib, host_gib, runs FROM learned WHERE host_id = :host_id"
    return {
        (row.slug, row.variant, row.bucket): Learned(row.device_gib or 0.0, row.host_gib or 0.0, row.runs)
        for row in rows.found(tx, asked, {"host_id": host_id})
    }


def sizes(tx: Connection, job_ids: list[int]) -> dict[int, float | None]:
    """The size of each of these jobs, as it was counted at submit."""
    asked = "SELECT id, size FROM jobs WHERE id IN (SELECT value FROM json_each(:ids))"
    return {row.id: row.size for row in rows.found(tx, asked, {"ids": json.dumps(job_ids)})}


def forget(tx: Connection, slug: str, variant: str | None) -> int:
    """Forget what was measured of a provider, None = of all its variants; how many rows that were."""
    of, values = "slug = :slug", {"slug": slug}
    if variant is not None:
        of, values = f"{of} AND variant = :variant", {**values, "variant": variant}
    gone = rows.write(tx, f"DELETE FROM peaks WHERE {of}", values).rowcount
    rows.write(tx, f"DELETE FROM learned WHERE {of}", values)
    return int(gone)


def of_jobs(tx: Connection, slug: str, variant: str, job_ids: list[int]) -> dict[int, Any]:
    """What the last measured attempt of each of these jobs of a provider used, by job id."""
    asked = (
        "SELECT * FROM peaks WHERE slug = :slug AND variant = :variant AND job_id IN"
        " (SELECT value FROM json_each(:ids)) ORDER BY id"
    )
    found = rows.found(tx, asked, {"slug": slug, "variant": variant, "ids": json.dumps(job_ids)})
    return {row.job_id: row for row in found}


def given_gib(tx: Connection, worker_ids: list[int]) -> dict[int, float]:
    """What each of these workers, also one that is gone, was charged for each of its devices, GiB, by worker id."""
    asked = (
        "SELECT l.worker_id, w.host_gib, l.pool, l.charge_gib FROM leases AS l JOIN workers AS w ON w.id = l.worker_id"
        " WHERE l.worker_id IN (SELECT value FROM json_each(:ids)) ORDER BY l.id"
    )
    charges: dict[tuple[int, float], dict[str, float]] = {}
    for row in rows.found(tx, asked, {"ids": json.dumps(worker_ids)}):
        charges.setdefault((row.worker_id, row.host_gib or 0.0), {})[row.pool] = row.charge_gib
    found = {worker_id: on_device_gib(each, host_gib) for (worker_id, host_gib), each in charges.items()}
    return {worker_id: gib for worker_id, gib in found.items() if gib is not None}


def idle_after(tx: Connection, slug: str, variant: str, job_ids: list[int]) -> list[Any]:
    """What the workers that these jobs ran on held after their load."""
    asked = (
        "SELECT * FROM peaks WHERE slug = :slug AND variant = :variant AND bucket IS NULL AND worker_id IN"
        " (SELECT worker_id FROM attempts WHERE job_id IN (SELECT value FROM json_each(:ids))) ORDER BY id"
    )
    return rows.found(tx, asked, {"slug": slug, "variant": variant, "ids": json.dumps(job_ids)})
