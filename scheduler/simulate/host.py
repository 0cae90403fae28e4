"""SimHost: a machine that exists in numbers only, behind the same `Host` protocol as a real one.

One unified pool, release at once, loads and runs that take the seconds they are told. `poll` moves the virtual
clock to the next thing that happens.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.model.host import (
    Adopt,
    Answered,
    Gone,
    HostEvent,
    Park,
    Replied,
    Returned,
    Shown,
    Task,
)
from scheduler.model.machine import Machine, Pool, Reading
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider
from scheduler.simulate.clock import VirtualClock

BOOT_ID = "simulated"


@dataclass
class Done:
    """What became of a job, in seconds since the night began."""

    admitted_s: float
    start_s: float = 0.0
    end_s: float = 0.0
    worker_id: int = 0


@dataclass
class Loaded:
    """What became of a worker; `to_s` None = it is still there."""

    id: int
    slug: str
    from_s: float
    ready_s: float
    to_s: float | None = None


@dataclass
class SimHost:
    """`run_s(task)` says how long an attempt takes, `outcome(task)` how it ends; `load_s` by slug."""

    clock: VirtualClock
    catalog: dict[tuple[str, str], Provider]
    capacity_gib: float
    reserve_gib: float
    load_s: Callable[[str], float]
    run_s: Callable[[Task], float]
    outcome: Callable[[Task], Outcome] = lambda task: Outcome("ok")
    told: list[tuple[int, str]] = field(default_factory=list)
    done: dict[int, Done] = field(default_factory=dict)
    ended: dict[int, Done] = field(default_factory=dict)
    loaded: dict[int, Loaded] = field(default_factory=dict)
    _due: list[tuple[float, int, HostEvent]] = field(default_factory=list)
    _order: int = 0
    _alive: dict[int, Park | Adopt] = field(default_factory=dict)

    def providers(self) -> dict[tuple[str, str], Provider]:
        """The simulated providers; all are installed."""
        return self.catalog

    def machine(self) -> Machine:
        """One unified pool, read without fault, all of it free but what is charged to nobody."""
        known = Reading(self.capacity_gib, "simulated")
        pool = Pool("unified", "unified", known, self.reserve_gib, known, known)
        return Machine(self.clock.now_s(), BOOT_ID, "simulated", 1024, (pool,), Reading(1.0, "simulated"))

    def facts(self, machine: Machine) -> dict[str, Any]:
        """The pool as `status` shows it."""
        return {"pools": [{"id": p.id, "kind": p.kind, "capacity_gib": p.capacity.value} for p in machine.pools]}

    def own_use(self) -> dict[int, float]:
        """Nothing is really used."""
        return {}

    def poll(self, timeout_s: float) -> list[HostEvent]:
        """Move the clock to the next event, at most `timeout_s` on; every event of that instant."""
        limit = self.clock.elapsed_s + max(0.0, timeout_s)
        if not self._due or self._due[0][0] > limit:
            self.clock.move_to(limit)
            return []
        self.clock.move_to(self._due[0][0])
        happened = []
        while self._due and self._due[0][0] <= self.clock.elapsed_s:
            happened.append(heapq.heappop(self._due)[2])
        return happened

    def after(self, delay_s: float, event: HostEvent) -> None:
        """Let an event happen so many virtual seconds from now."""
        self._order += 1
        heapq.heappush(self._due, (self.clock.elapsed_s + delay_s, self._order, event))

    def park(self, order: Park) -> None:
        """A keeper is visible at once."""
        self._alive[order.worker_id] = order
        self.after(0.0, Shown(order.worker_id, 1_000_000 + order.worker_id, float(order.worker_id), BOOT_ID))

    def go(self, worker_id: int) -> None:
        """The worker answers when its load time has passed."""
        loading, now = self._alive[worker_id], self.clock.elapsed_s
        self.loaded[worker_id] = Loaded(worker_id, loading.slug, now, now + self.load_s(loading.slug))
        self.after(self.load_s(loading.slug), Answered(worker_id, 2_000_000 + worker_id, float(worker_id)))

    def submit(self, task: Task) -> None:
        """The reply comes when the attempt's run time has passed."""
        done = self.done.setdefault(task.job_id, Done(self.clock.elapsed_s))
        done.start_s, done.worker_id = self.clock.elapsed_s, task.worker_id
        reply = json.dumps({"job": task.job_id}).encode()
        reply_event = Replied(task.worker_id, task.job_id, task.attempt, self.outcome(task), reply)
        self.after(self.run_s(task), reply_event)

    def stop(self, worker_id: int, grace_s: float, why: str) -> None:
        """A worker that is told to stop is gone at once, and so is what it was doing."""
        self._end(worker_id, 0, why)

    def kill(self, worker_id: int, signal_number: int = 9) -> None:
        """The worker dies of a signal."""
        self._end(worker_id, -signal_number, "")

    def _end(self, worker_id: int, exit_code: int, why: str) -> None:
        self._due = [item for item in self._due if getattr(item[2], "worker_id", None) != worker_id]
        heapq.heapify(self._due)
        self._alive.pop(worker_id, None)
        if worker_id in self.loaded:
            self.loaded[worker_id].to_s = self.clock.elapsed_s
        self.after(0.0, Gone(worker_id, exit_code, "", why))
        self.after(0.0, Returned(worker_id, back=True))

    def adopt(self, rows: list[Adopt]) -> None:
        """Workers that this host still has go on; others are gone, and nobody recorded how."""
        for row in rows:
            if row.worker_id not in self._alive:
                self.after(0.0, Gone(row.worker_id, None, ""))
                self.after(0.0, Returned(row.worker_id, back=True))

    def watch_return(self, worker_ids: list[int]) -> None:
        """Memory is back at once."""
        for worker_id in worker_ids:
            self.after(0.0, Returned(worker_id, back=True))

    def tell(self, job_id: int, state: str) -> None:
        """Keep what was told, for whoever looks."""
        self.told.append((job_id, state))
        if state in ("admitted", "running"):
            self.done.setdefault(job_id, Done(self.clock.elapsed_s))
        elif state in ("queued", "held"):
            self.done.pop(job_id, None)
        elif job_id in self.done:
            self.done[job_id].end_s = self.clock.elapsed_s
            self.ended[job_id] = self.done[job_id]

    def close(self) -> None:
        """Nothing to let go of."""
