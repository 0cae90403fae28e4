"""The machine and its workers as they were last written down. Standard library only: read by `status`."""

from __future__ import annotations

import json
import sqlite3

from scheduler.clock import seconds
from scheduler.store import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORKERS = "SELECT * FROM workers WHERE state <> 'gone' ORDER BY id"
CHARGED = "SELECT worker_id, pool, charge_gib, state FROM leases WHERE state <> 'released'"
DOING = (
    "SELECT worker_id, id FROM jobs WHERE state IN ('held', 'admitted', 'running') AND state IN ('admitted', 'running')"
)
LOOSE = (
    "SELECT worker_id, slug, pool, charge_gib, state, returning_at, text FROM leases"
    " WHERE state <> 'released' AND state IN ('returning', 'leaked') ORDER BY worker_id, id"
)
GONE = ("returning", "leaked")
GROWING = ("reserved", "held")
"""States of a lease whose worker can still touch more of it."""


def facts(connection: sqlite3.Connection) -> tuple[str, dict[str, Any]] | None:
    """(stamp, snapshot) of this machine as it was last seen, else of the one that was seen last."""
    row = connection.execute("SELECT at, snapshot FROM facts WHERE host_id = ?", (identity.host_id(),)).fetchone()
    row = row or connection.execute("SELECT at, snapshot FROM facts ORDER BY at DESC LIMIT 1").fetchone()
    return None if row is None else (row["at"], json.loads(row["snapshot"]))


def machine(connection: sqlite3.Connection) -> dict[str, Any]:
    """The last recorded snapshot, its charges summed anew from the live leases.

    What is owed is of the snapshot, as far as those who can still touch it are charged now.
    """
    import math

    found = facts(connection)
    if found is None:
        return {}
    at, snapshot = found
    charged: dict[str, list[float]] = {}
    growing: dict[str, list[float]] = {}
    left: dict[str, float] = {}
    for _, pool, charge_gib, state in connection.execute(CHARGED):
        charged.setdefault(pool, []).append(charge_gib)
        if state in GONE:
            left[pool] = left.get(pool, 0.0) + charge_gib
        if state in GROWING:
            growing.setdefault(pool, []).append(charge_gib)
    pools = []
    for pool in snapshot.get("pools", []):
        twice_gib = min(pool.get("nobodys_gib") or 0.0, left.get(pool["id"], 0.0))  # what is not back, in use
        held_gib = math.fsum([*charged.get(pool["id"], ()), pool.get("others_gib") or 0.0, -twice_gib])
        most_gib = math.fsum([*growing.get(pool["id"], ()), pool.get("others_owed_gib") or 0.0])
        owed_gib = min(pool.get("owed_gib") or 0.0, most_gib)
        pools.append({**pool, "charged_gib": held_gib, "owed_gib": owed_gib})
    return {
        "facts_at": at, "pools": pools, "others": snapshot.get("others", []), "cores": snapshot.get("cores"),
        "notes": snapshot.get("notes", []), "unreturned": loose(connection),
        "guard": snapshot.get("guard", {}), "reclaim": snapshot.get("reclaim", {}),
        "disk": {
            **{key: snapshot.get(f"disk_{key}") for key in ("free_gib", "reserve_gib", "of")},
            "destinations": snapshot.get("disks", []), "usage": snapshot.get("usage"),
        },
    }  # fmt: skip


def loose(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Charges whose worker is gone: `returning` = its memory is expected back, `leaked` = it did not come.

    `since_at` is when the last of it ended, `text` what was last seen of what is missing.
    """
    names = ("worker_id", "slug", "pool", "charge_gib", "state", "since_at", "text")
    return [dict(zip(names, row, strict=True)) for row in connection.execute(LOOSE)]


def workers(connection: sqlite3.Connection, at_s: float) -> list[dict[str, Any]]:
    """Every worker that is not gone: its charges, what it was last seen to use, its job, how long it is idle.

    `unkillable`: it was told to stop and is not gone a minute after its grace; what it holds stays charged.
    """
    charges: dict[int, list[dict[str, Any]]] = {}
    found = facts(connection)
    used = found[1].get("used_gib", {}) if found else {}
    for worker_id, pool, charge_gib, _ in connection.execute(CHARGED):
        by_pool = used.get(str(worker_id))
        used_gib = by_pool.get(pool) if isinstance(by_pool, dict) else None
        charges.setdefault(worker_id, []).append({"pool": pool, "charge_gib": charge_gib, "used_gib": used_gib})
    doing = {row["worker_id"]: row["id"] for row in connection.execute(DOING)}
    answer = []
    for row in connection.execute(WORKERS):
        idle = row["state"] == "ready" and row["idle_since_at"] is not None
        overdue = row["state"] == "retiring" and row["overdue_at"] is not None and at_s >= seconds(row["overdue_at"])
        answer.append(
            {
                "id": row["id"],
                "slug": row["slug"],
                "variant": row["variant"],
                "state": row["state"],
                "pid": row["leader_pid"] or row["keeper_pid"],
                "charges": charges.get(row["id"], []),
                "idle_s": max(0.0, at_s - seconds(row["idle_since_at"])) if idle else None,
                "jobs_served": row["jobs_served"],
                "warm_hits": row["warm_hits"],
                "job_id": doing.get(row["id"]),
                "device": row["device"],
                "pinned": bool(row["pinned"]),
                "retire_after": row["retire_after"],
                "why": row["why"],
                "unkillable": overdue,
                "created_at": row["created_at"],
            }
        )
    return answer
