"""The truth of a machine at random: who is on it, what each holds at three instants, and the most that it ever will.

`World.seen` is what of that can be read: a process table, what drivers say of their devices (some lie, err or list
nobody), the kernel's memory figures. No figure of the truth is taken from the code that is tried: what it takes for
much on nobody's name, and the reserves, stand here as they are documented.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.host.machine.attribution import competing
from scheduler.host.machine.holdings import Holdings
from scheduler.host.machine.processes import Process
from scheduler.model.machine import Device, Holding, Machine, Reading, Tenant
from scheduler.model.plan import LeaseView, Snapshot, Waiting, WorkerView
from scheduler.model.provider import Provider
from scheduler.rules.pools import Layout, Memory, Wanted, layout

QUEUE, OTHERS = "Q", "R"
ME, OTHER = 1000, 1001
HOST = "host"

MUCH_GIB, MUCH_SHARE = 1.0, 0.02
"""What a driver keeps for itself is less than this; more on nobody's name may be a process that computes."""
RESERVE_GIB = {"unified": 4.0, "host": 2.0, "device": 0.5}
RESERVE_SHARE = 1 / 8
"""What is kept free of each kind of memory, and what of a memory that is at most."""

Need = tuple[float, float]
"""What a job takes at most: of each of its devices, and of host memory. GiB."""


@dataclass
class Part:
    """What somebody holds of one memory at three instants, and the most that it ever will. GiB."""

    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    peak: float = 0.0


@dataclass
class Actor:
    """Somebody on the machine. `process` shows its argv; `keeper` is its parent, if it has one.

    `on` is what it holds of each device, `host` of the machine's own memory. `env` None = it may not be read. `hidden`:
    /proc does not show it. `competes`: it loads or computes on a device. `unlisted`: no driver lists it.
    `worker_id` is set for a worker of this queue; `charged` is what the claim of another queue's worker says it needs.
    """

    pid: int
    argv: tuple[str, ...] = ()
    keeper: tuple[str, ...] = ()
    host: Part = field(default_factory=Part)
    on: dict[str, Part] = field(default_factory=dict)
    env: Mapping[str, str] | None = None
    uid: int = ME
    hidden: bool = False
    competes: bool = False
    alive: bool = True
    unlisted: bool = False
    worker_id: int = 0
    slug: str = ""
    charged: Need = (0.0, 0.0)


