"""Whether a worker that was killed was killed by the kernel for want of memory: nobody else tells.

The kernel counts such kills for the whole machine, those inside of control groups too. A worker that died of SIGKILL,
by no order of ours, just after that count has risen was one of them. So the count is read while workers load and
compute: when it rose since a reading of long ago, nobody knows when that was.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace

from scheduler.clock import monotonic_s
from scheduler.host.machine.processes import content
from scheduler.model.host import Gone, HostEvent, Replied
from scheduler.model.outcome import Outcome

RECENT_S = 5.0
"""How long after the count was seen to rise a death is taken for one of those kills."""

KILLED = (-9, 137)
"""SIGKILL, and how a shell tells it on."""

WORDS = "oom-kill: the kernel killed it since the machine, or its control group, had no memory left"


class Kills:
    """Passes events on to `emit`; a death that was such a kill says so. `vmstat` is the kernel's file of counts.

    `clock` is monotonic seconds.
    """

    def __init__(
        self,
        emit: Callable[[HostEvent], None],
        vmstat: str = "/proc/vmstat",
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self._emit, self._vmstat, self._clock = emit, vmstat, clock
        self._turn = threading.Lock()
        self._count: int | None = None
        self._read_at_s = self._risen_at_s = -math.inf
        self.look()

    def look(self) -> bool:
        """Read the count, and whether it has risen a moment ago. To be called again and again while workers run."""
        with self._turn:
            count, now = self._read(), self._clock()
            rose = count is not None and self._count is not None and count > self._count
            if rose and now - self._read_at_s <= RECENT_S:
                self._risen_at_s = now
            if count is not None:
                self._count, self._read_at_s = count, now
            return now - self._risen_at_s <= RECENT_S

    def tell(self, event: HostEvent) -> None:
        """Put an event before the loop."""
        self._emit(self._killed(event) if self.look() else event)

    def _killed(self, event: HostEvent) -> HostEvent:
        if isinstance(event, Gone) and event.exit_code in KILLED and not event.why:
            return replace(event, text=f"{WORDS}; the last line of its log: {event.text}" if event.text else WORDS)
        if isinstance(event, Replied) and event.outcome.kind in ("crashed", "error", "no_reply"):
            said = event.outcome
            if said.exit_code in KILLED:
                return replace(event, outcome=Outcome("over_budget", f"{WORDS} ({said.text})", said.exit_code))
        return event

    def _read(self) -> int | None:
        """How many processes the kernel has killed for want of memory; None if it does not say."""
        try:
            for line in content(self._vmstat, 1 << 16).splitlines():
                name, _, value = line.partition(b" ")
                if name == b"oom_kill":
                    return int(value)
        except (OSError, ValueError):
            pass
        return None
