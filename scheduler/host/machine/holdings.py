"""Who holds memory on this machine, and what each is charged, whichever queue, checkout or user started it.

Workers from the process table (`holders` says who is one), strangers that a driver lists on a device, and what a
device holds on nobody's name. A worker of this queue is charged what its lease says; anybody else at least what they
are seen to hold, pool by pool. Where a driver lists a worker, its device charge stands there; where none does, on
every device that it could be on (P4).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.host.machine.asked import Asked
from scheduler.host.machine.attribution import (
    Sighting,
    leftover,
    only_ours,
    places,
    pool_of,
    sightings,
    taken_for_ours,
    takes_devices,
    together,
    unattributed,
)
from scheduler.host.machine.declared import Budget, Told, amount, budget
from scheduler.host.machine.declared import BudgetOf as BudgetOf
from scheduler.host.machine.declared import DeclaredOf as DeclaredOf
from scheduler.host.machine.holders import Holder, command_name, holders, printable
from scheduler.host.machine.host_use import HostUse
from scheduler.host.machine.processes import Process
from scheduler.model.machine import Charge, Device, Holding, Pool

HOST_KINDS = ("host", "unified")
WHOLE, ASTRAY = "whole", "astray"
"""Parts of a charge: both budgets of unified memory as one; a device that a worker has no claim on and is on."""
DEVICE_PARTS = ("device", WHOLE, ASTRAY)
"""Parts whose use a driver tells, so that it is not sampled again here."""
SHOWN = 200


def undeclared(slug: str, pid: int, started: float) -> Budget | None:
    """No operator declared anything."""
    return None


@dataclass(frozen=True)
class Here:
    """The machine while its holders are read: pools, devices, whom drivers list (pid -> pool), when it booted."""

    pools: Sequence[Pool]
    devices: Sequence[Device]
    seen: Mapping[int, Mapping[str, Sighting]]
    booted_s: float | None
    now_s: float

    @property
    def blind(self) -> bool:
        """Whether a driver does not say who is on its device."""
        return any(device.tenants_missing for device in self.devices)


class Holdings:
    """Reads every holding of this machine, again and again, for one queue.

    `declared_of` says what an operator declared of a holder. `unattributed` = "ours": device memory on nobody's name is
    that of this queue's own workers there, up to their charges; "charged" = it is a row of its own.
    """

    def __init__(
        self,
        queue_id: str,
        budget_of: BudgetOf,
        proc: str = "/proc",
        *,
        declared_of: DeclaredOf = undeclared,
        unattributed: str = "charged",
    ) -> None:
        self.queue_id, self.budget_of, self.declared_of = queue_id, budget_of, declared_of
        self.unattributed = unattributed
        self.use = HostUse(proc)
        self.asked = Asked(proc)
        self._trees: dict[int, tuple[Process, ...]] = {}
        self._first: dict[int, float] = {}

    def read(
        self, processes: dict[int, Process], pools: Sequence[Pool], now_s: float, devices: Sequence[Device] = ()
    ) -> tuple[Holding, ...]:
        """Every holding, by pid, with what it is charged for and uses; last, what is on nobody's name.

        `now_s` is monotonic. A process that goes while it is read holds what could be read of it.
        """
        here = Here(pools, devices, sightings(devices, pools), self.asked.booted_s(), now_s)
        self._trees.clear()
        self._first.clear()
        found, known = [], set()
        for holder in holders(processes, self.asked):
            known |= {holder.process.pid, *(process.pid for process in holder.tree)}
            found.append(self._kept(holder, here) if holder.claim is not None else self._loose(holder, here))
        found += [self._stranger(pid, processes.get(pid), here) for pid in here.seen if pid not in known]
        found = _distinct(sorted(found, key=lambda holding: holding.pid))
        left = leftover(devices, pools)
        ours = left if self.unattributed == "ours" else only_ours(found, devices, self._whose(found))
        found, left = taken_for_ours(found, left, ours)
        self.use.forget(now_s)
        self.asked.forget(processes)
        return (*found, *unattributed(left, devices))

    def _whose(self, found: Iterable[Holding]) -> dict[int, int]:
        """The pid of the holding that each process belongs to."""
        return {process.pid: each.pid for each in found for process in self._trees.get(each.pid, ())}

    def again(self, holdings: Sequence[Holding], now_s: float) -> tuple[Holding, ...]:
        """Holdings just read, their host use sampled once more and the smaller kept: what is owed is not too little.

        What they hold on devices stands as it is: its readers sample it twice themselves.
        """
        found = []
        for holding in holdings:
            used_gib = self.use.gib(self._trees.get(holding.pid, ()), now_s) or 0.0
            less_gib = max(0.0, self._first.get(holding.pid, 0.0) - used_gib)
            charges = tuple(_again(charge, used_gib, less_gib) for charge in holding.charges)
            found.append(replace(holding, charges=charges))
        return tuple(found)

    def _kept(self, holder: Holder, here: Here) -> Holding:
        """A keeper's holding: charged what its claim says; a claim that cannot be read is an unknown one.

        A device that it holds memory on and claims nothing of is charged what it holds there.
        """
        claim, worker = holder.claim or {}, (holder.mark or ("", ""))[1]
        is_ours = (
            claim.get("queue") == self.queue_id and worker.isdigit() and self.asked.uid(holder.process) == os.getuid()
        )
        used, on = self._host_use(holder, here), _on(holder, here)
        said = _said(claim.get("charge", ""), here)
        charges: list[Charge] = []
        if said is None:
            operators = self.declared_of(holder.slug, holder.process.pid, holder.process.started)
            charges = self._charges(Told(*(operators or (None, None))), used, on, list(_all_places(here)), here)
        else:
            budget = self.budget_of(holder.slug)
            for pool_id, gib in said.items():
                parts = _parts(pool_id, gib, budget, used, on, here)
                charges += parts if is_ours else [_at_least_used(charge) for charge in parts]
            counted = {charge.pool for charge in charges if charge.part in DEVICE_PARTS}
            charges += [
                Charge(pool, one.used_gib, one.used_gib, ASTRAY)
                for pool, one in on.items()
                if pool and pool not in counted and one.used_gib
            ]
        competes = False if is_ours else _competes(on, here)
        held = self._holding(holder.process, holder.name, charges, here, int(worker) if is_ours else None, competes)
        return replace(held, listed=_listed(holder, here)) if is_ours and on else held

    def _loose(self, holder: Holder, here: Here) -> Holding:
        """The holding of a worker without a keeper: charged its budget, or unknown wherever it could be."""
        queue, worker = holder.mark or ("", "")
        is_ours = holder.mark is not None and queue == self.queue_id and worker.isdigit()
        said = budget(holder, self.budget_of, self.declared_of)
        used, on = self._host_use(holder, here), _on(holder, here)
        where = [pool for pool in on if pool] if on else places(holder.environment or {}, here.devices, here.pools)
        charges = self._charges(said, used, on, where, here)
        name = f"{holder.name} ({said.wrong})" if said.wrong else holder.name
        held = self._holding(holder.process, name, charges, here, int(worker) if is_ours else None, _competes(on, here))
        return replace(held, listed=_listed(holder, here)) if is_ours and on else held

    def _stranger(self, pid: int, process: Process | None, here: Here) -> Holding:
        """A process that a driver lists and that is no worker: charged what the driver says, or what was declared.

        Where the driver names no figure it is charged nothing: what it holds is among what is on nobody's name.
        """
        name, on = command_name(process), here.seen[pid]
        told = self.declared_of(name, pid, process.started) if process is not None else None
        device_gib, host_gib = told or (0.0, 0.0)
        charges = []
        if process is not None:
            self._trees[pid] = (process,)
            used = self.use.gib(self._trees[pid], here.now_s)
            for pool in here.pools:
                if pool.kind in HOST_KINDS and (host_gib or pool.id in on):
                    charges.append(Charge(pool.id, max(host_gib, used or 0.0), used, "host"))
        for pool_id, one in on.items():
            if pool_id:
                charges.append(Charge(pool_id, max(device_gib, one.used_gib or 0.0), one.used_gib, "device"))
        if process is None:
            return Holding(name, pid, "", tuple(charges), competes=_competes(on, here))
        return self._holding(process, name, charges, here, None, _competes(on, here))

    def _charges(
        self, said: Told, used: float | None, on: Mapping[str, Sighting], where: Sequence[str], here: Here
    ) -> list[Charge]:
        """A budget on the host's pool and on those of `where`; what is not known is unknown there, and only there."""
        charges = []
        for pool in here.pools:
            if pool.kind in HOST_KINDS:
                charges.append(_at_least_used(Charge(pool.id, said.host_gib, used, "host")))
            if takes_devices(pool) and pool.id in where:
                there = on[pool.id].used_gib if pool.id in on else None
                if said.device_gib != 0 or there:
                    charges.append(_at_least_used(Charge(pool.id, said.device_gib, there, "device")))
        return charges

    def _host_use(self, holder: Holder, here: Here) -> float | None:
        """Host GiB of a holder's processes; 0.0 for a keeper that has none yet."""
        self._trees[holder.process.pid] = holder.tree
        used = self.use.gib(holder.tree, here.now_s) if holder.tree else 0.0
        self._first[holder.process.pid] = used or 0.0
        return used

    def _holding(
        self,
        process: Process,
        name: str,
        charges: Sequence[Charge],
        here: Here,
        worker_id: int | None,
        competes: bool | None,
    ) -> Holding:
        command = printable(" ".join(process.argv)[: 4 * SHOWN])
        return Holding(
            name=printable(name),
            pid=process.pid,
            user=self.asked.user(process),
            charges=tuple(charges),
            worker_id=worker_id,
            command=command if len(command) <= SHOWN else command[: SHOWN - 1] + "\u2026",
            since_s=None if here.booted_s is None else here.booted_s + process.started / os.sysconf("SC_CLK_TCK"),
            competes=competes,
        )


