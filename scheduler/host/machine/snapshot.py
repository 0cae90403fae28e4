"""One snapshot of this machine: every reading with its source, or the reason why there is none.

The order matters: what holders use is sampled before and after the live figures, and the smaller counts, so that
memory which moves from owed to used in between is never counted as neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.clock import monotonic_s, now_s
from scheduler.config import Paths, Settings
from scheduler.host.machine import cgroup, processes
from scheduler.host.machine.accelerators import Accelerators
from scheduler.host.machine.attribution import competing, told_of_nobody
from scheduler.host.machine.disks import Disks
from scheduler.host.machine.holdings import BudgetOf, Holdings
from scheduler.host.machine.meminfo import meminfo, pressure, stalled
from scheduler.host.machine.probe import WITHIN_S, Probe
from scheduler.model.machine import Holding, Machine, Pool, Reading
from scheduler.rules.pools import Layout, Memory, Wanted, layout
from scheduler.strangers import Strangers

KINDS = ("host", "unified", "device")


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
        accelerators: Accelerators | None = None,
    ) -> None:
        self.home, self.settings, self.who = home, settings, who
        self.proc = proc
        self.wanted = wanted(settings)
        self.accelerators = accelerators or Accelerators(root, within_s)
        self.strangers = Strangers(Paths(home))
        self.holdings = Holdings(
            queue_id, budget_of, proc, declared_of=self.strangers.budget_of, unattributed=settings.text("unattributed")
        )
        self._table: Probe[dict[int, processes.Process]] = Probe("the process table", within_s)
        self._held: Probe[tuple[Holding, ...]] = Probe("the process table", within_s)
        self._again: Probe[tuple[Holding, ...]] = Probe("what holders use", within_s)
        self._memory: Probe[tuple[dict[str, Reading], list[cgroup.Bound]]] = Probe("host memory", within_s)
        self._around: Probe[tuple[int, str, tuple[Reading, ...]]] = Probe("the control groups", within_s)
        self.disks = Disks(home, settings, within_s)

    def take(self) -> Machine:
        """Everything as it is now; blocks for a few deadlines at most, whatever hangs.

        To be asked on a thread that stays: a driver is asked by a child process, which goes with the thread that
        started it.
        """
        seen = self.accelerators.read()
        first = layout(seen.devices, seen.count, self._read_memory(), self.wanted)
        held = self._holders(first)
        missing = self._table.missing or self._held.missing
        memory = self._read_memory()
        if held is not None:
            sampled = held
            held = self._again.ask(lambda: self.holdings.again(sampled, monotonic_s())) or _unused(sampled)
        laid = layout(seen.devices, seen.count, memory, self.wanted)
        disk, disk_note = self.disks.own()
        notes = [*laid.notes, *seen.notes, *told_of_nobody(held or (), laid.devices), _limited(memory)]
        count, hidden, waits = self._around.ask(self._look_around) or (1, self._around.missing, ())
        notes += [hidden, stalled(*waits) if waits else "", disk_note, self.strangers.trouble]
        return Machine(
            at_s=now_s(),
            boot_id=self.who.boot_id,
            host_id=self.who.host_id,
            cores=count,
            pools=laid.pools,
            accelerators=laid.count,
            holdings=held or (),
            competing=None if held is None or seen.count.failed else competing(held, laid.devices),
            holdings_missing=missing,
            disk_free_gib=disk.free_gib,
            disk_reserve_gib=disk.reserve_gib,
            disk_of=disk.what,
            destinations=self.disks.destinations(),
            notes=tuple(note for note in notes if note),
            devices=laid.devices,
            pressure=waits,
        )

    def close(self) -> None:
        """Let go of the drivers."""
        self.accelerators.close()

    def _look_around(self) -> tuple[int, str, tuple[Reading, ...]]:
        """(cores, what hides processes, pressure): asked where it may fail without an end of the whole look."""
        return cgroup.cores(self.proc), processes.hidden(self.proc), pressure(self.proc)

    def _holders(self, laid: Layout) -> tuple[Holding, ...] | None:
        table = self._table.ask(lambda: processes.table(self.proc))
        if table is None:
            return None
        return self._held.ask(lambda: self.holdings.read(table, laid.pools, monotonic_s(), laid.devices))

    def _read_memory(self) -> Memory:
        """The machine's own memory, bounded by every control group above us."""
        read = self._memory.ask(lambda: (meminfo(self.proc), cgroup.memory_bounds(self.proc)))
        if read is None:
            nothing = Reading(None, "host memory", self._memory.missing)
            return Memory(nothing, nothing, nothing)
        info, bounds = read
        left = [bound.left for bound in bounds]
        return Memory(
            total=_tightest(info["MemTotal"], [bound.limit for bound in bounds]),
            free=_tightest(info["MemFree"], left),
            available=_tightest(info["MemAvailable"], left),
            installed=info["MemTotal"],
        )


def wanted(settings: Settings) -> Wanted:
    """What the operator set of pools."""
    unified = settings.text("unified").lower()
    return Wanted(
        unified=unified if unified == "auto" else str(settings.flag("unified")).lower(),
        leave_alone=settings.words("leave_alone"),
        reserves=settings.gib_by_name("reserves"),
        reserve_unified_gib=settings.number("reserve_unified_gib"),
        reserve_host_gib=settings.number("reserve_host_gib"),
        reserve_device_gib=settings.number("reserve_device_gib"),
        chosen=frozenset(kind for kind in KINDS if settings.origins.get(f"reserve_{kind}_gib") != "default"),
    )


def _limited(memory: Memory) -> str:
    total = memory.total
    if total.value is None or memory.installed is None or total.source == memory.installed.source:
        return ""
    return f"memory is limited to {total.value:.2f} GiB by {total.source}"


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


def _tightest(reading: Reading, bounds: Sequence[Reading]) -> Reading:
    """The smallest of a reading and what bounds it; one that is missing leaves no number at all."""
    every = [reading, *bounds]
    return next((each for each in every if each.value is None), min(every, key=lambda each: each.value or 0.0))


def _unused(holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """Holdings whose use of the machine's memory could not be sampled again: none of it counts, all of it is owed.

    What devices' drivers said was sampled twice by who asked them.
    """
    return tuple(
        replace(h, charges=tuple(c if c.part == "device" else replace(c, used_gib=None) for c in h.charges))
        for h in holdings
    )
