"""One line at the foot of a terminal that is written over again and again; nothing where stderr is no terminal."""

from __future__ import annotations

import os

from scheduler.cli import say


class Ticker:
    """The line. `on` tells whether there is somebody to look at it."""

    def __init__(self) -> None:
        self.on = os.isatty(2) and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Write over what was there, cut to the terminal."""
        if self.on:
            self._shown = True
            self._write("\r" + say.cut(text, say.columns(2) - 1) + "\x1b[K")

    def clear(self) -> None:
        """Take the line away, before anything else is said."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        try:
            os.write(2, text.encode(errors="replace"))
        except OSError:
            self.on = False
