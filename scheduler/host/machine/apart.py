"""A door to a child process that is asked again and again, for what could hang whoever asks it.

A call into a driver that never returns keeps the thread that made it, its locks, and in the end its process: not even
SIGKILL ends what sleeps in the kernel. So a child of ours makes such calls; one that is late is killed and forgotten.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from scheduler.clock import local_stamp, monotonic_s, now_s

FIRST_S = 30.0
"""What a child's first answer may take: a driver that was asleep wakes every device before it says anything."""
AGAIN_S, AGAIN_MOST_S = 2.0, 60.0
"""After a failure it is asked again in so many seconds, doubling; from the start once it has served for the longest."""
LINE_MAX = 4 << 20
GONE_S = 0.5


class Apart:
    """One such child: started at the first ask, kept between asks, replaced when it fails.

    `name` is whom it asks, as people are told of it. `first_s` is what its first answer may take. One ask at a time.
    """

    def __init__(self, name: str, argv: Sequence[str], env: dict[str, str], first_s: float = FIRST_S) -> None:
        self.name, self.argv, self.env, self.first_s = name, list(argv), env, first_s
        self._turn = threading.Lock()
        self._child: _Child | None = None
        self._ending: _Child | None = None
        self._closed = False
        self._failures, self._again_at_s, self._why = 0, 0.0, ""

    @property
    def pid(self) -> int | None:
        """The process id of the child that is asked; None while there is none."""
        return self._child.pid if self._child else None

    def ask(self, within_s: float) -> tuple[dict[str, Any] | None, str]:
        """Its answer, or None and why there is none, with when it is asked again; at most `within_s` later.

        A child that is late is killed, except that its first answer has `first_s`: until then each ask says so.
        """
        until_s = monotonic_s() + within_s
        if not self._turn.acquire(timeout=within_s):
            return None, f"{self.name} is being asked already and has not answered"
        try:
            if self._child is None and (standing := self._standing()):
                return None, standing
            child = self._child = self._child or _Child(self.argv, self.env)
            return self._answer(child, until_s, within_s)
        except _Failed as failure:
            self._fail(f"{self.name} {failure}")
            return None, self._why
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the child; an ask that is under way fails. Whatever hangs in the kernel is left to it."""
        self._closed = True
        child = self._child
        if child:
            child.kill()
        if self._turn.acquire(timeout=GONE_S):
            try:
                self._part()
            finally:
                self._turn.release()

    def _standing(self) -> str:
        """Why no child is started; empty if one may be."""
        if self._closed:
            return f"{self.name} is not asked any more: this process is going down"
        if self._ending and not self._ending.gone.is_set():
            return (
                f"{self.name} did not answer, and process {self._ending.pid}, which asks it, hangs in the kernel and "
                "cannot be ended: the driver has to recover, or the machine to be rebooted"
            )
        return self._why if monotonic_s() < self._again_at_s else ""

    def _answer(self, child: _Child, until_s: float, within_s: float) -> tuple[dict[str, Any] | None, str]:
        """What it says to a question of this ask; what it still owes an earlier ask is passed over."""
        owed = child.pending
        while True:
            if not child.pending:
                if not child.ready(until_s):
                    return self._late(child, within_s)
                child.send(within_s)
            line = child.line(until_s)
            if line is None:
                return self._late(child, within_s)
            answer = _parsed(line)
            if answer.get("n") != child.pending:
                raise _Failed("answered a question that it was not asked")
            child.pending = 0
            if monotonic_s() - child.since_s >= AGAIN_MOST_S:
                self._failures = 0
            if not owed:
                return answer, ""
            owed = 0

    def _late(self, child: _Child, within_s: float) -> tuple[None, str]:
        if child.answered:
            raise _Failed(f"did not answer in {within_s:g} s")
        if monotonic_s() - child.since_s >= self.first_s:
            raise _Failed(f"gave no first answer in {self.first_s:g} s")
        return None, f"{self.name} has not given its first answer yet, for which it has {self.first_s:g} s"

    def _fail(self, why: str) -> None:
        self._part()
        wait_s = min(AGAIN_MOST_S, AGAIN_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self._again_at_s = monotonic_s() + wait_s
        times = f" ({self._failures} failures by now)" if self._failures > 1 else ""
        self._why = f"{why}{times}; it is asked again at {local_stamp(now_s() + wait_s)[11:]}"

    def _part(self) -> None:
        if self._child:
            self._child.part()
            self._ending, self._child = self._child, None


class _Failed(Exception):
    """The child is of no use any more; the text goes on from the name of whom it asks."""


class _Child:
    """One process, started and waited for by a thread of its own, which lives as long as it does.

    So the signal that ends it with its parent (which comes when the *thread* that started it ends, E18) comes no
    earlier, and nobody else waits for a process that cannot die.
    """

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.since_s, self.answered, self.pending, self._number = monotonic_s(), False, 0, 0
        self.started, self.gone = threading.Event(), threading.Event()
        self._argv, self._env = argv, env
        self._process: subprocess.Popen[bytes] | None = None
        self._error = ""
        self._unwanted = self._parted = False
        self._said = b""
        try:
            threading.Thread(target=self._live, name="schedq-apart", daemon=True).start()
        except RuntimeError as error:  # no room for another thread
            raise _Failed(f"cannot be asked: {error}") from None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ready(self, until_s: float) -> bool:
        """Whether it runs; False if it has not started by then. `_Failed` if it cannot be started."""
        if not self.started.wait(max(0.0, until_s - monotonic_s())):
            return False
        if self._error:
            raise _Failed(f"cannot be asked: {self._argv[0]} cannot be run: {self._error}")
        return True

    def send(self, within_s: float) -> None:
        """Ask it, and say how long it has; its answer bears the same number."""
        assert self._process and self._process.stdin
        if self._said:
            raise _Failed("said more than it was asked")
        self._number += 1
        try:
            os.write(self._process.stdin.fileno(), b'{"n": %d, "within_s": %f}\n' % (self._number, within_s))
        except OSError:
            raise _Failed(self._end()) from None
        self.pending = self._number

    def line(self, until_s: float) -> bytes | None:
        """The next line that it says; None if there is none by then. `_Failed` if it ended, or says too much."""
        assert self._process and self._process.stdout
        number = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(number, select.POLLIN)
        while b"\n" not in self._said:
            if len(self._said) > LINE_MAX:
                raise _Failed(f"answered with more than {LINE_MAX >> 20} MiB")
            if not poll.poll(max(0.0, until_s - monotonic_s()) * 1000):
                return None
            data = os.read(number, 1 << 16)
            if not data:
                raise _Failed(self._end())
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        self.answered = True
        return line

    def kill(self) -> None:
        """Send it SIGKILL, which it may not be able to obey."""
        self._unwanted = True
        if self.started.is_set() and self._process and not self.gone.is_set():
            self._process.kill()

    def part(self) -> None:
        """Kill it and close our ends of its pipes; its own thread waits for it."""
        self._parted = True
        self.kill()
        if self.started.is_set():
            self.gone.wait(GONE_S)
            self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout) if self._process else ():
            if pipe:
                pipe.close()

    def _end(self) -> str:
        """How it ended, in words."""
        if not self.gone.wait(GONE_S) or not self._process:
            return "cannot be asked: the process that asks it says nothing more"
        code = self._process.returncode
        if code < 0:
            return f"cannot be asked: the process that asks it ended by signal {-code} ({_signal_name(-code)})"
        return f"cannot be asked: the process that asks it ended with exit code {code}"

    def _live(self) -> None:
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                self._argv, bufsize=0, stdin=pipe, stdout=pipe, stderr=nowhere, env=self._env, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            self._error = str(getattr(error, "strerror", None) or error)
        self.started.set()
        if self._process:
            if self._unwanted:
                self._process.kill()
            self._process.wait()
        self.gone.set()
        if self._parted:
            self._close_pipes()


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        raise _Failed(f"answered what is no JSON: {line[:60].decode(errors='replace')!a}") from None
    if not isinstance(answer, dict):
        raise _Failed("answered JSON that is no object")
    return answer


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of no name"
