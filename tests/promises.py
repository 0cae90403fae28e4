"""A queue on disk, a machine that does whatever machines do, schedulers that come and go; all held to the promises.

`Yard` is the machine: processes and memory in numbers, with a ledger of its own of who ran what and when. `World`
drives the real loop and the real store on it, under a clock that jumps, and looks at both from outside after every
turn: at the database with SQL, at the machine through its ledger. What does not hold is an AssertionError that names
the promise.
"""

from __future__ import annotations

import atexit
import heapq
import json
import logging
import math
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from scheduler import locks
from scheduler import loop as loop_module
from scheduler.clock import seconds, stamp
from scheduler.config import Paths
from scheduler.errors import Refused, SchedqError, TakenOver, Temporary, UsageError
from scheduler.loop import Loop
from scheduler.model.host import (
    Adopt,
    Answered,
    Asked,
    Failed,
    Forgotten,
    Gone,
    HostEvent,
    Loose,
    Nudged,
    Park,
    Replied,
    Returned,
    Shown,
    Task,
)
from scheduler.model.machine import Charge, Holding, Machine, Pool, Reading
from scheduler.model.outcome import KINDS, RULINGS, Outcome
from scheduler.model.provider import Provider
from scheduler.model.states import JOB, JOB_ENDED, LEASE, WORKER
from scheduler.perform import Identity
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import (
    ending,
    engine,
    intake,
    leases,
    operator,
    passing,
    queue,
    schedulers,
    wishes,
    workers,
)
from scheduler.store.connection import open_reader
from scheduler.store.engine import Store
from scheduler.store.reason import Reasons
from scheduler.view import Orders

MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - a folder in memory where there is one
HOST_ID = "yard"
SLACK_GIB = 1e-5
PATIENCE_S = 100.0
"""How long every provider may be silent over a request."""

OVERDUE_S = 50.0
"""How long memory may take to come back before the yard says that it is overdue."""

LIVE = ("admitted", "running")
OPERATOR = {
    "cancel": {"queued": "cancelled", "held": "cancelled", "admitted": "cancelled", "running": "same",
               "succeeded": "says", "failed": "says", "cancelled": "same", "timed_out": "says"},
    "hold": {"queued": "held", "held": "same", "admitted": "held", "running": "says",
             "succeeded": "says", "failed": "says", "cancelled": "says", "timed_out": "says"},
    "release": {"queued": "says", "held": "queued", "admitted": "says", "running": "says",
                "succeeded": "says", "failed": "says", "cancelled": "says", "timed_out": "says"},
    "requeue": {"queued": "says", "held": "says", "admitted": "says", "running": "says",
                "succeeded": "says", "failed": "queued", "cancelled": "queued", "timed_out": "queued"},
}  # fmt: skip
"""What an operator's word does to a job, by its state: `same` = recorded only, `says` = told so, nothing changes."""

FATES = (
    "ok", "error", "refused", "no_outputs", "over_budget", "later", "hangs", "dies", "leaves", "exit3", "exit5",
    "exit75", "deaf",
)  # fmt: skip
"""How an attempt may go: what is answered, that nothing is, how its worker ends on it; deaf = it cannot be sent."""

STARTS = ("", "keeper", "unseen", "load", "hangs", "later", "absent")
"""How a start may go: well, or where it fails."""


class Crash(BaseException):
    """The scheduler's process dies here."""


class Wall(VirtualClock):
    """A virtual clock whose wall time may jump; monotonic time does not."""

    jumped_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.jumped_s


@dataclass
class Attempt:
    """One attempt, as the yard saw it: when it came, what its worker answered, when it was over."""

    worker_id: int
    sent_s: float
    alive_s: float
    timeout_s: float | None
    reply: bytes | None = None
    kind: str = ""
    over: bool = False