@dataclass
class World:
    """The truth of one machine, and what this queue has on it.

    `needs`: by id, what a job of this queue takes at most; None = all that its worker is charged.
    `raised_host`: by worker, the host's part of the charges that are being raised.
    """

    unified: bool
    totals: dict[str, float]
    cards: tuple[str, ...]
    drivers: dict[str, str]
    actors: list[Actor]
    providers: dict[tuple[str, str], Provider]
    workers: list[WorkerView]
    leases: list[LeaseView]
    nobodys: dict[str, float]
    kernel_gib: float = 0.0
    cache_gib: float = 0.0
    given_back_gib: float = 0.0
    per_cpu_gib: float = 0.0
    unattributed: str = "charged"
    missing: str = ""
    declared: dict[int, tuple[float, float]] = field(default_factory=dict)
    invisible: set[str] = field(default_factory=set)
    needs: dict[int, Need | None] = field(default_factory=dict)
    raised_host: dict[int, float] = field(default_factory=dict)
    strict: bool = False

    # What will be

    def will_hold(self) -> dict[str, float]:
        """By memory, the most that everybody on the machine will hold at once, the cache left out."""
        found: dict[str, list[float]] = {name: [] for name in self.totals}
        found[HOST].append(self.kernel_gib)
        views = {worker.id: worker for worker in self.workers}
        for actor in self.actors:
            for name, gib in self.future(actor, views.get(actor.worker_id)).items():
                found[name].append(gib)
        for card, gib in self.nobodys.items():
            found[card].append(gib)
        return {name: math.fsum(parts) for name, parts in found.items()}

    def future(self, actor: Actor, worker: WorkerView | None = None) -> dict[str, float]:
        """By memory, the most that one will hold: what it would anyway, or what the job takes that it is bound to.

        What one job made it take of a part is not given back for the other part of the next job.
        """
        held = {HOST: [actor.host.peak]}
        for card, part in actor.on.items():
            held.setdefault(self.home(card), []).append(part.peak)
        peaks = {name: math.fsum(parts) for name, parts in held.items()}
        if worker is None or worker.state == "retiring":
            return peaks
        need = self.needs.get(worker.job_id) if worker.job_id is not None else None
        if worker.state == "parked":
            charged = self.charged(worker.charges)
            wanted = self._needed(worker, need, Actor(0)) if need is not None else {}
            return {name: max(charged.get(name, 0.0), wanted.get(name, 0.0)) for name in {*charged, *wanted}}
        if need is not None:
            return peaks | self._needed(worker, need, actor)
        if worker.job_id in self.needs:
            return peaks | {name: max(gib, peaks.get(name, 0.0)) for name, gib in self.charged(worker.charges).items()}
        return peaks

    def _needed(self, worker: WorkerView, need: Need, actor: Actor) -> dict[str, float]:
        """By memory, the most that this worker holds once the job has run, its parts apart."""
        device_gib, host_gib = need
        held = {HOST: [max(actor.host.peak, host_gib)]}
        for card in self.cards_of(worker):
            part = actor.on.get(card)
            held.setdefault(self.home(card), []).append(max(part.peak if part is not None else 0.0, device_gib))
        return {name: math.fsum(parts) for name, parts in held.items()}

    def cards_of(self, worker: WorkerView) -> list[str]:
        """The devices that a worker of this queue is on."""
        if self.unified:
            provider = self.providers.get((worker.slug, worker.variant))
            return [*self.cards] if provider is not None and provider.policy == "required" else []
        return [pool.removeprefix("device:") for pool in worker.charges if pool.startswith("device:")]

    def charged(self, charges: Mapping[str, float]) -> dict[str, float]:
        """Charges by memory."""
        found: dict[str, float] = {}
        for pool, gib in charges.items():
            name = self.memory_of(pool)
            found[name] = found.get(name, 0.0) + gib
        return found

    def split(self, worker: WorkerView) -> Need:
        """What a worker is charged of each of its devices, and of host memory."""
        on_devices = [gib for pool, gib in worker.charges.items() if pool.startswith("device:")]
        if "unified" not in worker.charges:
            return min(on_devices, default=0.0), worker.charges.get(HOST, 0.0)
        gib, provider = worker.charges["unified"], self.providers[worker.slug, worker.variant]
        if provider.policy != "required":
            return 0.0, gib
        host_gib = min(gib, provider.ram_gib if worker.host_gib is None else worker.host_gib)
        return gib - host_gib, host_gib

    def reserve_gib(self, name: str) -> float:
        """What of a memory is kept free."""
        kind = "device" if name != HOST else "unified" if self.unified else "host"
        return min(RESERVE_GIB[kind], self.totals[name] * RESERVE_SHARE)

    def is_contested(self) -> bool:
        """Whether somebody competes for what the cache gives back."""
        return any(actor.competes for actor in self.actors)

    def cache(self, at_once: int, contested: bool) -> float:
        """What of the cache cannot be had by so many who load at once. GiB."""
        return self.cache_gib - self.given_back_gib if at_once <= 1 and not contested else self.cache_gib

    def memory_of(self, pool: str) -> str:
        """The memory that a pool stands for."""
        return HOST if pool in ("host", "unified") else pool.removeprefix("device:")

    def home(self, card: str) -> str:
        """The memory that a device's is."""
        return HOST if self.unified else card

    def worker(self, worker_id: int) -> WorkerView:
        """A worker of this queue."""
        return next(worker for worker in self.workers if worker.id == worker_id)

    def actor(self, worker_id: int) -> Actor:
        """Who that is."""
        return next(actor for actor in self.actors if actor.worker_id == worker_id)

    def put(self, worker: WorkerView) -> None:
        """This is how it stands with a worker from now on."""
        self.workers = [worker if each.id == worker.id else each for each in self.workers]

    # What is seen

    def seen(self) -> Machine:
        """The machine as it is read: holders' use at the first and the last instant, live figures in between."""
        laid = layout(self._devices(), self._count(), self._memory(), Wanted())
        holdings: tuple[Holding, ...] = ()
        if not self.missing:
            reader = Holdings(
                QUEUE, self._budget_of, "/nonexistent", declared_of=self._declared_of, unattributed=self.unattributed
            )
            reader.use, reader.asked = _Use(self), _Asked(self)  # type: ignore[assignment]
            first = reader.read(self._table(), laid.pools, 0.0, laid.devices)
            holdings = reader.again(first, 2.0)
        return self._machine(laid, holdings)

    def _machine(self, laid: Layout, holdings: tuple[Holding, ...]) -> Machine:
        unread = self.missing or laid.count.failed
        return Machine(
            0.0, "boot", "here", 64, laid.pools, laid.count, holdings,
            competing=None if unread else competing(holdings, laid.devices), holdings_missing=self.missing,
            disk_free_gib=100.0, disk_reserve_gib=5.0, devices=laid.devices,
        )  # fmt: skip

    def _memory(self) -> Memory:
        total = self.totals[HOST]
        held = [self.kernel_gib, self.cache_gib, self.per_cpu_gib, *(actor.host.at[1] for actor in self.actors)]
        if self.unified:
            held += [part.at[1] for actor in self.actors for part in actor.on.values()]
        free = total - math.fsum(held)
        return Memory(Reading(total, "t"), Reading(free, "f"), Reading(free + self.given_back_gib, "a"))

    def _count(self) -> Reading:
        if "errs" in self.drivers.values():
            return Reading(None, "driver", "the driver errs")
        return Reading(float(len(self.cards)), "driver")

    def _devices(self) -> list[Device]:
        return [self._device(card) for card in self.cards]

    def _device(self, card: str) -> Device:
        """What the driver says of one device, in its manner."""
        manner = self.drivers[card]
        total_gib = self.totals[HOST if self.unified else card]
        used_gib = math.fsum([self.nobodys.get(card, 0.0), *(a.on[card].at[1] for a in self.actors if card in a.on)])
        none = Reading(None, "driver")
        gone = Reading(None, "driver", "the driver errs")
        total, used, free = (Reading(gib, "driver") for gib in (total_gib, used_gib, total_gib - used_gib))
        if manner in ("too free", "flat"):
            used, free = Reading(0.0, "driver"), Reading(total_gib, "driver")
        if manner == "no totals":
            used = none
        if self.unified:
            alike = manner == "half"  # some drivers answer with the machine's own total
            total, used, free = (Reading(total_gib * 0.97, "driver") if alike else none), none, none
        if manner == "errs":
            total, used, free = gone, gone, gone
        tenants: list[Tenant] = []
        missing = {"silent": "pids of another namespace", "errs": "the driver errs"}.get(manner, "")
        if not missing and manner != "too free":
            tenants = [self._tenant(actor, card, manner) for actor in self.actors if card in actor.on]
            tenants = [tenant for tenant in tenants if tenant.pid]
        return Device(
            card, "NVIDIA", "GB10" if self.unified else "H100", total, free, used, tuple(tenants), missing,
            integrated=self.unified, seen_as=card,
        )  # fmt: skip

    def _tenant(self, actor: Actor, card: str, manner: str) -> Tenant:
        part = actor.on[card]
        least = min(part.at[0], part.at[2])  # a driver is asked twice, and the smaller counts
        if actor.unlisted or max(part.at) <= 0.0:
            return Tenant(0)
        if manner == "no figures":
            return Tenant(actor.pid, None, actor.competes)
        factor = {"too low": 0.5, "half": 0.5, "too high": 1.5}.get(manner, 1.0)
        return Tenant(actor.pid, least * factor, actor.competes)

    def _table(self) -> dict[int, Process]:
        found = {1: Process(1, 0, 1.0, ("init",))}
        for actor in self.actors:
            if actor.hidden or not actor.alive:
                continue
            parent = 1
            if actor.keeper:
                parent = actor.pid + 1_000_000
                found[parent] = Process(parent, 1, float(actor.pid), actor.keeper)
            if actor.argv:
                found[actor.pid] = Process(actor.pid, parent, float(actor.pid), actor.argv)
        return found

    def _budget_of(self, slug: str) -> tuple[float, float] | None:
        provider = self.providers.get((slug, ""))
        return None if provider is None or provider.vram_gib is None else (provider.vram_gib, provider.ram_gib)

    def _declared_of(self, slug: str, pid: int, started: float) -> tuple[float, float] | None:
        return self.declared.get(pid)

    def snapshot(self, machine: Machine, waiting: Sequence[Waiting], alone: Sequence[Waiting] = ()) -> Snapshot:
        """All that a plan may see."""
        return Snapshot(
            machine, self.providers, tuple(waiting), tuple(self.workers), tuple(self.leases), strict=self.strict,
            alone=tuple(alone),
        )  # fmt: skip


