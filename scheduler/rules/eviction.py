"""Which workers are stopped for a job that needs their room: the cheapest that suffice, and none that is not needed.

A busy or starting worker, one that a job is bound to, and one that an operator pinned are never among them (P8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from scheduler.model.machine import Machine
from scheduler.model.plan import WorkerView
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim, Standing
from scheduler.rules.placement import placements


def evictable(worker: WorkerView) -> bool:
    """Whether this worker may be stopped for room at all."""
    return worker.state == "ready" and worker.job_id is None and not worker.pinned


def victims(
    demand: Demand,
    machine: Machine,
    claims: Sequence[Claim],
    offered: Sequence[WorkerView],
    returning: Sequence[Claim],
    cost: Callable[[WorkerView], float],
    places: Sequence[Mapping[str, float]] | None = None,
) -> tuple[WorkerView, ...] | None:
    """The workers of `offered` to stop so that the demand is admitted once their memory is back.

    Empty when `returning` (claims whose workers are on their way out already) suffices alone; None when all of them
    together do not. Workers that are not evictable are left out. `places`: where it may go, unless anywhere.
    """
    may_go = [worker for worker in offered if evictable(worker)]
    return cheapest(demand, machine, claims, may_go, returning, cost, places)


def cheapest(
    demand: Demand,
    machine: Machine,
    claims: Sequence[Claim],
    candidates: Sequence[WorkerView],
    away: Sequence[Claim],
    cost: Callable[[WorkerView], float],
    places: Sequence[Mapping[str, float]] | None = None,
) -> tuple[WorkerView, ...] | None:
    """The candidates whose end admits the demand beside all that has left already, by id: over all places the cheapest.

    On each place they are taken by cost per GiB until they suffice; then the dearest that are not needed are spared.
    None when all of them together do not suffice anywhere.
    """
    by_id = {claim.worker_id: claim for claim in claims}
    known = [worker for worker in candidates if worker.id in by_id]
    best: tuple[float, int, list[int]] | None = None
    chosen: tuple[WorkerView, ...] | None = None
    for place in placements(demand, machine) if places is None else places:

        def suffice(those: Sequence[WorkerView], place: Mapping[str, float] = place) -> bool:
            return (
                Standing(machine, claims, away=[*away, *(by_id[worker.id] for worker in those)])
                .verdict(demand, place)
                .admit
            )

        found = _cheapest(place, known, suffice, cost)
        if found is None:
            continue
        price = math.fsum(map(cost, found)), len(found), [worker.id for worker in found]
        if best is None or price < best:
            best, chosen = price, found
        if not found:
            break
    return chosen


def _cheapest(
    place: Mapping[str, float],
    known: Sequence[WorkerView],
    suffice: Callable[[Sequence[WorkerView]], bool],
    cost: Callable[[WorkerView], float],
) -> tuple[WorkerView, ...] | None:
    def gives(worker: WorkerView) -> float:
        return math.fsum(gib for pool, gib in worker.charges.items() if place.get(pool))

    ranked = [worker for worker in known if gives(worker) > 0]
    ranked.sort(key=lambda worker: (cost(worker) / gives(worker), worker.id))
    if not suffice(ranked):
        return None
    chosen: list[WorkerView] = []
    while not suffice(chosen):
        chosen.append(ranked[len(chosen)])
    for worker in sorted(chosen, key=lambda worker: (-cost(worker), worker.id)):
        without = [each for each in chosen if each.id != worker.id]
        if suffice(without):
            chosen = without
    return tuple(sorted(chosen, key=lambda worker: worker.id))