class Yard(SimHost):
    """A machine whose processes, memory, devices and disk do what they are told to, with a ledger of what was done."""

    def __init__(self, clock: Wall, catalog: dict[tuple[str, str], Provider], pools: dict[str, tuple[float, float]]):
        super().__init__(clock, catalog, 0.0, 0.0, load_s=lambda slug: self.loads_s, run_s=self._run_s)
        self.pools = pools
        self.boot, self.loads_s, self.stops_s, self.returns_s = 1, 10.0, 0.0, 0.0
        self.shrunk: dict[str, float] = {}
        self.blind: dict[str, str] = {}
        self.absent: set[str] = set()
        self.strangers: dict[int, tuple[str, float | None]] = {}
        self.no_processes = self.dark = self.unread = self.mute = self.disk_full = False
        self.fates: dict[int, list[str]] = {}
        self.runs: dict[int, float] = {}
        self.coming: list[str] = []
        self.starts: dict[int, str] = {}
        self.ledger: dict[tuple[int, int], Attempt] = {}
        self.dying: dict[int, float] = {}
        self.back_s: dict[int, float] = {}
        self.gone_s: dict[int, float] = {}
        self.read: Machine | None = None
        self.broken: list[str] = []
        self.point: Callable[[str], None] = lambda name: None
        self.may_stop: Callable[[int, Task | None, str], str] = lambda worker_id, task, why: ""

    @property
    def alive(self) -> dict[int, Park | Adopt]:
        """The workers of which a process lives."""
        return self._alive

    @property
    def answers(self) -> dict[int, Answered]:
        """What each worker said when it was ready."""
        return self._answered

    # What the machine says

    def providers(self) -> dict[tuple[str, str], Provider]:
        if self.mute:
            raise OSError("the folder of manifests cannot be read")
        return dict(self.catalog)

    def machine(self) -> Machine:
        if self.dark:
            self.read = None
            raise SchedqError("the machine cannot be read")
        if self.unread:
            nothing = Reading(None, "", "the machine could not be read")
            host = Pool("host", "host", nothing, 0.0, nothing, nothing)
            self.read = Machine(
                self.clock.now_s(), f"boot {self.boot}", HOST_ID, 1, (host,), nothing, competing=None,
                holdings_missing="the machine could not be read",
            )  # fmt: skip
            return self.read
        pools = [self._pool(pool_id) for pool_id in self.pools if pool_id not in self.absent]
        devices = sum(pool.kind != "host" for pool in pools)
        holdings = tuple(
            Holding(
                "stranger", pid, "bob", (Charge(pool, gib, gib, "host" if pool == "host" else "device"),),
                competes=False,
            )
            for pid, (pool, gib) in self.strangers.items()
        )  # fmt: skip
        self.read = Machine(
            self.clock.now_s(), f"boot {self.boot}", HOST_ID, 16, tuple(pools), Reading(float(devices), "yard"),
            holdings, holdings_missing="the process table cannot be read" if self.no_processes else "",
            disk_free_gib=1.0 if self.disk_full else 100.0, disk_reserve_gib=5.0,
        )  # fmt: skip
        return self.read

    def capacity_of(self, pool_id: str) -> float:
        """What there is of a pool now. GiB."""
        return self.pools[pool_id][0] * self.shrunk.get(pool_id, 1.0)

    def _pool(self, pool_id: str) -> Pool:
        capacity_gib = self.capacity_of(pool_id)
        taken_gib = math.fsum(gib or 0.0 for pool, gib in self.strangers.values() if pool == pool_id)
        whole, live = Reading(capacity_gib, "yard"), Reading(max(0.0, capacity_gib - taken_gib), "yard")
        failed, blind = Reading(None, "yard", "it did not answer"), self.blind.get(pool_id, "")
        return Pool(
            pool_id, pool_id.partition(":")[0], failed if blind == "capacity" else whole, self.pools[pool_id][1],
            failed if blind == "live" else live, failed if blind == "live" else live,
        )  # fmt: skip

    # What it does

    def park(self, order: Park) -> None:
        self.point("deed")
        if order.worker_id in self.starts:
            self.broken.append(f"worker {order.worker_id} is parked a second time")
        fate = self.starts[order.worker_id] = self.coming.pop(0) if self.coming else ""
        if fate == "keeper":
            text = "its keeper could not be started: Permission denied"
            self.after(0.0, Failed(order.worker_id, text, alive=False))
        else:
            self._alive[order.worker_id] = order
            if fate != "unseen":
                shown = Shown(order.worker_id, 1_000_000 + order.worker_id, float(order.worker_id), f"boot {self.boot}")
                self.after(0.0, shown)
        self.point("deed")

    def go(self, worker_id: int) -> None:
        self.point("deed")
        fate = self.starts.get(worker_id, "")
        if worker_id not in self._alive:
            self.after(0.0, Failed(worker_id, f"worker {worker_id} has no keeper"))
        else:
            if worker_id in self._let_go:
                self.broken.append(f"worker {worker_id} is let go a second time")
            self._let_go.add(worker_id)
            if fate == "load":
                self._will_end(worker_id, self.loads_s, 1, "the weights are not there")
            elif fate == "later":
                self._will_end(worker_id, 1.0, 75, "later: the licence server is busy (retry_after_s=20)")
            elif fate == "absent":
                self._will_end(worker_id, self.loads_s, 5, "no device")
            elif fate != "hangs":
                self.after(self.loads_s, Answered(worker_id, 2_000_000 + worker_id, float(worker_id)))
        self.point("deed")

    def submit(self, task: Task) -> None:
        self.point("deed")
        key, now = (task.job_id, task.attempt), self.clock.elapsed_s
        if key in self.ledger:
            self.broken.append(f"P2: attempt {task.attempt} of job {task.job_id} is sent a second time")
        for worker_id, other in self.at_work.items():
            if other.job_id == task.job_id:
                self.broken.append(f"P2: job {task.job_id} is sent to {task.worker_id} while {worker_id} works on it")
            if worker_id == task.worker_id:
                self.broken.append(f"worker {worker_id} is sent job {task.job_id} while it works on {other.job_id}")
        fates = self.fates.get(task.job_id, [])
        fate = fates.pop(0) if fates else "ok"
        if task.worker_id not in self._alive or task.worker_id in self.dying:
            self.after(0.0, Failed(task.worker_id, f"worker {task.worker_id} cannot be reached"))
        elif fate == "deaf":
            self.after(0.0, Failed(task.worker_id, "the request did not reach the worker whole"))
        else:
            self.at_work[task.worker_id] = task
            self.ledger[key] = Attempt(task.worker_id, now, now, task.deadline_s)
            self._work(task, fate)
        self.point("deed")

    def _run_s(self, task: Task) -> float:
        return self.runs.get(task.job_id, 5.0)

    def _work(self, task: Task, fate: str) -> None:
        exits = {"dies": -9, "leaves": 0, "exit3": 3, "exit5": 5, "exit75": 75}
        if fate in exits:
            said = "later: not now (retry_after_s=20)" if fate == "exit75" else "the last line of its log"
            self._will_end(task.worker_id, self._run_s(task), exits[fate], said)
        elif fate != "hangs":
            outcome = Outcome(fate)
            if fate == "later":
                outcome = Outcome("error", "no licence", 75, retry_after_s=20.0)
            reply = json.dumps({"job": task.job_id, "attempt": task.attempt}).encode()
            self.ledger[task.job_id, task.attempt].reply = reply
            self.after(self._run_s(task), Replied(task.worker_id, task.job_id, task.attempt, outcome, reply))

    def stop(self, worker_id: int, grace_s: float, why: str) -> None:
        self.point("deed")
        if worker_id in self._alive and worker_id not in self.dying:
            fault = self.may_stop(worker_id, self.at_work.get(worker_id), why)
            if fault:
                self.broken.append(fault)
        self._stop(worker_id, why)
        self.point("deed")

    def _stop(self, worker_id: int, why: str) -> None:
        if worker_id not in self._alive:
            self._say_ended(worker_id)
        elif worker_id not in self.dying and self.stops_s:
            at_s = self.clock.elapsed_s + self.stops_s
            self._drop(worker_id, but=lambda at, event: isinstance(event, Replied) and at <= at_s)
            self._will_end(worker_id, self.stops_s, 0 if self.stops_s < 5 else -9, "", why)
        elif worker_id not in self.dying:
            self._end(worker_id, 0, why)

    def kill(self, worker_id: int, signal_number: int = 9) -> None:
        self._end(worker_id, -signal_number, "")

    def _will_end(self, worker_id: int, in_s: float, exit_code: int, text: str, why: str = "") -> None:
        if why:
            self.dying[worker_id] = self.clock.elapsed_s + in_s
        self.after(in_s, Gone(worker_id, exit_code, text, why))
        self._will_return(worker_id, in_s)

    def _will_return(self, worker_id: int, in_s: float) -> None:
        returns_s = self.returns_s if worker_id in self._let_go else 0.0
        self.back_s[worker_id] = self.clock.elapsed_s + in_s + returns_s
        if returns_s > OVERDUE_S:
            self.after(in_s + OVERDUE_S, Returned(worker_id, back=False, text="3.0 GiB are still seen"))
        self.after(in_s + returns_s, Returned(worker_id, back=True))

    def _end(self, worker_id: int, exit_code: int, why: str) -> None:
        if worker_id not in self._alive:
            return
        now = self.clock.elapsed_s
        self._drop(worker_id, but=lambda at, event: at <= now)
        self._will_end(worker_id, 0.0, exit_code, "", why)
        self._buried(self._gone_of(worker_id, exit_code, why))

    def _gone_of(self, worker_id: int, exit_code: int | None, why: str) -> Gone:
        return Gone(worker_id, exit_code, "", why)

    def _drop(self, worker_id: int, but: Callable[[float, HostEvent], bool]) -> None:
        """Nothing more will come of this worker, but what is kept."""
        self._due = [
            item for item in self._due if getattr(item[2], "worker_id", None) != worker_id or but(item[0], item[2])
        ]
        heapq.heapify(self._due)

    def _buried(self, gone: Gone) -> None:
        """No process of it is left."""
        self._ended.setdefault(gone.worker_id, gone)
        self._alive.pop(gone.worker_id, None)
        self.dying.pop(gone.worker_id, None)
        self.gone_s.setdefault(gone.worker_id, self.clock.elapsed_s)
        task = self.at_work.pop(gone.worker_id, None)
        if task is not None:
            self.ledger[task.job_id, task.attempt].over = True

    def _note(self, event: HostEvent) -> None:
        if isinstance(event, Answered):
            self._answered[event.worker_id] = event
        elif isinstance(event, Replied):
            attempt = self.ledger.get((event.job_id, event.attempt))
            if attempt is None or event.reply is not attempt.reply:
                return  # an old answer, said again
            self._replied[event.worker_id] = event
            attempt.kind, attempt.over = "later" if event.outcome.later else event.outcome.kind, True
            at = self.at_work.get(event.worker_id)
            if at is not None and (at.job_id, at.attempt) == (event.job_id, event.attempt):
                del self.at_work[event.worker_id]
        elif isinstance(event, Gone):
            self._buried(event)

    # While nobody listens, and after

    def unheard(self, for_s: float = 0.0) -> None:
        """Time passes and no scheduler is told of anything; what was on its way to the last one is lost."""
        until_s = self.clock.elapsed_s + for_s
        while self._due and self._due[0][0] <= until_s:
            at_s, _, event = heapq.heappop(self._due)
            self.clock.move_to(at_s)
            self._note(event)
        self.clock.move_to(until_s)
        self._due = [item for item in self._due if not isinstance(item[2], Returned | Nudged | Asked)]
        heapq.heapify(self._due)

    def reboot(self) -> None:
        """Everything that lived is gone, and nobody recorded how."""
        self.unheard()
        self.boot += 1
        for worker_id in list(self._alive):
            self._buried(Gone(worker_id, None, ""))
        self._due.clear()
        self.strangers.clear()
        self.back_s.clear()
        self._replied.clear()

    def adopt(self, rows: list[Adopt]) -> None:
        for row in rows:
            if row.worker_id not in self._alive:
                self._say_answer(row)
                self._say_ended(row.worker_id)
            elif row.state == "retiring":
                self._stop(row.worker_id, "it was retiring when its scheduler ended")
            elif row.worker_id not in self._let_go:
                self._end(row.worker_id, 0, f"the queue remembers it {row.state}, its keeper says parked")
            else:
                if row.worker_id in self._answered:
                    self.after(0.0, self._answered[row.worker_id])
                at = self.at_work.get(row.worker_id)
                asked = (row.assignment.job_id, row.assignment.attempt) if row.assignment is not None else None
                if asked and not self._say_answer(row) and (at is None or (at.job_id, at.attempt) != asked):
                    self.after(0.0, Forgotten(row.worker_id, *asked))

    def _say_answer(self, row: Adopt) -> bool:
        """Tell what its keeper stored of the attempt that it is asked for; whether there was anything."""
        done = self._replied.get(row.worker_id)
        if row.assignment is None or done is None:
            return False
        if (done.job_id, done.attempt) != (row.assignment.job_id, row.assignment.attempt):
            return False
        self.after(0.0, done)
        return True

    def _say_ended(self, worker_id: int) -> None:
        self.after(0.0, self._ended.get(worker_id) or Gone(worker_id, None, ""))
        self._look_back([worker_id])

    def watch_return(self, rows: list[Loose]) -> None:
        self._look_back([row.worker_id for row in rows])

    def _look_back(self, worker_ids: list[int]) -> None:
        now = self.clock.elapsed_s
        for worker_id in worker_ids:
            if now >= self.back_s.get(worker_id, 0.0):
                self.after(0.0, Returned(worker_id, back=True))
            elif now >= self.gone_s.get(worker_id, now) + OVERDUE_S:
                self.after(0.0, Returned(worker_id, back=False, text="3.0 GiB are still seen"))

    def tell(self, job_id: int, state: str) -> None:
        self.told.append((job_id, state))


