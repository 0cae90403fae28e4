"""What to do now, from everything that is known now: a pure function, the same for the same snapshot.

Stops first; then ready workers are sent their provider's next job; then absent providers start where they are
admitted, idle workers for which nothing waits making room. Inside the head's window the order of starts is the one
whose forecast ends first; once it has closed, its room and its victims' are kept for it, and others start only beside.
What an operator wants warm comes last, into room that no waiting job needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.model.plan import Abort, Explain, Go, Instruction, Prefer, Reclaim, Send, Snapshot, Waiting
from scheduler.rules import explain
from scheduler.rules.admission import confirm
from scheduler.rules.alone import head_alone, send_alone, serve_alone, tell_alone, turn
from scheduler.rules.desk import Desk
from scheduler.rules.heads import heads, serve_closed
from scheduler.rules.peaks import charged_as
from scheduler.rules.placement import demand_of
from scheduler.rules.raising import confirm_raised, raise_for
from scheduler.rules.starts import start_beside, start_best, start_more, start_wished, why_not

SETTLE_S = 3.0
"""A worker that is to be measured is seen idle after its load: a snapshot is asked for when it is ready."""


def plan(snapshot: Snapshot, *, explained: bool = True) -> list[Instruction]:
    """The instructions of this tick, stops before starts, and, if `explained`, why whatever waits still waits."""
    desk = Desk(snapshot)
    confirm_parked(desk)
    confirm_raised(desk)
    send_bound(desk)
    while _serve(desk):
        pass
    if not snapshot.strict:
        start_more(desk)
    start_wished(desk)
    return _told(desk, explained)


def _serve(desk: Desk) -> bool:
    """One round; whether anything moved, so that the line looks different now."""
    desk.look()
    if desk.snapshot.strict:
        return _serve_strictly(desk)
    started = serve_closed(desk)
    sent = send_warm(desk, desk.eligible)
    if started or sent:
        return True
    return send_alone(desk) or (start_beside(desk) if desk.reserved else start_best(desk)) or serve_alone(desk)


def _serve_strictly(desk: Desk) -> bool:
    """Nobody before the first: it is sent, started, or waited for."""
    if turn(desk) is not None:  # it has its turn when nobody stands before it
        return serve_alone(desk)
    head = desk.head
    return head is not None and (send_warm(desk, (head,)) or serve_closed(desk))


def confirm_parked(desk: Desk) -> None:
    """Every parked worker whose claim all can see now: go, or end it before anything is spent."""
    for worker in desk.living:
        if worker.state != "parked" or not worker.shown or worker.id in desk.leaving:
            continue
        provider, verdict = desk.snapshot.providers.get((worker.slug, worker.variant)), None
        if provider is None:
            refused = explain.not_installed(worker.slug, None)
        else:
            demand = charged_as(demand_of(provider), worker.charges, worker.host_gib)
            verdict = confirm(demand, worker.charges, desk.snapshot.machine, desk.claims, worker.id)
            refused = "" if verdict.admit else explain.sentence(verdict)
        if refused:
            desk.stops.append(Abort(worker.id, refused, verdict=verdict))
            desk.leaving.add(worker.id)
        else:
            desk.starts.append(Go(worker.id, verdict))
            desk.compete(worker.id)


def send_bound(desk: Desk) -> None:
    """Every ready worker that a job was admitted to gets it, whatever the window: it was first when it was.

    One that was started to run jobs alone is first seen idle.
    """
    for worker in desk.living:
        settles = worker.raised or (worker.alone and worker.mode != "oneshot" and worker.state_s < SETTLE_S)
        if worker.state == "ready" and worker.job_id is not None and worker.id not in desk.leaving and not settles:
            desk.send(worker, Send(worker.id, worker.job_id))


def send_warm(desk: Desk, those: Iterable[Waiting]) -> bool:
    """Ready workers get their provider's next job, but those whose end a closed head before it waits for."""
    moved = False
    for waiting in those:
        worker = desk.free(waiting)
        if worker is None or desk.was_served(waiting) or desk.is_victim(worker, waiting):
            continue
        if not desk.cores_left(waiting):
            continue
        order = raise_for(desk, worker, waiting)
        if order is None:
            continue
        desk.serve(waiting)
        desk.send(worker, order)
        moved = True
    return moved


def _reclaimed(desk: Desk) -> list[Reclaim]:
    """What the file cache is to give for the first in line that it alone keeps waiting."""
    if desk.snapshot.machine.reclaim != "ready":
        return []
    for waiting in desk.eligible:
        cache = desk.clearing.get((waiting.slug, waiting.variant))
        if cache is not None and not desk.was_served(waiting):
            return [Reclaim(*cache, waiting.job_id)]
    return []


def _told(desk: Desk, explained: bool) -> list[Instruction]:
    """All of it, in the order in which it is performed."""
    desk.look()
    found: list[Instruction] = [*desk.stops, *desk.starts, *heads(desk), *head_alone(desk), *desk.wishes]
    if desk.order != desk.snapshot.order:
        found.append(Prefer(desk.order))
    found += _reclaimed(desk)
    for waiting in sorted(desk.snapshot.waiting if explained else (), key=lambda w: (-w.priority, w.job_id)):
        if not desk.was_served(waiting):
            key = (waiting.slug, waiting.variant)
            found.append(Explain(*key, waiting.job_id, *why_not(desk, waiting), desk.refused.get(key)))
    return [*found, *(tell_alone(desk) if explained else ())]
