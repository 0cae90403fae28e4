"""What would let a demand in: of all changes that would, the gentlest, then the fewest, then the smallest.

Computed on what is held, never guessed. Gentle is what happens by itself (memory on its way back), then idle workers
that go, then what has to be waited for, then what only people can change: an unpinned worker, memory that leaked,
somebody else's process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.model.machine import Holding, Machine
from scheduler.model.plan import WorkerView
from scheduler.model.verdict import Demand, PoolEvidence, Verdict
from scheduler.rules.admission import Claim, Standing, nobodys_gib, over_gib, part_of, short_gib
from scheduler.rules.cover import Thing, price, smallest
from scheduler.rules.eviction import evictable
from scheduler.rules.placement import placements
from scheduler.rules.room import SLACK_GIB, fits

KINDS = ("return", "retire", "wait", "unpin", "heal", "stop")
"""Kinds of change to what is held, the gentlest first."""


@dataclass(frozen=True)
class Change:
    """One thing that would have to change. GiB, by pool.

    Of holders: `return` (its memory is on its way back), `retire` (an idle worker of ours), `wait` (one that is busy
    or comes up), `unpin` (an idle one that is pinned), `heal` (memory that a worker of ours did not give back), `stop`
    (somebody else's process; `known` False: or a budget is declared for it). Else `free` (that much more has to be
    free when all of those have left) and `budget` (the most that could ever fit).
    """

    what: str
    name: str = ""
    gib: Mapping[str, float] = field(default_factory=dict)
    worker_id: int | None = None
    pid: int | None = None
    job_id: int | None = None
    idle_s: float | None = None
    known: bool = True


@dataclass(frozen=True)
class _Leaver:
    """Somebody who could leave: a claim of ours, or a holding of others."""

    change: Change
    claim: Claim | None = None
    holding: Holding | None = None

    @property
    def competes(self) -> bool:
        return self.claim.competes if self.claim is not None else bool(self.holding and self.holding.competes)

    def giving(self, pools: set[str]) -> _Leaver:
        """The same, told of what it gives to these pools alone."""
        gib = {pool: gib for pool, gib in self.change.gib.items() if pool in pools}
        return replace(self, change=replace(self.change, gib=gib))

    def thing(self, gives: tuple[float, ...]) -> Thing:
        return Thing(KINDS.index(self.change.what), gives, math.fsum(self.change.gib.values()))


def remedy(
    verdict: Verdict, machine: Machine, claims: Sequence[Claim], workers: Sequence[WorkerView]
) -> tuple[Change, ...]:
    """The smallest change that would admit what this verdict did not.

    Empty when it admits, and where no change of what is held helps: a missing budget, device or reading. `claims` and
    `workers` are those that the verdict was made from.
    """
    demand = verdict.evidence.demand
    if verdict.admit or verdict.ruling in ("undeclared", "no_device", "unreadable"):
        return ()
    if verdict.ruling == "too_big":
        return _largest(verdict)
    best: tuple[tuple[float, ...], list[_Leaver]] | None = None
    for place in placements(demand, machine):
        leavers = _leavers(place, machine, claims, workers)
        for found in (_fewest(demand, place, machine, claims, leavers, alone) for alone in (False, True)):
            if found is None:
                continue
            cost = price([each.thing(()) for each in found])
            if best is None or cost < best[0]:
                best = cost, found
    if best is not None:
        return tuple(each.change for each in best[1])
    return _lacking(demand, machine, claims, workers)


def _leavers(
    place: Mapping[str, float], machine: Machine, claims: Sequence[Claim], workers: Sequence[WorkerView]
) -> list[_Leaver]:
    """Who is on the place's pools, or competes for their memory, and could leave; by worker id, then pid."""
    by_id = {worker.id: worker for worker in workers}
    found = []
    for claim in claims:
        held = {pool: part_of(claim, pool, pool.partition(":")[0], machine)[0].charge_gib or 0.0 for pool in place}
        gib = {pool: gib for pool, gib in held.items() if gib}
        if claim.worker_id and (gib or claim.competes):
            found.append(_Leaver(_of_ours(claim, by_id.get(claim.worker_id), gib), claim))
    for holding in machine.others:
        parts = {pool: holding.parts[pool] for pool in place if pool in holding.parts}
        gib = {pool: max(part.charge_gib or 0.0, part.used_gib) for pool, part in parts.items()}
        known = all(part.charge_gib is not None for part in parts.values())
        if holding.pid and (parts or holding.competes):
            found.append(_Leaver(Change("stop", holding.told, gib, pid=holding.pid, known=known), None, holding))
    return found


def _of_ours(claim: Claim, worker: WorkerView | None, gib: Mapping[str, float]) -> Change:
    what, idle_s = "wait", None
    if worker is None or claim.gone:
        what = "heal" if claim.stays else "return"
    elif worker.state == "retiring":
        what = "return"
    elif worker.state == "ready" and worker.job_id is None:
        what, idle_s = ("retire" if evictable(worker) else "unpin"), worker.idle_s
    return Change(what, claim.name, gib, claim.worker_id, None, worker.job_id if worker else None, idle_s)


