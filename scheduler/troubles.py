"""What keeps a scheduler from its work: shown while it lasts, logged when its words change and once a minute else."""

from __future__ import annotations

import logging

from scheduler.clock import SystemClock

log = logging.getLogger("schedq")

EVERY_S = 60.0


class Troubles:
    """One loop's. `now` is what the last turn could not do, "" for nothing."""

    def __init__(self, clock: SystemClock) -> None:
        self.now = ""
        self._clock = clock
        self._said: dict[str, tuple[str, float]] = {}

    def say(self, what: str, error: Exception) -> bool:
        """It is tried again every second; whether it was logged now."""
        self.now = f"{what}, trying again every second: {error}"
        said, until_s = self._said.get(what, ("", 0.0))
        if said == str(error) and self._clock.monotonic_s() < until_s:
            return False
        log.warning("%s", self.now)
        self._said[what] = (str(error), self._clock.monotonic_s() + EVERY_S)
        return True
