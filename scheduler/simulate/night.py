"""A whole night in seconds: the real loop and the real plan on a temporary queue, under a virtual clock.

One unified pool whose memory is back at once, as many cores as anybody asks for, one worker a provider.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.loop import Loop
from scheduler.model.host import Nudged, Task
from scheduler.model.provider import Provider
from scheduler.perform import Identity
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import BOOT_ID, SimHost
from scheduler.simulate.trace import Arrival, Trace
from scheduler.store import intake, schedulers, timings
from scheduler.store.engine import Store
from scheduler.view import Orders

MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - a folder in memory where there is one: nothing of a simulation is kept
EPS_S = 1e-6


def simulate(trace: Trace, *, overtake_s: float, strict: bool, learned: bool = True) -> dict[str, Any]:
    """What became of every job and worker, and the night's figures; the same for the same trace.

    `learned`: loads and runs are known from earlier nights (cold_s, warm_s), as in a queue that has run a while; else
    the night begins with nothing known. What a single job takes is known in neither case before it has ended.
    """
    with _temporary() as paths:
        return _Night(trace, paths, Orders(overtake_s, strict=strict), learned).run()


@contextmanager
def _temporary() -> Iterator[Paths]:
    base = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="schedq-simulate-", dir=base) as folder:
        yield Paths(os.path.join(folder, "queue"))


class _Night:
    def __init__(self, trace: Trace, paths: Paths, orders: Orders, learned: bool) -> None:
        self.trace, self.paths, self.orders, self.learned = trace, paths, orders, learned
        self.clock = VirtualClock()
        self.ids: dict[int, Arrival] = {}
        catalog = {
            (slug, ""): Provider(
                slug, revision="simulated", policy="required", vram_gib=each.budget_gib, idle_timeout_s=0.0,
                start_timeout_s=0.0, request_timeout_s=0.0,
            )
            for slug, each in trace.providers.items()
        }  # fmt: skip
        self.host = SimHost(
            self.clock, catalog, trace.capacity_gib, trace.reserve_gib,
            load_s=lambda slug: trace.providers[slug].cold_s, run_s=self._run_s,
        )  # fmt: skip

    def _run_s(self, task: Task) -> float:
        return self.ids[task.job_id].run_s

    def run(self) -> dict[str, Any]:
        store = Store(self.paths, self.clock)
        try:
            loop = self._scheduler(store)
            arrivals = list(reversed(self.trace.jobs))
            while arrivals or len(self.host.ended) < len(self.trace.jobs):
                self._arrive(arrivals)
                wait_s = loop.patience_s(most_s=math.inf, settle_s=0.0)
                if arrivals:
                    wait_s = min(wait_s, arrivals[-1].arrives_s - self.clock.elapsed_s)
                loop.tick(max(0.0, wait_s))
        finally:
            store.close()
        return self._figures()

    def _scheduler(self, store: Store) -> Loop:
        with store.write() as tx:
            epoch = schedulers.begin(
                tx, pid=os.getpid(), started=None, boot_id=BOOT_ID, host_id=BOOT_ID, version="simulated",
                at=stamp(self.clock.now_s()),
            )  # fmt: skip
            if self.learned:
                for slug, each in self.trace.providers.items():
                    timings.loaded(tx, slug, "", each.cold_s)
                    if each.warm_s is not None:
                        timings.ran(tx, slug, "", each.warm_s)
        loop = Loop(
            store, self.host, self.clock, Identity(epoch, BOOT_ID, BOOT_ID), self.orders, lambda: 0.5, told=False
        )
        loop.recover()
        return loop

    def _arrive(self, arrivals: list[Arrival]) -> None:
        """Queue everything that has arrived by now, as a submitter would."""
        here: list[Arrival] = []
        while arrivals and arrivals[-1].arrives_s <= self.clock.elapsed_s + EPS_S:
            here.append(arrivals.pop())
        if not here:
            return
        at = stamp(self.clock.now_s())
        rows = [
            {"slug": job.slug, "name": str(job.id), "revision": "simulated", "priority": job.priority, "data": b"{}",
             "input_name": "simulated.json", "input_kind": "json", "submitted_at": at}
            for job in here
        ]  # fmt: skip
        self.ids.update(zip(intake.submit(self.paths, rows), here, strict=True))
        self.host.after(0.0, Nudged())

    def _figures(self) -> dict[str, Any]:
        jobs, workers = [], []
        for job_id, arrival in self.ids.items():
            done = self.host.ended[job_id]
            jobs.append(
                {"id": arrival.id, "slug": arrival.slug, "admitted_s": _s(done.admitted_s), "start_s": _s(done.start_s),
                 "end_s": _s(done.end_s), "worker": done.worker_id}
            )  # fmt: skip
        for worker in self.host.loaded.values():
            to_s = None if worker.to_s is None else _s(worker.to_s)
            workers.append(
                {"id": worker.id, "slug": worker.slug, "from_s": _s(worker.from_s), "ready_s": _s(worker.ready_s),
                 "to_s": to_s}
            )  # fmt: skip
        waits = [self.host.ended[i].start_s - job.arrives_s for i, job in self.ids.items()]
        return {
            "schema_version": 1,
            "makespan_s": _s(max(self.host.ended[job_id].end_s for job_id in self.ids)),
            "lower_bound_s": self.trace.lower_bound_s,
            "cold_starts": len(workers),
            "evictions": sum(worker["to_s"] is not None for worker in workers),
            "worst_head_wait_s": _s(self._worst_head_wait_s()),
            "worst_wait_s": _s(max(waits)),
            "mean_wait_s": _s(sum(waits) / len(waits)),
            "jobs": jobs,
            "workers": workers,
        }

    def _worst_head_wait_s(self) -> float:
        """The longest that anybody stood first in the line, from then until it was sent."""
        line = sorted(self.ids, key=lambda i: (-self.ids[i].priority, i))
        worst = since = 0.0
        for job_id in line:
            done = self.host.ended[job_id]
            first_s = max(since, self.ids[job_id].arrives_s)
            since = max(since, done.admitted_s)
            if done.admitted_s > first_s + EPS_S:
                worst = max(worst, done.start_s - first_s)
        return worst


def _s(value: float) -> float:
    return round(value, 6)