def _on(holder: Holder, here: Here) -> dict[str, Sighting]:
    return together((process.pid for process in holder.tree), here.seen)


def _listed(holder: Holder, here: Here) -> tuple[tuple[int, float], ...]:
    return tuple((process.pid, process.started) for process in holder.tree if process.pid in here.seen)


def _all_places(here: Here) -> Iterable[str]:
    return (pool.id for pool in here.pools if takes_devices(pool))


def _competes(on: Mapping[str, Sighting], here: Here) -> bool | None:
    """Whether a driver lists it as computing; None if it does not, and not every driver says who is there."""
    if any(one.computes for one in on.values()):
        return True
    return None if here.blind else False


def _again(charge: Charge, used_gib: float, less_gib: float) -> Charge:
    """A charge whose holder's host use was sampled once more, and was so much less than the first time."""
    if charge.used_gib is None or charge.part in ("device", ASTRAY):
        return charge
    if charge.part == WHOLE:
        return replace(charge, used_gib=max(0.0, charge.used_gib - less_gib))
    return replace(charge, used_gib=min(charge.used_gib, used_gib))


def _at_least_used(charge: Charge) -> Charge:
    if charge.charge_gib is None or charge.used_gib is None:
        return charge
    return replace(charge, charge_gib=max(charge.charge_gib, charge.used_gib))


