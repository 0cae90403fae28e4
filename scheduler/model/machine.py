"""What is known of a machine at one moment: pools, readings, holdings. Values only.

A reading is a number with its source and time, or says why there is none: a probe that failed is not a
zero, and a machine that could not be read is not an empty one (P4). Memory is GiB, as float, everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

GIB = 1 << 30
MOST_GIB = 2.0**30
"""No figure of memory is larger: an exabyte."""


@dataclass(frozen=True)
class Reading:
    """One measured number (`value`), or the reason why there is none (`missing`), or neither: not applicable."""

    value: float | None
    source: str
    missing: str = ""
    age_s: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it was tried and could not be read; unknown never admits."""
        return self.value is None and bool(self.missing)


@dataclass(frozen=True)
class Tenant:
    """A process that a driver lists on a device.

    `used_gib` None = the driver does not say how much it holds there. `computes`: it is no graphics process only.
    """

    pid: int
    used_gib: float | None = None
    computes: bool = True


@dataclass(frozen=True)
class Device:
    """One accelerator, or one instance of a partitioned one, as its driver tells of it. GiB.

    `id` names it for good (`GPU-...`, `MIG-...`, a PCI address) and so its pool. `seen_as` is what a worker is given
    so that it sees this one. A total, free or used that is not applicable = the driver says that there is no such
    figure. `tenants_missing` says why nobody knows who is on it. `integrated`: it shares the machine's memory.
    `partial`: a process sees one such instance at most. `driver` is its driver's version, "" = not told.
    """

    id: str
    vendor: str
    name: str
    total: Reading
    free: Reading
    used: Reading
    tenants: tuple[Tenant, ...] = ()
    tenants_missing: str = ""
    integrated: bool = False
    partial: bool = False
    display: bool = False
    slot: str = ""
    number: int | None = None
    seen_as: str = ""
    driver: str = ""

    @property
    def in_use(self) -> Reading:
        """What is in use of it: as its driver says, or, where it does not, its total less what is free."""
        if self.used.value is not None or self.used.failed or self.total.value is None or self.free.value is None:
            return self.used
        return Reading(max(0.0, self.total.value - self.free.value), f"{self.free.source}: total less free")


@dataclass(frozen=True)
class Pool:
    """One memory that budgets come out of: `unified`, `device:<uuid>` or `host`. All in GiB.

    `name` is the device's own, `vendor` whose driver it is on, `driver` that one's version, `seen_as` what a worker is
    given so that it sees it. `partial`: a worker can have one such pool at most. `shared`: host memory that a device
    takes its own from too, or may: what is charged for devices that have no pool counts here.
    """

    id: str
    kind: str
    capacity: Reading
    reserve_gib: float
    free: Reading
    available: Reading
    name: str = ""
    vendor: str = ""
    seen_as: str = ""
    partial: bool = False
    shared: bool = False
    driver: str = ""


@dataclass(frozen=True)
class Charge:
    """What a holding costs one pool; None = it holds something there and nobody said how much.

    `part` says which of a unified pool's two budgets it is: `device` or `host`; they are owed apart. A holding may
    have several charges on one pool. `used_gib` None = could not be read.
    """

    pool: str
    charge_gib: float | None
    used_gib: float | None = None
    part: str = ""


class Part(NamedTuple):
    """What one holding is to one pool, its charges there summed once. GiB.

    `charge_gib` None = nobody declared it. `used_gib` counts what could be read, `on_device_gib` the part of it that is
    the device's. Each charge is owed apart: one never pays another. `seen`: some of its use could be read.
    """

    charge_gib: float | None
    used_gib: float
    on_device_gib: float
    owed_gib: float
    seen: bool


class Held(NamedTuple):
    """One holder's part of one pool: charged (None = nobody declared it), used so far, and still to be touched. GiB."""

    name: str
    charge_gib: float | None
    used_gib: float
    owed_gib: float


@dataclass(frozen=True)
class Holding:
    """A present worker process on this machine, whoever started it.

    `name` is the slug, `slug@tree` for another checkout's, the command of a stranger on a device; pid 0 stands for
    what a driver attributes to nobody. `worker_id` is set for this queue's own. `since_s` is when it started, seconds
    since the epoch. `competes`: it computes on a device and may win memory that is being reclaimed; None = unknown.
    `listed` are (pid, start) of its processes that a driver lists, start in clock ticks since boot.
    """

    name: str
    pid: int
    user: str
    charges: tuple[Charge, ...]
    worker_id: int | None = None
    command: str = ""
    since_s: float | None = None
    competes: bool | None = False
    listed: tuple[tuple[int, float], ...] = ()

    @cached_property
    def parts(self) -> dict[str, Part]:
        """What it is to each pool that it is on."""
        return {charge.pool: _part([c for c in self.charges if c.pool == charge.pool]) for charge in self.charges}

    @cached_property
    def told(self) -> str:
        """Its name, with what tells it from others of that name."""
        if not self.pid:
            return self.name
        return f"{self.name} (pid {self.pid}{f', {self.user}' if self.user else ''})"

    def held(self, part: Part) -> Held:
        """One of its parts, as a verdict has it."""
        return Held(self.told, part.charge_gib, part.used_gib, part.owed_gib)


ON_DEVICE = ("device", "astray")
"""Parts of a charge that are a device's; `astray`: of one that its worker has no claim on, and is on."""


def device_part(pool_id: str) -> str:
    """Under which name it is told, beside what was used of a unified pool, how much of that was its device's."""
    return f"{pool_id}/device"


