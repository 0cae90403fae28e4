"""A snapshot as it is recorded and shown: what `status` and `machine` say of pools, and of who holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.clock import stamp
from scheduler.host.machine.holdings import ASTRAY
from scheduler.model.machine import Charge, Holding, Machine, Pool, Reading


def facts(
    machine: Machine, leases: Mapping[str, Sequence[float]] | None = None, loose: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The snapshot as it is recorded and shown: `pools` and `others` as in `status --json`, `cores`, `notes`.

    `leases`: GiB of this queue's live leases by pool; without them the charges that its keepers show count. `loose`:
    GiB of those among them whose worker is gone: what of that is in use is on nobody's name, and counts once.
    `accelerators` is their number, None = could not be read. `used_gib` is what each worker of this queue was seen to
    use, by worker id and pool.
    """
    return {
        "pools": [_pool(machine, pool, leases, loose or {}) for pool in machine.pools],
        "others": [row for holding in machine.others for row in other_rows(holding)],
        "used_gib": {str(worker_id): used_of(holding) for worker_id, holding in machine.ours.items()},
        "cores": machine.cores,
        "accelerators": machine.accelerators.value,
        "accelerators_source": machine.accelerators.missing or machine.accelerators.source,
        "competing": machine.competing,
        "disk_free_gib": machine.disk_free_gib,
        "disk_reserve_gib": machine.disk_reserve_gib,
        "disk_of": machine.disk_of,
        "disks": [
            {"path": path, "free_gib": disk.free_gib, "reserve_gib": disk.reserve_gib, "missing": disk.missing}
            for path, disk in sorted((machine.destinations or {}).items())
        ],
        "notes": [*machine.notes, *([machine.holdings_missing] if machine.holdings_missing else [])],
    }


def used_of(holding: Holding) -> dict[str, float]:
    """GiB that a holding was seen to use, by pool; a pool where nothing could be read is left out."""
    return {pool_id: part.used_gib for pool_id, part in holding.parts.items() if part.seen}


def live_of(machine: Machine, pool: Pool) -> Reading:
    """What a start on this pool is measured against, by who competes on this machine."""
    return pool.free if pool.kind == "device" or machine.competing != 0 else pool.available


def other_rows(holding: Holding) -> list[dict[str, Any]]:
    """A row a pool of one that is not ours; `competes` None = it could not be told."""
    return [
        {
            "pid": holding.pid or None,
            "user": holding.user,
            "name": holding.name,
            "command": holding.command,
            "pool": pool_id,
            "charge_gib": part.charge_gib,
            "used_gib": part.used_gib if part.seen else None,
            "since_at": stamp(holding.since_s) if holding.since_s is not None else None,
            "competes": holding.competes,
        }
        for pool_id, part in holding.parts.items()
    ]


def _pool(
    machine: Machine, pool: Pool, leases: Mapping[str, Sequence[float]] | None, loose: Mapping[str, float]
) -> dict[str, Any]:
    charges = [(h, c) for h in machine.holdings for c in h.charges if c.pool == pool.id and c.charge_gib is not None]
    charged = [c.charge_gib or 0.0 for h, c in charges if leases is None or h.worker_id is None or c.part == ASTRAY]
    charged += (leases or {}).get(pool.id, ())
    nobodys = math.fsum(c.charge_gib or 0.0 for h, c in charges if not h.pid and h.worker_id is None)
    charged.append(-min(nobodys, loose.get(pool.id, 0.0)))
    live = live_of(machine, pool)
    return {
        "id": pool.id,
        "kind": pool.kind,
        "name": pool.name,
        "partial": pool.partial,
        "capacity_gib": pool.capacity.value,
        "capacity_source": pool.capacity.missing or pool.capacity.source,
        "reserve_gib": pool.reserve_gib,
        "charged_gib": math.fsum(charged),
        "others_gib": math.fsum(c.charge_gib or 0.0 for h, c in charges if h.worker_id is None or c.part == ASTRAY),
        "nobodys_gib": nobodys,
        "owed_gib": math.fsum(map(_owed, (c for _, c in charges))),
        "others_owed_gib": math.fsum(_owed(c) for h, c in charges if h.worker_id is None),
        "live_gib": live.value,
        "live_source": live.missing or live.source,
    }


def _owed(charge: Charge) -> float:
    return max(0.0, (charge.charge_gib or 0.0) - (charge.used_gib or 0.0))
