"""Leases: what each worker is charged on each pool, from before its spawn until the memory is back.

What is charged is always the SUM over the rows that are not released, never a counter (P3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from scheduler.errors import Fenced
from scheduler.model.states import LATE, LEASE, SAME, SAYS, advance
from scheduler.store import events, rows

CHARGED = "SELECT * FROM leases WHERE state <> 'released' ORDER BY worker_id, id"
BY_POOL = (
    "SELECT pool, sum(charge_gib) AS charge_gib FROM leases WHERE worker_id = :worker_id AND state <> 'released'"
    " GROUP BY pool"
)
OF_WORKER = (
    "SELECT id, pool, state, text FROM leases WHERE worker_id = :worker_id AND state <> 'released'"
    " AND (:pool = '' OR pool = :pool) ORDER BY id"
)
LOOSE = (
    "SELECT l.worker_id, l.slug, l.pool, l.before_gib, l.returning_at, w.boot_id, w.device, w.leader_pid,"
    " w.leader_started FROM leases l JOIN workers w ON w.id = l.worker_id"
    " WHERE l.state <> 'released' AND l.state IN ('returning', 'leaked') ORDER BY l.worker_id, l.id"
)


def reserve(
    tx: Connection,
    worker_id: int,
    slug: str,
    charges: dict[str, float],
    host_id: str,
    at: str,
    before_gib: Mapping[str, float | None] | None = None,
) -> dict[str, int]:
    """Charge a worker that is about to be parked, one row a pool; {pool: lease id}. GiB.

    In the same transaction in which the other leases were read: what fitted there fits still. `before_gib` is what of
    each pool is on nobody's name now: what its memory is back by when it has gone.
    """
    made = {}
    for pool, charge_gib in charges.items():
        done = rows.write(
        tx, "INSERT INTO leases (worker_id, slug, pool, charge_gib, state, host_id, reserved_at, before_gib)"
            " VALUES (:worker_id, :slug, :pool, :charge_gib, 'reserved', :host_id, :at, :before_gib)",
            {
                "worker_id": worker_id, "slug": slug, "pool": pool, "charge_gib": charge_gib, "host_id": host_id,
                "at": at, "before_gib": (before_gib or {}).get(pool),
            },
        )  # fmt: skip
        made[pool] = int(done.lastrowid)
    return made


def move(tx: Connection, worker_id: int, event: str, at: str, text: str = "", pool: str = "") -> list[str]:
    """Apply one event to the leases of a worker that are still charged; their states afterwards, [] = none is.

    `pool`: to that one alone. A lease that is leaked already keeps the newest `text`. IllegalTransition carries the
    worker's story.
    """
    after = []
    for row in rows.found(tx, OF_WORKER, {"worker_id": worker_id, "pool": pool}):
        cell = advance(LEASE, row.state, event, lambda: events.story(tx, worker_id=worker_id))
        state = row.state if cell in (SAME, SAYS, LATE) else cell
        after.append(state)
        if state == row.state and (event != "overdue" or not text or text == row.text):
            continue
        done = rows.write(
        tx, "UPDATE leases SET state = :state, released_at = :released_at, text = coalesce(:text, text),"
            " returning_at = coalesce(:returning_at, returning_at) WHERE id = :id AND state = :before",
            {
                "state": state, "released_at": at if state == "released" else None, "text": text or None,
                "returning_at": at if state == "returning" else None, "id": row.id, "before": row.state,
            },
        )  # fmt: skip
        if done.rowcount != 1:
            raise Fenced(f"lease {row.id} of worker {worker_id} is no longer {row.state}; nothing was changed")
        if state == row.state:
            continue
        events.record(
            tx, at, worker_id=worker_id, event=f"lease {state}", text=f"{row.pool}" + (f": {text}" if text else "")
        )
    return after


def resize(tx: Connection, worker_id: int, pool: str, charge_gib: float, at: str) -> None:
    """Raise or lower a held charge, in the transaction that claims the bigger job or records the measurement. GiB."""
    done = rows.write(
        tx,
        "UPDATE leases SET charge_gib = :charge_gib WHERE worker_id = :worker_id AND pool = :pool"
        " AND state <> 'released' AND state IN ('reserved', 'held')",
        {"charge_gib": charge_gib, "worker_id": worker_id, "pool": pool},
    )
    if done.rowcount != 1:
        raise Fenced(f"worker {worker_id} holds no lease on {pool} that can be resized; nothing was changed")
    events.record(tx, at, worker_id=worker_id, event="lease resized", text=f"{pool}: {charge_gib:g} GiB")


def by_pool(tx: Connection, worker_id: int) -> dict[str, float]:
    """What a worker is charged on each pool, GiB."""
    found: dict[str, float] = {}
    for row in rows.found(tx, BY_POOL, {"worker_id": worker_id}):
        found[row.pool] = float(row.charge_gib)
    return found


def charged(tx: Connection) -> list[Any]:
    """Every lease row that is charged: id, worker_id, slug, pool, charge_gib, state, host_id, ..."""
    return rows.found(tx, CHARGED)


def is_spent(tx: Connection, worker_id: int) -> bool:
    """Whether this worker was ever let go: until then its keeper holds no memory of what it is charged for."""
    return any(row.state != "reserved" for row in rows.found(tx, OF_WORKER, {"worker_id": worker_id, "pool": ""}))


def loose(tx: Connection) -> list[Any]:
    """The charged leases whose worker is gone, and what is known of it: pool, before_gib, returning_at, boot_id, ..."""
    return rows.found(tx, LOOSE)


def write_off(tx: Connection, worker_id: int, who: str, at: str, pool: str = "") -> tuple[list[Any], list[Any]]:
    """An operator takes the leaked charges of a worker for lost: (those that are written off, those that stay charged).

    Only what is leaked is written off: of a living worker, and of one whose memory may still come back, nothing is.
    """
    those = [row for row in charged(tx) if row.worker_id == worker_id and pool in ("", row.pool)]
    leaked = [row for row in those if row.state == "leaked"]
    for row in leaked:
        move(tx, worker_id, "write_off", at, f"written off by {who}; last seen: {row.text or 'nothing'}", row.pool)
    return leaked, [row for row in those if row.state != "leaked"]
