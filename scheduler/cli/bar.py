"""How far something is that takes a while, as a bar at the foot of a terminal; nothing where stderr is no terminal."""

from __future__ import annotations

from scheduler.cli import say
from scheduler.cli.ticker import Ticker
from scheduler.clock import monotonic_s

QUIET_S, STEP_S = 0.4, 0.1
"""What is over sooner shows no bar, and how often one is drawn."""

WIDTH = 24


class Bar:
    """The bar of one thing of which `total` are to be done. It is called with how many are."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._ticker = Ticker()
        self._began_s = monotonic_s()
        self._drawn_s = self._began_s + QUIET_S - STEP_S

    def __call__(self, done: int) -> None:
        """Draw it, unless that was just done, or the terminal takes nothing at the moment."""
        if not self._ticker.on:
            return
        at_s = monotonic_s()
        if at_s - self._drawn_s < STEP_S or not _takes_more():
            return
        self._drawn_s = at_s
        self._ticker.show(line(self._what, done, self._total, at_s - self._began_s))

    def clear(self) -> None:
        """Take it away."""
        self._ticker.clear()


def line(what: str, done: int, total: int, passed_s: float) -> str:
    """A bar as one line: what is done, how much of it, and how long the rest takes at this pace."""
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * WIDTH)
    rest = f", {say.span(passed_s / share - passed_s)} left" if share > 0 and passed_s > 1 else ""
    return f"{what} [{'#' * filled}{'-' * (WIDTH - filled)}] {done:,} of {total:,}{rest}"


def _takes_more() -> bool:
    """Whether stderr takes a line at once: one that was stopped (Ctrl-S) must not hold up whoever holds a lock."""
    import select

    poll = select.poll()
    poll.register(2, select.POLLOUT)
    return bool(poll.poll(0))
