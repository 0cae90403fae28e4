"""Which absent provider starts next: the best order inside the head's window, the largest beside it afterwards."""

from __future__ import annotations

from scheduler.model.plan import Waiting
from scheduler.rules import explain
from scheduler.rules.closing import lanes
from scheduler.rules.desk import Desk, Why
from scheduler.rules.forecast import Group, Rooms, place_in
from scheduler.rules.order import Key, name_of
from scheduler.rules.placement import demand_of
from scheduler.rules.search import TRIES, beside_head, best_order, settled


def start_best(desk: Desk) -> bool:
    """Start the first that fits of the order whose forecast ends first; whether one was started."""
    rooms = desk.rooms()
    absent = _absent(desk, rooms)
    groups = list(absent.values())
    fitting = {group.key for group in groups if place_in(rooms.free, group.places) is not None}
    if not fitting:
        return False
    coming = desk.running_dry(rooms)
    leaving = [each for _, each in coming]
    head = desk.head
    first = absent.get((head.slug, head.variant)) if head is not None else None
    closing_s = desk.closes_in_s(head) if head is not None else 0.0
    devices = sum(pool.kind == "device" for pool in desk.snapshot.machine.pools)
    whole = settled(groups, coming, desk.snapshot.quiet_s, devices)
    if head is not None and first is not None and not whole:
        if first.key in fitting:
            return _begin(desk, first.key)
        stay = {group.key for group in beside_head(groups, first, rooms.free, leaving, closing_s)}
        for key in fitting - stay:
            desk.why[key] = ("reserved", explain.would_delay(":".join(filter(None, key)), head))
        fitting &= stay
    order = best_order(
        groups, rooms.free, leaving, first.key if first is not None else None, closing_s, desk.order,
        tries=TRIES if whole else 0,
    )  # fmt: skip
    desk.order = tuple(group.key for group in order)
    return any(_begin(desk, group.key) for group in order if group.key in fitting)


def start_beside(desk: Desk) -> bool:
    """Start what fits beside the room that is kept for closed heads, the largest first; whether one was started."""
    rooms = desk.rooms()
    for group in sorted(_absent(desk, rooms).values(), key=lambda group: (-group.area, *group.first)):
        free = list(rooms.free)
        for each in desk.binding(desk.first(group.key)):
            for n, gib in rooms.parts(each.claim.charges):
                free[n] -= gib
        if place_in(free, group.places) is not None and _begin(desk, group.key):
            return True
    return False


def start_more(desk: Desk) -> None:
    """A further worker of a provider that may have several, when nobody else needs the room."""
    several = [w for w in desk.eligible if desk.provider((w.slug, w.variant)).max_workers > 1 and desk.present(w)]
    if not several or desk.reserved or desk.making:
        return
    machine = desk.snapshot.machine
    wanted: set[str] = set()
    for waiting in filter(desk.absent, desk.eligible):
        wanted |= lanes(demand_of(desk.provider((waiting.slug, waiting.variant))), machine)
    for waiting in several:
        key = (waiting.slug, waiting.variant)
        if desk.was_served(waiting) or key in desk.started or lanes(demand_of(desk.provider(key)), machine) & wanted:
            continue
        workers = desk.present(waiting)
        if not workers or desk.free(waiting) is not None or len(workers) >= desk.provider(key).max_workers:
            continue
        if any(worker.state in ("parked", "starting") and worker.job_id is None for worker in workers):
            continue
        before = desk.why.get(key)
        if not desk.start(waiting):
            desk.why.pop(key, None)
            if before is not None:
                desk.why[key] = before


def _absent(desk: Desk, rooms: Rooms) -> dict[Key, Group]:
    """The groups of all providers without a worker for which nothing is being made."""
    return {
        (waiting.slug, waiting.variant): desk.group(waiting, rooms)
        for waiting in desk.eligible
        if desk.absent(waiting) and (waiting.slug, waiting.variant) not in desk.making
    }


def _begin(desk: Desk, key: Key) -> bool:
    """Start it, or make room for it; whether it was started."""
    waiting = desk.first(key)
    if desk.start(waiting):
        return True
    desk.make_room(waiting, desk.dry())
    return False


def why_not(desk: Desk, waiting: Waiting) -> Why:
    """Why a job that was neither sent nor started waits."""
    key = (waiting.slug, waiting.variant)
    if key in desk.excluded:
        return desk.excluded[key]
    if key in desk.making:
        return desk.making[key]
    provider = desk.provider(key)
    workers = desk.present(waiting)
    said = desk.why.get(key)
    if said is not None and isinstance(said[1], str) and (not workers or desk.free(waiting) is not None):
        return said
    if workers:
        return explain.occupied(workers[0], provider)
    if key in desk.started:
        return "starting", explain.started_now(provider)
    head = desk.head or waiting
    kept_for = desk.reserved[0].head if desk.reserved else None
    if desk.snapshot.strict and waiting is not head:
        return "reserved", explain.first_in_line(name_of(waiting), head)
    verdict = desk.standing(waiting).decide(demand_of(provider))
    if verdict.admit and kept_for is None:
        return "reserved", explain.would_delay(name_of(waiting), head)
    if not verdict.admit and not desk.admitted_but_for_kept(waiting):
        return verdict.ruling, verdict
    if kept_for is not None and kept_for.job_id != waiting.job_id:
        return "reserved", explain.reserved(name_of(waiting), kept_for)
    return "reserved", explain.beside(name_of(waiting))
