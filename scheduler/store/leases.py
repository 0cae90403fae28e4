"""Leases: what each worker is charged on each pool, from before its spawn until the memory is back.

What is charged is always the SUM over the rows that are not released, never a counter (P3).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.errors import Fenced
from scheduler.model.states import LATE, LEASE, SAME, SAYS, advance
from scheduler.store import events, rows

CHARGED = "SELECT * FROM leases WHERE state <> 'released' ORDER BY worker_id, id"
OF_WORKER = "SELECT id, pool, state FROM leases WHERE worker_id = :worker_id AND state <> 'released' ORDER BY id"


def reserve(
    tx: Connection, worker_id: int, slug: str, charges: dict[str, float], host_id: str, at: str
) -> dict[str, int]:
    """Charge a worker that is about to be parked, one row a pool; {pool: lease id}. GiB.

    In the same transaction in which the other leases were read: what fitted there fits still.
    """
    made = {}
    for pool, charge_gib in charges.items():
        done = rows.write(
        tx, "INSERT INTO leases (worker_id, slug, pool, charge_gib, state, host_id, reserved_at)"
            " VALUES (:worker_id, :slug, :pool, :charge_gib, 'reserved', :host_id, :at)",
            {
                "worker_id": worker_id, "slug": slug, "pool": pool, "charge_gib": charge_gib, "host_id": host_id,
                "at": at,
            },
        )  # fmt: skip
        made[pool] = int(done.lastrowid)
    return made


def move(tx: Connection, worker_id: int, event: str, at: str, text: str = "") -> list[str]:
    """Apply one event to every lease of a worker that is still charged; their states afterwards, [] = none is.

    IllegalTransition carries the worker's story.
    """
    after = []
    for row in rows.found(tx, OF_WORKER, {"worker_id": worker_id}):
        cell = advance(LEASE, row.state, event, lambda: events.story(tx, worker_id=worker_id))
        state = row.state if cell in (SAME, SAYS, LATE) else cell
        after.append(state)
        if state == row.state:
            continue
        done = rows.write(
        tx, "UPDATE leases SET state = :state, released_at = :released_at, text = coalesce(:text, text)"
            " WHERE id = :id AND state = :before",
            {
                "state": state, "released_at": at if state == "released" else None, "text": text or None,
                "id": row.id, "before": row.state,
            },
        )  # fmt: skip
        if done.rowcount != 1:
            raise Fenced(f"lease {row.id} of worker {worker_id} is no longer {row.state}; nothing was changed")
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


def charged(tx: Connection) -> list[Any]:
    """Every lease row that is charged: id, worker_id, slug, pool, charge_gib, state, host_id, ..."""
    return rows.found(tx, CHARGED)
