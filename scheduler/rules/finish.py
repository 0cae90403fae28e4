"""When a queue should be done: whole groups of jobs laid beside and after one another, as far as memory lets them.

Rougher than the scheduler's own forecast, and for jobs that are not there yet: it rests on means and on what providers
declare, and promises nothing. Seconds from this moment on; GiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, fsum, inf, isfinite


@dataclass(frozen=True)
class Group:
    """Jobs of one provider that wait together. `run_s` is None where none of its jobs was seen to end well, `load_s`
    where none of its workers was seen to load.
    """

    key: tuple[str, str]
    jobs: int
    run_s: float | None
    load_s: float | None = 0.0
    workers: int = 1
    gib: dict[str, float] = field(default_factory=dict)
    """What one worker takes of each kind of pool."""
    priority: int = 0
    begin_s: float = 0.0
    """From when on it may start."""

    def lasts_s(self) -> float:
        """From its start to its end, its workers side by side; infinite if nobody can tell."""
        if self.load_s is None or self.run_s is None:
            return inf
        return self.load_s + ceil(self.jobs / self._side_by_side()) * self.run_s

    def takes(self, kind: str) -> float:
        """GiB of a kind of pool that its workers hold together."""
        return self.gib.get(kind, 0.0) * self._side_by_side()

    def _side_by_side(self) -> int:
        return max(1, min(self.workers, self.jobs))


def ends_s(groups: list[Group], room_gib: dict[str, float]) -> dict[tuple[str, str], float]:
    """When the last job of each provider should have ended; a provider of which nobody can tell that is not named.

    A group starts as soon as what it takes is free in `room_gib` (GiB of each kind of pool that may be charged; a kind
    that is not named has room for all), higher priority first, else in the order given; one that needs more than there
    is starts when nothing else runs. What nobody saw load or run keeps its room without end.
    """
    waiting = sorted((each for each in groups if each.jobs), key=lambda each: -each.priority)
    running: list[tuple[float, Group]] = []
    ends: dict[tuple[str, str], float] = {}
    now_s = 0.0
    while waiting or running:
        for group in list(waiting):
            if group.begin_s > now_s or (running and not _fits(group, [each for _, each in running], room_gib)):
                continue
            waiting.remove(group)
            end_s = now_s + group.lasts_s()
            running.append((end_s, group))
            ends[group.key] = max(end_s, ends.get(group.key, 0.0))
        later = [each.begin_s for each in waiting if each.begin_s > now_s]
        now_s = min([end_s for end_s, _ in running] + later, default=inf)
        if now_s == inf:
            break
        running = [each for each in running if each[0] > now_s]
    never = {each.key for each in waiting}
    return {key: end_s for key, end_s in ends.items() if isfinite(end_s) and key not in never}


def _fits(group: Group, running: list[Group], room_gib: dict[str, float]) -> bool:
    return all(
        fsum([group.takes(kind), *(each.takes(kind) for each in running)]) <= room
        for kind, room in room_gib.items()
        if group.takes(kind)
    )
