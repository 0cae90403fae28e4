"""Workers of ours as the guard knows them: what each is doing, what it is charged, what it uses, and its peaks."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from scheduler.host.machine.attribution import Sighting, together
from scheduler.host.machine.growth import Grown, Growth
from scheduler.model.command import called, is_lease
from scheduler.model.host import Adopt, Answered, Failed, Forgotten, Gone, HostEvent, Park, Replied, Shown
from scheduler.model.machine import Pool, device_part
from scheduler.rules.guard import WINDOW_S, Watched

HOST_KINDS = ("host", "unified")
PAST = 256
"""Of so many workers that are gone the peaks are still known."""

LEASED_S = 0.2
"""How long a process that has the room for itself may take to end before its keeper kills it: it may have to save, and
what is stopped above its charge is stopped a reserve before the reserve."""

LATE_S = 0.05
"""A sample may come that much late and still begin the window."""

Sightings = dict[int, dict[str, Sighting]]
"""What drivers list, by pid and pool."""


@dataclass
class Ward:
    """One worker. `state` is parked, starting, busy or idle, `since_s` is since when; monotonic seconds.

    `told_at_s`: when it was told to stop, None = it was not; `grace_s`: how long it has then. `leased`: it is a process
    that was there before, and has the room for itself while it is busy.
    """

    id: int
    name: str
    charges: dict[str, float]
    state: str = "parked"
    since_s: float = 0.0
    told_at_s: float | None = None
    grace_s: float = 0.0
    ended_s: float | None = None
    used: dict[str, float | None] = field(default_factory=dict)
    leased: bool = False
    given: frozenset[str] = frozenset()
    """The pools whose devices it was given."""
    listed: set[str] = field(default_factory=set)
    """Those of them on which a driver told a figure of it once: where none ever did, it may hold what nobody sees."""
    whole: bool = False
    """Whether what it uses of devices was told, too."""
    history: deque[tuple[float, dict[str, float | None]]] = field(default_factory=lambda: deque(maxlen=8))
    peaks: dict[str, float] = field(default_factory=dict)
    anew: dict[str, float] = field(default_factory=dict)
    from_start: bool = True
    from_send: bool = True
    """Whether it was watched from its start, its last send on: one that was taken over was not."""

    def sent(self, charges: dict[str, float]) -> None:
        """It is given a request, on these charges if any: what it uses from now on is counted anew."""
        self.charges, self.anew, self.from_send = dict(charges) or self.charges, {}, True

    def most(self, *, anew: bool) -> dict[str, float]:
        """The most that it was seen to use by pool, GiB: since its start, or its last send; see `device_part`, too.

        Nothing where it was not watched all the while, and nothing of a pool on which its part of a device was never
        told: what was seen there is less than what it used.
        """
        if not (self.from_send if anew else self.from_start):
            return {}
        hidden = self.given - self.listed
        return {pool: gib for pool, gib in (self.anew if anew else self.peaks).items() if pool not in hidden}

    def is_on(self, pool: Pool) -> bool:
        """Whether it is charged something there, or seen to use something."""
        return pool.id in self.charges or bool(self.used.get(pool.id))

    def gained(self, pool_id: str, now_s: float) -> tuple[float, float]:
        """(GiB that it gained of a pool, in how many seconds) over the window; (0, 0) if that is not known."""
        used = self.used.get(pool_id)
        for at_s, before in self.history:
            first = before.get(pool_id)
            if now_s - at_s <= WINDOW_S + LATE_S and first is not None and used is not None:
                return used - first, now_s - at_s
        return 0.0, 0.0

    def watched(self, pool: Pool, lost_gib: float, now_s: float) -> Watched:
        """As the rule sees it on one pool. What a start gains unseen, the pool has lost: that counts for it."""
        used, (gained_gib, _) = self.used.get(pool.id), self.gained(pool.id, now_s)
        if used is None or (pool.kind == "unified" and not self.whole):
            gained_gib = max(gained_gib, lost_gib)
        leaving_s = None if self.told_at_s is None else now_s - self.told_at_s
        return Watched(
            self.id, self.name, self.state, self.charges.get(pool.id), used, gained_gib, now_s - self.since_s,
            leaving_s,
        )  # fmt: skip


class Wards:
    """All of them. Not for several threads at once: its guard takes turns."""

    def __init__(self, growth: Growth) -> None:
        self.growth = growth
        self.by_id: dict[int, Ward] = {}
        self._past: dict[int, tuple[dict[str, float], dict[str, float]]] = {}

    def parked(self, order: Park) -> None:
        """A worker is about to be there."""
        self.by_id[order.worker_id] = Ward(
            order.worker_id, _name(order), dict(order.charges), leased=_leased(order), given=_given(order)
        )

    def adopted(self, row: Adopt, now_s: float) -> None:
        """A worker is taken over: it is what its row says. What it used before was not seen."""
        state = row.state if row.state in ("starting", "busy") else "idle"
        leased = _leased(row)
        self.by_id[row.worker_id] = Ward(
            row.worker_id, _name(row), dict(row.charges), state, now_s, leased=leased, given=_given(row),
            from_start=False, from_send=False,
        )  # fmt: skip
        if row.keeper_pid:
            self.growth.watch(row.worker_id, row.keeper_pid, leased=leased)

    def enter(self, worker_id: int, state: str, now_s: float) -> None:
        """It is in another state from now on."""
        ward = self.by_id.get(worker_id)
        if ward is not None:
            ward.state, ward.since_s = state, now_s

    def heard(self, event: HostEvent, now_s: float) -> Ward | None:
        """What became of a worker; one that came up or is gone by that."""
        match event:
            case Shown() if event.worker_id in self.by_id:
                leased = self.by_id[event.worker_id].leased
                self.growth.watch(event.worker_id, event.keeper_pid, leased=leased)
            case Answered():
                ward = self.by_id.get(event.worker_id)
                if ward is not None and ward.state == "starting":
                    self.enter(ward.id, "idle", now_s)
                    return ward
            case Replied() | Forgotten():
                self.enter(event.worker_id, "idle", now_s)
            case Gone() | Failed(alive=False):
                return self._bury(event.worker_id)
            case _:
                pass
        return None

    def _bury(self, worker_id: int) -> Ward | None:
        ward = self.by_id.pop(worker_id, None)
        self.growth.forget(worker_id)
        if ward is not None:
            self._past[worker_id] = ward.most(anew=False), ward.most(anew=True)
            for old in list(self._past)[:-PAST]:
                del self._past[old]
        return ward

    def close(self) -> None:
        """Let go of what is open for measuring."""
        for worker_id in list(self.growth.workers):
            self.growth.forget(worker_id)

    def measure(self, ward: Ward, now_s: float, pools: tuple[Pool, ...], seen: Sightings | None) -> None:
        """What a worker uses of each pool now; kept as its peaks. `seen` None = no driver answered in time.

        Where its part of a device was not told, what was seen is no peak. A leased process has its room while it is
        busy, and uses none of it before.
        """
        grown = self.growth.workers.get(ward.id)
        if grown is None:
            return
        if ward.leased and ward.state != "busy":
            ward.used, ward.whole = dict.fromkeys(ward.charges, 0.0), True
            return
        on_host = self.growth.measure(ward.id, now_s)
        on = together(grown.processes, seen) if seen else {}
        used: dict[str, float | None] = {}
        untold = set()
        for pool in pools:
            there = on[pool.id].used_gib if pool.id in on else (None if seen is None else 0.0)
            if there is None:
                untold.add(pool.id)
            elif pool.id in on:
                ward.listed.add(pool.id)
            if pool.kind in HOST_KINDS:
                used[pool.id] = on_host if on_host is None or there is None else on_host + there
            elif pool.id in ward.charges or there:
                used[pool.id] = there
        if grown.holder is not None:
            used = {pool_id: self._share(ward, grown, pool_id, gib) for pool_id, gib in used.items()}
        untold &= ward.given
        ward.used, ward.whole = used, seen is not None and not untold and ward.given <= ward.listed
        ward.history.append((now_s, used))
        on_device = {
            device_part(pool.id): on[pool.id].used_gib for pool in pools if pool.kind == "unified" and pool.id in on
        }
        for pool_id, gib in {**used, **on_device}.items():
            if gib is not None and pool_id not in untold:
                ward.peaks[pool_id] = max(ward.peaks.get(pool_id, 0.0), gib)
                ward.anew[pool_id] = max(ward.anew.get(pool_id, 0.0), gib)

    def _share(self, ward: Ward, grown: Grown, pool_id: str, gib: float | None) -> float | None:
        """Of what a leased process uses, what counts for this room of it: it fills one after the other, and what is
        more than all of them is the last one's.
        """
        if gib is None:
            return None
        its = sorted(each for each, other in self.growth.workers.items() if other.holder == grown.holder)
        rooms = [self.by_id[each] for each in its if each in self.by_id and self.by_id[each].state == "busy"]
        before_gib = math.fsum(each.charges.get(pool_id, 0.0) for each in rooms if each.id < ward.id)
        rest_gib = max(0.0, gib - before_gib)
        return rest_gib if rooms[-1] is ward else min(rest_gib, ward.charges.get(pool_id, 0.0))

    def peaks(self, worker_id: int, anew: bool) -> dict[str, float]:
        """The most that a worker, also one that is gone, was seen to use by pool: since its start, or its last send."""
        ward = self.by_id.get(worker_id)
        if ward is not None:
            return ward.most(anew=anew)
        return dict(self._past.get(worker_id, ({}, {}))[anew])


def _given(row: Park | Adopt) -> frozenset[str]:
    return frozenset(filter(None, row.device.split(",")))


def _leased(row: Park | Adopt) -> bool:
    return is_lease(row.slug, row.variant)


def _name(row: Park | Adopt) -> str:
    return called(row.slug, row.variant)
