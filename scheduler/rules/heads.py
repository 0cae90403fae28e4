"""Who is first on each placement, and what a head gets once its window has closed (P7).

The bound: a closed head is sent no later than the latest of its closing, the end of what ran then, and its victims'
memory being back, plus its own load. Nothing new starts on what is kept for it, its victims are sent nothing, and each
of them runs at most one job more; so it fits when they have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.model.plan import Head, Waiting, WorkerView
from scheduler.rules.admission import Claim, Standing
from scheduler.rules.alone import kept_alone
from scheduler.rules.closing import Reservation, choose, lanes, lanes_of, reserve
from scheduler.rules.desk import Desk
from scheduler.rules.eviction import evictable
from scheduler.rules.order import PRESENT
from scheduler.rules.peaks import beyond
from scheduler.rules.raising import more_for, raise_for


def heads(desk: Desk) -> list[Head]:
    """The heads of this tick, first to last: of each priority whoever is first for a device that none before it of that
    priority could use, and whoever was a head already.

    A higher priority may always go before; of its own, and of lower ones, nobody overtakes a head past its bound.
    """
    taken: dict[int, set[str]] = {}
    found = []
    reserved = {each.head.job_id: each for each in desk.reserved}
    everywhere = {pool.id for pool in desk.snapshot.machine.pools}
    for waiting in desk.eligible:
        before = taken.setdefault(waiting.priority, set())
        if before >= everywhere and waiting.head_for_s is None:
            continue
        kept = reserved.get(waiting.job_id)
        if kept is not None and kept.claim.charges:
            here = lanes_of(kept.claim.charges)
        else:
            here = lanes(desk.demand(waiting), desk.snapshot.machine)
        if here - before or waiting.head_for_s is not None:
            victims = tuple(sorted(kept.victims)) if kept is not None and kept.victims is not None else None
            found.append(Head(waiting.job_id, victims))
        before |= here
    return found


def serve_closed(desk: Desk) -> bool:
    """Start every closed head that fits, make its room where that is possible now, and keep it where it is not.

    Whether one was started.
    """
    desk.reserved = kept_alone(desk)
    for waiting in desk.eligible:
        if not desk.closed(waiting):
            continue
        threads = desk.provider((waiting.slug, waiting.variant)).threads
        its_cores = Reservation(waiting, None, Claim(0, waiting.slug, {}), threads)
        if (waiting.slug, waiting.variant) in desk.making:
            desk.reserved.append(its_cores)
            continue
        free, places = desk.free(waiting), None
        if not desk.absent(waiting):
            more = more_for(desk, free, waiting) if free is not None else {}
            if free is not None and not more:
                desk.reserved.append(Reservation(waiting, frozenset(), Claim(0, waiting.slug, {}), threads))
            if free is None or not more:
                continue
            places = (more,)
            if raise_for(desk, free, waiting) is not None:
                desk.reserved.append(Reservation(waiting, frozenset(), Claim(0, waiting.slug, more), threads))
                continue
            if (waiting.slug, waiting.variant) in desk.making:
                desk.reserved.append(its_cores)
                continue
        elif desk.start(waiting):
            return True
        chosen = _victims(desk, waiting, free, places)
        ready = [worker for worker in chosen or () if evictable(worker) and worker.id not in desk.sent]
        dry = [worker for worker in desk.dry() if worker is not free]
        if desk.make_room(waiting, [*dry, *(worker for worker in ready if worker not in dry)], places):
            desk.reserved.append(its_cores)
        else:
            back = desk.returning()
            machine, claims = desk.snapshot.machine, desk.all_claims(waiting)
            kept = reserve(
                waiting, beyond(desk.demand(waiting), places), machine, claims, chosen, back, threads, places
            )
            desk.reserved.append(kept)
    return False


def _victims(
    desk: Desk, waiting: Waiting, free: WorkerView | None, places: Sequence[Mapping[str, float]] | None
) -> Sequence[WorkerView] | None:
    """The set that was fixed when its window closed, or the one that is fixed now.

    A set of which nobody is left, and whose memory did not suffice because of others than ours, is chosen anew. `free`
    is the worker that it goes to, if it needs `places` beyond what that one is charged.
    """
    taken = {worker_id for each in desk.reserved for worker_id in each.victims or ()}
    spare = taken | desk.leaving
    offered = [w for w in desk.living if w.state in PRESENT and not w.pinned and w.id not in spare and w is not free]
    if waiting.victims is not None:
        left = [worker for worker in desk.living if worker.id in waiting.victims and worker.state in PRESENT]
        left = [worker for worker in left if worker.id not in desk.leaving]
        if left:
            return left
    demand, machine = beyond(desk.demand(waiting), places), desk.snapshot.machine
    claims, back = desk.all_claims(waiting), desk.returning()
    later = Standing(machine, claims, away=back)
    fits_then = (later.verdict(demand, place) for place in places) if places is not None else (later.decide(demand),)
    if any(verdict.admit for verdict in fits_then):
        return []
    return choose(demand, machine, claims, offered, back, desk.end_cost_s, places)
