"""Which idle workers are stopped for a job that needs their room: as few as suffice, the cheapest to load again.

A busy or starting worker, one that a job is bound to, and one that an operator pinned are never among them (P8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from scheduler.model.machine import Machine
from scheduler.model.plan import WorkerView
from scheduler.model.provider import Provider
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim, decide

UNKNOWN_LOAD_S = 60.0
"""What loading is taken to cost while nobody has measured it: about what a held worker saves (E1)."""

TRIED = 300
"""Sets of one size that are looked at; beyond that all are taken and what is not needed is dropped, smallest first."""


def evictable(worker: WorkerView) -> bool:
    """Whether this worker may be stopped for room at all."""
    return worker.state == "ready" and worker.job_id is None and not worker.pinned


def victims(
    demand: Demand,
    machine: Machine,
    claims: Sequence[Claim],
    idle: Iterable[WorkerView],
    providers: Mapping[tuple[str, str], Provider],
    *,
    returning: Sequence[Claim] = (),
) -> tuple[WorkerView, ...] | None:
    """The workers of `idle` to stop so that the demand is admitted once their memory is back.

    Empty when `returning` (claims whose workers are on their way out already) suffices alone; None when all of them
    together do not. Fewest first, then lowest load time per GiB, then id. Workers that are not evictable are left out.
    """
    by_id = {claim.worker_id: claim for claim in claims}
    offered = [worker for worker in idle if evictable(worker) and worker.id in by_id]
    ranked = sorted(offered, key=lambda worker: (_load_s_per_gib(worker, providers), worker.id))

    def suffice(chosen: Sequence[WorkerView]) -> bool:
        away = [*returning, *(by_id[worker.id] for worker in chosen)]
        return decide(demand, machine, claims, away=away).admit

    if not suffice(ranked):
        return None
    largest = sorted(ranked, key=_gib, reverse=True)
    for size in range(len(ranked) + 1):
        if not suffice(largest[:size]):
            continue
        if math.comb(len(ranked), size) > TRIED:
            break
        enough = [chosen for chosen in combinations(ranked, size) if suffice(chosen)]
        return _needed(min(enough, key=lambda chosen: _cost(chosen, providers)), suffice)
    return _needed(ranked, suffice)


def _needed(chosen: Sequence[WorkerView], suffice: Callable[[Sequence[WorkerView]], bool]) -> tuple[WorkerView, ...]:
    """Those of the chosen without whom it would not suffice; the smallest are spared first."""
    kept = sorted(chosen, key=lambda worker: (_gib(worker), worker.id))
    for worker in list(kept):
        without = [each for each in kept if each.id != worker.id]
        if suffice(without):
            kept = without
    return tuple(sorted(kept, key=lambda worker: worker.id))


def _gib(worker: WorkerView) -> float:
    return math.fsum(worker.charges.values())


def _cost(chosen: Sequence[WorkerView], providers: Mapping[tuple[str, str], Provider]) -> tuple[float, list[int]]:
    return math.fsum(_load_s_per_gib(worker, providers) for worker in chosen), [worker.id for worker in chosen]


def _load_s_per_gib(worker: WorkerView, providers: Mapping[tuple[str, str], Provider]) -> float:
    provider = providers.get((worker.slug, worker.variant))
    load_s = provider.load_s if provider is not None and provider.load_s is not None else UNKNOWN_LOAD_S
    return load_s / max(1e-9, _gib(worker))
