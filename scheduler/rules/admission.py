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

from scheduler.model.machine import Holding, Machine, Pool, Reading
from scheduler.model.plan import LeaseView, Snapshot
from scheduler.model.verdict import Demand, Evidence, Held, PoolEvidence, Verdict
from scheduler.rules.placement import placements
from scheduler.rules.room import fits

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
    """The charges of all workers of this queue and of its leases without a worker, by worker id."""
    found = []
    for worker in snapshot.workers:
        provider = snapshot.providers.get((worker.slug, worker.variant))
        host_gib = provider.ram_gib if provider is not None else 0.0
        if provider is not None and provider.policy != "required":
            host_gib = math.inf
        competes = worker.state in ("starting", "busy")
        name = f"{worker.slug}:{worker.variant}" if worker.variant else worker.slug
        found.append(Claim(worker.id, name, worker.charges, host_gib, competes, stays=worker.pinned))
    by_worker: dict[int, list[LeaseView]] = {}
    for lease in snapshot.leases:
        by_worker.setdefault(lease.worker_id, []).append(lease)
    for worker_id, leases in by_worker.items():
        pools = {
            lease.pool: math.fsum(each.charge_gib for each in leases if each.pool == lease.pool) for lease in leases
        }
        leaked = any(lease.state == "leaked" for lease in leases)
        found.append(Claim(worker_id, leases[0].slug, pools, gone=True, stays=leaked))
    return tuple(sorted(found, key=lambda claim: claim.worker_id))


def decide(
    demand: Demand, machine: Machine, claims: Iterable[Claim], *, away: Sequence[Claim] = (), itself: int = 0
) -> Verdict:
    """Whether one more worker fits beside `claims` and every holding of others; arguments as of `Standing`."""
    return Standing(machine, claims, away=away, itself=itself).decide(demand)


def confirm(
    demand: Demand, place: Mapping[str, float], machine: Machine, claims: Sequence[Claim], itself: int
) -> Verdict:
    """The verdict anew for a parked worker, on the place that it was parked for, now that all can see its claim."""
    return Standing(machine, claims, itself=itself).verdict(demand, place)


def leavers(claims: Iterable[Claim]) -> list[Claim]:
    """The claims whose workers the queue could end."""
    return [claim for claim in claims if not claim.stays]


class Standing:
    """Everything that is held on a machine at one moment, summed once for every demand that is put to it.

    `claims` are the charges of this queue. `away`: claims that are imagined to have left, what they use given back.
    `itself`: the parked worker that is decided for, whose own claim must not stand in its way.
    """

    def __init__(
        self, machine: Machine, claims: Iterable[Claim], *, away: Sequence[Claim] = (), itself: int = 0
    ) -> None:
        self.machine = machine
        left = {claim.worker_id for claim in away}
        self._away = away
        self._claims = [c for c in claims if c.worker_id == 0 or (c.worker_id not in left and c.worker_id != itself)]
        self._ours = {holding.worker_id: holding for holding in machine.holdings if holding.worker_id is not None}
        counted = {claim.worker_id for claim in (*self._claims, *away)} | {itself}
        self._others = [each for each in machine.holdings if each.worker_id is None or each.worker_id not in counted]
        self._competing = machine.competing
        if self._competing is not None:
            self._competing += sum(claim.competes for claim in self._claims)
        self._pools: dict[str, PoolEvidence] = {}

    def decide(self, demand: Demand) -> Verdict:
        """The first place that admits, in the machine's order; if none does, the ruling of the most hopeful one.

        Pure: the verdict carries every number, `rule` gives the same ruling from them again.
        """
        best: Verdict | None = None
        for place in placements(demand, self.machine) or ({},):
            verdict = self.verdict(demand, place)
            if verdict.admit:
                return verdict
            if best is None or HOPE.index(verdict.ruling) > HOPE.index(best.ruling):
                best = verdict
        assert best is not None
        return best

    def verdict(self, demand: Demand, place: Mapping[str, float]) -> Verdict:
        """The ruling on one place, and every number that it rests on."""
        found = []
        for pool_id, gib in place.items():
            stands = self._pools.get(pool_id)
            if stands is None:
                stands = self._pools[pool_id] = self._stands(pool_id)
            found.append(
                PoolEvidence(
                    stands.pool,
                    stands.kind,
                    gib,
                    stands.capacity,
                    stands.reserve_gib,
                    stands.held,
                    stands.live,
                    stands.charged_gib,
                    stands.owed_gib,
                )
            )
        machine = self.machine
        evidence = Evidence(demand, tuple(found), machine.accelerators, self._competing, machine.holdings_missing)
        return Verdict(evidence, rule(evidence))

    def _stands(self, pool_id: str) -> PoolEvidence:
        pool = self.machine.pool(pool_id) or _missing(pool_id)
        held = [
            _claimed(claim, pool, self._ours.get(claim.worker_id)) for claim in self._claims if pool_id in claim.charges
        ]
        held += [_held(holding, pool_id) for holding in self._others if any(c.pool == pool_id for c in holding.charges)]
        back_gib = math.fsum(_used(self._ours.get(claim.worker_id), pool_id, claim) for claim in self._away)
        return PoolEvidence(
            pool=pool_id,
            kind=pool.kind,
            demand_gib=0.0,
            capacity=pool.capacity,
            reserve_gib=pool.reserve_gib,
            held=tuple(held),
            live=_live(pool, self._competing, back_gib),
            charged_gib=math.fsum(each.charge_gib or 0.0 for each in held),
            owed_gib=math.fsum(each.owed_gib for each in held),
        )


