"""Charges that are being raised for a larger job: what they were before, until all have seen what they are raised to.

The leases are raised in the transaction that admits the job to the worker, so that nothing else of this queue is
admitted into that room; what they were stands with the worker, so that a scheduler that starts anew can go on or back.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.store import leases, rows

PUT = "UPDATE workers SET raising = :raising WHERE id = :id"


def begin(tx: Connection, worker_id: int, charges: dict[str, float], host_gib: float, at: str) -> None:
    """Raise a worker's charges to these, by pool, and keep what they were. `host_gib` is the host's part of them."""
    before = leases.by_pool(tx, worker_id)
    _resize(tx, worker_id, charges, at)
    told = json.dumps({"before": before, "host_gib": host_gib})
    rows.write(tx, PUT, {"raising": told, "id": worker_id})


def of(row: Any) -> dict[str, Any]:
    """What a worker's row says of it: `before`, `host_gib`; {} = nothing is raised."""
    return json.loads(row.raising) if row.raising else {}


def settle(tx: Connection, worker_id: int, raising: dict[str, Any]) -> None:
    """They stay raised: all have seen them, and they fit."""
    rows.write(
        tx, "UPDATE workers SET raising = NULL, host_gib = :host_gib WHERE id = :id",
        {"host_gib": raising["host_gib"], "id": worker_id},
    )  # fmt: skip


def undo(tx: Connection, worker_id: int, raising: dict[str, Any], at: str) -> None:
    """They are again what they were."""
    _resize(tx, worker_id, raising["before"], at)
    rows.write(tx, PUT, {"raising": None, "id": worker_id})


def _resize(tx: Connection, worker_id: int, charges: dict[str, float], at: str) -> None:
    before = leases.by_pool(tx, worker_id)
    for pool, gib in charges.items():
        if gib != before.get(pool):
            leases.resize(tx, worker_id, pool, gib, at)
