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
    Charged,
    Failed,
    Forgotten,
    Gone,
    HostEvent,
    Loose,
    Park,
    Reclaimed,
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
    """`run_s(task)` says how long an attempt takes, `outcome(task)` how it ends; `load_s` by slug.

    `fails(worker_id)` says where a start fails: "keeper" = it cannot be started, "load" = its worker ends while it
    loads, "" = nowhere.
    """

    clock: VirtualClock
    catalog: dict[tuple[str, str], Provider]
    capacity_gib: float
    reserve_gib: float
    load_s: Callable[[str], float]
    run_s: Callable[[Task], float]
    outcome: Callable[[Task], Outcome] = lambda task: Outcome("ok")
    fails: Callable[[int], str] = lambda worker_id: ""
    told: list[tuple[int, str]] = field(default_factory=list)
    done: dict[int, Done] = field(default_factory=dict)
    ended: dict[int, Done] = field(default_factory=dict)
    loaded: dict[int, Loaded] = field(default_factory=dict)
    at_work: dict[int, Task] = field(default_factory=dict)
    _due: list[tuple[float, int, HostEvent]] = field(default_factory=list)
    _order: int = 0
    _alive: dict[int, Park | Adopt] = field(default_factory=dict)
    _let_go: set[int] = field(default_factory=set)
    _answered: dict[int, Answered] = field(default_factory=dict)
    _replied: dict[int, Replied] = field(default_factory=dict)
    _ended: dict[int, Gone] = field(default_factory=dict)

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
        for event in happened:
            self._note(event)
        return happened

    def _note(self, event: HostEvent) -> None:
        """What a keeper would say again, should its scheduler die before it has written this down."""
        if isinstance(event, Answered):
            self._answered[event.worker_id] = event
        elif isinstance(event, Replied):
            self._replied[event.worker_id] = event
            self.at_work.pop(event.worker_id, None)
        elif isinstance(event, Gone):
            self._ended[event.worker_id] = event
            self._alive.pop(event.worker_id, None)
            self.at_work.pop(event.worker_id, None)

    def after(self, delay_s: float, event: HostEvent) -> None:
        """Let an event happen so many virtual seconds from now."""
        self._order += 1
        heapq.heappush(self._due, (self.clock.elapsed_s + delay_s, self._order, event))

    def park(self, order: Park) -> None:
        """A keeper is visible at once, or cannot be started."""
        if self.fails(order.worker_id) == "keeper":
            text = "its keeper could not be started: Permission denied"
            self.after(0.0, Failed(order.worker_id, text, alive=False))
            return
        self._alive[order.worker_id] = order
        self.after(0.0, Shown(order.worker_id, 1_000_000 + order.worker_id, float(order.worker_id), BOOT_ID))

    def go(self, worker_id: int) -> None:
        """The worker answers when its load time has passed, or has ended by then."""
        loading = self._alive.get(worker_id)
        if loading is None:
            self.after(0.0, Failed(worker_id, f"worker {worker_id} has no keeper", alive=False))
            return
        self._let_go.add(worker_id)
        now = self.clock.elapsed_s
        self.loaded[worker_id] = Loaded(worker_id, loading.slug, now, now + self.load_s(loading.slug))
        load_s = self.load_s(loading.slug)
        if self.fails(worker_id) == "load":
            self.after(load_s, Gone(worker_id, 1, "the weights are not there"))
            self.after(load_s, Returned(worker_id, back=True))
        else:
            self.after(load_s, Answered(worker_id, 2_000_000 + worker_id, float(worker_id)))

    def charge(self, worker_id: int, charges: dict[str, float]) -> None:
        """It is visible at once."""
        self.after(0.0, Charged(worker_id, charges))

    def submit(self, task: Task) -> None:
        """The reply comes when the attempt's run time has passed."""
        if task.worker_id not in self._alive:
            self.after(0.0, Failed(task.worker_id, f"worker {task.worker_id} has no keeper", alive=False))
            return
        self.at_work[task.worker_id] = task
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
        self.at_work.pop(worker_id, None)
        self._ended[worker_id] = Gone(worker_id, exit_code, "", why)
        self.after(0.0, self._ended[worker_id])
        self.after(0.0, Returned(worker_id, back=True))

    def adopt(self, rows: list[Adopt]) -> None:
        """Workers that this host still has go on and say again what they said; how others ended is said if known."""
        for row in rows:
            if row.worker_id not in self._alive:
                self.after(0.0, self._ended.get(row.worker_id) or Gone(row.worker_id, None, ""))
                self.after(0.0, Returned(row.worker_id, back=True))
            elif row.state == "retiring":
                self._end(row.worker_id, 0, "it was retiring when its scheduler ended")
            elif row.worker_id not in self._let_go:
                self._end(row.worker_id, 0, f"the queue remembers it {row.state}, its keeper says parked")
            else:
                self._go_on(row)

    def _go_on(self, row: Adopt) -> None:
        if row.worker_id in self._answered:
            self.after(0.0, self._answered[row.worker_id])
        if row.assignment is None:
            return
        asked = (row.assignment.job_id, row.assignment.attempt)
        done, task = self._replied.get(row.worker_id), self.at_work.get(row.worker_id)
        if done is not None and (done.job_id, done.attempt) == asked:
            self.after(0.0, done)
        elif task is None or (task.job_id, task.attempt) != asked:
            self.after(0.0, Forgotten(row.worker_id, *asked))

    def attend(self, callers: dict[int, dict[str, Any]]) -> None:
        """Nobody here has a caller."""

    def keep_environments(self, variants: set[str]) -> None:
        """Nothing here has an environment."""

    def watch_return(self, rows: list[Loose]) -> None:
        """Memory is back at once."""
        for row in rows:
            self.after(0.0, Returned(row.worker_id, back=True))

    def reclaim(self, pool: str, gib: float, job_id: int | None) -> None:
        """A simulated machine has no file cache: nothing is gained."""
        self.after(0.0, Reclaimed(pool, gib, 0.0, "a simulated machine has no file cache", job_id))

    def peaks(self, worker_id: int, anew: bool) -> dict[str, float]:
        """A simulated worker uses what it is charged."""
        order = self._alive.get(worker_id)
        return dict(order.charges) if order is not None else {}

    def watch_disks(self, folders: list[str]) -> None:
        """A simulated machine has no disks."""

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
