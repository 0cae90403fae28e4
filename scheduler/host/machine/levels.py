"""What is left of each pool right now, for who looks ten times a second: the machine's own memory, and its devices.

The whole snapshot takes tens of milliseconds; this reads one file, and those of the control groups that limit us.
Devices are asked beside it, on a thread of their own: a driver that takes its time is late, and holds nobody up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from scheduler.clock import monotonic_s
from scheduler.host.machine import cgroup
from scheduler.host.machine.accelerators import Seen
from scheduler.host.machine.meminfo import KIB_PER_GIB, meminfo
from scheduler.host.machine.processes import content
from scheduler.model.machine import MOST_GIB, Device, Reading

GROUPS_S = 10.0
"""How often it is looked anew which control groups limit us."""

FRESH_S = 0.35
"""A driver's answer older than this came too late."""

PAGE = 1 << 12

Left = tuple[Reading, Reading]
"""(free, available) of the machine's own memory."""


class HostLevel:
    """Reads the machine's own memory, bounded by every control group above us. `proc` as for `meminfo`."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc
        self._bounds: list[cgroup.Bound] = []
        self._looked_at_s: float | None = None

    def read(self) -> Left:
        """MemFree and MemAvailable now; GiB."""
        info, now = _two(self.proc) or meminfo(self.proc), monotonic_s()
        if self._looked_at_s is None or now - self._looked_at_s >= GROUPS_S:
            self._bounds, self._looked_at_s = cgroup.memory_bounds(self.proc), now
        elif self._bounds:
            self._bounds = cgroup.again(self._bounds)
        left = [bound.left for bound in self._bounds]
        return _least(info["MemFree"], left), _least(info["MemAvailable"], left)


def _two(proc: str) -> dict[str, Reading] | None:
    """The two that are asked for, without the trouble that odd files need; None where anything is odd."""
    try:
        text = content(f"{proc}/meminfo", PAGE)
        found = {}
        for name in ("MemFree", "MemAvailable"):
            at = text.index(b"\n%s:" % name.encode()) + len(name) + 2
            kib = int(text[at : text.index(b"kB", at)])
            found[name] = Reading(kib / KIB_PER_GIB, f"{proc}/meminfo {name}")
    except (OSError, ValueError):
        return None
    return found if all(0 <= (each.value or 0.0) <= MOST_GIB for each in found.values()) else None


def _least(reading: Reading, bounds: list[Reading]) -> Reading:
    every = [reading, *bounds]
    return next((each for each in every if each.value is None), min(every, key=lambda each: each.value or 0.0))


class Asking:
    """Asks for the devices again and again on a thread of its own, while somebody wants to know.

    `read` may hang: then there is no fresh answer, and nobody waits for one.
    """

    def __init__(self, read: Callable[[], Seen], period_s: float) -> None:
        self.read, self.period_s = read, period_s
        self._turn = threading.Condition()
        self._wanted, self._closing = False, False
        self._devices: tuple[Device, ...] = ()
        self._at_s: float | None = None
        self._thread: threading.Thread | None = None

    def want(self, wanted: bool) -> None:
        """Whether somebody wants to know from now on."""
        with self._turn:
            self._wanted = wanted
            if wanted and self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="schedq-guard-devices", daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def fresh(self) -> tuple[Device, ...] | None:
        """The devices as they were told in time; None if no answer came."""
        with self._turn:
            late = self._at_s is None or monotonic_s() - self._at_s > FRESH_S
            return None if late else self._devices

    def close(self) -> None:
        """Ask no more; a question that hangs is left to hang alone."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._wanted or self._closing)
                if self._closing:
                    return
            asked_s = monotonic_s()
            try:
                devices = self.read().devices
            except Exception:  # a broken driver is a late answer
                devices = ()
                asked_s -= FRESH_S
            with self._turn:
                self._devices, self._at_s = devices, asked_s
                self._turn.wait_for(lambda: self._closing, timeout=max(0.01, asked_s + self.period_s - monotonic_s()))
