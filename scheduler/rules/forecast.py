"""What will happen if nothing new comes: who gives back which room when, and which group of jobs starts into it.

Arithmetic on charges alone, quick enough to compare orders many times in a decision. It admits nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.machine import Machine
from scheduler.rules.room import SLACK_GIB

Key = tuple[str, str]
Part = tuple[int, float]
"""(pool's place in the machine's list, GiB)."""


@dataclass(frozen=True)
class Group:
    """All waiting jobs of a provider that has no worker: where one could go, how long it will be there.

    `share` is the largest part of any pool that it takes; `first` its first job's place in the line.
    """

    key: Key
    places: tuple[tuple[Part, ...], ...]
    share: float
    load_s: float
    work_s: float
    first: tuple[int, int]

    @property
    def lasts_s(self) -> float:
        """From its start until it has run dry."""
        return self.load_s + self.work_s

    @property
    def area(self) -> float:
        """What it takes of the machine: share x seconds."""
        return self.share * self.lasts_s


@dataclass(frozen=True)
class Leaving:
    """A worker that is expected to run dry in `left_s`, and what it then gives back.

    `known`: it rests on what was seen here. Of a command, or of a provider that never ran, nobody can tell: orders are
    tried by what is usual.
    """

    left_s: float
    parts: tuple[Part, ...]
    known: bool = True


@dataclass(frozen=True)
class Future:
    """A forecast: when each group starts, in seconds from now, and when the last of all is done."""

    starts_s: Mapping[Key, float]
    end_s: float


class Rooms:
    """The free GiB of each pool, by its place in the machine's list; unreadable ones have none."""

    def __init__(self, machine: Machine) -> None:
        self.index = {pool.id: n for n, pool in enumerate(machine.pools)}
        self.usable = [
            0.0 if pool.capacity.value is None else pool.capacity.value - pool.reserve_gib for pool in machine.pools
        ]
        self.free = list(self.usable)

    def parts(self, charges: Mapping[str, float]) -> tuple[Part, ...]:
        """Charges by pool id, as parts; what is on no pool of this machine is left out."""
        return tuple((self.index[pool], gib) for pool, gib in charges.items() if pool in self.index and gib)

    def share(self, parts: Iterable[Part]) -> float:
        """The largest part of any pool that these take."""
        return max((gib / max(1e-9, self.usable[n]) for n, gib in parts), default=0.0)

    def take(self, parts: Iterable[Part]) -> None:
        """Less is free by so much."""
        for n, gib in parts:
            self.free[n] -= gib

    def give(self, parts: Iterable[Part]) -> None:
        """More is free by so much."""
        for n, gib in parts:
            self.free[n] += gib


def place_in(free: Sequence[float], places: Iterable[tuple[Part, ...]]) -> tuple[Part, ...] | None:
    """The first place that has the room, None if there is none."""
    for parts in places:
        for n, gib in parts:
            if gib > free[n] + SLACK_GIB:
                break
        else:
            return parts
    return None


def unfold(
    free: Sequence[float],
    leaving: Iterable[Leaving],
    order: Iterable[Group],
    head: Key | None = None,
    closing_s: float = 0.0,
) -> Future:
    """Let time pass: at each moment every group that fits starts, in this order.

    From `closing_s` on the head's group alone, until it has started.
    """
    room = list(free)
    coming = [(each.left_s, n, each.parts) for n, each in enumerate(leaving)]
    heapq.heapify(coming)
    number, now, end = len(coming), 0.0, max((left for left, _, _ in coming), default=0.0)
    starts: dict[Key, float] = {}
    waiting = list(order)
    while waiting:
        only = head if head is not None and head not in starts and now >= closing_s else None
        head_waited = only is not None
        left = []
        for group in waiting:
            parts = place_in(room, group.places) if only is None or group.key == only else None
            if parts is None:
                left.append(group)
                continue
            starts[group.key] = now
            for n, gib in parts:
                room[n] -= gib
            done = now + group.lasts_s
            number += 1
            heapq.heappush(coming, (done, number, parts))
            end = max(end, done)
        waiting = left
        if head in starts and head_waited:
            head_waited = False
            continue
        if not coming:
            break
        now = coming[0][0]
        while coming and coming[0][0] <= now:
            for n, gib in heapq.heappop(coming)[2]:
                room[n] += gib
    return Future(starts, end)