def _fewest(
    demand: Demand, place: Mapping[str, float], machine: Machine, claims: Sequence[Claim], leavers: Sequence[_Leaver],
    alone: bool,
) -> list[_Leaver] | None:  # fmt: skip
    """The smallest set of leavers that admits on this place; None if there is none.

    `alone`: everybody who competes leaves too, so that what the cache would give back counts (E3, E4).
    """
    must = [each for each in leavers if not each.change.known or (alone and each.competes)]
    may = [each for each in leavers if each not in must]
    away = [each.claim for each in must if each.claim is not None]
    gone = [each.holding for each in must if each.holding is not None]
    found = Standing(machine, claims, away=away, gone=gone).verdict(demand, place)
    if found.ruling not in ("admit", "pool_full", "no_room_now"):
        return None
    stands = found.evidence.placement
    needs = [need for pool in stands for need in _needs(pool)]
    lacking = {pool.pool for pool in stands if max(_needs(pool)) > 0.0}
    tries: list[list[_Leaver]] = []
    for nobodys in (True, False):
        gains = [
            tuple(gain for pool in stands for gain in _gains(each, pool, machine, nobodys=nobodys)) for each in may
        ]
        chosen = smallest([each.thing(gain) for each, gain in zip(may, gains, strict=True)], needs)
        if chosen is not None:
            tries.append([may[n] for n in chosen])
    for some in (*tries, may):
        if _admits(demand, place, machine, claims, [*must, *some]):
            needed = _without_spare(demand, place, machine, claims, must, some)
            return [*must, *(each.giving(lacking) for each in needed)]
    return None


def _without_spare(
    demand: Demand, place: Mapping[str, float], machine: Machine, claims: Sequence[Claim], must: Sequence[_Leaver],
    some: Sequence[_Leaver],
) -> list[_Leaver]:  # fmt: skip
    """Those of some who suffice, less whoever is not needed: the harshest first, then the largest."""
    needed = list(some)
    for each in sorted(some, key=lambda each: (-each.thing(()).kind, -each.thing(()).size)):
        rest = [other for other in needed if other is not each]
        if _admits(demand, place, machine, claims, [*must, *rest]):
            needed = rest
    return needed


def _admits(
    demand: Demand, place: Mapping[str, float], machine: Machine, claims: Sequence[Claim], left: Sequence[_Leaver]
) -> bool:
    """Whether it is admitted when those have left: what is on nobody's name goes once, however many may have it."""
    away = [each.claim for each in left if each.claim is not None]
    gone = [each.holding for each in left if each.holding is not None]
    return Standing(machine, claims, away=away, gone=gone).verdict(demand, place).admit


def _needs(pool: PoolEvidence) -> tuple[float, float]:
    """What has to be given back for the sum of the charges, and for the live reading. Half the slack is kept."""
    return over_gib(pool) - SLACK_GIB / 2, short_gib(pool) - SLACK_GIB / 2


def _gains(leaver: _Leaver, pool: PoolEvidence, machine: Machine, *, nobodys: bool) -> tuple[float, float]:
    """What a leaver takes off the sum of the charges, and off what the live reading has to cover.

    `nobodys`: with what is on nobody's name and may be its.
    """
    if leaver.claim is not None:
        held, back_gib = part_of(leaver.claim, pool.pool, pool.kind, machine)
        charge_gib = held.charge_gib or 0.0
        more_gib = min(charge_gib, nobodys_gib(leaver.claim, pool.pool, machine)) if nobodys else 0.0
        return charge_gib + more_gib, back_gib + held.owed_gib
    part = leaver.holding.parts.get(pool.pool) if leaver.holding is not None else None
    return (part.charge_gib or 0.0, part.used_gib + part.owed_gib) if part is not None else (0.0, 0.0)


def _largest(verdict: Verdict) -> tuple[Change, ...]:
    """The most that each pool which is too small could ever take."""
    found = []
    for pool in verdict.evidence.placement:
        if not fits((pool.demand_gib, pool.reserve_gib), pool.capacity.value or 0.0):
            most_gib = max(0.0, (pool.capacity.value or 0.0) - pool.reserve_gib)
            found.append(Change("budget", pool.pool, {pool.pool: most_gib}))
    return tuple(found)


def _lacking(
    demand: Demand, machine: Machine, claims: Sequence[Claim], workers: Sequence[WorkerView]
) -> tuple[Change, ...]:
    """What is still missing where least is, when everybody who could leave has left."""
    best: tuple[float, tuple[Change, ...]] | None = None
    for place in placements(demand, machine):
        leavers = _leavers(place, machine, claims, workers)
        away = [each.claim for each in leavers if each.claim is not None]
        gone = [each.holding for each in leavers if each.holding is not None]
        found = Standing(machine, claims, away=away, gone=gone).verdict(demand, place)
        if found.ruling not in ("pool_full", "no_room_now"):
            continue
        lacks = {pool.pool: max(_needs(pool)) + SLACK_GIB / 2 for pool in found.evidence.placement}
        changes = tuple(Change("free", pool, {pool: gib}) for pool, gib in lacks.items() if gib > 0.0)
        total_gib = math.fsum(gib for gib in lacks.values() if gib > 0.0)
        if changes and (best is None or total_gib < best[0]):
            best = total_gib, changes
    return best[1] if best is not None else ()
