"""The machine-wide turn: schedulers of one machine, whoever's they are, try starts one after the other where they can.

It only spares retries. Two that park at one moment see each other's claim and both give way, and try again; with the
turn one of them goes and the other then sees what it holds. Safety rests on the claims alone: who does not get the turn
in time starts without it, so that a stopped, stale or foreign holder blocks nobody.

The lock is a flock on /etc/machine-id, opened for reading: it is there on every Linux that we know of, everybody may
read it, nobody has to write or to make a file for it, and whatever holds it lets go of it by ending. A machine without
that file, or with it on a filesystem that locks only for writers, goes without a turn.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable

from scheduler.clock import monotonic_s
from scheduler.locks import let_go

PLACE = "/etc/machine-id"

WAIT_S = 2.0
"""How long a start waits for its turn at most."""

KEPT_S = 2.0
"""How long the turn is kept at most: who decides slower than that is not waited for either."""

LOOK_S = 0.01


class Turn:
    """One scheduler's part in it. `take` and `done` may be called from any thread; nothing here blocks its caller."""

    def __init__(self, place: str = PLACE) -> None:
        self.place = place
        self._change = threading.Condition()
        self._queue: list[tuple[int, Callable[[], None]]] = []
        self._in: set[int] = set()
        self._fd: int | None = None
        self._since_s = 0.0
        self._vain = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def take(self, worker_id: int, then: Callable[[], None]) -> None:
        """Call `then` on a thread of its own, at the worker's turn or after `WAIT_S`; the turn is kept until `done`.

        `then` returns at once. It is not called at all where the worker is `done` before.
        """
        with self._change:
            self._queue.append((worker_id, then))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="schedq-turn", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def done(self, worker_id: int) -> None:
        """This worker was let go or ended: with the last one the turn is over."""
        with self._change:
            self._in.discard(worker_id)
            self._queue = [order for order in self._queue if order[0] != worker_id]
            self._change.notify_all()

    def close(self) -> None:
        """Let go of it; whoever waits for a turn of ours is not started."""
        with self._change:
            self._closing = True
            self._queue.clear()
            self._change.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closing or self._queue or self._over(), timeout=self._left_s())
                if self._fd is not None and (self._closing or self._over()):
                    let_go(self._fd)
                    self._fd = None
                    self._in.clear()
                if self._closing:
                    return
                if not self._queue:
                    continue
            self._wait()
            with self._change:
                orders, self._queue = self._queue, []
                for worker_id, then in orders:
                    self._in.add(worker_id)
                    then()

    def _over(self) -> bool:
        return self._fd is not None and (not self._in or monotonic_s() - self._since_s >= KEPT_S)

    def _left_s(self) -> float | None:
        return None if self._fd is None else max(0.0, self._since_s + KEPT_S - monotonic_s())

    def _wait(self) -> None:
        """Have the turn, or waited long enough. One that was not let go the last time is not waited for again."""
        if self._fd is not None:
            return
        try:
            fd = os.open(self.place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:
            return
        until_s = monotonic_s() + (0.0 if self._vain else WAIT_S)
        got = False
        try:
            while not self._closing:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    got = True
                    break
                except BlockingIOError:
                    if monotonic_s() >= until_s:
                        break
                    with self._change:
                        self._change.wait_for(lambda: self._closing, timeout=LOOK_S)
            self._vain = not got and not self._closing
        except OSError:
            pass  # this filesystem has no such lock for readers
        finally:
            if got:
                self._fd, self._since_s = fd, monotonic_s()
            else:
                os.close(fd)
