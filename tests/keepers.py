"""What the tests of keepers and the roster stand on: a roster with a memory of events, and waits with a deadline."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from scheduler.config import Paths
from scheduler.host.workers import tree
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.roster import Roster
from scheduler.model.host import Adopt, Answered, Gone, HostEvent, Park, Shown

FAKE = str(Path(__file__).with_name("fake_worker.py"))
QUEUE = f"q-test-{os.getpid()}-{os.urandom(4).hex()}"
"""This run's own: two runs at once must not take each other's workers for theirs."""

DEADLINE_S = 60.0
T = TypeVar("T")


def until(true: Callable[[], T], what: str = "", deadline_s: float = DEADLINE_S) -> T:
    """The first true value; AssertionError, saying what was waited for, when the time is over."""
    end = time.monotonic() + deadline_s
    while True:
        value = true()
        if value:
            return value
        assert time.monotonic() < end, f"waited {deadline_s} s for {what or true}"
        time.sleep(0.002)


class Ear:
    """Every event of a roster, in order; `wait` takes the next of a kind."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.changed = threading.Condition()

    def __call__(self, event: HostEvent | Stored) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait(self, kind: type[T], worker_id: int = 1, deadline_s: float = DEADLINE_S) -> T:
        """The next event of that kind, taken out; AssertionError with all that came instead."""

        def find() -> T | None:
            return next((e for e in self.events if isinstance(e, kind) and e.worker_id == worker_id), None)  # type: ignore[attr-defined]

        with self.changed:
            assert self.changed.wait_for(lambda: find() is not None, deadline_s), f"no {kind.__name__}: {self.events}"
            event = find()
            assert event is not None
            self.events.remove(event)
            return event

    def none(self, kind: type[Any]) -> bool:
        """Whether no event of that kind came so far."""
        with self.changed:
            return not any(isinstance(e, kind) for e in self.events)


class Yard:
    """A queue's folders with a roster over them."""

    def __init__(self, home: Path) -> None:
        self.paths = Paths(str(home))
        os.makedirs(self.paths.home, exist_ok=True)
        self.ear = Ear()
        self.roster = Roster(self.paths, QUEUE, self.ear)
        self.ids: set[int] = set()

    def restart(self) -> None:
        """Another roster, as a new scheduler has it; the old one lets go."""
        self.roster.close()
        self.ear = Ear()
        self.roster = Roster(self.paths, QUEUE, self.ear)

    def park(self, worker_id: int = 1, mode: str = "resident", charges: dict[str, float] | None = None) -> Shown:
        """A parked keeper whose claim can be read."""
        self.ids.add(worker_id)
        charges = charges or {"unified": 34.1}
        self.roster.park(Park(worker_id, "fake", "", "r1", mode, charges, {"unified": 34}))
        return self.ear.wait(Shown, worker_id)

    def launch(
        self, *knobs: str, env: dict[str, str] | None = None, log_max: int = 1 << 20, grace_s: float = 1.0
    ) -> Launch:
        """The fake worker with these knobs."""
        return Launch(
            [sys.executable, FAKE, *knobs],
            {"PATH": os.environ["PATH"], **(env or {})},
            "/",
            "resident",
            log_max,
            grace_s,
        )

    def start(self, *knobs: str, worker_id: int = 1, **more: Any) -> Answered:
        """A worker that answered."""
        self.shown = self.park(worker_id)
        self.roster.go(worker_id, self.launch(*knobs, **more))
        return self.ear.wait(Answered, worker_id)

    def send(self, request: dict[str, Any], job: int = 7, attempt: int = 1, worker_id: int = 1, **more: Any) -> Path:
        """Send a request; where its reply will be."""
        folder = Path(self.paths.attempt(job, attempt))
        folder.mkdir(parents=True, exist_ok=True)
        reply = folder.with_name(f"{attempt}.json")
        message = {"op": "predict", "job": job, "attempt": attempt, "request": request, "out_dir": str(folder / "out")}
        self.roster.send(worker_id, job, attempt, message, reply_path=str(reply), log_path=str(folder / "log"), **more)
        return reply

    def row(self, state: str, answered: Answered | None = None, worker_id: int = 1, **more: Any) -> Adopt:
        """The queue's memory of a worker."""
        shown = self.shown
        leader = (answered.leader_pid, answered.leader_started) if answered else (None, None)
        return Adopt(
            worker_id, "fake", "", "r1", "resident", state, shown.boot_id, shown.keeper_pid, shown.keeper_started,
            *leader, **more,
        )  # fmt: skip

    def processes(self) -> list[tree.Stat]:
        """Every living process of this yard: keepers by their folder, the rest by the mark."""
        keepers = [s for s in tree.everyone().values() if s.state not in "ZX" and self._keeps(s.pid)]
        return keepers + [s for worker_id in self.ids for s in tree.members(QUEUE, worker_id)]

    def _keeps(self, pid: int) -> bool:
        argv = tree.argv_of(pid)
        return "--schedq-keeper" in argv and argv[-1].startswith(self.paths.workers)

    def sockets(self) -> list[str]:
        """What lies in the folder of sockets."""
        return os.listdir(self.paths.run) if os.path.isdir(self.paths.run) else []

    def end(self) -> None:
        """Stop everything, whatever the test left; nothing may remain."""
        self.roster.close()
        for stat in self.processes():
            tree.signal_all([stat], 9)
        until(lambda: not self.processes(), "the yard's processes to go")

    def stop(self, grace_s: float = 1.0, worker_id: int = 1) -> Gone:
        """Stop a worker and wait until it is gone."""
        self.roster.stop(worker_id, grace_s, "the test is over")
        return self.ear.wait(Gone, worker_id)
