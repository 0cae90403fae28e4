"""What is known of a machine at one moment: pools, readings, holdings. Values only.

A reading is a number with its source and time, or says why there is none: a probe that failed is not a
zero, and a machine that could not be read is not an empty one (P4). Memory is GiB, as float, everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 1 << 30


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
class Pool:
    """One memory that budgets come out of: `unified`, `device:<uuid>` or `host`. All in GiB."""

    id: str
    kind: str
    capacity: Reading
    reserve_gib: float
    free: Reading
    available: Reading


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


@dataclass(frozen=True)
class Holding:
    """A present worker process on this machine, whoever started it.

    `name` is the slug, `slug@tree` for another checkout's. `worker_id` is set for this queue's own. `since_s` is when
    it started, seconds since the epoch.
    """

    name: str
    pid: int
    user: str
    charges: tuple[Charge, ...]
    worker_id: int | None = None
    command: str = ""
    since_s: float | None = None


@dataclass(frozen=True)
class Machine:
    """One snapshot of readings.

    `competing` counts the processes that compete for reclaim; None = could not be counted, which competes.
    `accelerators` says whether the machine has one: a reading with 0.0 = it has none, failed = a driver that errs.
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
    notes: tuple[str, ...] = field(default=())

    def pool(self, pool_id: str) -> Pool | None:
        """The pool of that id, or None."""
        return next((p for p in self.pools if p.id == pool_id), None)
