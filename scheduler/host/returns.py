"""Looks at every snapshot whether the memory of workers that are gone is back, and whether somebody else has left.

What the figures mean is `rules.returning`'s. Here it is known who was told to be looked at, which processes of each
worker a driver listed while they lived, and whether anything of it lives after all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.host.machine.holdings import DEVICE_PARTS
from scheduler.host.workers import tree
from scheduler.model.command import EXEC
from scheduler.model.host import HostEvent, Loose, Nudged, Returned
from scheduler.model.machine import Machine
from scheduler.rules.returning import unreturned

SAY_S = 5.0
"""How often the figures of what is leaked are said anew, where they changed."""

GRACE_S = 10.0

KEPT_S = 60.0
"""How long it is remembered which processes of a worker a driver listed, while nobody says that it is gone."""


@dataclass
class _Watched:
    """One worker's charges that are still out; monotonic seconds. `lives`: it was not seen yet that nothing does."""

    row: Loose
    gone_s: float
    asked_s: float
    lives: bool = True
    ending: bool = False
    pools: dict[str, float | None] = field(default_factory=dict)
    said: dict[str, tuple[str, float]] = field(default_factory=dict)


class Returns:
    """Which memory is awaited. `watch` and `look` may be called from different threads.

    `leak_after_s`: from then on what is not back is leaked. `margin_gib`: so much more may be on nobody's name. `end`
    stops a worker of which something lives although it was gone: its id, a grace in seconds, why.
    """

    def __init__(
        self,
        paths: Paths,
        queue_id: str,
        emit: Callable[[HostEvent], None],
        end: Callable[[int, float, str], None],
        *,
        leak_after_s: float,
        margin_gib: float,
    ) -> None:
        self.paths, self.queue_id, self.emit, self.end = paths, queue_id, emit, end
        self.leak_after_s, self.margin_gib = leak_after_s, margin_gib
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._listed: dict[int, tuple[float, set[tuple[int, float]]]] = {}
        self._leased: set[int] = set()
        """Those among them whose process has the room itself, and lives on when it gives that back."""
        self._tells: set[str] = set()
        self._others: frozenset[tuple[int, float | None]] = frozenset()

    def watch(self, rows: Iterable[Loose]) -> None:
        """Look after these from the next snapshot that begins, and after no others."""
        now, boot = monotonic_s(), tree.boot_id()
        with self._lock:
            before, self._watched = self._watched, {}
            for row in rows:
                known = before.get(row.worker_id)
                watched = known or _Watched(row, now - row.gone_for_s, now)
                watched.row, watched.pools = row, dict(row.before_gib)
                self._watched[row.worker_id] = watched
                if row.boot_id and row.boot_id != boot:
                    watched.pools.clear()
                    self.emit(Returned(row.worker_id, back=True))

    def soon(self) -> bool:
        """Whether something is expected back any moment."""
        now = monotonic_s()
        with self._lock:
            return any(each.pools and now - each.gone_s < self.leak_after_s for each in self._watched.values())

    def look(self, machine: Machine, began_s: float) -> None:
        """Judge by this snapshot what is awaited since before it began."""
        with self._lock:
            awaited = [each for each in self._watched.values() if each.pools and each.asked_s <= began_s]
            watched = set(self._watched)
        self._note(machine, began_s, watched)
        self._see_off(machine)
        living = tree.Living(self.queue_id) if any(each.lives for each in awaited) else None
        for each in awaited:
            if each.lives and living is not None:
                each.lives = living.has(self.paths.worker(each.row.worker_id), each.row.worker_id)
            if each.lives:
                if not each.ending:
                    self.end(each.row.worker_id, GRACE_S, "nothing was to be left of it")
                each.ending = True
                self._judge(each, dict.fromkeys(each.pools, "processes of its tree are left; they are being ended"))
            else:
                self._judge(each, self._seen(each, machine))

    def _note(self, machine: Machine, at_s: float, watched: set[int]) -> None:
        """Remember whom drivers list, and of each worker which processes: for a while after it was last seen."""
        self._tells |= {device.id for device in machine.devices if not device.tenants_missing}
        for worker_id, holding in machine.ours.items():
            if holding.listed:
                pids = self._listed.get(worker_id, (0.0, set()))[1]
                self._listed[worker_id] = at_s, pids | set(holding.listed)
                if holding.name.partition("#")[0] == EXEC and "kind=l" in tree.argv_of(holding.pid):
                    self._leased.add(worker_id)
        self._listed = {
            worker_id: kept
            for worker_id, kept in self._listed.items()
            if worker_id in watched or at_s - kept[0] < KEPT_S
        }
        self._leased &= self._listed.keys()

    def _see_off(self, machine: Machine) -> None:
        """When somebody else has left, the loop looks again at once: what waits may have its room."""
        if machine.holdings_missing:
            return
        before, self._others = self._others, frozenset((each.pid, each.since_s) for each in machine.others)
        if before - self._others:
            self.emit(Nudged())

    def _seen(self, watched: _Watched, machine: Machine) -> dict[str, str]:
        row = watched.row
        known = self._listed.get(row.worker_id, (0.0, set()))[1] | set(row.pids)
        pids = {pid for pid, started in known if _free(pid, started)}
        leased = row.worker_id in self._leased
        theirs = {pid for pid, started in known if leased and tree.is_alive(pid, started)}
        on = row.device.split(",")
        return {
            pool: unreturned(
                pool, before_gib, machine, listed=pids - _charged(theirs, pool, machine), on_device=pool in on,
                tells=self._tells, margin_gib=self.margin_gib,
            )
            for pool, before_gib in list(watched.pools.items())
        }  # fmt: skip

    def _judge(self, watched: _Watched, found: dict[str, str]) -> None:
        now, worker_id = monotonic_s(), watched.row.worker_id
        for pool, text in found.items():
            if not text:
                with self._lock:
                    watched.pools.pop(pool, None)
                self.emit(Returned(worker_id, back=True, pool=pool))
                continue
            said, at_s = watched.said.get(pool, ("", -SAY_S))
            if now - watched.gone_s >= self.leak_after_s and text != said and now - at_s >= SAY_S:
                watched.said[pool] = text, now
                self.emit(Returned(worker_id, back=False, text=text, pool=pool))


def _charged(theirs: set[int], pool: str, machine: Machine) -> set[int]:
    """Those of these processes whose device memory of this pool is charged as strangers', or in another lease."""
    told = [
        each
        for each in machine.holdings
        if any(c.pool == pool and c.part in DEVICE_PARTS and c.used_gib is not None for c in each.charges)
    ]
    return theirs & {pid for each in told for pid in (each.pid, *(pid for pid, _ in each.listed))}


def _free(pid: int, started: float) -> bool:
    """Whether no later process has that pid: what a driver lists under it is still the old one's."""
    stat = tree.stat_of(pid)
    return stat is None or stat.started == started
