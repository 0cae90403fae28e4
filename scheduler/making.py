"""Inputs in the making, beside the loop: on one thread, and on more while those are held up by a disk that hangs.

What is done waits for the loop, so much of it and no more: large pieces are staged on the disk by then.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from scheduler import pinning, wake
from scheduler.clock import SystemClock
from scheduler.config import Paths

log = logging.getLogger("schedq")

AHEAD = 200
"""Inputs that are made before the loop takes some: each holds at most what a row takes."""

SLOW_S, LANES = 20.0, 4
"""A thread that has been at one input for so long may hang: the others are made beside it, by so many threads."""


class Making:
    """One scheduler's inputs in the making. `inline`: made by whoever asks."""

    def __init__(self, clock: SystemClock, *, inline: bool) -> None:
        self._clock, self._inline = clock, inline
        self._room = threading.Condition()
        self._asked: dict[int, None] = {}
        self._at: dict[int, tuple[int, float]] = {}
        self._given = 0
        self.done: deque[pinning.Made] = deque()

    def ask(self, paths: Paths, ids: list[int]) -> None:
        """Make the inputs of these jobs, or as much of them as there is by now; and look after those asked before."""
        with self._room:
            self._asked.update(dict.fromkeys(ids))
            if self._inline or self._open() is None or not self._stuck():
                lane = None
            else:
                lane = self._given = self._given + 1
                self._at[lane] = 0, self._clock.monotonic_s()
        if self._inline:
            self._run(paths, 0)
        elif lane is not None:
            threading.Thread(target=self._run, args=(paths, lane), name=f"drafts-{lane}", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether there is something to be made, or done and not taken."""
        return bool(self._asked or self._at or self.done)

    def slow_at_s(self) -> list[float]:
        """When one more thread is to be thought of, by the clock, while inputs wait."""
        with self._room:
            if self._open() is None or len(self._at) >= LANES:
                return []
            return [max((since_s for _job, since_s in self._at.values()), default=0.0) + SLOW_S]

    def slow(self) -> set[int]:
        """The jobs whose inputs have been in the making for long."""
        late_s = self._clock.monotonic_s() - SLOW_S
        with self._room:
            return {job_id for job_id, since_s in self._at.values() if job_id and since_s <= late_s}

    def taken(self, most: int) -> list[pinning.Made]:
        """What is done by now, at most so many."""
        with self._room:
            found = [self.done.popleft() for _ in range(min(most, len(self.done)))]
            self._room.notify_all()
        return found

    def _open(self) -> int | None:
        """The first that is asked for and not in the making, None if there is none."""
        busy = {job_id for job_id, _since in self._at.values()}
        return next((job_id for job_id in self._asked if job_id not in busy), None)

    def _stuck(self) -> bool:
        """Whether every thread has been at its input for long, and one more may be had."""
        slow = self._clock.monotonic_s() - SLOW_S
        return len(self._at) < LANES and len(self.done) < AHEAD and all(since <= slow for _, since in self._at.values())

    def _run(self, paths: Paths, lane: int) -> None:
        while True:
            with self._room:
                self._room.wait_for(lambda: self._inline or len(self.done) < AHEAD)
                job_id = self._open()
                if job_id is None:
                    self._at.pop(lane, None)
                    return
                del self._asked[job_id]
                self._at[lane] = job_id, self._clock.monotonic_s()
            try:
                made = pinning.made(paths, job_id)
            except Exception as error:  # one job's error is no other's, and never the loop's
                log.exception("the input of job %s could not be made", job_id)
                odd = not isinstance(error, OSError | MemoryError)
                made = pinning.Made(job_id, put_off=f"{type(error).__name__}: {error}", odd=odd)
            with self._room:
                self._at[lane] = 0, self._clock.monotonic_s()
                if made is not None:
                    self.done.append(made)
            if made is not None and not self._inline:
                wake.nudge(paths)
