"""A warm worker that gets a larger job than it is charged for: admitted anew for the difference, before it is sent.

What it holds already is charged and seen; only what it lacks has to fit. Where that does not fit, idle workers for
which nothing waits make room for it; else the job waits, and is a head like any other. As with a start, others decide
at the same moment: the raise is shown first, and sent only if it fits still when all can see it.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.model.plan import Lower, Raise, Retire, Send, Show, Waiting, WorkerView
from scheduler.model.verdict import Demand
from scheduler.rules import explain, explain_alone
from scheduler.rules.admission import Standing, leavers
from scheduler.rules.desk import Desk
from scheduler.rules.eviction import evictable
from scheduler.rules.order import disk_low
from scheduler.rules.peaks import beyond, charged_as, lacking
from scheduler.rules.placement import demand_of

FULL = ("too_big", "pool_full")
"""Rulings on what is charged alone: a live reading may be another one a moment later."""


def more_for(desk: Desk, worker: WorkerView, waiting: Waiting) -> dict[str, float]:
    """What this worker is charged less than the job costs, by pool, GiB; {} = nothing."""
    return lacking(worker.charges, _grown(desk, worker, waiting)) if waiting.learned.runs else {}


def _grown(desk: Desk, worker: WorkerView, waiting: Waiting) -> Demand:
    """What this worker costs once it has run the job: of each part what it is charged, or what the job costs.

    What it was made to touch of the one part is not given back for the other: on unified memory too they are apart.
    """
    demand = desk.demand(waiting)
    own = charged_as(demand_of(desk.provider((worker.slug, worker.variant))), worker.charges, worker.host_gib)
    host_gib, device_gib = max(demand.host_gib, own.host_gib), demand.device_gib
    if device_gib is not None:
        device_gib = max(device_gib, own.device_gib or 0.0)
    return replace(demand, device_gib=device_gib, host_gib=host_gib)


def raise_for(desk: Desk, worker: WorkerView, waiting: Waiting) -> Send | Raise | None:
    """The order that gives this job to this worker, its charges raised where they are too small.

    None if what is lacking does not fit now: why is noted, and room is made where that costs nothing. Where it never
    will, whoever of ours leaves, the worker makes room itself: for one that is started anew, perhaps elsewhere.
    """
    key = (waiting.slug, waiting.variant)
    more = more_for(desk, worker, waiting)
    if not more:
        return Send(worker.id, waiting.job_id)
    demand = _grown(desk, worker, waiting)
    verdict = desk.standing(waiting).verdict(beyond(demand, (more,)), more)
    if verdict.admit:
        charges = {pool: gib + more.get(pool, 0.0) for pool, gib in worker.charges.items()}
        return Raise(worker.id, waiting.job_id, charges, demand.host_gib, verdict)
    if key not in desk.making:
        desk.why[key] = verdict.ruling, explain_alone.raising(verdict, worker, waiting, more)
        desk.refused[key] = verdict
        room = [each for each in desk.dry() if each.id != worker.id]
        if not desk.make_room(waiting, room, (more,)):
            _give_way(desk, worker, waiting, beyond(demand, (more,)), more)
    return None


def _give_way(desk: Desk, worker: WorkerView, waiting: Waiting, demand: Demand, more: dict[str, float]) -> None:
    """End a worker that could never be raised so far, were all others of ours gone, where one started anew could."""
    key, machine, gone = (waiting.slug, waiting.variant), desk.snapshot.machine, leavers(desk.claims)
    others = [claim for claim in gone if claim.worker_id != worker.id]
    if not evictable(worker) or Standing(machine, desk.claims, away=others).verdict(demand, more).ruling not in FULL:
        return
    if Standing(machine, desk.claims, away=gone).decide(desk.demand(waiting)).admit:
        name = desk.provider(key).name
        desk.stops.append(Retire(worker.id, f"job {waiting.job_id} of {name} needs more than it can be raised to"))
        desk.leaving.add(worker.id)
        desk.making[key] = desk.why[key][0], explain.evicting(desk.why[key][1], [worker.id])


def confirm_raised(desk: Desk) -> None:
    """Every raise that all can see now: its job is sent, or it is taken back. Shown again where nobody knows of it."""
    for worker in desk.living:
        if worker.state != "ready" or not worker.raised or worker.id in desk.leaving:
            continue
        snapshot, why = desk.snapshot, ""
        if worker.job_id is None:
            why = "the job that it was raised for waits for it no more"
        elif snapshot.paused or snapshot.drained or snapshot.draining:
            what = "the scheduler is going down" if snapshot.draining else "the queue was paused"
            why = f"{what} before the request was sent"
        elif disk_low(snapshot):
            why = explain.low_disk(snapshot.machine)
        if why:
            desk.starts.append(Lower(worker.id, why))
        elif worker.raised == "unasked":
            desk.starts.append(Show(worker.id))
        elif worker.raised == "shown":
            _confirm(desk, worker)


def _confirm(desk: Desk, worker: WorkerView) -> None:
    provider = desk.snapshot.providers.get((worker.slug, worker.variant))
    if provider is None or worker.job_id is None:
        desk.starts.append(Lower(worker.id, explain.not_installed(worker.slug, None)))
        return
    demand = charged_as(demand_of(provider), worker.charges, worker.host_gib)
    more = {pool: gib - worker.before.get(pool, 0.0) for pool, gib in worker.charges.items()}
    more = {pool: gib for pool, gib in more.items() if gib > 0}
    claims = [replace(c, charges=worker.before) if c.worker_id == worker.id else c for c in desk.claims]
    verdict = Standing(desk.snapshot.machine, claims).verdict(beyond(demand, (more,)), more)
    if verdict.admit:
        desk.send(worker, Send(worker.id, worker.job_id, verdict))
    else:
        desk.starts.append(Lower(worker.id, explain.sentence(verdict), verdict))
