"""Programs that give memory back for us: the operator's own command, and a helper of ours that touches memory."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from scheduler.clock import monotonic_s
from scheduler.host.workers.protocol import CLAIM

COMMAND_S = 30.0
HELPER_S = 120.0
LOOK_S = 0.05
HELPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "touching.py")
ENVIRONMENT = ("PATH", "HOME", "USER", "LANG")


def command(line: str, within_s: float = COMMAND_S) -> str:
    """Run the operator's command, never by a shell; how it ended, in words. What it started ends with its time."""
    try:
        argv = shlex.split(line)
    except ValueError as error:
        return f"it is no command: {error}"
    if not argv:
        return "it is empty"
    env = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", env=env,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"{argv[0]} cannot be run: {error.strerror}"
    with process:
        try:
            _, said = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            _end_group(process)
            return f"it had not ended after {within_s:g} s and was killed"
    if process.returncode == 0:
        return "exit 0"
    last = said.decode(errors="replace").strip().splitlines()[-1:]
    return f"exit {process.returncode}" + (f": {last[0][:120]}" if last else "")


class Toucher:
    """Runs the helper, one at a time. `queue_id` and `home` stand in its claim, which everybody here reads."""

    def __init__(self, queue_id: str, home: str, python: str = sys.executable, proc: str = "/proc") -> None:
        self.queue_id, self.home, self.python, self.proc = queue_id, home, python, proc
        self._process: subprocess.Popen[bytes] | None = None

    def argv(self, pool: str, gib: float, reserve_gib: float) -> list[str]:
        """What it is started as: a claim on what it touches."""
        words = (
            "worker=reclaim", "slug=reclaim", f"queue={self.queue_id}", f"charge={pool}:{gib!r}", f"touch={gib!r}",
            f"reserve={reserve_gib!r}", f"parent={os.getpid()}", f"proc={self.proc}",
        )  # fmt: skip
        return [self.python, "-I", "-S", HELPER, CLAIM, *words, os.path.join(self.home, "reclaim")]

    def run(self, pool: str, gib: float, reserve_gib: float, quiet: Callable[[], bool]) -> str:
        """Let it touch so much, as long as it is `quiet`; how that ended, in words."""
        try:
            process = self._process = subprocess.Popen(
                self.argv(pool, gib, reserve_gib), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env={"LC_ALL": "C"}, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"the helper cannot be run: {error.strerror}"
        until_s, said = monotonic_s() + HELPER_S, b""
        with process:
            assert process.stdout is not None
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            while True:
                if poll.poll(LOOK_S * 1000):
                    piece = os.read(process.stdout.fileno(), 1 << 12)
                    said += piece
                    if not piece:
                        break
                elif monotonic_s() >= until_s or not quiet():
                    process.kill()
            self._process = None
        try:
            told = json.loads(said)
            return f"touched {float(told['touched_gib']):.2f} GiB" + (f", then {told['why']}" if told["why"] else "")
        except (ValueError, KeyError, TypeError):
            return "the helper was ended, since a worker was to load or compute"

    def end(self) -> None:
        """End the helper at once, if it runs: what it touched is free again."""
        process = self._process
        if process is not None:
            with suppress(OSError):
                process.kill()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
