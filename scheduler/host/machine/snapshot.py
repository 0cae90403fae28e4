"""One snapshot of this machine: every reading with its source, or the reason why there is none.

The order matters: what holders use is sampled before and after the live figures, and the smaller counts, so that
memory which moves from owed to used in between is never counted as neither.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler.clock import monotonic_s, now_s, stamp
from scheduler.config import Settings
from scheduler.host.machine import cgroup, processes
from scheduler.host.machine.accelerators import accelerators
from scheduler.host.machine.holdings import BudgetOf, Holdings
from scheduler.host.machine.meminfo import FIELDS, meminfo, pressure_note
from scheduler.host.machine.probe import WITHIN_S, Probe
from scheduler.model.machine import GIB, Charge, Holding, Machine, Pool, Reading

RESERVE_SHARE = 1 / 8
DISK_SHARE = 0.02

Memory = tuple[dict[str, Reading], list[cgroup.Bound]]


@dataclass(frozen=True)
class MachineIdentity:
    """Which machine: `boot_id` names the time since its kernel started, `host_id` stays over boots."""

    boot_id: str
    host_id: str


class Snapshots:
    """Takes snapshots for one queue. `proc` and `root` are where the kernel's files are looked for."""

    def __init__(
        self,
        home: str,
        settings: Settings,
        who: MachineIdentity,
        *,
        queue_id: str,
        budget_of: BudgetOf,
        proc: str = "/proc",
        root: str = "/",
        within_s: float = WITHIN_S,
    ) -> None:
        self.home, self.settings, self.who = home, settings, who
        self.proc, self.root = proc, root
        self.unified = settings.text("unified").lower() != "auto" and settings.flag("unified")
        self.holdings = Holdings(queue_id, budget_of, proc)
        self._table: Probe[tuple[Holding, ...]] = Probe("the process table", within_s)
        self._again: Probe[tuple[Holding, ...]] = Probe("what holders use", within_s)
        self._memory: Probe[Memory] = Probe("host memory", within_s)
        self._devices: Probe[Reading] = Probe("accelerators", within_s)
        self._disk: Probe[tuple[float, float]] = Probe("the disk of the state folder", within_s)

    def take(self) -> Machine:
        """Everything as it is now; blocks for a few deadlines at most, whatever hangs."""
        held = self._table.ask(self._read_holdings)
        missing = self._table.missing
        memory = self._memory.ask(lambda: (meminfo(self.proc), cgroup.memory_bounds(self.proc)))
        if held is not None:
            first = held
            held = self._again.ask(lambda: self.holdings.again(first, monotonic_s())) or _unused(first)
        pool, notes = self._pool(memory)
        devices, competing = self._accelerators()
        free_gib, kept_gib, disk_note = self._disk_room()
        notes += [note for note in (processes.hidden(self.proc), pressure_note(self.proc), disk_note) if note]
        return Machine(
            at_s=now_s(),
            boot_id=self.who.boot_id,
            host_id=self.who.host_id,
            cores=cgroup.cores(self.proc),
            pools=(pool,),
            accelerators=devices,
            holdings=held or (),
            competing=competing,
            holdings_missing=missing,
            disk_free_gib=free_gib,
            disk_reserve_gib=kept_gib,
            notes=tuple(notes),
        )

    def _read_holdings(self) -> tuple[Holding, ...]:
        nothing = Reading(None, "")
        kind = self._kind()
        return self.holdings.read(
            processes.table(self.proc), [Pool(kind, kind, nothing, 0.0, nothing, nothing)], monotonic_s()
        )

    def _kind(self) -> str:
        return "unified" if self.unified else "host"

    def _accelerators(self) -> tuple[Reading, int | None]:
        """What there is, and how many compete on it: none can where there is none, else they could not be counted.

        The operator's word comes before the guess: `unified = true` is a device whose memory is the host's.
        """
        found = self._devices.ask(lambda: accelerators(self.root))
        reading = found if found is not None else Reading(None, "accelerators", self._devices.missing)
        competing = 0 if reading.value == 0 else None
        return (Reading(1.0, "setting unified = true") if self.unified else reading), competing

    def _pool(self, memory: Memory | None) -> tuple[Pool, list[str]]:
        info, bounds = memory or ({name: Reading(None, name, self._memory.missing) for name in FIELDS}, [])
        kind = self._kind()
        capacity = _tightest(info["MemTotal"], [bound.limit for bound in bounds])
        left = [bound.left for bound in bounds]
        asked_gib = self.settings.number(f"reserve_{kind}_gib")
        reserve_gib = asked_gib if capacity.value is None else min(asked_gib, capacity.value * RESERVE_SHARE)
        notes = []
        if capacity.value is not None and capacity.source != info["MemTotal"].source:
            notes.append(f"memory is limited to {capacity.value:.2f} GiB by {capacity.source}")
        free, available = _tightest(info["MemFree"], left), _tightest(info["MemAvailable"], left)
        return Pool(kind, kind, capacity, reserve_gib, free, available), notes

    def _disk_room(self) -> tuple[float | None, float, str]:
        """(free GiB, GiB kept free, a note): the smaller of the setting and 2 % of the disk is kept."""
        kept_gib = self.settings.number("disk_reserve_gib")
        room = self._disk.ask(lambda: _disk(self.home))
        if room is None:
            return None, kept_gib, self._disk.missing
        return room[0], min(kept_gib, room[1] * DISK_SHARE), ""


