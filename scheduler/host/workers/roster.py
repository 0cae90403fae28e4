"""The scheduler's side of its workers: one thread that speaks to every keeper and says what happened.

Orders come from the loop's thread and return at once. A keeper is found by its control socket, watched by pidfd,
and never needed to stay ours: the same code serves one that was started a moment ago and one that was adopted.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host.workers import tree
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.records import own_folder
from scheduler.host.workers.ward import Ward
from scheduler.model.host import Adopt, Failed, HostEvent, Park


@dataclass(order=True)
class _Timer:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)
    worker_id: int = field(compare=False)


class Roster:
    """All workers of one queue on this machine. `emit` is called on the roster's thread."""

    def __init__(
        self, paths: Paths, queue_id: str, emit: Callable[[HostEvent | Stored], None], umask: int | None = None
    ) -> None:
        self.paths, self.queue_id, self.emit = paths, queue_id, emit
        self.umask = _own_umask() if umask is None else umask
        self.selector = selectors.DefaultSelector()
        self._wards: dict[int, Ward] = {}
        self._orders: deque[tuple[int, Callable[[], None]]] = deque()
        self._timers: list[_Timer] = []
        self._numbers = itertools.count()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self.selector.register(self._bell, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="schedq-roster", daemon=True)
        self._thread.start()

    def park(self, order: Park) -> None:
        """Start a keeper, parked: Shown when its claim can be read by everyone, Failed if it could not be started."""

        def do() -> None:
            ward = self._wards[order.worker_id] = Ward(self, order.worker_id)
            try:
                own_folder(self.paths.run)
                os.makedirs(ward.folder, 0o700, exist_ok=True)
                ward.start(order)
            except (OSError, SchedqError) as error:
                del self._wards[order.worker_id]
                text = error.strerror if isinstance(error, OSError) else str(error)
                self.emit(
                    Failed(order.worker_id, f"its keeper could not be started: {text}", alive=False, disk=_full(error))
                )

        self._do(order.worker_id, do)

    def expect(self, order: Park) -> None:
        """Wait for a keeper that its caller starts: Shown when its claim can be read, Failed if it does not come."""

        def do() -> None:
            ward = self._wards[order.worker_id] = Ward(self, order.worker_id)
            try:
                own_folder(self.paths.run)
                os.makedirs(ward.folder, 0o700, exist_ok=True)
            except (OSError, SchedqError) as error:
                del self._wards[order.worker_id]
                text = error.strerror if isinstance(error, OSError) else str(error)
                self.emit(Failed(order.worker_id, f"its folder could not be made: {text}", alive=False))
                return
            ward.expect(order)

        self._do(order.worker_id, do)

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` on the roster's thread."""
        self._do(0, act)

    def go(self, worker_id: int, launch: Launch) -> None:
        """Let a parked keeper start its worker: Answered or Gone."""
        self._to(worker_id, lambda ward: ward.go(launch))

    def charge(self, worker_id: int, charges: dict[str, float]) -> None:
        """Let its keeper show what its worker is charged: Charged, Failed if it cannot."""
        self._to(worker_id, lambda ward: ward.connection.order(op="charge", charges=charges))

    def send(
        self, worker_id: int, job_id: int, attempt: int, message: dict[str, Any] | bytes, *,
        reply_path: str, log_path: str, log_max: int = 64 << 20, argv: list[str] | None = None, cwd: str | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        """Send one attempt's request: Stored, Replied if it is longer than a worker reads, Failed if it cannot leave.

        A legacy worker gets `message["request"]` alone. A oneshot gets `argv` instead; its result is read from
        `result.json` in the message's `out_dir`; `more` of the order: its charges; a command's env, umask, devices.
        """
        words = (job_id, attempt, message, reply_path, log_path, log_max, argv, cwd)
        self._to(worker_id, lambda ward: ward.send(*words, **more))

    def stop(self, worker_id: int, grace_s: float, why: str) -> None:
        """Stop a worker's whole tree: ask, TERM, after the grace KILL. Gone follows, also when its keeper does not
        obey: one that says nothing for 10 s after the grace is killed.
        """

        def do() -> None:
            ward = self._wards.get(worker_id)
            if ward is None and self.tree_lives(worker_id):
                ward = self._wards[worker_id] = Ward(self, worker_id)
                ward.adopt(Adopt(worker_id, "", "", "", "", "retiring", "", None, None, None, None))
            if ward is None:
                self.emit(Failed(worker_id, f"worker {worker_id} has no keeper", alive=False))
            else:
                ward.stop(grace_s, why)

        self._do(worker_id, do)

    def adopt(self, row: Adopt) -> None:
        """Take over a worker that the queue remembers: Shown, Answered, Stored, Forgotten or Gone, as it is found.

        A row that is `retiring` is stopped, whatever else is known of it: one with no boot id and no keeper's pid
        stands for processes that no row knows any more.
        """

        def do() -> None:
            known = self._wards.get(row.worker_id)
            if known and row.state == "retiring":
                known.stop(10.0, "it is of no use any more")
                return
            ward = self._wards[row.worker_id] = Ward(self, row.worker_id)
            ward.adopt(row)

        self._do(row.worker_id, do)

    def tree_lives(self, worker_id: int) -> bool:
        """Whether anything of a worker lives, known to this roster or not: its lock, its session, its mark."""
        return tree.alive(self.paths.worker(worker_id), self.queue_id, worker_id)

    def close(self) -> None:
        """Let go of every keeper; they and their workers live on."""
        if not self._closing:
            self._closing = True
            os.eventfd_write(self._bell, 1)
            self._thread.join(10.0)

    def _to(self, worker_id: int, act: Callable[[Ward], None]) -> None:
        def do() -> None:
            ward = self._wards.get(worker_id)
            if ward is None:
                self.emit(Failed(worker_id, f"worker {worker_id} has no keeper", alive=self.tree_lives(worker_id)))
            else:
                act(ward)

        self._do(worker_id, do)

    def _do(self, worker_id: int, act: Callable[[], None]) -> None:
        self._orders.append((worker_id, act))
        os.eventfd_write(self._bell, 1)

    def after(self, wait_s: float, act: Callable[[], None], worker_id: int = 0) -> None:
        """Call `act` on the roster's thread, that much later; what goes wrong in it is told of that worker."""
        heapq.heappush(self._timers, _Timer(time.monotonic() + wait_s, next(self._numbers), act, worker_id))

    def forget(self, ward: Ward) -> None:
        """A worker is gone."""
        if self._wards.get(ward.id) is ward:
            del self._wards[ward.id]

    def _run(self) -> None:
        while not self._closing:
            wait_s = max(0.0, self._timers[0].at - time.monotonic()) if self._timers else None
            for key, what in self.selector.select(wait_s):
                if key.data is None:
                    os.eventfd_read(self._bell)
                elif key.fd in self.selector.get_map():
                    self.guard(key.data[0], lambda key=key, what=what: key.data[1](what))  # type: ignore[misc]
            while self._orders:
                self.guard(*self._orders.popleft())
            while self._timers and self._timers[0].at <= time.monotonic():
                timer = heapq.heappop(self._timers)
                self.guard(timer.worker_id, timer.act)
        while self._orders:
            self.guard(*self._orders.popleft())
        for ward in self._wards.values():
            ward.close()
        self.selector.close()
        os.close(self._bell)

    def guard(self, worker_id: int, act: Callable[[], None]) -> None:
        """One worker's trouble is not the others': it is said, and the thread goes on."""
        try:
            act()
        except Exception as error:
            self.emit(Failed(worker_id, f"{type(error).__name__}: {error}"))


def _own_umask() -> int:
    with open("/proc/self/status") as file:
        return next((int(line.split()[1], 8) for line in file if line.startswith("Umask:")), 0o022)


def _full(error: BaseException) -> bool:
    """Whether it says that a disk takes no more."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
