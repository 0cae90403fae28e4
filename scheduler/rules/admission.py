"""Whether one more worker may be started: the gates, in their order, over every number that they need.

The gates cover different unknowns. Sums of charges protect against peaks that have not happened yet (E2: four
held workers and a fifth start wedged a host with every number known). The live reading protects against everything
that is no worker at all; what holders will still touch is subtracted from it, or two starts together would both pass
on one free figure. Which live reading counts depends on who competes for reclaim: losing that race to somebody is
how a start admitted on 60 GiB available and 5 free died (E4), while alone it was won (E3, once, at one size).
A worker that was told to stop and a lease whose memory is not back are charged like any other (P3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.model.command import EXEC, called
from scheduler.model.machine import Held, Holding, Machine, Part, Pool, Reading, is_amount
from scheduler.model.plan import LeaseView, Snapshot
from scheduler.model.verdict import Demand, Evidence, PoolEvidence, Verdict
from scheduler.rules.placement import placements, whole_of
from scheduler.rules.room import fits

Stands = tuple[Pool, tuple[Held, ...], Reading, float, float]
"""A pool, who holds it, its live reading, and what is charged and owed there. GiB."""

LEFT = {False: "gone, its memory is not back yet", True: "gone, its memory leaked"}
"""What is said of a claim whose worker is gone, by whether it is taken for leaked."""

HOPE = ("undeclared", "no_device", "too_big", "unreadable", "unknown_holding", "pool_full", "no_room_now", "admit")
"""Rulings from the one that waiting helps least: of several places the most hopeful is told."""


@dataclass(frozen=True)
class Claim:
    """What one worker of this queue is charged for. `worker_id` 0 = none yet: room kept for a start.

    `host_gib` is the part of a unified charge that is host memory. `competes`: it loads or computes now.
    `gone`: nobody lives who could touch more; the memory is only not back yet. `stays`: nothing that the queue does
    brings it back (pinned, leaked).
    """

    worker_id: int
    name: str
    charges: Mapping[str, float]
    host_gib: float = 0.0
    competes: bool = False
    gone: bool = False
    stays: bool = False


def claims_of(snapshot: Snapshot) -> tuple[Claim, ...]:
    """The charges of all workers of this queue and of its leases without a worker, by worker id.

    The machine's own memory is one, whether it is taken for `host` or for `unified`: a charge on the one counts on the
    other where only that is there (a driver that errs at start-up, the operator's word).
    """
    found = []
    for worker in snapshot.workers:
        provider = snapshot.providers.get((worker.slug, worker.variant))
        host_gib = provider.ram_gib if provider is not None else 0.0
        host_gib = host_gib if worker.host_gib is None else worker.host_gib
        if provider is not None and provider.policy != "required":
            host_gib = math.inf
        competes = worker.state in ("starting", "busy")
        name = called(worker.slug, worker.variant)
        charges = _moved(worker.charges, snapshot.machine)
        charges = whole_of(charges, snapshot.machine) if worker.alone and worker.slug == EXEC else charges
        found.append(Claim(worker.id, name, charges, host_gib, competes, stays=worker.pinned))
    by_worker: dict[int, list[LeaseView]] = {}
    for lease in snapshot.leases:
        by_worker.setdefault(lease.worker_id, []).append(lease)
    for worker_id, leases in by_worker.items():
        pools = {
            lease.pool: math.fsum(each.charge_gib for each in leases if each.pool == lease.pool) for lease in leases
        }
        leaked = any(lease.state == "leaked" for lease in leases)
        found.append(Claim(worker_id, leases[0].slug, _moved(pools, snapshot.machine), gone=True, stays=leaked))
    return tuple(sorted(found, key=lambda claim: claim.worker_id))


def _moved(charges: Mapping[str, float], machine: Machine) -> Mapping[str, float]:
    for pool_id, other in (("unified", "host"), ("host", "unified")):
        if pool_id in charges and machine.pool(pool_id) is None and machine.pool(other) is not None:
            moved = {pool: gib for pool, gib in charges.items() if pool != pool_id}
            return {**moved, other: math.fsum((charges[pool_id], moved.get(other, 0.0)))}
    return charges


def decide(demand: Demand, machine: Machine, claims: Iterable[Claim], *, away: Sequence[Claim] = ()) -> Verdict:
    """Whether one more worker fits beside `claims` and every holding of others; arguments as of `Standing`."""
    return Standing(machine, claims, away=away).decide(demand)


def confirm(
    demand: Demand, place: Mapping[str, float], machine: Machine, claims: Sequence[Claim], itself: int
) -> Verdict:
    """The verdict anew for a parked worker, on the place that it was parked for, now that all can see its claim."""
    return Standing(machine, claims, itself=itself).verdict(demand, place)


def leavers(claims: Iterable[Claim]) -> list[Claim]:
    """The claims whose workers the queue could end."""
    return [claim for claim in claims if not claim.stays]


def part_of(claim: Claim, pool_id: str, kind: str, machine: Machine) -> tuple[Held, float]:
    """What a claim is to one pool, and the GiB that its leaving gives back to the live reading."""
    holding = machine.ours.get(claim.worker_id)
    part = holding.parts.get(pool_id) if holding is not None else None
    charge_gib = claim.charges.get(pool_id)
    if charge_gib is not None:
        return _claimed(claim, charge_gib, kind, part), _used(holding, pool_id, claim)
    used_gib = part.used_gib if part is not None else 0.0
    return Held(claim.name, used_gib, used_gib, 0.0), used_gib


class Standing:
    """Everything that is held on a machine at one moment, summed once for every demand that is put to it.

    `claims` are the charges of this queue. `away`: claims, and `gone`: holdings of others, that are imagined to have
    left, what they use given back. `itself`: the parked worker that is decided for, whose own claim must not stand in
    its way.
    """

    def __init__(
        self,
        machine: Machine,
        claims: Iterable[Claim],
        *,
        away: Sequence[Claim] = (),
        gone: Sequence[Holding] = (),
        itself: int = 0,
    ) -> None:
        self.machine = machine
        left = {claim.worker_id for claim in away}
        left.add(itself)
        left.discard(0)
        self._claims = [claim for claim in claims if claim.worker_id not in left]
        self._away, self._gone = away, gone
        self._ours = machine.ours
        unclaimed = self._ours.keys() - left - {claim.worker_id for claim in self._claims}
        self._forgotten = [self._ours[worker_id] for worker_id in sorted(unclaimed)]
        self._competing = machine.competing
        if gone and self._competing is not None:
            self._competing -= sum(bool(holding.competes) for holding in gone)
        if self._competing is not None:
            self._competing += sum(claim.competes for claim in self._claims)
        self._pools: dict[str, Stands] = {}

    def decide(self, demand: Demand) -> Verdict:
        """The first place that admits, in the machine's order; if none does, the ruling of the most hopeful one.

        Of several equally hopeful it is the one that lacks least. Pure: the verdict carries every number, `rule` gives
        the same ruling from them again.
        """
        best: Verdict | None = None
        places = placements(demand, self.machine) or ({},)
        for place in places:
            verdict = self.verdict(demand, place, len(places))
            if verdict.admit:
                return verdict
            if best is None or _hope(verdict) > _hope(best):
                best = verdict
        assert best is not None
        return best

    def verdict(self, demand: Demand, place: Mapping[str, float], places: int = 1) -> Verdict:
        """The ruling on one place, and every number that it rests on. `places` is how many there are."""
        found = []
        for pool_id, gib in place.items():
            stands = self._pools.get(pool_id)
            if stands is None:
                stands = self._pools[pool_id] = self._stands(pool_id)
            pool, held, live, charged_gib, owed_gib = stands
            closed = next((each.why for each in self.machine.closed if each.pool == pool.id), "")
            found.append(
                PoolEvidence(
                    pool.id, pool.kind, gib, pool.capacity, pool.reserve_gib, held, live, charged_gib, owed_gib, closed
                )
            )
        machine = self.machine
        devices = machine.accelerators if demand.count == 1 else machine.for_several
        evidence = Evidence(demand, tuple(found), devices, self._competing, machine.holdings_missing, places)
        return Verdict(evidence, rule(evidence))

    def _stands(self, pool_id: str) -> Stands:
        pool = self.machine.pool(pool_id) or _missing(pool_id)
        held = []
        for claim in self._claims:
            holding = self._ours.get(claim.worker_id)
            part = holding.parts.get(pool_id) if holding is not None else None
            charge_gib = claim.charges.get(pool_id)
            if charge_gib is not None:
                held.append(_claimed(claim, charge_gib, pool.kind, part))
            elif part is not None and part.used_gib:
                held.append(Held(claim.name, part.used_gib, part.used_gib, 0.0))
        held += [each.held(each.parts[pool_id]) for each in self._forgotten if pool_id in each.parts]
        held += self._of_others(pool_id)
        back_gib = 0.0
        if self._away or self._gone:
            back_gib = math.fsum(_used(self._ours.get(claim.worker_id), pool_id, claim) for claim in self._away)
            back_gib += math.fsum(h.parts[pool_id].used_gib for h in self._gone if pool_id in h.parts)
        charged_gib = math.fsum([each.charge_gib or 0.0 for each in held])
        owed_gib = math.fsum([each.owed_gib for each in held])
        return pool, tuple(held), _live(pool, self._competing, back_gib), charged_gib, owed_gib

    def _of_others(self, pool_id: str) -> Sequence[Held]:
        """What others hold of a pool. Memory on nobody's name may be that of our own workers there whom the driver does
        not tell: when those have left, as much of it as they were charged is imagined to have gone with them. What a
        worker that is gone did not give back is on nobody's name, and charged to it already: nobody grows into it.
        """
        ghosts = [claim for claim in self._claims if claim.gone and pool_id in claim.charges]
        if not self._gone and not self._away and not ghosts:
            return self.machine.held_by_others.get(pool_id, ())
        unseen_gib = math.fsum(
            claim.charges.get(pool_id, 0.0)
            for claim in (*self._away, *ghosts)
            if not _seen(self._ours.get(claim.worker_id), pool_id)
        )
        held = []
        for other in self.machine.others:
            part = other.parts.get(pool_id)
            if part is None or other in self._gone:
                continue
            if not other.pid and unseen_gib:
                left_gib = max(0.0, (part.charge_gib or 0.0) - unseen_gib)
                part = part._replace(charge_gib=left_gib, used_gib=left_gib)
            held.append(other.held(part))
        return held


def nobodys_gib(claim: Claim, pool_id: str, machine: Machine) -> float:
    """What of a pool is on nobody's name and may be this claim's, whose use no driver tells. GiB.

    Of one that is gone nothing: as much as it is charged is taken for its own already.
    """
    if claim.gone or pool_id not in claim.charges or _seen(machine.ours.get(claim.worker_id), pool_id):
        return 0.0
    parts = (other.parts.get(pool_id) for other in machine.others if not other.pid)
    return math.fsum(part.charge_gib or 0.0 for part in parts if part is not None)


def _seen(holding: Holding | None, pool_id: str) -> bool:
    part = holding.parts.get(pool_id) if holding is not None else None
    return part is not None and part.seen


def rule(evidence: Evidence) -> str:
    """The ruling that follows from the evidence alone: `admit`, or the first gate that closed."""
    demand, places = evidence.demand, evidence.placement
    required = demand.policy == "required"
    if not is_amount(demand.host_gib) or (required and not is_amount(demand.device_gib)):
        return "undeclared"
    if required and not any(place.kind in ("unified", "device") for place in places):
        devices = evidence.accelerators.value
        if devices is None or not 0 <= devices < demand.count:
            return "unreadable"
        return "too_big" if devices else "no_device"
    if not places or evidence.holdings_missing:
        return "unreadable"
    if required and evidence.accelerators.failed and not any(place.kind == "device" for place in places):
        return "unreadable"  # a driver that errs leaves other vendors' devices as readable as they are
    if any(not _known(place.capacity) or not _known(place.live) for place in places):
        return "unreadable"
    return next((ruling for ruling, closed in GATES if any(map(closed, places))), "admit")


def _hope(verdict: Verdict) -> tuple[int, float]:
    """How little stands in the way of it: its ruling, then what the pools of its place lack."""
    lacks = LACKS.get(verdict.ruling)
    return HOPE.index(verdict.ruling), -max(map(lacks, verdict.evidence.placement), default=0.0) if lacks else 0.0


def beyond_gib(place: PoolEvidence) -> float:
    """What the demand and the reserve are together more than the whole pool; below 0 = it could fit one day."""
    return math.fsum((place.demand_gib, place.reserve_gib, -(place.capacity.value or 0.0)))


def over_gib(place: PoolEvidence) -> float:
    """What the charges, the demand and the reserve are together more than the pool has; below 0 = they fit."""
    return math.fsum((place.charged_gib, place.demand_gib, place.reserve_gib, -(place.capacity.value or 0.0)))


def short_gib(place: PoolEvidence) -> float:
    """What the demand, the reserve and what is still owed are together more than is live; below 0 = they fit."""
    return math.fsum((place.owed_gib, place.demand_gib, place.reserve_gib, -(place.live.value or 0.0)))


LACKS = {"too_big": beyond_gib, "pool_full": over_gib, "no_room_now": short_gib}


def _missing(pool_id: str) -> Pool:
    nothing = Reading(None, "", f"there is no pool {pool_id}")
    return Pool(pool_id, pool_id.partition(":")[0], nothing, 0.0, nothing, nothing)


def _known(reading: Reading) -> bool:
    return reading.value is not None and math.isfinite(reading.value)


def _too_big(place: PoolEvidence) -> bool:
    return not fits((place.demand_gib, place.reserve_gib), place.capacity.value or 0.0)


def _unknown(place: PoolEvidence) -> bool:
    return any(each.charge_gib is None for each in place.held)


def _full(place: PoolEvidence) -> bool:
    asked = (place.charged_gib, place.demand_gib, place.reserve_gib)
    return not fits(asked, place.capacity.value or 0.0)


def _no_room(place: PoolEvidence) -> bool:
    asked = (place.owed_gib, place.demand_gib, place.reserve_gib)
    return place.closed != "" or not fits(asked, place.live.value or 0.0)


GATES = (("too_big", _too_big), ("unknown_holding", _unknown), ("pool_full", _full), ("no_room_now", _no_room))


def _live(pool: Pool, competing: int | None, back_gib: float) -> Reading:
    """A device's own free memory; of host and unified memory what is free when somebody competes, else available."""
    reading = pool.free if pool.kind == "device" or competing != 0 else pool.available
    if reading.value is None or not back_gib:
        return reading
    return replace(reading, value=reading.value + back_gib)


def _claimed(claim: Claim, charge_gib: float, kind: str, part: Part | None) -> Held:
    """A worker of ours on one pool. On unified memory both of its parts are owed apart: one never pays the other."""
    used_gib = part.used_gib if part is not None else 0.0
    if claim.gone:
        return Held(f"{claim.name} ({LEFT[claim.stays]})", charge_gib, used_gib, 0.0)
    if kind != "unified":
        return Held(claim.name, charge_gib, used_gib, max(0.0, charge_gib - used_gib))
    host_gib = min(charge_gib, claim.host_gib)
    on_device_gib = part.on_device_gib if part is not None else 0.0
    on_host_gib = used_gib - on_device_gib
    owed_gib = max(0.0, charge_gib - host_gib - on_device_gib) + max(0.0, host_gib - on_host_gib)
    return Held(claim.name, charge_gib, used_gib, owed_gib)


def _used(holding: Holding | None, pool_id: str, claim: Claim) -> float:
    """What comes back to the live reading when this claim leaves: what it was seen to use; unseen, its charge."""
    part = holding.parts.get(pool_id) if holding is not None else None
    return part.used_gib if part is not None and part.seen else claim.charges.get(pool_id, 0.0)