class Stale:
    """The host of a scheduler that has been overtaken: it still hears, and whatever it does is written down."""

    def __init__(self, yard: Yard, heard: list[HostEvent]) -> None:
        self._yard, self._heard, self.did = yard, heard, list[str]()

    def __getattr__(self, name: str) -> Any:
        if name in ("park", "go", "submit", "stop", "adopt", "watch_return"):
            return lambda *args, **more: self.did.append(name)
        return getattr(self._yard, name)

    def poll(self, timeout_s: float) -> list[HostEvent]:
        heard, self._heard = self._heard, []
        return heard


@dataclass
class Seen:
    """The queue's tables at one moment, read from outside."""

    jobs: dict[int, sqlite3.Row]
    workers: dict[int, sqlite3.Row]
    leases: list[sqlite3.Row]
    attempts: dict[tuple[int, int], sqlite3.Row]
    breakers: dict[str, sqlite3.Row]
    stopped: bool

    def charged_gib(self, pool_id: str) -> float:
        return math.fsum(row["charge_gib"] for row in self.leases if row["pool"] == pool_id)


@cache
def _empty_queue() -> str:
    """A queue that was made once, to be copied: its migrations are not what is shown here."""
    folder = tempfile.TemporaryDirectory(prefix="schedq-promises-")
    atexit.register(folder.cleanup)
    home = os.path.join(folder.name, "queue")
    with closing(Store(Paths(home))) as store, store.write():
        pass
    return home


