"""Calls of schedq itself that the scheduler makes when they are due: one after the other, each a process of its own.

A call outlives its scheduler, and the next one goes on watching it: it is known by the mark in its environment. What
it prints goes to a file, of which the end is kept; one that takes longer than its limit is ended. That file is there
before the process is, and until the end is written down: a call without it was never started.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.host import moving
from scheduler.host.workers import regular, tree
from scheduler.model.call import NOT_STARTED, Due, Ended
from scheduler.model.command import MARK

KEPT_BYTES, FILE_BYTES = 4000, 16 << 20
"""What is kept of the end of what a call printed; how long its file may get before it is begun anew."""

COLUMNS = "78"
"""How wide a call's lines are: they are shown set off, on pages of 80."""

WITNESS = """echo "$$" >>"$1" || exit 75
shift
trap : HUP INT TERM
"$@"
code=$?
echo "$code" >"$0.part" && mv -f "$0.part" "$0"
exit "$code"
"""
"""The shell that a call's process runs below: it writes down that it was begun, and the exit code, for a scheduler that
was not there."""

LOOK_S, GRACE_S = 1.0, 10.0
CUT_OFF = "cut off: its process was gone when a scheduler looked again; what it had done stays, it is not run again"
UNSEEN = "it ended while schedulers changed: its exit code was seen by nobody"


