"""The pools over time: what the picture of a night is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows

INSERT = (
    "INSERT OR REPLACE INTO samples (at, host_id, pool, capacity_gib, reserve_gib, charged_gib, used_gib, live_gib)"
    " VALUES (:at, :host_id, :pool, :capacity_gib, :reserve_gib, :charged_gib, :used_gib, :live_gib)"
)
FORGET = "DELETE FROM samples WHERE at < :before"


def put(tx: Connection, host_id: str, at: str, pools: Sequence[Mapping[str, Any]]) -> None:
    """Keep the pools of a host as they are at this stamp, GiB: as rules.sampling.figures_of has them."""
    for pool in pools:
        rows.write(tx, INSERT, {**pool, "host_id": host_id, "at": at})


def forget(tx: Connection, before: str) -> int:
    """Forget what is older than this stamp; how many rows that were. Led by the primary key."""
    return int(rows.write(tx, FORGET, {"before": before}).rowcount)