@dataclass
class World:
    """A yard, a queue, whoever schedules it, and the judge of both."""

    cards: bool = False
    cells: Counter[str] = field(default_factory=Counter)
    given: set[int] = field(default_factory=set)
    loop: Loop | None = None
    crash_in: str = ""
    crash_after: int = 0
    write_fails: bool = False
    unbound: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        base = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="schedq-promises-", dir=base)
        self.paths, self.clock = Paths(os.path.join(self._folder.name, "queue")), Wall()
        pools = {"unified": (36.0, 4.0)}
        if self.cards:
            pools = {"device:x": (24.0, 1.0), "device:y": (16.0, 1.0), "host": (16.0, 2.0)}
        self.yard = Yard(self.clock, {}, pools)
        self.yard.point, self.yard.may_stop = self._point, self._may_stop
        shutil.copytree(_empty_queue(), self.paths.home)
        self.desk = Store(self.paths, self.clock)
        self.eye = open_reader(self.paths)
        self.eye.row_factory = sqlite3.Row
        self._patches = pytest.MonkeyPatch()
        for module in (loop_module, engine):
            self._patches.setattr(module, "crashpoint", self._point)
        for module in (queue, ending, operator, workers, leases):
            self._patches.setattr(module, "advance", self._counted(module.advance))  # type: ignore[attr-defined]
        self._log = _Errors()
        logger = logging.getLogger("schedq")
        self._patches.setattr(logger, "propagate", False)
        logger.addHandler(self._log)
        self._ticking = False
        self._lock: int | None = None
        self._pinned: set[int] = set()
        self.heal_providers()

    def close(self) -> None:
        """Let go of everything, whatever was found."""
        self.crash_in, self.write_fails = "", False
        if self.loop is not None:
            self._drop_scheduler()
        logging.getLogger("schedq").removeHandler(self._log)
        self._patches.undo()
        self.eye.close()
        self.desk.close()
        self._folder.cleanup()

    # Points at which things fail

    def _counted(self, advance: Callable[..., str]) -> Callable[..., str]:
        names = {id(JOB): "job", id(WORKER): "worker", id(LEASE): "lease"}

        def counting(table: Any, state: str, event: str, *rest: Any) -> str:
            cell = advance(table, state, event, *rest)
            self.cells[f"{names[id(table)]}: {state} {event} -> {cell}"] += 1
            return cell

        return counting

    def _point(self, name: str) -> None:
        if not self._ticking:
            return
        if name == "store.write" and self.write_fails:
            self.write_fails = False
            raise Temporary("the disk is full")
        if name == self.crash_in:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.crash_in = ""
                raise Crash

    def _may_stop(self, worker_id: int, task: Task | None, why: str) -> str:
        """ "" if a worker may be stopped now; a busy one only by its own job or `down --now`, a pinned one not for room
        and not for age (P8).
        """
        assert self.loop is not None
        if task is None:
            for_room = why.startswith(("its room is needed", "idle for"))
            return f"pinned worker {worker_id} is stopped: {why}" if for_room and worker_id in self._pinned else ""
        if self.loop.orders.stopping:
            return ""
        job = self.eye.execute("SELECT cancel_requested_at FROM jobs WHERE id = ?", (task.job_id,)).fetchone()
        attempt, now = self.yard.ledger[task.job_id, task.attempt], self.clock.elapsed_s
        slow = attempt.timeout_s is not None and (now >= attempt.sent_s + attempt.timeout_s or self.clock.jumped_s)
        silent = now >= attempt.alive_s + PATIENCE_S
        if job["cancel_requested_at"] is not None or slow or silent:
            return ""
        return f"P8: worker {worker_id} is stopped while it works on job {task.job_id}: {why}"

    # Schedulers

    def up(self) -> None:
        """Start the next scheduler; it may die of what is armed."""
        assert self.loop is None
        self.yard.unheard()
        store, before = Store(self.paths, self.clock), self.look()
        self._ticking = True
        died = False
        try:
            with store.write() as tx:
                epoch = schedulers.begin(
                    tx, pid=1, started=1.0, boot_id=f"boot {self.yard.boot}", host_id=HOST_ID, version="test",
                    at=stamp(self.clock.now_s()),
                )  # fmt: skip
            self.loop = Loop(store, self.yard, self.clock, Identity(epoch, HOST_ID, "q"), Orders(), draw=lambda: 0.5)
            self.loop.recover()
        except (Crash, Temporary):
            died = True
        finally:
            self._ticking = False
        if died:
            self.loop = None
            store.close()
            self.yard.unheard()
        else:
            self._lock = locks.take(self.paths.lock_scheduler)
        self._judge(before, planned=False)

    def _drop_scheduler(self) -> None:
        assert self.loop is not None
        self.loop.store.close()
        self.loop = None
        if self._lock is not None:
            locks.let_go(self._lock)
            self._lock = None

    def die(self, where: str = "", after: int = 0) -> None:
        """The scheduler is killed: at once, or in its next turn at a point on its way."""
        assert self.loop is not None
        if where:
            self.crash_in, self.crash_after = where, after
            self.tick(0.0)
            self.crash_in = ""
        if self.loop is not None:
            self._drop_scheduler()
            self.yard.unheard()

    def overtake(self) -> None:
        """A scheduler that was stopped wakes up when the next one has taken over: it must do nothing (P2)."""
        assert self.loop is not None
        old, self.loop = self.loop, None
        if self._lock is not None:
            locks.let_go(self._lock)
            self._lock = None
        self.yard.unheard()
        stale = [
            Replied(task.worker_id, task.job_id, task.attempt, Outcome("error", "stale"), b'{"stale": true}')
            for task in self.yard.at_work.values()
        ]
        self.up()
        before = self.look()
        host = Stale(self.yard, list(stale))
        old.host = old.performer.host = host  # type: ignore[assignment]
        try:
            old.tick(0.0)
        except TakenOver:
            pass
        else:
            raise AssertionError("P2: a scheduler that was taken over went on")
        finally:
            old.store.close()
        assert not host.did, f"P2: a scheduler that was taken over did {host.did}"
        self._judge(before, planned=False)

    def tick(self, timeout_s: float | None = None) -> bool:
        """One turn, and the judgement of it. False once the scheduler is not there any more, or has nothing to do."""
        assert self.loop is not None
        before, stays, died = self.look(), False, False
        self._pinned = {row["id"] for row in before.workers.values() if row["pinned"]}
        self.yard.read, self._ticking = None, True
        try:
            stays = self.loop.tick(timeout_s)
        except Crash:
            died = True
        finally:
            self._ticking = False
        trouble = "" if died else self.loop.trouble
        if died:
            self._drop_scheduler()
            self.yard.unheard()
        assert "contradicts" not in trouble and "a turn failed" not in trouble, trouble
        self._judge(before, planned=not died and not trouble and self.yard.read is not None)
        if not died and not stays:
            self._leave()
        return stays

    def _leave(self) -> None:
        """The scheduler ends by itself, in order; nothing of a queue that was brought down is left (P10).

        But for what leaked: that nobody can bring down, and it stays charged.
        """
        assert self.loop is not None
        came_down = self.loop.leaving == "down"
        with self.loop.store.write() as tx:
            schedulers.end(tx, self.loop.identity.epoch, stamp(self.clock.now_s()))
        self._drop_scheduler()
        self.yard.unheard()
        if not came_down:
            return
        seen = self.look()
        left = [(row["id"], row["state"]) for row in seen.workers.values() if row["state"] != "gone"]
        assert not left, f"P10: after `down` there are workers: {left}"
        assert not self.yard.alive, f"P10: after `down` processes live: {sorted(self.yard.alive)}"
        loose = [tuple(row) for row in seen.leases if row["state"] != "leaked"]
        assert not loose, f"P10: after `down` there are leases: {loose}"

    def work(self, turns: int) -> None:
        """Let the scheduler do its work for so many turns, as long as it is there."""
        for _ in range(turns):
            if self.loop is None:
                return
            self.tick()
            if not self._is_wanted() and not self.yard.alive:
                return

    def _is_wanted(self) -> bool:
        return any(row["state"] in ("queued", *LIVE) for row in self.look().jobs.values())

    def until(self, state: str, most: int = 12) -> None:
        """Let the scheduler do its work until there is a worker in this state, "" = not at all.

        Somebody gives it work if there is none.
        """
        if state and not self._is_wanted():
            slug = ("a", "b", "c", "d")[len(self.given) % 4]
            self.submit(slug, run_s=20.0)
            self.nudge()
        for _ in range(most if state else 0):
            if self.loop is None or any(row["state"] == state for row in self.look().workers.values()):
                return
            self.tick()

    def chosen(self, word: str, which: int) -> int:
        """A job; two times of three one to which this word means something."""
        apt = [row["id"] for row in self.look().jobs.values() if OPERATOR.get(word, {}).get(row["state"]) != "says"]
        jobs = sorted(apt) if apt and which % 3 else sorted(self.given)
        return jobs[which // 3 % len(jobs)]

    def sleep(self, for_s: float) -> None:
        """Time passes, and the scheduler (if there is one) does not get to run."""
        if self.loop is None:
            self.yard.unheard(for_s)
        else:
            self.clock.sleep(for_s)

    def down(self, *, now: bool, most: int = 150) -> bool:
        """Bring the scheduler down; whether it came down. What keeps it is memory or a process that does not go."""
        assert self.loop is not None
        self.yard.after(0.0, Asked("down", now))
        for _ in range(most):
            if not self.tick():
                return self.loop is None
        self._kept_from_going()
        self.die()
        return False

    def reboot(self) -> None:
        """The machine is started anew: nothing lives, and what keepers stored for nobody yet is gone with them."""
        if self.loop is not None:
            self.die()
        self.yard.reboot()
        for job in self.look().jobs.values():
            ran = self.yard.ledger.get((job["id"], job["attempt"]))
            if job["state"] == "running" and ran is not None:
                ran.kind = ""

    def _kept_from_going(self) -> None:
        if self.yard.dark:
            return
        seen = self.look()
        for row in seen.workers.values():
            if row["state"] not in ("gone", "retiring", "busy"):
                raise AssertionError(f"P10: worker {row['id']} is {row['state']} long after `down`")
            if row["state"] == "retiring":
                assert row["id"] in self.yard.dying, f"P10: worker {row['id']} is gone and stays retiring: {row['why']}"
        for row in seen.leases:
            if seen.workers[row["worker_id"]]["state"] == "gone":
                back_s = self.yard.back_s.get(row["worker_id"], 0.0)
                assert back_s > self.clock.elapsed_s - 10.0, (
                    f"P10: the memory of {row['worker_id']} is back: {row['state']}"
                )

    # What people do

    def nudge(self) -> None:
        """The scheduler hears that something changed."""
        if self.loop is not None:
            self.yard.after(0.0, Nudged())

    def submit(self, slug: str, fates: tuple[str, ...] = (), run_s: float = 5.0, **columns: Any) -> int:
        """Put a job in; its id. `after`: words of what it comes after; it comes after nobody if that cannot be."""
        name, _, variant = slug.partition(":")
        after = columns.pop("after", None)
        row = {
            "slug": name, "variant": variant, "name": "x", "revision": "r", "input_name": "x.json",
            "input_kind": "json", "data": b"%d" % len(self.given), "submitted_at": stamp(self.clock.now_s()), **columns,
        }  # fmt: skip
        try:
            [job_id] = intake.submit(self.paths, [{**row, "beside": {"after": after}} if after else row])
        except Refused as error:
            assert after and "needs" in str(error), f"a job was refused: {error}"
            [job_id] = intake.submit(self.paths, [row])
        assert job_id not in self.given, f"P1: id {job_id} was given twice"
        self.given.add(job_id)
        self.yard.fates[job_id], self.yard.runs[job_id] = list(fates), run_s
        return job_id

    def ask(self, word: str, job_id: int) -> str:
        """Say an operator's word of a job, and hold it against the table of states; the cell."""
        before = self.state(job_id)
        if word == "cancel":
            [(_, was, now)] = intake.cancel(self.paths, [job_id])
            assert was == before
            asked = self.look().jobs[job_id]["cancel_requested_at"] is not None
            cell = now if now != was else "same" if was == "cancelled" or (was == "running" and asked) else "says"
            self.cells[f"job: {before} cancel -> {cell}"] += 1
        else:
            act = {"hold": operator.hold, "release": operator.release, "requeue": operator.requeue}[word]
            try:
                with self.desk.write() as tx:
                    now = act(tx, job_id, stamp(self.clock.now_s()))
                cell = "same" if now == before else now
            except UsageError:
                cell = "says"
            except Refused as error:
                broken = self.eye.execute(BROKEN, (job_id,)).fetchone()
                assert broken and self.state(job_id) == before, f"{word} of job {job_id}: {error}"
                return "refused"
        after, wanted = self.state(job_id), OPERATOR[word][before]
        assert cell == wanted, f"{word} of a job that is {before}: {cell} instead of {wanted}"
        assert after == (before if cell in ("same", "says") else cell), f"{word}: job {job_id} is {after}"
        return cell

    def state(self, job_id: int) -> str:
        """The job's state."""
        return str(self.eye.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()[0])

    def heal_providers(self) -> None:
        """Every provider is there, installed, and as it was at first."""
        self.yard.catalog.clear()
        self.yard.mute = False
        patient = {"revision": "r", "backoff_s": 1.0, "idle_timeout_s": 40.0, "start_timeout_s": 60.0,
                   "request_timeout_s": PATIENCE_S, "stop_grace_s": 5.0, "later_for_s": 300.0}  # fmt: skip
        for each in (
            Provider("a", policy="required", vram_gib=9.0, ram_gib=1.0, max_workers=2, **patient),  # type: ignore[arg-type]
            Provider("a", "v", policy="required", vram_gib=4.0, ram_gib=1.0, **patient),  # type: ignore[arg-type]
            Provider("b", policy="required", vram_gib=14.0, ram_gib=2.0, threads=4, **patient),  # type: ignore[arg-type]
            Provider("c", policy="required", vram_gib=20.0, ram_gib=3.0, **patient),  # type: ignore[arg-type]
            Provider("d", ram_gib=3.0, mode="oneshot", **patient),  # type: ignore[arg-type]
        ):
            self.yard.catalog[each.slug, each.variant] = each

    def heal_machine(self) -> None:
        """Everything can be read, nobody else is there, and all of it can be had."""
        yard = self.yard
        for table in (yard.shrunk, yard.blind, yard.absent, yard.strangers):
            table.clear()
        yard.no_processes = yard.dark = yard.unread = yard.disk_full = False

    def heal(self) -> None:
        """Whatever was broken works again, and whatever an operator stopped or pinned goes on."""
        self.heal_machine()
        self.heal_providers()
        self.yard.fates.clear()
        self.yard.coming.clear()
        self.yard.stops_s = self.yard.returns_s = 0.0
        self.crash_in, self.write_fails = "", False
        with self.desk.write() as tx:
            queue.resume(tx)
            for wish in wishes.wanted(tx):
                wishes.take_back(tx, wish.slug, wish.variant)
            for worker in workers.live(tx):
                workers.pin(tx, worker.id, pinned=False)

    def let_go(self) -> None:
        """Release what is held, and move what waits for another revision to the one that is here."""
        at = stamp(self.clock.now_s())
        for row in self.look().jobs.values():
            with self.desk.write() as tx:
                if row["state"] == "held":
                    try:
                        operator.release(tx, row["id"], at)
                    except Refused:
                        passing.untie(tx, row["id"], at)
                        operator.release(tx, row["id"], at)
                if row["state"] in ("queued", "held") and row["revision"] != "r":
                    operator.update(tx, row["id"], at, {"revision": "r"})

    def finish(self, most: int = 500) -> None:
        """Everything is well again: every job ends (P11), and after `down` nothing is left (P10)."""
        self.heal()
        idle_s = 30.0
        for turn in range(most):
            if turn % 20 == 0:
                self.let_go()
                self.nudge()
            if all(row["state"] in JOB_ENDED for row in self.look().jobs.values()):
                break
            if self.loop is None:
                self.up()
            self.tick()
            if not self.yard.alive and turn % 5 == 4:
                idle_s = min(1800.0, 2 * idle_s)
                self.sleep(idle_s)
        seen = self.look()
        waits = [_told(row) for row in seen.jobs.values() if row["state"] not in JOB_ENDED]
        assert not waits, f"P11: everything is well, and these jobs do not end: {waits}; {self._reasons()}"
        if self.loop is None:
            self.up()
        self.sleep(300.0)
        assert self.down(now=False), "P10: everything is well, and the scheduler does not come down"
        open_ones = [key for key, row in seen.attempts.items() if row["ended_at"] is None]
        assert not open_ones, f"these attempts never ended: {open_ones}"
        self._answers_were_kept(seen)
        assert engine.check(self.paths) == []

    # The judge

    def look(self) -> Seen:
        """The tables as they are."""
        ask = self.eye.execute
        return Seen(
            {row["id"]: row for row in ask("SELECT * FROM jobs")},
            {row["id"]: row for row in ask("SELECT * FROM workers")},
            ask("SELECT * FROM leases WHERE state <> 'released'").fetchall(),
            {(row["job_id"], row["attempt"]): row for row in ask("SELECT * FROM attempts")},
            {row["slug"]: row for row in ask("SELECT * FROM breakers WHERE next_try_at IS NOT NULL")},
            any(ask("SELECT paused_at, drained_at FROM queue").fetchone()),
        )

    def _reasons(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.eye.execute("SELECT slug, variant, job_id, ruling, text FROM reasons")]

    def _judge(self, before: Seen, *, planned: bool) -> None:
        """What one turn did, whether or not its scheduler lived to tell."""
        after = self.look()
        self._judge_admissions(before, after)
        self._judge_claims(before, after)
        if planned:
            self._judge_reasons(before, after)
        self.check(after)

    def _judge_admissions(self, before: Seen, after: Seen) -> None:
        """P3 and P4: what was parked or let go in this turn."""
        begun = [row for row in after.workers.values() if row["id"] not in before.workers]
        begun += [
            row for row in after.workers.values()
            if row["state"] == "starting" and row["id"] in before.workers
            and before.workers[row["id"]]["state"] == "parked"
        ]  # fmt: skip
        for worker in begun:
            who, machine = f"worker {worker['id']} of {worker['slug']}", self.yard.read
            assert machine is not None, f"P4: {who} was admitted on a machine that could not be read"
            assert not machine.holdings_missing, f"P4: {who} was admitted while nobody knows who is there"
            pools = [row["pool"] for row in after.leases if row["worker_id"] == worker["id"]]
            assert pools, f"P3: {who} has no lease"
            for pool_id in pools:
                pool = machine.pool(pool_id)
                assert pool is not None, f"P4: {who} was admitted on {pool_id}, which is not there"
                assert pool.capacity.value is not None, f"P4: {who} was admitted on {pool_id}, which could not be read"
                assert pool.available.value is not None, f"P4: {who} was admitted on {pool_id}, which could not be read"
                others = [c.charge_gib for h in machine.holdings for c in h.charges if c.pool == pool_id]
                assert None not in others, f"P4: {who} was admitted beside a holding that nobody declared"
                sum_gib = math.fsum((after.charged_gib(pool_id), pool.reserve_gib, *(gib or 0.0 for gib in others)))
                full = f"P3: {who} makes it {sum_gib:.3f} of {pool.capacity.value:.3f} GiB on {pool_id}"
                assert sum_gib <= pool.capacity.value + SLACK_GIB, full

    def _judge_claims(self, before: Seen, after: Seen) -> None:
        """P7, and whatever forbids to take a job: paused, a disk that is full, a breaker, another revision."""
        wall = self.clock.now_s()
        for job_id, attempt in after.attempts.keys() - before.attempts.keys():
            job, was = after.jobs[job_id], before.jobs[job_id]
            who = f"job {job_id} of {job['slug']}"
            assert attempt == was["attempt"] + 1, f"P2: {who} has attempt {attempt} after {was['attempt']}"
            assert not before.stopped, f"{who} was taken while the queue is paused"
            assert not self.yard.disk_full, f"{who} was taken while the disk is full"
            if not self.yard.mute:
                provider = self.yard.catalog.get((job["slug"], job["variant"]))
                assert provider is not None and provider.installed, f"{who} was taken without its provider"
                assert provider.revision == job["revision"], f"{who} was taken by another revision"
            for gate in self.eye.execute(GATES_OF, (job_id,)):
                parent = after.jobs[gate["parent_id"]]
                fitting = ("succeeded",) if gate["need"] == "ok" else JOB_ENDED
                assert parent["state"] in fitting, f"{who} was taken before {_told(parent)}, and comes after it"
            tried = [seen.breakers.get(job["slug"]) for seen in (before, after)]
            if all(tried) and tuple(tried[0]) == tuple(tried[1]):
                assert seconds(tried[0]["next_try_at"]) <= wall + 1e-3, f"{who} was taken while its breaker is open"
            for other in after.jobs.values():
                earlier = before.jobs.get(other["id"])
                if (other["slug"], other["variant"]) != (job["slug"], job["variant"]) or earlier is None:
                    continue
                waits = all(row["state"] == "queued" and row["blocked"] is None for row in (other, earlier))
                first = (-other["priority"], other["id"]) < (-job["priority"], job_id)
                if waits and first and other["revision"] == job["revision"]:
                    raise AssertionError(f"P7: {who} was taken before job {other['id']}, which could have gone")
        for job_id, job in after.jobs.items():
            sent = job["state"] == "running" and before.jobs[job_id]["state"] != "running"
            assert not (sent and before.stopped), f"job {job_id} was sent while the queue is paused"

    def _judge_reasons(self, before: Seen, after: Seen) -> None:
        """P5: after a turn whoever waits has a reason."""
        told = Reasons(self.eye, True)
        stored = {(row["slug"], row["variant"]): row for row in self.eye.execute("SELECT * FROM reasons")}
        firsts: dict[tuple[str, str], sqlite3.Row] = {}
        for job in sorted(after.jobs.values(), key=lambda row: (-row["priority"], row["id"])):
            if job["state"] not in ("queued", "held"):
                continue
            reason = told.of(job)
            assert reason and reason["text"] and reason["ruling"] in RULINGS, (
                f"P5: no reason for {_told(job)}: {reason}"
            )
            if job["state"] == "queued" and job["blocked"] is None:
                firsts.setdefault((job["slug"], job["variant"]), job)
        for key, job in firsts.items():
            moved = any(
                (row["slug"], row["variant"]) == key
                and (row["state"], row["attempt"]) != (before.jobs[job_id]["state"], before.jobs[job_id]["attempt"])
                for job_id, row in after.jobs.items()
            )
            reason = stored.get(key)
            if reason is None:
                assert moved, f"P5: nothing is said of {_told(job)}"
                continue
            assert reason["text"] and reason["ruling"] in RULINGS, f"P5: {tuple(reason)}"
            assert moved or reason["job_id"] == job["id"], (
                f"P5: what is said is of {reason['job_id']}, not {_told(job)}"
            )

    def check(self, seen: Seen | None = None) -> None:
        """What holds at every moment."""
        seen = seen or self.look()
        assert not self.yard.broken, self.yard.broken
        assert not self._log.said, f"what was logged as an error: {self._log.said}"
        lost = self.given - seen.jobs.keys()
        assert not lost, f"P1: these jobs are not there any more: {lost}"
        self._check_pairs(seen)
        self._check_ledger(seen)
        counted = Counter(
            (r["slug"], r["variant"], r["state"] if r["blocked"] is None else "blocked", r["priority"])
            for r in seen.jobs.values()
        )
        for gate in self.eye.execute("SELECT * FROM gates"):
            state = seen.jobs[gate["parent_id"]]["state"]
            counts = int(state not in JOB_ENDED), int(state in JOB_ENDED and state != "succeeded")
            assert (gate["open"], gate["bad"]) == counts, f"the gate of a job that is {state} says {tuple(gate)}"
        kept = {tuple(row)[:4]: row["n"] for row in self.eye.execute(DEPTH)}
        assert {key: n for key, n in kept.items() if n} == dict(counted), f"P12: the depth says {kept}, not {counted}"

    def _check_pairs(self, seen: Seen) -> None:
        bound: dict[int, int] = {}
        for job in seen.jobs.values():
            if job["state"] not in LIVE:
                continue
            worker = seen.workers[job["worker_id"]]
            assert worker["id"] not in bound, f"worker {worker['id']} has jobs {bound[worker['id']]} and {job['id']}"
            bound[worker["id"]] = job["id"]
            fitting = (
                ("parked", "starting", "ready", "retiring") if job["state"] == "admitted" else ("busy", "retiring")
            )
            assert worker["state"] in fitting, f"{_told(job)} is with worker {worker['id']}, which is {worker['state']}"
        for worker in seen.workers.values():
            assert worker["state"] != "busy" or worker["id"] in bound, f"worker {worker['id']} is busy with nothing"
        for (job_id, attempt), row in seen.attempts.items():
            job = seen.jobs[job_id]
            current = job["state"] in LIVE and attempt == job["attempt"]
            assert current == (row["ended_at"] is None), f"attempt {attempt} of {_told(job)}: {tuple(row)}"
            assert row["outcome"] is None or row["outcome"] in KINDS

    def _check_ledger(self, seen: Seen) -> None:
        """P2, P3 and P9 as the machine knows it: who works on what, whose memory is still out."""
        on: dict[int, int] = {}
        for worker_id, task in self.yard.at_work.items():
            assert task.job_id not in on, f"P2: job {task.job_id} runs on workers {on[task.job_id]} and {worker_id}"
            on[task.job_id] = worker_id
            job = seen.jobs[task.job_id]
            if worker_id not in self.yard.dying:
                now = (job["state"], job["attempt"], job["worker_id"])
                known = ("running", task.attempt, worker_id)
                assert now == known, f"P9: worker {worker_id} works on attempt {task.attempt} of {_told(job)}, {now}"
        charged: dict[int, set[str]] = {}
        for row in seen.leases:
            charged.setdefault(row["worker_id"], set()).add(row["state"])
        for worker_id in self.yard.alive:
            state = seen.workers[worker_id]["state"]
            assert state != "gone", f"P3: worker {worker_id} lives and its row is gone"
            assert worker_id in charged, f"P3: worker {worker_id} lives and is not charged"
            if worker_id in self.yard._let_go:
                assert charged[worker_id] == {"held"}, (
                    f"P3: worker {worker_id} spends and its lease is {charged[worker_id]}"
                )
        for worker_id, back_s in self.yard.back_s.items():
            if back_s > self.clock.elapsed_s and worker_id in seen.workers:
                assert worker_id in charged, f"P3: the memory of worker {worker_id} is out and is not charged"
        for job_id, attempt, reply in self.eye.execute("SELECT job_id, attempt, reply FROM results"):
            said = json.loads(reply)
            assert said == {"job": job_id, "attempt": attempt}, (
                f"P2: job {job_id} has the answer {said} of another attempt"
            )

    def _answers_were_kept(self, seen: Seen) -> None:
        """P2 and P9: a job ended by what its own attempt answered, and no answer that was given was lost."""
        for (job_id, number), row in seen.attempts.items():
            ran, job = self.yard.ledger.get((job_id, number)), seen.jobs[job_id]
            who = f"attempt {number} of {_told(job)} ({row['outcome']})"
            if row["outcome"] == "ok":
                assert ran is not None and ran.kind == "ok", f"P2: {who} succeeded, and nobody said so"
                assert job["state"] == "succeeded" and job["attempt"] == number, f"P2: {who}"
            if row["outcome"] in ("crashed", "no_reply", "lost", "quarantined") and ran is not None:
                assert not ran.kind, f"P9: {who} had answered {ran.kind}"
            if ran is not None and ran.kind == "ok":
                assert row["outcome"] == "ok", f"P9: {who} had answered ok"


GATES_OF = "SELECT parent_id, need FROM waits JOIN gates ON gates.id = gate_id WHERE job_id = ?"
BROKEN = "SELECT 1 FROM waits JOIN gates ON gates.id = gate_id WHERE job_id = ? AND need = 'ok' AND bad > 0"
DEPTH = "SELECT slug, variant, state, priority, n FROM depth"


def _told(job: sqlite3.Row) -> str:
    blocked = f", {job['blocked']}" if job["blocked"] else ""
    return f"job {job['id']} of {job['slug']}{':' * bool(job['variant'])}{job['variant']} ({job['state']}{blocked})"


class _Errors(logging.Handler):
    """What the scheduler logs as an error: an event that contradicts the queue, a turn that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
