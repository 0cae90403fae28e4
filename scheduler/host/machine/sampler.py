"""Keeps the newest snapshot of the machine at hand, read off the loop's thread: asking for it never blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from scheduler.clock import monotonic_s
from scheduler.config import Paths, Settings
from scheduler.host.machine.holdings import BudgetOf
from scheduler.host.machine.snapshot import MachineIdentity, Snapshots, aged, unread
from scheduler.host.workers.tree import boot_id
from scheduler.model.machine import Machine, Reading

log = logging.getLogger("schedq")

PERIOD_S = 2.0
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
    ) -> None:
        self.who = MachineIdentity(boot_id(), host_id)
        self.period_s = period_s
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

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._closing or self._waiting, timeout=self.period_s)
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
        began_s = monotonic_s()
        try:
            machine = self._snapshots.take()
        except Exception as error:  # a snapshot that fails is an unreadable machine, never the end of the scheduler
            log.exception("the machine could not be read")
            machine = unread(self.who, f"the machine could not be read: {type(error).__name__}: {error}")
        with self._turn:
            self._latest, self._at_s = machine, began_s


def _stale(machine: Machine, age_s: float) -> Machine:
    why = f"the machine was last read {age_s:.0f} s ago, which is too long ago to start anything on"

    def gone(reading: Reading) -> Reading:
        return Reading(None, reading.source, why, age_s)

    pools = tuple(
        replace(p, capacity=gone(p.capacity), free=gone(p.free), available=gone(p.available)) for p in machine.pools
    )
    return replace(
        machine, pools=pools, accelerators=gone(machine.accelerators), competing=None, holdings_missing=why,
        disk_free_gib=None, notes=(*machine.notes, why),
    )  # fmt: skip
