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
            _release(next_fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        fd, self._fd = self._fd, -1
        _release(fd)

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
            named = f"process {pid} ({_command(pid)})"
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
                _release(self._fd)
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
                _release(self._fd)


def _release(fd: int) -> None:
    """Unlock for every copy of the descriptor that a fork may have made, then close ours."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def holder(folder: str, locks: str = "/proc/locks") -> int | None:
    """The pid of who holds the flock on `folder`, from /proc/locks; None if nobody that we can see.

    Inodes repeat over filesystems: the device is compared too, as the kernel writes it (major:minor in hex). On
    btrfs and overlays stat() tells another device than the kernel writes there: then whoever holds some flock is
    asked for a descriptor of this very folder that has one.
    """
    others: list[int] = []
    try:
        found = os.stat(folder)
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with open(locks, encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[1] != "FLOCK":
                    continue
                if words[5] == place:
                    return int(words[4])
                others.append(int(words[4]))
    except (OSError, IndexError, ValueError):
        return None
    return next((pid for pid in dict.fromkeys(others) if _has_locked(pid, found)), None)


def _has_locked(pid: int, place: os.stat_result) -> bool:
    """Whether a process has this file open by a descriptor that holds a flock; one that only waits has none."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found = os.stat(f"/proc/{pid}/fd/{fd}")
                if (found.st_dev, found.st_ino) != (place.st_dev, place.st_ino):
                    continue
                with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as file:
                    if "FLOCK" in file.read():
                        return True
            except OSError:
                continue
    except OSError:
        pass
    return False


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or by a debugger: it does nothing until somebody lets it go on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def stopped_scheduler(paths: Paths) -> int | None:
    """The pid of the scheduler that holds the queue's lock and is stopped; None if none does or if it runs."""
    pid = holder(paths.lock_scheduler)
    return pid if pid and is_stopped(pid) else None


def about_stopped(pid: int) -> str:
    """What to tell a person of a scheduler that is stopped."""
    return f"scheduler {pid} is stopped; kill -CONT {pid}, or schedq up --takeover"


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(512).decode(errors="replace").split("\0")
    except OSError:
        return "ended meanwhile"
    return " ".join(words).strip()[:120] or "no command line"


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


def signals_blocked() -> Signals:
    """A context in which SIGINT, SIGTERM, SIGHUP and SIGQUIT wait: from the write until the id is printed (P1)."""
    return Signals()
