"""The virtual clock: time is what the simulator says it is."""

from __future__ import annotations

from scheduler.clock import SystemClock


class VirtualClock(SystemClock):
    """A clock that moves only when it is moved; starts at a fixed instant, so that runs repeat exactly."""

    def __init__(self, start_s: float = 1_800_000_000.0) -> None:
        self.elapsed_s = 0.0
        self._start_s = start_s

    def now_s(self) -> float:
        """Wall time: the start and what has passed."""
        return self._start_s + self.elapsed_s

    def monotonic_s(self) -> float:
        """Seconds since the simulation began."""
        return self.elapsed_s

    def move_to(self, elapsed_s: float) -> None:
        """Let time pass, never backwards."""
        self.elapsed_s = max(self.elapsed_s, elapsed_s)

    def sleep(self, for_s: float) -> None:
        """Let virtual time pass."""
        self.move_to(self.elapsed_s + for_s)