def rule(evidence: Evidence) -> str:
    """The ruling that follows from the evidence alone: `admit`, or the first gate that closed."""
    demand, places = evidence.demand, evidence.placement
    required = demand.policy == "required"
    if required and demand.device_gib is None:
        return "undeclared"
    if required and not any(place.kind in ("unified", "device") for place in places):
        devices = evidence.accelerators.value
        if devices is None or not 0 <= devices < demand.count:
            return "unreadable"
        return "too_big" if devices else "no_device"
    if not places or evidence.holdings_missing or (required and evidence.accelerators.failed):
        return "unreadable"
    if any(not _known(place.capacity) or not _known(place.live) for place in places):
        return "unreadable"
    return next((ruling for ruling, closed in GATES if any(map(closed, places))), "admit")


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
    return not fits((place.owed_gib, place.demand_gib, place.reserve_gib), place.live.value or 0.0)


GATES = (("too_big", _too_big), ("unknown_holding", _unknown), ("pool_full", _full), ("no_room_now", _no_room))


def _live(pool: Pool, competing: int | None, back_gib: float) -> Reading:
    """A device's own free memory; of host and unified memory what is free when somebody competes, else available."""
    reading = pool.free if pool.kind == "device" or competing != 0 else pool.available
    if reading.value is None or not back_gib:
        return reading
    return replace(reading, value=reading.value + back_gib)


def _owed(charge_gib: float, used_gib: float) -> float:
    return max(0.0, charge_gib - used_gib)


def _claimed(claim: Claim, pool: Pool, holding: Holding | None) -> Held:
    """A worker of ours on one pool. On unified memory both of its parts are owed apart: one never pays the other."""
    charge_gib = claim.charges[pool.id]
    seen = [charge for charge in holding.charges if charge.pool == pool.id] if holding is not None else []
    used = math.fsum(charge.used_gib or 0.0 for charge in seen)
    if claim.gone:
        return Held(claim.name, charge_gib, used, 0.0)
    if pool.kind != "unified":
        return Held(claim.name, charge_gib, used, _owed(charge_gib, used))
    host_gib = min(charge_gib, claim.host_gib)
    on_device = math.fsum(charge.used_gib or 0.0 for charge in seen if charge.part == "device")
    owed = _owed(charge_gib - host_gib, on_device) + _owed(host_gib, used - on_device)
    return Held(claim.name, charge_gib, used, owed)


def _held(holding: Holding, pool_id: str) -> Held:
    """A worker of somebody else on one pool, each of its charges there owed apart."""
    charges = [charge for charge in holding.charges if charge.pool == pool_id]
    known = [charge.charge_gib for charge in charges if charge.charge_gib is not None]
    used = math.fsum(charge.used_gib or 0.0 for charge in charges)
    owed = math.fsum(_owed(charge.charge_gib or 0.0, charge.used_gib or 0.0) for charge in charges)
    name = f"{holding.name} (pid {holding.pid}{f', {holding.user}' if holding.user else ''})"
    return Held(name, math.fsum(known) if len(known) == len(charges) else None, used, owed)


def _used(holding: Holding | None, pool_id: str, claim: Claim) -> float:
    """What comes back to the live reading when this claim leaves: what it was seen to use; unseen, its charge."""
    charges = holding.charges if holding is not None else ()
    read = [charge.used_gib for charge in charges if charge.pool == pool_id and charge.used_gib is not None]
    return math.fsum(read) if read else claim.charges.get(pool_id, 0.0)
