"""Keeps the newest snapshot of the machine at hand, read off the loop's thread: asking for it never blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from scheduler.clock import cpu_s, monotonic_s
from scheduler.config import Paths, Settings
from scheduler.host.machine.holdings import BudgetOf
from scheduler.host.machine.snapshot import MachineIdentity, Snapshots, aged, unread
from scheduler.host.workers.tree import boot_id
from scheduler.model.machine import Machine, Reading

log = logging.getLogger("schedq")

PERIOD_S = 2.0
SLOWEST_S, SHARE = 5.0, 0.004
"""Nobody asks for it: then snapshots take at most this share of a core, and are never further apart than that."""

SOON_S = 0.5
"""How often snapshots are taken while memory is expected back: E9 tells of up to several seconds."""

STALE_S = 30.0
"""A snapshot older than this admits nothing: whatever keeps the next one from coming, it is not known any more."""


class Sampler:
    """Snapshots every `period_s`, and at once when one is asked for."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        *,
        queue_id: str,
        host_id: str,
        budget_of: BudgetOf,
        period_s: float = PERIOD_S,
        snapshots: Snapshots | None = None,
        seen: Callable[[Machine, float], None] = lambda machine, began_s: None,
        soon: Callable[[], bool] = lambda: False,
    ) -> None:
        """`seen` is called with each snapshot and when it began (monotonic); `soon`: the next is due in `SOON_S`."""
        self._seen, self._soon = seen, soon
        self.who = MachineIdentity(boot_id(), host_id)
        self.period_s = self._pause_s = period_s
        self._snapshots = snapshots or Snapshots(paths.home, settings, self.who, queue_id=queue_id, budget_of=budget_of)
        self._turn = threading.Condition()
        self._waiting: list[Callable[[], None]] = []
        self._closing = False
        self._latest = unread(self.who, "the machine was not read yet")
        self._at_s = monotonic_s()
        self._thread = threading.Thread(target=self._run, name="schedq-sampler", daemon=True)

    def open(self) -> None:
        """Take the first snapshot, then go on in the background."""
        self._sample()
        self._thread.start()

    def close(self) -> None:
        """Stop; a probe that hangs is left to hang alone."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._snapshots.close()

    def latest(self) -> Machine:
        """The newest snapshot, with its age; one that is too old has no readings any more."""
        with self._turn:
            machine, age_s = self._latest, monotonic_s() - self._at_s
        if age_s > STALE_S:
            return _stale(machine, age_s)
        return aged(machine, age_s)

    def refresh(self, then: Callable[[], None]) -> None:
        """Take a snapshot that begins after this call, and call `then` on the sampler's thread when it is there."""
        with self._turn:
            self._waiting.append(then)
            self._turn.notify_all()

    def watch_disks(self, folders: list[str], then: Callable[[], None]) -> None:
        """Look at the disks of these destinations; a new one at once, and `then` is called when it is known."""
        if self._snapshots.disks.watch(folders):
            self.refresh(then)

    def _run(self) -> None:
        while True:
            with self._turn:
                wait_s = min(self.period_s, SOON_S) if self._soon() else self._pause_s
                self._turn.wait_for(lambda: self._closing or self._waiting, timeout=wait_s)
                if self._closing:
                    return
                asked, self._waiting = self._waiting, []
            self._sample()
            for then in asked:
                try:
                    then()
                except Exception:
                    log.exception("what waited for a snapshot failed")

    def _sample(self) -> None:
        began_s, spent_s = monotonic_s(), cpu_s()
        try:
            machine = self._snapshots.take()
        except Exception as error:  # a snapshot that fails is an unreadable machine, never the end of the scheduler
            log.exception("the machine could not be read")
            machine = unread(self.who, f"the machine could not be read: {type(error).__name__}: {error}")
        pause_s = pause_after(cpu_s() - spent_s)
        with self._turn:
            self._latest, self._at_s = machine, began_s
            self._pause_s = max(self.period_s, pause_s) if self.period_s == PERIOD_S else self.period_s
        try:
            self._seen(machine, began_s)
        except Exception:
            log.exception("what looks at every snapshot failed")


def pause_after(spent_s: float) -> float:
    """How long to wait after a snapshot that took so much of a processor, when nobody asks for one. Seconds."""
    return min(SLOWEST_S, max(PERIOD_S, spent_s / SHARE))


def _stale(machine: Machine, age_s: float) -> Machine:
    why = f"the machine was last read {age_s:.0f} s ago, which is too long ago to start anything on"

    def gone(reading: Reading) -> Reading:
        return Reading(None, reading.source, why, age_s)

    pools = tuple(
        replace(p, capacity=gone(p.capacity), free=gone(p.free), available=gone(p.available)) for p in machine.pools
    )
    return replace(
        machine, pools=pools, accelerators=gone(machine.accelerators), competing=None, holdings_missing=why,
        disk_free_gib=None, destinations={}, notes=(*machine.notes, why),
    )  # fmt: skip