def is_amount(gib: float | None) -> bool:
    """Whether it is an amount of memory: a number from 0 to `MOST_GIB`."""
    return gib is not None and 0.0 <= gib <= MOST_GIB


def _part(charges: list[Charge]) -> Part:
    """What is no amount of memory was not declared, or not seen."""
    charged, used, on_device, owed = [], [], [], []
    for charge in charges:
        gib, used_gib = charge.charge_gib, charge.used_gib
        if used_gib is None or not 0.0 <= used_gib <= MOST_GIB:
            used_gib = 0.0
        else:
            used.append(used_gib)
            if charge.part in ON_DEVICE:
                on_device.append(used_gib)
        if gib is not None and 0.0 <= gib <= MOST_GIB:
            charged.append(gib)
            if gib > used_gib:
                owed.append(gib - used_gib)
    known = math.fsum(charged) if len(charged) == len(charges) else None
    return Part(known, math.fsum(used), math.fsum(on_device), math.fsum(owed), bool(used))


@dataclass(frozen=True)
class Closed:
    """A pool on which the guard admits nothing now, and why: whose memory it is, and what happens next."""

    pool: str
    why: str


@dataclass(frozen=True)
class Disk:
    """One disk that jobs write to: what lies on it, GiB free (None = not known), GiB kept free, a note or why not."""

    what: str
    free_gib: float | None
    reserve_gib: float
    missing: str = ""


def nearest(disks: Mapping[str, Disk], folder: str) -> Disk | None:
    """The disk of a folder, or of the nearest one above it that was looked at; None if there is none."""
    while folder not in disks:
        above = folder.rpartition("/")[0]
        if not above:
            return None
        folder = above
    return disks[folder]


@dataclass(frozen=True)
class Machine:
    """One snapshot of readings.

    `competing` counts the processes that compete for reclaim; None = could not be counted, which competes.
    `accelerators` says how many devices a worker could be given: 0.0 = it has none, failed = a driver that errs.
    `devices` are all that were seen, those that are left alone too. `pressure` is percent of the last 10 s in which
    some process waited for memory, and in which all did. `closed` are the pools that the guard keeps closed. `reclaim`
    says whether the file cache can be turned into free memory now: ready, running, or off (not wanted, or of no use a
    moment ago). `disk_of` is what lies on the tightest of the queue's own disks, whose figures these are;
    `destinations` are the disks of folders that outputs are asked for in, None = nobody looks at them. `measured_at` is
    when it was last measured what the queue's folder takes, a stamp.
    """

    at_s: float
    boot_id: str
    host_id: str
    cores: int
    pools: tuple[Pool, ...]
    accelerators: Reading
    holdings: tuple[Holding, ...] = ()
    competing: int | None = 0
    holdings_missing: str = ""
    disk_free_gib: float | None = None
    disk_reserve_gib: float = 0.0
    disk_of: str = "the state folder"
    destinations: Mapping[str, Disk] | None = field(default=None, compare=False)
    measured_at: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=())
    devices: tuple[Device, ...] = ()
    pressure: tuple[Reading, ...] = ()
    closed: tuple[Closed, ...] = ()
    reclaim: str = "off"

    @property
    def stirring(self) -> tuple[str, tuple[str, ...]]:
        """What guard and reclaim are at, and when the queue's folder was measured: told at once when it changes."""
        return self.reclaim, (*(each.pool for each in self.closed), self.measured_at)

    @cached_property
    def ours(self) -> dict[int, Holding]:
        """The holdings of this queue's own workers, by worker id: of several of one id the first."""
        found: dict[int, Holding] = {}
        for holding in self.holdings:
            if holding.worker_id is not None:
                found.setdefault(holding.worker_id, holding)
        return found

    @cached_property
    def others(self) -> tuple[Holding, ...]:
        """Every other holding, a second one of a worker too: it is charged for itself."""
        return tuple(h for h in self.holdings if h.worker_id is None or self.ours[h.worker_id] is not h)

    @cached_property
    def held_by_others(self) -> dict[str, tuple[Held, ...]]:
        """What those are to each pool."""
        found: dict[str, list[Held]] = {}
        for holding in self.others:
            for pool_id, part in holding.parts.items():
                found.setdefault(pool_id, []).append(holding.held(part))
        return {pool_id: tuple(held) for pool_id, held in found.items()}

    @cached_property
    def for_several(self) -> Reading:
        """How many devices a worker of several could be given: of partial ones a process sees one at most."""
        partial, there = sum(pool.partial for pool in self.pools), self.accelerators
        if not partial or there.value is None:
            return there
        source = f"{there.source}; of {partial} partial devices a process sees one at most"
        return replace(there, value=max(1.0, there.value - partial), source=source)

    def device(self, pool_id: str) -> Device | None:
        """The discrete device that this pool is the memory of, also one that is left alone; None if it is not seen."""
        return next((each for each in self.devices if f"device:{each.id}" == pool_id), None)

    def nobodys_gib(self, pool_id: str) -> float | None:
        """What of a device's memory is in use on nobody's name. GiB; None = no totals, or they could not be read."""
        device = self.device(pool_id)
        if device is None or device.in_use.value is None or self.holdings_missing:
            return None
        if self.pool(pool_id) is None:  # left alone: nobody's row is made for it
            return max(0.0, device.in_use.value - math.fsum(tenant.used_gib or 0.0 for tenant in device.tenants))
        rows = (other.parts.get(pool_id) for other in self.others if not other.pid)
        return math.fsum(part.used_gib for part in rows if part is not None)

    def pool(self, pool_id: str) -> Pool | None:
        """The pool of that id, or None."""
        return next((p for p in self.pools if p.id == pool_id), None)
