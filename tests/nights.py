"""Nights without a store: the pure plan against a machine of numbers, event by event, quick enough for hundreds.

A `Night` holds what the loop would hold and does with a plan's instructions what the loop and a host would do.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.model.machine import Machine
from scheduler.model.plan import (
    Abort,
    Go,
    Head,
    Instruction,
    LeaseView,
    Prefer,
    Retire,
    Send,
    Snapshot,
    Start,
    Waiting,
    WorkerView,
)
from scheduler.model.provider import Provider
from scheduler.rules.plan import plan


@dataclass
class Job:
    """One job of a night, and what became of it; seconds since the night began."""

    id: int
    slug: str
    run_s: float
    arrives_s: float = 0.0
    priority: int = 0
    admitted_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    worker: int | None = None
    head_since_s: float | None = None
    victims: tuple[int, ...] | None = None


@dataclass
class Worker:
    """One worker of a night."""

    id: int
    slug: str
    charges: dict[str, float]
    state: str = "parked"
    job: Job | None = None
    since_s: float = 0.0
    idle_since_s: float = 0.0
    from_s: float = 0.0
    ready_s: float | None = None
    to_s: float | None = None
    served: int = 0
    pinned: bool = False
    shown: bool = False


@dataclass
class Night:
    """Jobs arrive, the plan decides, loads and runs take the seconds they take, memory comes back `release_s` later."""

    machine: Machine
    providers: dict[str, Provider]
    load_s: dict[str, float]
    jobs: list[Job]
    overtake_s: float = 900.0
    strict: bool = False
    release_s: float = 0.0
    decide: Any = plan
    pinned: tuple[Worker, ...] = ()
    now_s: float = 0.0
    workers: dict[int, Worker] = field(default_factory=dict)
    plans: list[tuple[Snapshot, list[Instruction]]] = field(default_factory=list)
    keep_plans: bool = False
    ticks: int = 0
    limits: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._queue: dict[str, list[tuple[int, int]]] = {slug: [] for slug in self.providers}
        self._by_id = {job.id: job for job in self.jobs}
        self._gone: list[tuple[Worker, float]] = []
        self._due: list[tuple[float, int, str, Any]] = []
        self._count = itertools.count(1)
        self._ids = itertools.count(1)
        self._order: tuple[tuple[str, str], ...] = ()
        self._submitted_s = -1e9
        self._loads: dict[str, list[float]] = {slug: [] for slug in self.providers}
        self._runs: dict[str, list[float]] = {slug: [] for slug in self.providers}
        self._learned = set(self.providers)
        self._known: dict[tuple[str, str], Provider] = {}
        for job in self.jobs:
            self._at(job.arrives_s, "arrive", job)
        for worker in self.pinned:
            worker.id = next(self._ids)
            self.workers[worker.id] = worker

    def _at(self, at_s: float, kind: str, thing: Any) -> None:
        heapq.heappush(self._due, (at_s, next(self._count), kind, thing))

    def run(self, most_ticks: int = 100_000) -> None:
        """Until every job has ended."""
        left = len(self.jobs)
        while left:
            wake_s = self._due[0][0] if self._due else float("inf")
            closings_s = [closing_s for _, closing_s in self._heads() if closing_s > self.now_s]
            closing_s = min(closings_s, default=float("inf"))
            at_s = min(wake_s, closing_s)
            if at_s == float("inf"):
                raise AssertionError(f"{left} jobs wait for ever at {self.now_s} s: {self._stuck()}")
            self.now_s = max(self.now_s, at_s)
            while self._due and self._due[0][0] <= self.now_s:
                _, _, kind, thing = heapq.heappop(self._due)
                left -= self._happen(kind, thing)
            self._close_windows()
            while self.tick():
                pass
            self._close_windows()
            if self.ticks > most_ticks:
                raise AssertionError(f"{left} jobs left after {most_ticks} plans")

    def _close_windows(self) -> None:
        """Note, when a head's window closes, until when it must be sent: the end of what runs then."""
        for job, closing_s in self._heads():
            if job.id not in self.limits and self.now_s >= closing_s:
                ends = [self._end_s(w) for w in self.workers.values() if w.to_s is None and w.job is not None]
                self.limits[job.id] = max([self.now_s, *ends]) + self.release_s

    def _end_s(self, worker: Worker) -> float:
        assert worker.job is not None
        if worker.state == "busy":
            return (worker.job.start_s or 0.0) + worker.job.run_s
        begun_s = worker.since_s if worker.state == "starting" else self.now_s
        return (begun_s + self.load_s[worker.slug] if worker.state != "ready" else self.now_s) + worker.job.run_s

    def late(self) -> list[str]:
        """The heads that were admitted after their bound, which no higher priority had delayed."""
        found = []
        for job in self.jobs:
            limit_s = self.limits.get(job.id)
            if limit_s is None or job.admitted_s is None or job.admitted_s <= limit_s + 1e-6:
                continue
            higher = [other for other in self.jobs if other.priority > job.priority and other.admitted_s is not None]
            if not any(other.admitted_s >= job.arrives_s for other in higher if other.admitted_s is not None):
                found.append(f"job {job.id} of {job.slug} admitted at {job.admitted_s:.1f} s, bound {limit_s:.1f} s")
        return found

    def _heads(self) -> list[tuple[Job, float]]:
        """Each head, and the first moment at which the plan sees its window closed: its age is a rounded difference."""
        found = []
        for job in (self._by_id[queue[0][1]] for queue in self._queue.values() if queue):
            if job.head_since_s is not None:
                closing_s = job.head_since_s + self.overtake_s
                while closing_s - job.head_since_s < self.overtake_s:
                    closing_s = math.nextafter(closing_s, math.inf)
                found.append((job, closing_s))
        return found

    def _stuck(self) -> str:
        return str([(slug, queue[:3]) for slug, queue in self._queue.items() if queue])

    def _happen(self, kind: str, thing: Any) -> int:
        if kind == "arrive":
            queue = self._queue[thing.slug]
            queue.append((-thing.priority, thing.id))
            queue.sort()
            self._submitted_s = self.now_s
        elif kind == "ready":
            if thing.state == "starting":
                thing.state, thing.ready_s, thing.since_s, thing.idle_since_s = (
                    "ready",
                    self.now_s,
                    self.now_s,
                    self.now_s,
                )
                self._learned.add(thing.slug)
                self._loads[thing.slug].append(self.now_s - thing.from_s)
        elif kind == "reply":
            job = thing.job
            job.end_s, thing.job = self.now_s, None
            thing.state, thing.since_s, thing.idle_since_s, thing.served = (
                "ready",
                self.now_s,
                self.now_s,
                thing.served + 1,
            )
            self._learned.add(thing.slug)
            self._runs[thing.slug].append(self.now_s - job.start_s)
            return 1
        elif kind == "back":
            self._gone = [(worker, at) for worker, at in self._gone if worker is not thing]
        return 0

    def snapshot(self) -> Snapshot:
        """What the plan may see now."""
        waiting = []
        for slug, queue in self._queue.items():
            if queue:
                job = self._by_id[queue[0][1]]
                since = job.head_since_s
                waiting.append(
                    Waiting(
                        slug, "", job.id, job.priority, len(queue),
                        head_for_s=None if since is None else self.now_s - since, victims=job.victims,
                        following=(-queue[1][0], queue[1][1]) if len(queue) > 1 else None, revision="r",
                    )
                )  # fmt: skip
        views = [
            WorkerView(
                w.id, w.slug, "", "r", w.state, w.charges, job_id=w.job.id if w.job else None,
                idle_s=self.now_s - w.idle_since_s if w.state == "ready" and not w.job else 0.0,
                state_s=self.now_s - w.since_s, jobs_served=w.served, pinned=w.pinned, shown=w.shown,
            )
            for w in self.workers.values()
            if w.to_s is None
        ]  # fmt: skip
        leases = [
            LeaseView(w.id, w.slug, pool, gib, "returning") for w, _ in self._gone for pool, gib in w.charges.items()
        ]
        for slug in self._learned:
            self._known[slug, ""] = replace(
                self.providers[slug], load_s=_mean(self._loads[slug]), run_s=_mean(self._runs[slug]),
                served=len(self._runs[slug]),
            )  # fmt: skip
        self._learned.clear()
        return Snapshot(
            self.machine, dict(self._known), tuple(waiting), tuple(views), tuple(leases), overtake_s=self.overtake_s,
            strict=self.strict, quiet_s=self.now_s - self._submitted_s, order=self._order,
        )  # fmt: skip

    def tick(self) -> bool:
        """One plan, performed; whether it did anything that another plan might build on."""
        seen = self.snapshot()
        found = self.decide(seen)
        self.ticks += 1
        if self.keep_plans:
            self.plans.append((seen, found))
        moved = False
        for each in found:
            moved = self._perform(each) or moved
        return moved

    def _claim(self, job_id: int) -> Job:
        job = self._by_id[job_id]
        self._queue[job.slug].remove((-job.priority, job.id))
        job.admitted_s, job.head_since_s = self.now_s, None
        return job

    def _perform(self, each: Instruction) -> bool:
        match each:
            case Start():
                worker = Worker(
                    next(self._ids), each.slug, dict(each.charges), shown=True, since_s=self.now_s, from_s=self.now_s
                )
                worker.job = self._claim(each.job_id)
                self.workers[worker.id] = worker
            case Go(worker_id):
                worker = self.workers[worker_id]
                worker.state, worker.since_s = "starting", self.now_s
                self._at(self.now_s + self.load_s[worker.slug], "ready", worker)
            case Send(worker_id, job_id):
                worker = self.workers[worker_id]
                job = worker.job or self._claim(job_id)
                assert worker.state == "ready" and job.id == job_id
                worker.state, worker.job, worker.since_s = "busy", job, self.now_s
                job.start_s, job.worker = self.now_s, worker_id
                self._at(self.now_s + job.run_s, "reply", worker)
            case Retire(worker_id) | Abort(worker_id):
                worker = self.workers[worker_id]
                worker.to_s = self.now_s
                self._gone.append((worker, self.now_s))
                self._at(self.now_s + self.release_s, "back", worker)
                if self.release_s == 0.0:
                    self._gone = [(w, at) for w, at in self._gone if w is not worker]
            case Head(job_id, victims):
                job = self._by_id[job_id]
                if job.admitted_s is None:
                    opened = job.head_since_s is None
                    job.head_since_s = self.now_s if opened else job.head_since_s
                    job.victims = victims
                return False
            case Prefer(order):
                self._order = order
                return False
            case _:
                return False
        return True

    def output(self) -> dict[str, Any]:
        """The night as `schedq simulate --json` prints it."""
        return {
            "jobs": [
                {
                    "id": j.id,
                    "slug": j.slug,
                    "worker": j.worker,
                    "admitted_s": j.admitted_s,
                    "start_s": j.start_s,
                    "end_s": j.end_s,
                }
                for j in self.jobs
            ],
            "workers": [
                {"id": w.id, "slug": w.slug, "from_s": w.from_s, "ready_s": w.ready_s, "to_s": w.to_s}
                for w in self.workers.values()
                if not w.pinned
            ],
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
