"""In which order absent providers start: of a few orders that are good by rule of thumb, the one that ends first.

Whole groups are compared (a provider with all of its waiting jobs), by unfolding the future of each order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from scheduler.rules.forecast import Group, Key, Leaving, place_in, unfold

LATE_S = 60.0
"""What a head that would start after its closing is taken to cost, in seconds of the end."""

QUIET_S = 60.0
"""With nothing submitted for so long the queue is taken to be all there is."""

AHEAD_S = 900.0
"""With so much work ahead of the whole machine, what is still to come changes little."""


TRIES = 60
"""Changes by chance that are tried in one decision about a queue that is all there is: 1.095 -> 1.081 of the lower
bound on batch nights. While work keeps coming they win nothing."""


class Chance:
    """Numbers that look drawn and follow from the seed alone, so that the same input gives the same plan."""

    def __init__(self, seed: int) -> None:
        self._state = seed % (1 << 64)

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) % limit


def settled(groups: Iterable[Group], leaving: Iterable[tuple[float, Leaving]], quiet_s: float, devices: int) -> bool:
    """Whether the queue can be planned as a whole: nothing new comes, or so much is there that it matters little.

    `leaving` are the workers with their shares of a pool; `devices` is how many placements work side by side.
    """
    if quiet_s >= QUIET_S:
        return True
    ahead = [group.area for group in groups] + [share * each.left_s for share, each in leaving]
    return math.fsum(ahead) / max(1, devices) >= AHEAD_S


def beside_head(
    groups: Sequence[Group], head: Group, free: Sequence[float], leaving: Sequence[Leaving], closing_s: float
) -> list[Group]:
    """Those that keep no room from the head: gone again before it could start, or small enough to stay beside it."""
    soonest = unfold(free, leaving, [head]).starts_s.get(head.key, math.inf)
    shadow_s = min(soonest, closing_s)
    spare = list(free)
    for each in leaving:
        if each.left_s <= shadow_s:
            for n, gib in each.parts:
                spare[n] += gib
    for n, gib in place_in(spare, head.places) or (head.places[0] if head.places else ()):
        spare[n] -= gib
    return [
        group
        for group in groups
        if group is head or group.lasts_s <= shadow_s or place_in(spare, group.places) is not None
    ]


def best_order(
    groups: Sequence[Group],
    free: Sequence[float],
    leaving: Sequence[Leaving],
    head: Key | None,
    closing_s: float,
    last: Sequence[Key],
    *,
    tries: int = 0,
) -> list[Group]:
    """The order whose forecast ends first; of equals the one that is nearest to the last plan's.

    `closing_s` is when the head's window closes, in seconds from now. The best rule of thumb is then changed `tries`
    times by chance, a swap or a move, and each change that ends earlier is kept; the chance is the same for the same
    groups.
    """
    chance = Chance(hash(tuple(group.first for group in groups)))
    best: list[Group] = []
    least = math.inf

    def score(order: Sequence[Group]) -> float:
        future = unfold(free, leaving, order, head, closing_s)
        late = head is not None and future.starts_s.get(head, math.inf) > closing_s
        return future.end_s + (LATE_S if late else 0.0)

    for order in _orders(groups, last):
        end_s = score(order)
        if end_s < least - 1e-6 or not best:
            best, least = order, end_s
    for _ in range(tries if len(best) > 2 else 0):
        order = list(best)
        one, other = chance.below(len(order)), chance.below(len(order))
        if chance.below(2):
            order[one], order[other] = order[other], order[one]
        else:
            order.insert(other, order.pop(one))
        end_s = score(order)
        if end_s < least - 1e-6:
            best, least = order, end_s
    return best


def _orders(groups: Sequence[Group], last: Sequence[Key]) -> list[list[Group]]:
    rank = {key: n for n, key in enumerate(last)}
    by: list[Callable[[Group], tuple[float, ...]]] = [
        lambda g: (rank.get(g.key, len(rank)),),
        lambda g: (-g.area,),
        lambda g: (-g.lasts_s,),
        lambda g: (-g.share,),
        lambda g: (),
    ]
    return [sorted(groups, key=partial(_placed, value)) for value in by]


def _placed(value: Callable[[Group], tuple[float, ...]], group: Group) -> tuple[float, ...]:
    return (*value(group), *group.first)
