"""What a turn of the loop does beside its plan, in the same transaction: what a night needs, and what is kept of it.

Each chore is one line here and a room of its own elsewhere. What is slow is begun by a deed, after the commit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from scheduler.clock import SystemClock, stamp
from scheduler.deeds import Deed, tried
from scheduler.dependents import Dependents
from scheduler.judging import Judging
from scheduler.model.host import Host, HostEvent, Nudged
from scheduler.model.plan import Snapshot
from scheduler.rules.predict import predict
from scheduler.sampled import Sampled
from scheduler.schedules import Schedules
from scheduler.store import facts, heads
from scheduler.telling import Telling

FACTS_EVERY_S = 5.0
FORECAST_EVERY_S = 1.0


class Chores:
    """One scheduler's chores. `told`: what people look at is written down; a simulation has nobody who looks."""

    def __init__(self, host: Host, clock: SystemClock, host_id: str, *, told: bool = True) -> None:
        self._host, self._clock, self._host_id, self._told = host, clock, host_id, told
        self.dependents = Dependents(clock)
        self._judging = Judging(clock)
        self._stirring: tuple[str, tuple[str, ...]] = ("", ())
        self._facts_at: float | None = None
        self._sampled = Sampled()
        self._forecast_at, self._outdated = -math.inf, True
        self.schedules: Schedules | None = None
        self.telling: Telling | None = None

    def before(self, tx: Connection) -> dict[int, str]:
        """Ahead of the plan: what may start now that could not before; the state of each job that was moved."""
        return self.dependents.turn(tx)

    def after(self, tx: Connection, seen: Snapshot, happened: list[HostEvent], *, leaving: bool = False) -> list[Deed]:
        """Once the plan is marked: what is kept for whoever looks. What it answers is done after the commit."""
        if not self._told:
            return []
        self._record_facts(tx, seen, happened)
        outs = heads.destinations(tx, [each.job_id for each in (*seen.waiting, *seen.alone)])
        self._host.watch_disks([out.rpartition("/")[0] for out in outs.values()])
        return [*self._judging.after(tx), *self._outward(tx, happened, stays=not (seen.draining or leaving))]

    def _outward(self, tx: Connection, happened: list[HostEvent], *, stays: bool) -> list[Deed]:
        """Calls that are due, and who is told of what happened."""
        anew = not happened or any(isinstance(event, Nudged) for event in happened)
        calls = self.schedules.turn(tx, anew=anew, starts=stays) if self.schedules else []
        news = self.telling.turn(tx) if self.telling else []
        return [Deed(0, partial(_attempt, deed)) for deed in (*calls, *news)]

    def part(self, tx: Connection) -> None:
        """The scheduler ends: what was told meanwhile is written down, so that nobody is told again."""
        if self.telling is not None:
            self.telling.record(tx, self._clock.now_s())

    @property
    def stays(self) -> bool:
        """Whether there is something to stay for that no plan sees: calls that are repeated, inputs to be made."""
        return (self.schedules is not None and self.schedules.any) or self.dependents.stays

    def due_in_s(self) -> list[float]:
        """When something here is due, seconds from now, whatever happens until then."""
        due_s = [*self._judging.due_in_s(), *self.dependents.due_in_s()]
        due_s += [each for room in (self.schedules, self.telling) if room for each in room.due_in_s()]
        if self._told and self._outdated:
            due_s.append(max(0.01, FORECAST_EVERY_S - (self._clock.monotonic_s() - self._forecast_at)))
        return due_s

    def doubt(self) -> None:
        """The last transaction may have been rolled back: nothing of it counts as written."""
        self._facts_at, self._outdated = None, True
        self._sampled.doubt()
        self.dependents.doubt()
        for room in (self.schedules, self.telling):
            if room is not None:
                room.doubt()

    def _record_facts(self, tx: Connection, seen: Snapshot, happened: list[HostEvent]) -> None:
        """Keep what `status` shows: the machine every few seconds, forecasts soon after something happened."""
        now, busy = self._clock.monotonic_s(), bool(seen.workers or seen.waiting or seen.alone or seen.leases)
        stirred, self._stirring = seen.machine.stirring != self._stirring, seen.machine.stirring
        stirred = stirred or self._sampled.ends(busy)
        if self._facts_at is None or stirred or (busy and now - self._facts_at >= FACTS_EVERY_S):
            wall_s, found = self._clock.now_s(), self._host.facts(seen.contested)
            facts.put(tx, self._host_id, found, stamp(wall_s))
            self._sampled.keep(tx, self._host_id, found, wall_s, busy=busy)
            self._facts_at, self._outdated = now, True
        self._outdated = self._outdated or bool(happened)
        if self._outdated and now - self._forecast_at >= FORECAST_EVERY_S:
            wall = self._clock.now_s()
            heads.set_forecasts(tx, ((each, stamp(wall + each.starts_in_s)) for each in predict(seen)))
            self._forecast_at, self._outdated = now, False


def _attempt(deed: Callable[[], None]) -> None:
    """Do it; that it cannot be done concerns no worker."""
    tried("what was due", deed)
