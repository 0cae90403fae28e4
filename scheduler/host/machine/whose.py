"""Whose memory a pool's is, where it is not our workers': holders that are known, and the largest processes else.

Only looked at while a pool is near its reserve, and seldom: every process that is no worker's is asked what it holds.
"""

from __future__ import annotations

from scheduler.host.machine.asked import Asked
from scheduler.host.machine.growth import Growth, own_gib
from scheduler.host.machine.holders import command_name, printable
from scheduler.host.machine.processes import Process, content
from scheduler.model.machine import Held, Machine, Pool

EVERY_S = 5.0
SHOWN, LEAST_GIB = 4, 0.1
"""At most so many processes are named, and none that holds less."""

HOST_KINDS = ("host", "unified")


class Whose:
    """Asked again and again. `proc` is where the kernel's files are looked for."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc, self.asked = proc, Asked(proc)
        self._at_s: float | None = None
        self._large: tuple[Held, ...] = ()

    def others(self, machine: Machine, pool: Pool, growth: Growth, now_s: float) -> tuple[Held, ...]:
        """Who is not ours and holds memory of this pool, as far as that was seen a moment ago."""
        known = machine.held_by_others.get(pool.id, ())
        if pool.kind not in HOST_KINDS:
            return known
        if self._at_s is None or now_s - self._at_s >= EVERY_S:
            self._at_s, self._large = now_s, self._look(machine, growth)
        return (*known, *self._large)

    def _look(self, machine: Machine, growth: Growth) -> tuple[Held, ...]:
        """The largest processes that are neither ours nor known as holders."""
        known = {holding.pid for holding in machine.holdings}
        found = []
        for pid in growth.nobodys():
            gib = own_gib(self.proc, pid) if pid not in known and growth.parent(pid) not in known else None
            if gib is not None and sum(gib) >= LEAST_GIB:
                found.append((sum(gib), pid))
        found.sort(reverse=True)
        return tuple(Held(self._told(pid), None, gib, 0.0) for gib, pid in found[:SHOWN])

    def _told(self, pid: int) -> str:
        try:
            words = content(f"{self.proc}/{pid}/cmdline", 1 << 12).removesuffix(b"\0").decode(errors="replace")
        except OSError:
            words = ""
        process = Process(pid, 0, 0.0, tuple(words.split("\0")) if words else ())
        user = self.asked.user(process)
        return f"{printable(command_name(process))} (pid {pid}{f', {user}' if user else ''})"
