"""The turnstile that every write passes: one writer at a time, from whichever process, none starved.

Two flocks on directories, taken next -> owner; `next` is let go before the work begins, so that whoever
waits for `owner` is the only one who may take it and nobody barges past (E14). The kernel frees both with
the last descriptor, so a killed holder leaves nothing. Each section has its own descriptors: two threads of
one process exclude each other too. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import fcntl
import os

from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.locks import command, holder, is_stopped, let_go

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

PATIENCE_S = 30.0


class Section:
    """One stay inside the turnstile, as a context manager; made by `Turnstile.section`."""

    __slots__ = ("_fd", "_paths", "_timeout_s")

    def __init__(self, paths: Paths, timeout_s: float) -> None:
        self._paths, self._timeout_s, self._fd = paths, timeout_s, -1

    def __enter__(self) -> Section:
        deadline_s = monotonic_s() + self._timeout_s
        next_fd = self._take(self._paths.lock_next, deadline_s)
        try:
            self._fd = self._take(self._paths.lock_owner, deadline_s)
        finally:
            let_go(next_fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        fd, self._fd = self._fd, -1
        let_go(fd)

    def _take(self, folder: str, deadline_s: float) -> int:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            waiter = _Waiter(fd)
        except BaseException:
            os.close(fd)
            raise
        try:
            if waiter.wait(deadline_s - monotonic_s()):
                return fd
        except BaseException:
            waiter.abandon()
            raise
        waiter.abandon()
        raise Temporary(
            f"the queue at {self._paths.home} stayed locked for {self._timeout_s:g} s by {self._holder(folder)}"
        )

    def _holder(self, folder: str) -> str:
        for each in (self._paths.lock_owner, folder):
            pid = holder(each)
            if pid is None:
                continue
            named = f"process {pid} ({command(pid)})"
            if is_stopped(pid):
                return f"{named}, which is stopped; nothing was written; kill -CONT {pid} lets it go on, then try again"
            return f"{named}; nothing was written; try again, and look at that process if it stays"
        return "a process that cannot be seen from here; nothing was written; try again"


class Turnstile:
    """The one door to writing in a queue's database."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def section(self, timeout_s: float = PATIENCE_S) -> Section:
        """A stay inside, waited for at most `timeout_s` seconds, then Temporary naming who is inside.

        Not re-entrant: a section inside a section of the same thread waits for itself and times out.
        """
        return Section(self._paths, timeout_s)


class _Waiter:
    """A thread that waits in the kernel's line for a lock, and lets go at once if nobody waits for it any more."""

    def __init__(self, fd: int) -> None:
        import threading

        self._fd = fd
        self._mutex = threading.Lock()
        self._settled = threading.Event()
        self._abandoned = self._locked = False
        self._error: OSError | None = None
        try:
            threading.Thread(target=self._line_up, name="turnstile", daemon=True).start()
        except RuntimeError:
            os.close(fd)
            raise

    def _line_up(self) -> None:
        error = None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as found:
            error = found
        with self._mutex:
            if self._abandoned:
                let_go(self._fd)
                return
            self._locked, self._error = error is None, error
        self._settled.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether the lock was got within `timeout_s` seconds."""
        self._settled.wait(max(0.0, timeout_s))
        if self._error is not None:
            raise self._error
        with self._mutex:
            if not self._locked:
                self._abandoned = True
            return self._locked

    def abandon(self) -> None:
        """Leave the line; the descriptor is closed now, or by the thread as soon as it has the lock."""
        with self._mutex:
            self._abandoned = True
            if self._locked or self._error is not None:
                let_go(self._fd)


def stopped_scheduler(paths: Paths) -> int | None:
    """The pid of the scheduler that holds the queue's lock and is stopped; None if none does or if it runs."""
    pid = holder(paths.lock_scheduler)
    return pid if pid and is_stopped(pid) else None


def about_stopped(pid: int) -> str:
    """What to tell a person of a scheduler that is stopped."""
    return f"scheduler {pid} is stopped; kill -CONT {pid}, or schedq up --takeover"


class Signals:
    """Holds back the signals that end a process while something may not be torn apart; as a context or by hand."""

    __slots__ = ("_before",)

    HELD_BACK = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)

    def __init__(self) -> None:
        self._before: object = None

    def block(self) -> None:
        """From now on they wait."""
        if self._before is None:
            self._before = _signal.pthread_sigmask(_signal.SIG_BLOCK, self.HELD_BACK)

    def unblock(self) -> None:
        """Those that came meanwhile arrive now."""
        before, self._before = self._before, None
        if before is not None:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    def __enter__(self) -> Signals:
        self.block()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.unblock()