class _Use:
    """Host memory of processes, as /proc would tell it: at the first instant, and again at the last."""

    def __init__(self, world: World) -> None:
        self._by_pid = {actor.pid: actor for actor in world.actors}

    def gib(self, processes: Sequence[Process], now_s: float) -> float | None:
        actors = [self._by_pid[each.pid] for each in processes if each.pid in self._by_pid]
        return math.fsum(actor.host.at[int(now_s)] for actor in actors) if actors else None

    def forget(self, now_s: float) -> None:
        """Nothing is kept."""


class _Asked:
    """What single processes tell of themselves."""

    def __init__(self, world: World) -> None:
        self._by_pid = {actor.pid: actor for actor in world.actors}
        self._by_pid |= {actor.pid + 1_000_000: replace(actor, env=None) for actor in world.actors}

    def environment(self, process: Process) -> Mapping[str, str]:
        actor = self._by_pid.get(process.pid)
        return (actor.env or {}) if actor is not None and actor.uid == ME else {}

    def uid(self, process: Process) -> int | None:
        actor = self._by_pid.get(process.pid)
        return None if actor is None else os.getuid() if actor.uid == ME else actor.uid

    def user(self, process: Process) -> str:
        return "somebody"

    def cwd(self, process: Process) -> str:
        return ""

    def booted_s(self) -> float | None:
        return 1e6

    def forget(self, processes: Mapping[int, Process]) -> None:
        """Nothing is kept."""
