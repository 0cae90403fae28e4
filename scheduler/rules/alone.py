"""Jobs that run alone: what ran over its budget, tried once more, and what is run to be measured.

Alone is: no other worker of ours on its placement, and charged all that its pools can give beside what is not ours to
end. Such a job stands behind everything of its priority that was there when it was put back; all of one batch stand
together and are one head. While its window is open others may go on; once that has closed nothing behind it is sent or
started on its placement, what runs there ends, and what idles there makes room. One that could not go even if every
worker of ours had gone (a stranger, a leak), or that a pinned worker or its own provider keeps back, is no head: nobody
waits for it, nothing makes room for it, and the next of them has its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from scheduler.model.command import line_alone
from scheduler.model.plan import Explain, Head, Retire, Send, Start, Waiting, WorkerView
from scheduler.model.verdict import Demand, Verdict
from scheduler.rules import explain_alone as explain
from scheduler.rules.admission import Claim, Standing, claims_of, leavers
from scheduler.rules.closing import Reservation
from scheduler.rules.desk import Desk, Why
from scheduler.rules.eviction import evictable
from scheduler.rules.order import PRESENT, kept_out, name_of, place_of, window_closed
from scheduler.rules.peaks import charged_as, kept_claim
from scheduler.rules.placement import placements
from scheduler.rules.retirement import next_serves

LEAST_GIB = 0.25
"""What a provider is given at least of each of its parts to be measured in: less would measure nothing."""

SLACK, MOST_SLACK_GIB = 0.02, 0.5
"""What is left of a live reading, which is another one a moment later: else the claim is refused when it is seen."""


def turn(desk: Desk) -> Waiting | None:
    """The first of the jobs that run alone and can, if it is its turn; those before it are kept back by something else
    than the order, and keep nobody.
    """
    for job in desk.snapshot.alone:
        if desk.was_served(job):
            return None
        kept_back = _kept_back(desk, job)
        if kept_back is None:
            return job
        if kept_back[0] == "reserved":
            return None
    return None


def _kept_back(desk: Desk, job: Waiting) -> Why | None:
    key = (job.slug, job.variant)
    closed = kept_out(desk.snapshot, job)
    if closed is not None:
        return closed
    if desk.provider(key).revision != job.revision:
        return "revision", explain.other_revision(name_of(job), job.revision, desk.provider(key).revision)
    closed = _ways(desk, job)[1]
    if closed is not None:
        return closed
    first = next((each for each in desk.eligible if not desk.was_served(each)), None)
    if first is not None and place_of(first) < place_of(job):
        return "reserved", explain.stands_behind(job, first)
    return None


def _ways(desk: Desk, job: Waiting) -> tuple[list[Mapping[str, float]], Why | None]:
    """Where it could go once every worker of ours that can be ended had gone; if nowhere, why.

    Of what stood there when the plan was begun: what is started in it ends as well. Where a worker stands that was
    started for it, it fits already; where an operator pinned another one, it waits for that without end.
    """
    machine, need, claims = desk.snapshot.machine, _need(desk, job), claims_of(desk.snapshot)
    emptied = Standing(machine, claims, away=leavers(claims))
    found = [
        place for place in placements(need, machine) if _own(desk, job, place) or emptied.verdict(need, place).admit
    ]
    if not found:
        verdict = Standing(machine, claims).decide(need)
        verdict = emptied.decide(need) if verdict.admit else verdict
        return [], (verdict.ruling, verdict)
    pinned = [next((w for w in _there(desk, place) if w.pinned and not next_serves(w, job)), None) for place in found]
    free = [place for place, worker in zip(found, pinned, strict=True) if worker is None]
    if free or pinned[0] is None:
        return free, None
    return [], ("busy", explain.alone_beside(job, pinned[0]))


def _own(desk: Desk, job: Waiting, place: Mapping[str, float]) -> bool:
    """Whether a worker stands there, or comes, that was started for such jobs of its provider."""
    return any(
        worker.charges.keys() <= place.keys() and next_serves(worker, job)
        for worker in desk.living
        if worker.state in PRESENT and worker.id not in desk.leaving
    )


def kept_alone(desk: Desk) -> list[Reservation]:
    """What is kept of its placement for a job that runs alone, once its window has closed: all of it."""
    job = turn(desk)
    if job is None or not _closed(desk, job):
        return []
    found = _place(desk, job)
    if found is None:
        return []
    victims = frozenset(worker.id for worker in desk.living if _is_on(worker.charges, found))
    charges = {pool.id: pool.capacity.value or 0.0 for pool in desk.snapshot.machine.pools if pool.id in found}
    threads = desk.provider((job.slug, job.variant)).threads
    return [Reservation(job, victims, Claim(0, name_of(job), charges), threads)]


def head_alone(desk: Desk) -> list[Head]:
    """The job that runs alone is a head as soon as nobody stands before it."""
    job = turn(desk)
    return [] if job is None else [Head(job.job_id)]


def tell_alone(desk: Desk) -> list[Explain]:
    """Why the first of the jobs that run alone still wait: what keeps each of them back, or whom it stands behind."""
    found: list[Explain] = []
    first: Waiting | None = None
    for job in desk.snapshot.alone:
        if desk.was_served(job):
            first = first or job
            continue
        why = _kept_back(desk, job)
        if first is not None and (why is None or why[0] == "reserved"):
            why = "reserved", explain.stands_behind(job, first)
        elif why is None or why[0] == "reserved":
            first, why = job, why or desk.alone_why or ("reserved", explain.waits_alone(job))
        found.append(Explain(*line_alone(job.slug, job.variant, job.alone == "measure"), job.job_id, *why))
    return found


def send_alone(desk: Desk) -> bool:
    """Send the job that runs alone to the worker that was started for such jobs, if nobody else of ours is there."""
    job = turn(desk)
    place = _place(desk, job) if job is not None else None
    if job is None or place is None or _begun(desk, place) or _comes_back(desk, place):
        return False
    there = _there(desk, place)
    if len(there) != 1 or not _takes(desk, there[0], job):
        return False
    desk.serve(job)
    desk.send(there[0], Send(there[0].id, job.job_id))
    return True


def serve_alone(desk: Desk) -> bool:
    """Send or start the job that runs alone where nobody else of ours is, or make room for it; whether it went."""
    if send_alone(desk):
        return True
    job = turn(desk)
    place = _place(desk, job) if job is not None else None
    if job is None or place is None or _begun(desk, place):
        return False
    there = _there(desk, place)
    if there or _comes_back(desk, place):
        _make_room(desk, job, there)
        return False
    verdict = _whole(desk, job, place)
    if not verdict.admit:
        desk.alone_why = verdict.ruling, verdict
        return False
    charges = {pool.pool: pool.demand_gib for pool in verdict.evidence.placement}
    desk.starts.append(Start(job.job_id, job.slug, job.variant, charges, verdict, alone=True))
    desk.started_alone(job, kept_claim(verdict.evidence.demand, charges))
    return True


def _closed(desk: Desk, job: Waiting) -> bool:
    return desk.snapshot.strict or (job.head_for_s is not None and window_closed(job, desk.snapshot.overtake_s))


def _need(desk: Desk, job: Waiting) -> Demand:
    """What it has to have at least: its charge; of what is run to be measured, what can be measured in."""
    demand = desk.demand(job)
    if job.alone != "measure":
        return demand
    return replace(demand, device_gib=LEAST_GIB if demand.policy == "required" else 0.0, host_gib=LEAST_GIB)


def _is_on(charges: Iterable[str], place: Iterable[str]) -> bool:
    return not set(charges).isdisjoint(place)


def _there(desk: Desk, place: Mapping[str, float]) -> list[WorkerView]:
    """The workers of ours on this placement that have not been told to go."""
    return [
        worker
        for worker in desk.living
        if worker.state != "retiring" and worker.id not in desk.leaving and _is_on(worker.charges, place)
    ]


def _begun(desk: Desk, place: Mapping[str, float]) -> bool:
    """Whether somebody is started there, or is being made room for, in this very plan."""
    return any(claim.worker_id == 0 and _is_on(claim.charges, place) for claim in (*desk.claims, *desk.kept))


def _comes_back(desk: Desk, place: Mapping[str, float]) -> bool:
    """Whether memory of ours is on its way back there. What leaked stays charged, and is not waited for."""
    return any(_is_on(claim.charges, place) for claim in desk.returning())


def _takes(desk: Desk, worker: WorkerView, job: Waiting) -> bool:
    free = worker.state == "ready" and worker.job_id is None and worker.id not in desk.sent
    return free and next_serves(worker, job)


def _place(desk: Desk, job: Waiting) -> Mapping[str, float] | None:
    """Where it goes: where fewest have to end for it, of such places where it is given most; None = nowhere."""
    machine = desk.snapshot.machine

    def rank(place: Mapping[str, float]) -> tuple[int, int, float]:
        there = _there(desk, place)
        gives = sum(pool.capacity.value or 0.0 for pool in machine.pools if pool.id in place and pool.kind != "host")
        own = any(_takes(desk, worker, job) for worker in there)
        return sum(not evictable(worker) for worker in there), len(there) - own, -gives

    return min(_ways(desk, job)[0], key=rank, default=None)


def _make_room(desk: Desk, job: Waiting, there: list[WorkerView]) -> None:
    """Retire the idle workers on its placement if nobody there is at work, and, in its window, none has work."""
    busy = next((worker for worker in there if not evictable(worker) or worker.id in desk.sent), None)
    if busy is not None:
        desk.alone_why = "busy", explain.alone_beside(job, busy)
        return
    wanted = {(each.slug, each.variant) for each in desk.eligible if not desk.was_served(each)}
    needed = next((worker for worker in there if (worker.slug, worker.variant) in wanted and not worker.alone), None)
    if needed is not None and not _closed(desk, job):
        desk.alone_why = "busy", explain.alone_beside(job, needed)
        return
    for worker in there:
        if _takes(desk, worker, job):
            continue
        desk.stops.append(Retire(worker.id, f"its room is needed for job {job.job_id} of {name_of(job)}, alone"))
        desk.leaving.add(worker.id)
    desk.alone_why = "pool_full", explain.alone_soon(job)


def _whole(desk: Desk, job: Waiting, place: Mapping[str, float]) -> Verdict:
    """The verdict on all that the pools of a place can give, or, where that is too little, on what it needs."""
    standing, need = Standing(desk.snapshot.machine, desk.claims), _need(desk, job)
    least = standing.verdict(need, place)
    undeclared = need.device_gib is None and need.policy == "required"
    if not least.admit or undeclared:
        return least
    charges = {}
    for pool in least.evidence.placement:
        live_gib = pool.live.value or 0.0
        slack_gib = min(MOST_SLACK_GIB, SLACK * live_gib)
        free_gib = (pool.capacity.value or 0.0) - pool.reserve_gib - pool.charged_gib
        seen_gib = live_gib - pool.owed_gib - pool.reserve_gib - slack_gib
        charges[pool.pool] = max(pool.demand_gib, min(free_gib, seen_gib))
    host_gib = charges.get("host", desk.demand(job).host_gib)
    return standing.verdict(charged_as(need, charges, host_gib), charges)
