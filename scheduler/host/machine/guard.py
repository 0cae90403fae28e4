"""The guard: samples what workers of ours use and what is left, ten times a second, and stops who oversteps.

Its own thread stops them: neither the database nor the loop is waited for. What it did is put before the loop as an
event, so that the attempt ends by it. It sleeps while no worker of ours starts or is busy. What to do is decided by
`rules.guard`; what was seen of each worker is kept as its peaks.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from scheduler.clock import monotonic_s, now_s, stamp
from scheduler.host.machine.attribution import sightings
from scheduler.host.machine.growth import Growth
from scheduler.host.machine.levels import Asking, HostLevel
from scheduler.host.machine.wards import HOST_KINDS, LATE_S, LEASED_S, Sightings, Ward, Wards
from scheduler.host.machine.whose import Whose
from scheduler.host.workers import tree
from scheduler.model.host import Adopt, Gone, HostEvent, Overstepped, Park
from scheduler.model.machine import Closed, Device, Machine, Pool
from scheduler.rules.guard import WINDOW_S, Action, Close, Level, Retire, guard, needed_gib

log = logging.getLogger("schedq")

PERIOD_S = 0.1
LOOK_S = 1.0
"""How often pools and trees are looked at; trees at each sample while a pool is near its reserve, or one grows up."""

CLOSED_S = 5.0
"""How long nothing is admitted on a pool after it was last near its reserve."""

COOL_S, COOL_MOST_S = 10.0, 300.0
"""How long a start that was given up is not tried again; doubled while it happens again."""

RETIRE_S = 0.5
"""Grace of an idle worker: it is asked, then told, then killed."""

TOLD_S = 60.0
"""How long what the guard did is shown."""

Tend = Callable[[list[int], float, float], None]


class Guard:
    """One host's guard. `stop(worker_id, grace_s, why)` ends a tree through its keeper; `machine` is the last snapshot.

    `tend(worker_ids, free_gib, reserve_gib)` is called while workers load and what is free is below the reserve: the
    cache that they fill may be given back. `acts` False: it only samples.
    """

    def __init__(
        self,
        stop: Callable[[int, float, str], None],
        emit: Callable[[HostEvent], None],
        machine: Callable[[], Machine],
        *,
        acts: bool = True,
        tend: Tend | None = None,
        level: HostLevel | None = None,
        asking: Asking | None = None,
        proc: str = "/proc",
        period_s: float = PERIOD_S,
    ) -> None:
        self._stop, self._emit, self._machine, self._tend = stop, emit, machine, tend
        self.acts, self.period_s = acts, period_s
        self.wards = Wards(Growth(proc))
        self._level, self._asking = level or HostLevel(proc), asking
        self._whose = Whose(proc)
        self._turn = threading.Condition()
        self._closing = self._near = False
        self._seen: Machine | None = None
        self._look_at_s = 0.0
        self._left: dict[str, deque[tuple[float, float]]] = {}
        self._closed: dict[str, tuple[str, float]] = {}
        self._acted: deque[tuple[float, str, str]] = deque(maxlen=16)
        self._cool: dict[str, int] = {}
        self._blind = ""
        self.fastest_gib_s: dict[str, float] = {}
        self.exit_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="schedq-guard", daemon=True)

    def open(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Watch no more; workers go on."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self.wards.close()
        if self._asking is not None:
            self._asking.close()

    # What it hears of workers

    def parked(self, order: Park) -> None:
        """A worker is about to be there."""
        with self._turn:
            self.wards.parked(order)

    def adopted(self, row: Adopt) -> None:
        """A worker is taken over: it is what its row says."""
        with self._turn:
            self.wards.adopted(row, monotonic_s())
            self._turn.notify_all()

    def let_go(self, worker_id: int) -> None:
        """It starts now."""
        with self._turn:
            self.wards.enter(worker_id, "starting", monotonic_s())
            self._turn.notify_all()

    def sent(self, worker_id: int, charges: dict[str, float]) -> str:
        """It is given a request, on these charges if any; why it cannot be, since it is being stopped, or ""."""
        with self._turn:
            ward = self.wards.by_id.get(worker_id)
            if ward is None:
                return ""
            if ward.told_at_s is not None:
                return "its worker is being stopped, since memory runs out"
            ward.sent(charges)
            self.wards.enter(worker_id, "busy", monotonic_s())
            self._turn.notify_all()
        return ""

    def heard(self, event: HostEvent) -> None:
        """What became of a worker."""
        with self._turn:
            ward = self.wards.heard(event, monotonic_s())
            if ward is not None and isinstance(event, Gone):
                self._time(ward)
            elif ward is not None:
                self._cool.pop(ward.name, None)

    # What it answers

    def quiet(self) -> bool:
        """Whether nothing of ours loads or computes."""
        with self._turn:
            return not any(ward.state in ("starting", "busy") for ward in self.wards.by_id.values())

    def pids(self, worker_ids: list[int] | None) -> list[int]:
        """The processes of these workers, or of all."""
        with self._turn:
            grown = self.wards.growth.workers
            return [pid for each in (grown if worker_ids is None else worker_ids) if each in grown
                    for pid in grown[each].processes]  # fmt: skip

    def peaks(self, worker_id: int, anew: bool) -> dict[str, float]:
        """The most that a worker was seen to use by pool, GiB: since its start, or, `anew`, since its last send; and of
        unified memory its `device_part`. Of a pool where not all of that could be seen nothing is told.

        What it holds at this moment counts too: a request may be over before the first sample.
        """
        with self._turn:
            ward = self.wards.by_id.get(worker_id)
            if ward is not None and self._seen is not None:
                self.wards.measure(ward, monotonic_s(), self._seen.pools, self._listed(self._seen))
            return self.wards.peaks(worker_id, anew)

    def closed(self) -> tuple[Closed, ...]:
        """The pools on which nothing is admitted now, and why."""
        now = monotonic_s()
        with self._turn:
            self._closed = {pool: kept for pool, kept in self._closed.items() if now < kept[1]}
            return tuple(Closed(pool, text) for pool, (text, _) in self._closed.items())

    def notes(self) -> tuple[str, ...]:
        """What it does, did a moment ago, or cannot see, a sentence each."""
        now = monotonic_s()
        with self._turn:
            acted = [text for at_s, _, text in self._acted if now - at_s < TOLD_S]
            blind = [self._blind] if self._blind else []
            return tuple(f"guard: {text}" for text in (*(each.why for each in self.closed()), *acted, *blind))

    def facts(self) -> dict[str, Any]:
        """What `status` and `machine` show of it. GiB and seconds; `exit_s` None = nothing was stopped yet.

        `needs_gib` is what the reserve of each pool must exceed for sampling to keep it.
        """
        with self._turn:
            exit_s = self.period_s if self.exit_s is None else self.exit_s
            needs = {pool: needed_gib(rate, self.period_s, exit_s) for pool, rate in self.fastest_gib_s.items()}
            return {
                "on": self.acts, "period_s": self.period_s, "fastest_gib_s": dict(self.fastest_gib_s),
                "exit_s": self.exit_s, "needs_gib": needs,
                "closed": [{"pool": each.pool, "text": each.why} for each in self.closed()],
                "acted": [{"at": at, "text": text} for _, at, text in self._acted], "blind": self._blind,
            }  # fmt: skip

    # Its thread

    def _run(self) -> None:
        while True:
            with self._turn:
                if not self._works():
                    self._rest()
                    self._turn.wait_for(lambda: self._closing or self._works())
                if self._closing:
                    return
            began_s = monotonic_s()
            try:
                self.step()
            except Exception:  # a sample that fails is not the end of the guard
                log.exception("the guard could not take a sample")
            with self._turn:
                left_s = began_s + self.period_s - monotonic_s()
                self._turn.wait_for(lambda: self._closing, timeout=max(0.005, left_s))

    def _works(self) -> bool:
        """Whether a worker starts or is busy, or is being stopped."""
        return any(w.state in ("starting", "busy") or w.told_at_s is not None for w in self.wards.by_id.values())

    def _rest(self) -> None:
        self._left.clear()
        self._near = False
        for ward in self.wards.by_id.values():
            ward.history.clear()
        if self._asking is not None:
            self._asking.want(False)

    def step(self) -> None:
        """Take one sample and act on it."""
        with self._turn:
            now = monotonic_s()
            if now >= self._look_at_s or self._seen is None:
                self._seen, self._look_at_s = self._machine(), now + LOOK_S
                self._near = True
            machine, wards = self._seen, [ward for ward in self.wards.by_id.values() if ward.state != "parked"]
            if self._near or any(w.state == "starting" or now - w.since_s < LOOK_S for w in wards):
                self.wards.growth.look(now)
            if self._asking is not None:
                self._asking.want(bool(machine.devices))
            seen = self._listed(machine)
            for ward in wards:
                self.wards.measure(ward, now, machine.pools, seen)
            self._near = any(ward.told_at_s is not None for ward in wards)
            for level in self._levels(machine, wards, now):
                self._near = self._near or (level.left_gib or 0.0) < 2 * level.reserve_gib
                for action in guard(level) if self.acts else ():
                    self._act(action, now)
            self._press(now)

    def _devices(self, machine: Machine) -> tuple[Device, ...] | None:
        return self._asking.fresh() if self._asking is not None and machine.devices else None

    def _listed(self, machine: Machine) -> Sightings | None:
        """What drivers list of processes; None if one of them did not answer in time, or tells of none."""
        if not machine.devices:
            return {}
        devices = self._devices(machine)
        if devices is None or any(device.tenants_missing for device in devices):
            return None
        return sightings(devices, machine.pools)

    def _levels(self, machine: Machine, wards: list[Ward], now: float) -> Iterator[Level]:
        """What is left of every pool, and who of ours is there."""
        devices, self._blind = self._devices(machine), ""
        for pool in machine.pools:
            here = [ward for ward in wards if ward.is_on(pool)]
            if not here:
                continue
            left_gib, past = self._left_of(pool, devices, wards), self._left.setdefault(pool.id, deque(maxlen=8))
            before = [gib for at_s, gib in past if now - at_s <= WINDOW_S + LATE_S]
            lost_gib = max(0.0, before[0] - left_gib) if before and left_gib is not None else 0.0
            if left_gib is not None:
                past.append((now, left_gib))
            grown_gib = self._grew(pool, here, now)
            calm = left_gib is not None and left_gib - lost_gib - grown_gib >= 2 * pool.reserve_gib
            if calm and not self._near:
                continue
            near = left_gib is not None and left_gib < 2 * pool.reserve_gib
            others = self._whose.others(machine, pool, self.wards.growth, now) if near else ()
            watched = tuple(ward.watched(pool, lost_gib, now) for ward in here)
            yield Level(pool.id, left_gib, pool.reserve_gib, lost_gib, watched, others)

    def _grew(self, pool: Pool, here: list[Ward], now: float) -> float:
        """What workers gained of a pool in the window, together; the fastest of them is remembered."""
        grown_gib, fastest = 0.0, self.fastest_gib_s.get(pool.id, 0.0)
        for ward in here:
            gained_gib, took_s = ward.gained(pool.id, now)
            if gained_gib > 0:
                grown_gib += gained_gib
                fastest = max(fastest, gained_gib / took_s if took_s >= self.period_s / 2 else 0.0)
        if fastest:
            self.fastest_gib_s[pool.id] = fastest
        return grown_gib

    def _left_of(self, pool: Pool, devices: tuple[Device, ...] | None, wards: list[Ward]) -> float | None:
        if pool.kind not in HOST_KINDS:
            found = next((device for device in devices or () if f"device:{device.id}" == pool.id), None)
            return found.free.value if found is not None else None
        free, available = self._level.read()
        if available.value is None:
            self._blind = f"what is left of {pool.id} cannot be seen: {available.missing or 'not read'}"
        loading = [ward.id for ward in wards if ward.state == "starting"]
        if loading and self._tend is not None and free.value is not None and free.value < pool.reserve_gib:
            self._tend(loading, free.value, pool.reserve_gib)
        return available.value

    # Its hands

    def _act(self, action: Action, now: float) -> None:
        if isinstance(action, Close):
            self._closed[action.pool] = action.text, now + CLOSED_S
            return
        ward = self.wards.by_id[action.worker_id]
        if ward.told_at_s is not None:
            return
        outcome, wait_s, what = "", 0.0, "retired idle"
        if not isinstance(action, Retire):
            outcome, what = action.outcome, f"stopped {ward.state}"
            wait_s = 0.0 if outcome else self._cools_s(ward.name)
        ward.told_at_s, ward.grace_s = now, RETIRE_S if isinstance(action, Retire) else LEASED_S * ward.leased
        self._emit(Overstepped(ward.id, action.text, outcome, wait_s))
        self._stop(ward.id, ward.grace_s, f"{outcome}: {action.text}" if outcome else action.text)
        self._closed.setdefault(action.pool, (f"worker {ward.id} of {ward.name} is being stopped", now + CLOSED_S))
        self._acted.append((now, stamp(now_s()), f"{what} worker {ward.id} of {ward.name}: {action.text}"))
        log.warning("the guard %s worker %d of %s: %s", what, ward.id, ward.name, action.text)

    def _cools_s(self, name: str) -> float:
        times = self._cool[name] = self._cool.get(name, 0) + 1
        return min(COOL_MOST_S, COOL_S * 2.0 ** min(times - 1, 10))

    def _press(self, now: float) -> None:
        """Kill what was to be gone by now, without its keeper; again and again, until nothing of it lives."""
        for ward in self.wards.by_id.values():
            if ward.told_at_s is None:
                continue
            living = self.wards.growth.living(ward.id)
            if not living:
                self._time(ward)
            elif now >= ward.told_at_s + ward.grace_s + self.period_s / 2:
                tree.signal_all(living, signal.SIGKILL)

    def _time(self, ward: Ward) -> None:
        """How long an end took that was asked for without grace: the longest is remembered."""
        if ward.told_at_s is None or ward.ended_s is not None:
            return
        ward.ended_s = monotonic_s() - ward.told_at_s
        if not ward.grace_s:
            self.exit_s = max(self.exit_s or 0.0, ward.ended_s)
