"""A call of schedq itself that is due, and how it ended: what the loop and whoever makes the call say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Due:
    """One call that is due. `left_s`: how long it may take from now on."""

    run_id: int
    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str] = field(repr=False)
    left_s: float


@dataclass(frozen=True)
class Ended:
    """How a call ended: its exit code, None if nobody saw it; what there is to say of it, and what it said last.

    Not `started`: no process of it ever was. Its text begins with NOT_STARTED.
    """

    run_id: int
    exit_code: int | None
    text: str
    started: bool = True


NOT_STARTED = "it was not started"


class Caller(Protocol):
    """Who makes calls, off the loop's thread, one after the other; each end comes back by `over`."""

    def make(self, due: Due) -> None:
        """Make a call, after those that were asked for before."""

    def attend(self, run_id: int, left_s: float) -> None:
        """Watch a call of an earlier scheduler to its end, if its process lives."""

    def over(self) -> list[Ended]:
        """The calls that have ended since this was asked."""

    def forget(self, run_id: int) -> None:
        """The end of a call is written down: nothing is left of it."""