class Calls:
    """Makes the calls of one queue, on a thread that is there while there are any. `wake` is called at each end."""

    def __init__(
        self, paths: Paths, queue_id: str, wake: Callable[[], None], *, umask: int = 0o077,
        words: tuple[str, ...] = (sys.executable, "-P", "-m", "scheduler"), env: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._paths, self._queue_id, self._wake, self._umask, self._words = paths, queue_id, wake, umask, words
        self._env = dict(os.environ if env is None else env)
        self._env.pop("SCHEDQ_DEBUG", None)  # a scheduler's own faults are to be told whole, not a call's
        self._over: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._folder = os.path.join(paths.home, "runs")
        self._line: deque[tuple[int, Callable[[], Ended]]] = deque()
        self._lock, self._works, self._pause = threading.Lock(), False, threading.Event()

    def make(self, due: Due) -> None:
        """Make a call, after those that were asked for before."""
        self._put(due.run_id, lambda: self._made(due))

    def attend(self, run_id: int, left_s: float) -> None:
        """A call that another scheduler made and whose end nobody saw: watched to its end if it lives."""
        self._put(run_id, lambda: self._watched(run_id, left_s))

    def over(self) -> list[Ended]:
        """The calls that have ended since this was asked."""
        self._begin()
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._over.get_nowait())
        return found

    def forget(self, run_id: int) -> None:
        """The end of a call is written down: nothing is left of it."""
        for path in (self._path(run_id), self._pid_path(run_id), self._code_path(run_id)):
            with suppress(OSError):
                os.unlink(path)

    def _put(self, run_id: int, work: Callable[[], Ended]) -> None:
        with self._lock:
            self._line.append((run_id, work))
        self._begin()

    def _begin(self) -> None:
        """See that what is in the line is worked on; while no thread can be had, it is tried again at the next look."""
        with self._lock:
            if self._line and not self._works:
                with suppress(RuntimeError, MemoryError):
                    threading.Thread(target=self._work, name="schedq-calls", daemon=True).start()
                    self._works = True

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._line:
                    self._works = False
                    return
                run_id, work = self._line.popleft()
            try:
                ended = work()
            except Exception as error:  # a call without an end would let no other begin
                ended = Ended(run_id, None, f"a fault of schedq: {type(error).__name__}: {error}")
            self._over.put(ended)
            self._wake()

    def _path(self, run_id: int) -> str:
        return os.path.join(self._folder, f"{run_id}.log")

    def _pid_path(self, run_id: int) -> str:
        return os.path.join(self._folder, f"{run_id}.pid")

    def _code_path(self, run_id: int) -> str:
        return os.path.join(self._folder, f"{run_id}.code")

    def _made(self, due: Due) -> Ended:
        try:
            child = self._started(due)
        except Exception as error:
            self.forget(due.run_id)
            where = getattr(error, "filename", None)
            where = f"the folder {where}" if where == due.cwd else str(where or "its process")
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            return Ended(due.run_id, None, f"{NOT_STARTED}: {where}: {why}", started=False)
        late = self._outlast(child.pid, self._path(due.run_id), due.left_s)
        return self._told(due.run_id, child.wait(), late)

    def _started(self, due: Due) -> subprocess.Popen[bytes]:
        """The process of a call, and its file, the only one there: what an earlier call left is gone."""
        env = {**self._env, **due.environment, MARK: f"{self._queue_id}:{due.run_id}"}
        env |= {"SCHEDQ_HOME": self._paths.home, "COLUMNS": COLUMNS, "PYTHONUNBUFFERED": "1"}
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        for name in os.listdir(self._folder):
            os.unlink(os.path.join(self._folder, name))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(self._pid_path(due.run_id), "w") as file:
            file.write(f"{tree.boot_id()}\n")
        log = os.open(self._path(due.run_id), flags, 0o600)
        try:
            moving.sync(self._folder)
            return subprocess.Popen(
                ["/bin/sh", "-c", WITNESS, self._code_path(due.run_id), self._pid_path(due.run_id), *self._words,
                 *due.argv], cwd=due.cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, umask=self._umask,
            )  # fmt: skip
        finally:
            os.close(log)

    def _watched(self, run_id: int, left_s: float) -> Ended:
        if not os.path.lexists(self._path(run_id)):
            return Ended(run_id, None, f"{NOT_STARTED}: its scheduler ended first", started=False)
        pid = self._seen(run_id)
        if pid is None:
            boot_id, noted = self._noted(run_id)
            if boot_id == tree.boot_id() and not noted:
                return Ended(run_id, None, f"{NOT_STARTED}: its scheduler ended first", started=False)
            code = self._code(noted, run_id, os.WNOHANG)
            return self._told(run_id, code, CUT_OFF if code is None else "")
        late = self._outlast(pid, self._path(run_id), left_s)
        code = self._code(pid, run_id)
        return self._told(run_id, code, late or ("" if code is not None else UNSEEN))

    def _noted(self, run_id: int) -> tuple[str, int]:
        """(the boot that the call was to be begun in, "" unknown; the process that it was begun as, 0 = it was not)."""
        with suppress(OSError, ValueError), open(self._pid_path(run_id)) as file:
            boot_id, *pids = file.read(100).split()
            return boot_id, int(pids[0]) if pids else 0
        return "", 0

    def _code(self, pid: int, run_id: int, flags: int = 0) -> int | None:
        """The exit code of a call that has ended; None if its process is no child of this one and left none."""
        with suppress(ChildProcessError):
            done, status = os.waitpid(pid, flags) if pid > 0 else (0, 0)
            if done:
                return os.waitstatus_to_exitcode(status)
        with suppress(OSError, ValueError), open(self._code_path(run_id)) as file:
            return int(file.read(20))
        return None

    def _seen(self, run_id: int) -> int | None:
        """The process of that call, None if there is none. While nobody can tell, it is asked again."""
        while True:
            try:
                return self._living(run_id)
            except OSError:
                self._pause.wait(LOOK_S)

    def _living(self, run_id: int) -> int | None:
        """The process of that call, which leads its session; None if there is none."""
        mark = f"{MARK}={self._queue_id}:{run_id}".encode()
        for pid, stat in tree.everyone().items():
            if stat.state in "ZX" or stat.session != pid or pid == os.getpid():
                continue
            with (
                suppress(FileNotFoundError, ProcessLookupError, PermissionError),
                open(f"/proc/{pid}/environ", "rb") as file,
            ):
                if mark in file.read().split(b"\0"):
                    return pid
        return None

    def _outlast(self, pid: int, path: str, left_s: float) -> str:
        """Wait until a process has ended; "", or that it was ended because it took too long."""
        while True:
            try:
                fd = os.pidfd_open(pid)
                break
            except ProcessLookupError:
                return ""
            except OSError:  # too many files are open
                self._pause.wait(LOOK_S)
        poll, until_s, late = select.poll(), monotonic_s() + left_s, ""
        poll.register(fd, select.POLLIN)
        try:
            while not poll.poll(LOOK_S * 1000):
                with suppress(OSError):
                    if os.stat(path).st_size > FILE_BYTES:
                        os.truncate(path, 0)
                if monotonic_s() < until_s:
                    continue
                number = signal.SIGKILL if late else signal.SIGTERM
                late = "it took longer than the setting schedule_limit allows and was ended"
                until_s = monotonic_s() + GRACE_S
                with suppress(OSError):
                    os.killpg(pid, number)
        finally:
            os.close(fd)
        return late

    def _told(self, run_id: int, code: int | None, why: str) -> Ended:
        said = b""
        with suppress(OSError):
            said = regular.tail(self._path(run_id), KEPT_BYTES)
        text = said.decode(errors="replace").replace("\0", "").strip()
        return Ended(run_id, code, "\n".join(filter(None, (why, text))))
