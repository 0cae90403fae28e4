"""When nobody works a queue, as one who waits sees it: told apart from a scheduler that is only being replaced.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler import wake
from scheduler.clock import monotonic_s, now_s, seconds
from scheduler.config import Paths
from scheduler.errors import SchedulerDown
from scheduler.store import peek

GRACE_S = 10.0
"""How long a queue may be without a scheduler before who waits for it gives up: longer than any hand-over."""


class Absence:
    """How long a queue has been without a scheduler. Looking costs next to nothing while one runs."""

    def __init__(self, paths: Paths, again: str = "wait again") -> None:
        """`again`: what is to be done once there is a scheduler, as the message says it."""
        self.paths, self._again = paths, again
        self._until_s: float | None = None

    def check(self, ids: list[int], *, heard: bool = False) -> None:
        """SchedulerDown if no scheduler runs that could end these jobs, and none is on its way.

        At once where none ever ran or the last one ended GRACE_S ago; one that ended just now, or was killed, may be
        followed by the next: then it is waited for GRACE_S. `heard`: one has just answered.
        """
        if heard or wake.scheduler_runs(self.paths):
            self._until_s = None
            return
        now = monotonic_s()
        if self._until_s is None:
            self._until_s = now + self._grace_s()
        if now >= self._until_s:
            named = ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
            jobs, wait = ("job", "it stays") if len(ids) == 1 else ("jobs", "they stay")
            raise SchedulerDown(
                f"no scheduler runs for {self.paths.home}, so {jobs} {named} cannot end; {wait} in the queue:"
                f" start one with `schedq up`, then {self._again}"
            )

    def _grace_s(self) -> float:
        last = peek.last_scheduler(self.paths)
        if last is None:
            return 0.0
        return GRACE_S - max(0.0, now_s() - seconds(last["ended_at"])) if last["ended_at"] else GRACE_S