def _distinct(found: Sequence[Holding]) -> list[Holding]:
    """The same holdings, the second of a name and later ones with a number, in their order."""
    count: dict[str, int] = {}
    named = []
    for holding in found:
        count[holding.name] = number = count.get(holding.name, 0) + 1
        named.append(holding if number == 1 else replace(holding, name=f"{holding.name}#{number}"))
    return named


def _said(words: str, here: Here) -> dict[str, float] | None:
    """Pool -> GiB of a claim's `charge=` words; None if any of them is no finite amount, or there are none.

    A claim counts on the pool that this queue takes the memory for: host, unified or a device's.
    """
    host = next((pool.id for pool in here.pools if pool.kind in HOST_KINDS), None)
    homes = {f"device:{device.id}": pool_of(device, here.pools) for device in here.devices}
    found: dict[str, float] = {}
    for word in words.split():
        pool_id, _, text = word.rpartition(":")
        gib = amount(text)
        if not pool_id or gib is None:
            return None
        if host is not None and pool_id in HOST_KINDS:
            pool_id = host
        pool_id = homes.get(pool_id) or pool_id
        found[pool_id] = found.get(pool_id, 0.0) + gib
    return found or None


def _parts(
    pool_id: str, gib: float, budget: Budget | None, used: float | None, on: Mapping[str, Sighting], here: Here
) -> list[Charge]:
    """A claimed amount as charges: on unified memory, what is beyond the host budget is the device's.

    Where nobody here knows that budget the amount is one, and what it uses of both is one too.
    """
    kind = next((pool.kind for pool in here.pools if pool.id == pool_id), "device")
    there = on[pool_id].used_gib if pool_id in on else None
    if kind not in HOST_KINDS:
        return [Charge(pool_id, gib, there, "device")]
    if budget is None and there is not None:
        return [Charge(pool_id, gib, there + (used or 0.0), WHOLE)]
    device_gib, host_gib = budget or (0.0, math.inf)
    on_host = gib if kind == "host" or not device_gib else min(gib, host_gib)
    charges = [Charge(pool_id, on_host, used, "host")]
    if gib > on_host:
        charges.append(Charge(pool_id, gib - on_host, there, "device"))
    return charges