def unread(who: MachineIdentity, why: str) -> Machine:
    """A machine of which nothing is known: it admits nothing."""
    nothing = Reading(None, "", why)
    return Machine(
        at_s=now_s(), boot_id=who.boot_id, host_id=who.host_id, cores=1,
        pools=(Pool("host", "host", nothing, 0.0, nothing, nothing),), accelerators=nothing, competing=None,
        holdings_missing=why, disk_reserve_gib=0.0, notes=(why,),
    )  # fmt: skip


def aged(machine: Machine, age_s: float) -> Machine:
    """The same snapshot, its readings so many seconds older."""

    def older(reading: Reading) -> Reading:
        return replace(reading, age_s=age_s)

    pools = tuple(
        replace(p, capacity=older(p.capacity), free=older(p.free), available=older(p.available)) for p in machine.pools
    )
    return replace(machine, pools=pools, accelerators=older(machine.accelerators))


def facts(machine: Machine, leases: dict[str, Sequence[float]] | None = None) -> dict[str, Any]:
    """The snapshot as it is recorded and shown: `pools` and `others` as in `status --json`, `cores`, `notes`.

    `leases`: GiB of this queue's live leases by pool; without them the charges that its keepers show count.
    `accelerators` is their number, None = could not be read.
    """
    return {
        "pools": [_pool_facts(machine, pool, leases) for pool in machine.pools],
        "others": [
            row for holding in machine.holdings if holding.worker_id is None for row in _other(machine, holding)
        ],
        "cores": machine.cores,
        "accelerators": machine.accelerators.value,
        "accelerators_source": machine.accelerators.missing or machine.accelerators.source,
        "disk_free_gib": machine.disk_free_gib,
        "disk_reserve_gib": machine.disk_reserve_gib,
        "notes": [*machine.notes, *([machine.holdings_missing] if machine.holdings_missing else [])],
    }


def _pool_facts(machine: Machine, pool: Pool, leases: dict[str, Sequence[float]] | None) -> dict[str, Any]:
    charges = [(h, c) for h in machine.holdings for c in h.charges if c.pool == pool.id and c.charge_gib is not None]
    charged = [c.charge_gib or 0.0 for h, c in charges if leases is None or h.worker_id is None]
    charged += (leases or {}).get(pool.id, ())
    live = pool.free if pool.kind == "device" or machine.competing != 0 else pool.available
    return {
        "id": pool.id,
        "kind": pool.kind,
        "capacity_gib": pool.capacity.value,
        "capacity_source": pool.capacity.missing or pool.capacity.source,
        "reserve_gib": pool.reserve_gib,
        "charged_gib": math.fsum(charged),
        "others_gib": math.fsum(c.charge_gib or 0.0 for h, c in charges if h.worker_id is None),
        "owed_gib": math.fsum(map(_owed, (c for _, c in charges))),
        "others_owed_gib": math.fsum(_owed(c) for h, c in charges if h.worker_id is None),
        "live_gib": live.value,
        "live_source": live.missing or live.source,
    }


def _owed(charge: Charge) -> float:
    return max(0.0, (charge.charge_gib or 0.0) - (charge.used_gib or 0.0))


def _other(machine: Machine, holding: Holding) -> list[dict[str, Any]]:
    """A row a pool; `competes` None = it could not be told."""
    pools = {charge.pool: [c for c in holding.charges if c.pool == charge.pool] for charge in holding.charges}
    rows = []
    for pool, charges in pools.items():
        known = [charge.charge_gib for charge in charges if charge.charge_gib is not None]
        used = [charge.used_gib for charge in charges if charge.used_gib is not None]
        rows.append(
            {
                "pid": holding.pid,
                "user": holding.user,
                "name": holding.name,
                "command": holding.command,
                "pool": pool,
                "charge_gib": math.fsum(known) if len(known) == len(charges) else None,
                "used_gib": math.fsum(used) if used else None,
                "since_at": stamp(holding.since_s) if holding.since_s is not None else None,
                "competes": False if machine.competing == 0 else None,
            }
        )
    return rows


def _tightest(reading: Reading, bounds: Sequence[Reading]) -> Reading:
    """The smallest of a reading and what bounds it; one that is missing leaves no number at all."""
    every = [reading, *bounds]
    return next((each for each in every if each.value is None), min(every, key=lambda each: each.value or 0.0))


def _unused(holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """Holdings whose use could not be sampled again: nothing of it counts, all of their charges are owed."""
    return tuple(replace(h, charges=tuple(replace(c, used_gib=None) for c in h.charges)) for h in holdings)


def _disk(home: str) -> tuple[float, float]:
    folder = home
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize / GIB, room.f_blocks * room.f_frsize / GIB
