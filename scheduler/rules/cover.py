"""The smallest set of things that together give enough of everything: exact, by branch and bound.

Things come in kinds, the gentlest first. One of a harsher kind is never taken to spare any number of gentler ones, so
that sets are compared by how many of the harshest kind they take, then of the next, and at last by their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

EFFORT = 200_000
"""Steps after which a search ends: some hundred are usual for 30 things."""


@dataclass(frozen=True)
class Thing:
    """What taking it gives of each need, and what it costs: its kind first, then its size."""

    kind: int
    gives: tuple[float, ...]
    size: float


def smallest(things: Sequence[Thing], needs: Sequence[float]) -> list[int] | None:
    """The indexes of the smallest set that gives what is needed, rising; None if all of them together do not."""
    if all(need <= 0.0 for need in needs):
        return []
    if not _covers(things, needs):
        return None
    counts: dict[int, int] = {}
    for kind in sorted({thing.kind for thing in things}, reverse=True):
        gentler = [thing for thing in things if thing.kind < kind]
        most = sum(thing.kind == kind for thing in things)
        counts[kind] = next(
            (n for n in range(most) if _Search(things, {**counts, kind: n}, _less(needs, gentler)).exists()), most
        )
    return _Search(things, counts, needs).least()


def price(things: Sequence[Thing]) -> tuple[float, ...]:
    """What sets are compared by: how many of each kind, the harshest first, and their size."""
    most = max((thing.kind for thing in things), default=-1)
    counts = [float(sum(thing.kind == kind for thing in things)) for kind in range(most, -1, -1)]
    return (float(most), *counts, math.fsum(thing.size for thing in things))


def _covers(things: Sequence[Thing], needs: Sequence[float]) -> bool:
    return all(need <= 0.0 for need in _less(needs, things))


def _less(needs: Sequence[float], things: Sequence[Thing]) -> list[float]:
    return [math.fsum([need, *(-thing.gives[n] for thing in things)]) for n, need in enumerate(needs)]


class _Search:
    """Sets of exactly `counts[kind]` things of each kind."""

    def __init__(self, things: Sequence[Thing], counts: dict[int, int], needs: Sequence[float]) -> None:
        self.needs = needs
        self._effort = EFFORT
        self._best: list[int] | None = None
        self._best_size = math.inf
        self._groups = []
        for kind, count in counts.items():
            members = sorted((n for n, t in enumerate(things) if t.kind == kind), key=lambda n: (-things[n].size, n))
            if count:
                self._groups.append((members, count))
        self._things = things

    def exists(self) -> bool:
        """Whether one of them gives enough."""
        return self._look(0, 0, 0, [], list(self.needs), 0.0, first=True)

    def least(self) -> list[int] | None:
        """The one that gives enough and has the least size; among equals the first."""
        self._look(0, 0, 0, [], list(self.needs), 0.0, first=False)
        return sorted(self._best) if self._best is not None else None

    def _look(
        self, group: int, at: int, taken: int, chosen: list[int], open_: list[float], size: float, *, first: bool
    ) -> bool:
        if group == len(self._groups):
            if any(need > 0.0 for need in open_):
                return False
            if size < self._best_size:
                self._best, self._best_size = list(chosen), size
            return True
        members, count = self._groups[group]
        if taken == count:
            return self._look(group + 1, 0, 0, chosen, open_, size, first=first)
        self._effort -= 1
        if self._effort < 0 or not self._promising(group, at, taken, open_, size):
            return False
        found = False
        for n in range(at, len(members) - (count - taken) + 1):
            thing = self._things[members[n]]
            rest = [need - give for need, give in zip(open_, thing.gives, strict=True)]
            chosen.append(members[n])
            found = self._look(group, n + 1, taken + 1, chosen, rest, size + thing.size, first=first) or found
            chosen.pop()
            if (found and first) or self._effort < 0:
                break
        return found

    def _promising(self, group: int, at: int, taken: int, open_: list[float], size: float) -> bool:
        """Whether what can still be chosen could give enough, and stay smaller than the best."""
        least = size
        most = [0.0] * len(open_)
        for number, (members, count) in enumerate(self._groups[group:], group):
            left = members[at:] if number == group else members
            take = count - taken if number == group else count
            for n in range(len(open_)):
                most[n] += sum(sorted((self._things[m].gives[n] for m in left), reverse=True)[:take])
            least += sum(sorted(self._things[m].size for m in left)[:take])
        return least < self._best_size and all(need <= give for need, give in zip(open_, most, strict=True))
