"""What a head is promised once its window has closed: whose end it waits for, and the room that is kept until then.

The victims are chosen once. Chosen anew at each tick the bound breaks: a set that may gain a member gains one that has
just been sent a long job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.command import called
from scheduler.model.machine import Machine
from scheduler.model.plan import Waiting, WorkerView
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim, Standing
from scheduler.rules.eviction import cheapest
from scheduler.rules.placement import placements
from scheduler.rules.room import fits


@dataclass(frozen=True)
class Reservation:
    """What is kept for one closed head: GiB by pool beyond what its victims give back, and the threads it computes on.

    It binds everybody behind the head in the line. `victims` None = they could not be chosen yet, nothing starts.
    """

    head: Waiting
    victims: frozenset[int] | None
    claim: Claim
    threads: int


def choose(
    demand: Demand,
    machine: Machine,
    claims: Sequence[Claim],
    offered: Sequence[WorkerView],
    back: Sequence[Claim],
    cost_s: Callable[[WorkerView], float],
    places: Sequence[Mapping[str, float]] | None = None,
) -> tuple[WorkerView, ...] | None:
    """The workers whose end a closed head waits for, by id: the cheapest ready ones, else the cheapest of all.

    `back`: claims that come back whatever is chosen, since their workers are on their way out. `cost_s` is what
    waiting for a worker and loading it again costs. None if all of them do not suffice.
    """
    ready = [worker for worker in offered if worker.state == "ready" and worker.job_id is None]
    for candidates in (ready, offered):
        chosen = cheapest(demand, machine, claims, candidates, back, cost_s, places)
        if chosen is not None:
            return chosen
    return None


def reserve(
    head: Waiting,
    demand: Demand,
    machine: Machine,
    claims: Sequence[Claim],
    victims: Sequence[WorkerView] | None,
    back: Sequence[Claim],
    threads: int,
    places: Sequence[Mapping[str, float]] | None = None,
) -> Reservation:
    """What to keep for a head beside what its victims will give back, on the first place that they suffice for.

    `places`: where it may go, unless anywhere.
    """
    by_id = {claim.worker_id: claim for claim in claims}
    away = [*back, *(by_id[worker.id] for worker in victims or () if worker.id in by_id)]
    places, later = placements(demand, machine) if places is None else places, Standing(machine, claims, away=away)
    place = next((each for each in places if later.verdict(demand, each).admit), places[0] if places else {})
    kept = {
        pool: max(0.0, gib - math.fsum(worker.charges.get(pool, 0.0) for worker in victims or ()))
        for pool, gib in place.items()
    }
    name = called(head.slug, head.variant)
    host_gib = demand.host_gib if demand.policy == "required" else math.inf
    fixed = None if victims is None else frozenset(worker.id for worker in victims)
    return Reservation(head, fixed, Claim(0, name, kept, host_gib), threads)


def lanes(demand: Demand, machine: Machine) -> frozenset[str]:
    """The devices that are large enough for a job, or the one pool that it shares with everybody."""
    found: set[str] = set()
    for place in placements(demand, machine):
        if all(_could_hold(machine, pool, gib) for pool, gib in place.items()):
            found |= lanes_of(place)
    return frozenset(found)


def lanes_of(place: Mapping[str, float]) -> frozenset[str]:
    """The devices of one place, or all of it where it has none."""
    return frozenset(pool for pool in place if pool.startswith("device:")) or frozenset(place)


def _could_hold(machine: Machine, pool_id: str, gib: float) -> bool:
    pool = machine.pool(pool_id)
    return pool is not None and (pool.capacity.value is None or fits((gib, pool.reserve_gib), pool.capacity.value))
