"""The pools over a night as few enough points to be drawn, and what happened meanwhile as marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.night.report import Mark, Point, PoolNight, ProviderNight
from scheduler.night.words import clean
from scheduler.rules.figures import counted, pool_name

MOST_POINTS, MOST_MARKS = 480, 150
HOLDS_S = 300.0
"""How long what was seen of a pool counts when nothing follows: nothing went on, or no scheduler looked."""


def pools(
    samples: Sequence[tuple[Any, ...]], leases: Sequence[tuple[Any, ...]], begin_s: float, end_s: float
) -> tuple[PoolNight, ...]:
    """Each pool that was written down, as it was from begin to end: what was charged at each change of it, and what
    was used whenever it was looked at, which holds until the next look. Of many points the highest of each step.
    """
    by_pool: dict[str, list[tuple[Any, ...]]] = {}
    for row in samples:
        by_pool.setdefault(row[0], []).append(row)
    found = []
    for pool_id, rows in by_pool.items():
        inside = [row for row in rows if begin_s <= row[1] <= end_s]
        points = _points(inside, [each[1:] for each in leases if each[0] == pool_id], begin_s, end_s)
        last = (inside or rows)[-1]
        used_gib = max((row[5] for row in inside if row[5] is not None), default=None)
        charged_gib = max((each.charged_gib for each in points), default=0.0)
        made = PoolNight(pool_id, pool_name(pool_id), last[2], last[3], tuple(_thinned(points)), charged_gib, used_gib)
        found.append(made)
    return tuple(found)


def _points(
    samples: Sequence[tuple[Any, ...]], leases: Sequence[tuple[Any, ...]], begin_s: float, end_s: float
) -> list[Point]:
    """What was seen, and what was charged at each moment at which that changed."""
    deltas: dict[float, float] = {begin_s: 0.0} if leases else {}
    for gib, since_s, until_s in leases:
        if since_s <= end_s and (until_s is None or until_s > begin_s):
            since_s = max(begin_s, since_s)
            deltas[since_s] = deltas.get(since_s, 0.0) + gib
            if until_s is not None and until_s <= end_s:
                deltas[until_s] = deltas.get(until_s, 0.0) - gib
    seen = {row[1]: row for row in samples}
    found: list[Point] = []
    charged_gib, last, last_s = 0.0, (None, None), float("-inf")
    for at_s in sorted({*deltas, *seen}):
        charged_gib += deltas.get(at_s, 0.0)
        row = seen.get(at_s)
        if row is not None:
            last, last_s = (row[5], row[6]), at_s
            found.append(Point(at_s, row[4], *last))
        else:
            held = last if at_s - last_s <= HOLDS_S else (None, None)
            found.append(Point(at_s, max(0.0, round(charged_gib, 6)), *held))
    return found


def _thinned(points: list[Point]) -> list[Point]:
    if len(points) <= MOST_POINTS:
        return points
    size = len(points) / MOST_POINTS
    found = []
    for step in range(MOST_POINTS):
        some = points[int(step * size) : int((step + 1) * size)]
        found.append(
            Point(
                some[len(some) // 2].at_s,
                max(each.charged_gib for each in some),
                max((each.used_gib for each in some if each.used_gib is not None), default=None),
                min((each.live_gib for each in some if each.live_gib is not None), default=None),
            )
        )
    return found


def marks(
    workers: Sequence[tuple[Any, ...]], providers: Sequence[ProviderNight], begin_s: float, end_s: float
) -> tuple[Mark, ...]:
    """Starts of workers, failures, and breakers that opened, in the order of time; of too many starts none."""
    found = [Mark(each[3], "start", f"a worker of {each[1]} was started") for each in workers]
    if len(found) > MOST_MARKS:
        found = []
    for provider in providers:
        found += [Mark(at_s, "breaker", clean(f"{provider.name} broke: {text}")) for at_s, text in provider.opened]
    failed: dict[int, list[str]] = {}
    steps = max((len(each.failed_at) for each in providers), default=0)
    for provider in providers:
        for step, count in enumerate(provider.failed_at):
            if count:
                failed.setdefault(step, []).append(f"{counted(count, 'job')} of {provider.name}")
    width_s = (end_s - begin_s) / steps if steps else 0.0
    for step, those in failed.items():
        more = f" and {len(those) - 3} more providers" if len(those) > 3 else ""
        found.append(Mark(begin_s + (step + 0.5) * width_s, "failure", f"failed: {', '.join(those[:3])}{more}"))
    return tuple(sorted(found, key=lambda mark: mark.at_s))
