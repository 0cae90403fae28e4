"""A terminal for a test: a pseudo-terminal that a command runs on, and what would stand on its screen."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from typing import Any

SEQUENCE = re.compile(rb"\x1b\[(\?)?([0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+|\x1b")
MODES = {"1049": "alternate", "25": "cursor", "7": "wraps", "2026": "updating"}


def _own() -> None:
    """Make the terminal on stdin that of this session, so that its keys send signals."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command on a terminal of so many columns and rows. `modes`: alternate, cursor, wraps, as they were set last."""

    def __init__(self, command: list[str], columns: int = 80, rows: int = 24, **options: Any) -> None:
        self.columns, self.rows = columns, rows
        self.modes = {"alternate": False, "cursor": True, "wraps": True, "updating": False}
        self.lines, self.written = [""] * rows, b""
        self._row = self._column = 0
        self._ours, theirs = os.openpty()
        self._sized(theirs)
        self.before = termios.tcgetattr(theirs)
        self.child = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_own, **options
        )
        self._theirs = theirs

    def _sized(self, fd: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Make it another size, and say so as a terminal does."""
        self.columns, self.rows, self.lines = columns, rows, [""] * rows
        self._sized(self._theirs)
        os.kill(self.child.pid, signal.SIGWINCH)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def now(self) -> list[Any]:
        """The settings of the terminal (termios) at this moment."""
        return termios.tcgetattr(self._theirs)

    def read(self, within_s: float = 0.05) -> str:
        """What stands on the screen, after what was written within that time."""
        if select.select([self._ours], [], [], within_s)[0]:
            block = os.read(self._ours, 1 << 16)
            self.written += block
            self._take(block)
        return "\n".join(self.lines)

    def until(self, condition: Callable[[str], object], within_s: float = 20.0) -> str:
        """The screen once it is so. AssertionError with the screen if it is not in time."""
        deadline = time.monotonic() + within_s
        while not condition(screen := self.read()):
            assert time.monotonic() < deadline, f"not within {within_s} s:\n{screen}"
        return screen

    def ended(self, within_s: float = 20.0) -> int:
        """The exit code, everything read that was written until then."""
        deadline = time.monotonic() + within_s
        while self.child.poll() is None:
            self.read()
            assert time.monotonic() < deadline, "it does not end"
        while select.select([self._ours], [], [], 0.05)[0]:
            self.read()
        return self.child.returncode

    def close(self) -> None:
        """End what is left of it."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _take(self, block: bytes) -> None:
        for found in SEQUENCE.finditer(block):
            private, numbers, letter = (each.decode() if each else "" for each in found.groups())
            if letter:
                self._obey(private, numbers, letter)
            elif found[0] == b"\n":
                self._row = min(self.rows - 1, self._row + 1)
            elif found[0] == b"\r":
                self._column = 0
            elif found[0] != b"\x1b":
                self._print(found[0].decode(errors="replace"))

    def _print(self, text: str) -> None:
        line, at = self.lines[self._row], self._column
        self.lines[self._row] = line[:at].ljust(at) + text + line[at + len(text) :]
        self._column += len(text)

    def _obey(self, private: str, numbers: str, letter: str) -> None:
        if private and letter in "hl" and numbers in MODES:
            self.modes[MODES[numbers]] = letter == "h"
            if numbers == "1049":
                self.lines, self._row = [""] * self.rows, 0
        elif letter == "H":
            self._row, self._column = min(self.rows, int(numbers.partition(";")[0] or 1)) - 1, 0
        elif letter == "J":
            self.lines = [""] * self.rows
        elif letter == "K":
            self.lines[self._row] = self.lines[self._row][: self._column]
