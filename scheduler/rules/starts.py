"""Which provider gets a worker next: the best order inside the head's window, the largest beside it afterwards.

Then a further worker of a provider that may have several, and last what an operator wants warm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scheduler.model.command import called
from scheduler.model.plan import Postpone, Settle, Waiting
from scheduler.model.verdict import NEVER
from scheduler.rules import explain
from scheduler.rules.admission import claims_of
from scheduler.rules.alone import turn
from scheduler.rules.closing import lanes
from scheduler.rules.desk import Desk, Why
from scheduler.rules.explain_alone import waits_alone
from scheduler.rules.forecast import Group, Rooms, place_in
from scheduler.rules.order import Key, line, name_of
from scheduler.rules.placement import most_workers, placements
from scheduler.rules.search import TRIES, beside_head, best_order, settled

LAST = -(1 << 63)
"""The priority of a wish: below that of every job."""


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
            desk.why[key] = ("reserved", explain.would_delay(called(*key), head))
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
    """A further worker of a provider that may have several, where it pays and nobody else needs the room.

    It pays when what waits takes the workers that are there longer than loading one more takes. An idle worker for
    which nothing waits makes room for it if it pays to load that one again as well.
    """
    several = [waiting for waiting in desk.eligible if _wants_more(desk, waiting)]
    if not several or desk.reserved or desk.making:
        return
    wanted = _lanes(desk, filter(desk.absent, desk.eligible))
    for waiting in several:
        if _lanes(desk, [waiting]) & wanted or _lacks_cores(desk, but=waiting):
            continue
        key = (waiting.slug, waiting.variant)
        before = desk.why.pop(key, None)
        if desk.start(waiting):
            continue
        dry = desk.dry()
        reload_s = max((desk.expected.load_s((worker.slug, worker.variant)) for worker in dry), default=0.0)
        if not (_pays(desk, waiting, reload_s) and desk.make_room(waiting, dry)):
            desk.why.pop(key, None)
            if before is not None:
                desk.why[key] = before


def _wants_more(desk: Desk, waiting: Waiting) -> bool:
    """Whether this job waits for workers that are all taken, and one more of its provider may come and pays."""
    provider, workers = desk.provider((waiting.slug, waiting.variant)), desk.present(waiting)
    if not workers or desk.was_served(waiting) or (waiting.slug, waiting.variant) in desk.started:
        return False
    if len(workers) >= most_workers(provider, desk.snapshot.machine) or desk.free(waiting) is not None:
        return False
    coming_free = any(worker.state in ("parked", "starting") and worker.job_id is None for worker in workers)
    return not coming_free and _pays(desk, waiting)


def _pays(desk: Desk, waiting: Waiting, beside_s: float = 0.0) -> bool:
    """Whether what waits lasts longer than loading one more worker, and `beside_s`."""
    return desk.expected.work_s(waiting) > desk.expected.load_s((waiting.slug, waiting.variant)) + beside_s


def _lanes(desk: Desk, those: Iterable[Waiting]) -> set[str]:
    """The devices that these could be put on, or the one pool that they share with everybody."""
    found: set[str] = set()
    for waiting in those:
        found |= lanes(desk.demand(waiting), desk.snapshot.machine)
    return found


def _lacks_cores(desk: Desk, but: Waiting | None = None) -> bool:
    """Whether a job (another than this) waits for cores alone: whoever starts takes some of them."""
    return any(
        desk.why.get((waiting.slug, waiting.variant), ("",))[0] == "cores"
        for waiting in desk.eligible
        if waiting is not but and not desk.was_served(waiting)
    )


def start_wished(desk: Desk) -> None:
    """Start a worker that an operator wants before a job asks for it, one a plan; say why the other wishes wait.

    By the same verdicts as for a job, after all jobs, into room that no waiting job needs. Nobody makes room for it.
    """
    wishes = [wish for wish in desk.snapshot.wishes if wish.wait_s <= 0]
    if not wishes:
        return
    asked = tuple(
        Waiting(wish.slug, wish.variant, 0, LAST, 1, revision=desk.provider((wish.slug, wish.variant)).revision)
        for wish in wishes
    )
    excluded = line(replace(desk.snapshot, waiting=asked), claims_of(desk.snapshot)).excluded
    begun, ending = False, {(w.slug, w.variant) for w in desk.living if w.id in desk.leaving}
    for waiting in asked:
        key = (waiting.slug, waiting.variant)
        there = next((w for w in desk.present(waiting) if w.state in ("ready", "busy") and not w.retire_after), None)
        if there is not None:
            desk.wishes.append(Settle(*key, there.id))
            continue
        if key in ending:
            continue
        ruling, why = excluded.get(key) or _in_the_way(desk, waiting) or ("", "")
        if ruling in NEVER:
            desk.wishes.append(Settle(*key, None, why))
        elif ruling:
            desk.wishes.append(Postpone(*key, ruling, why))
        elif not begun and desk.start(waiting):
            begun = True
        elif not begun:
            desk.wishes.append(Postpone(*key, *desk.why.pop(key)))


def _in_the_way(desk: Desk, wish: Waiting) -> Why | None:
    """What a wish waits for that is no verdict: its own worker that comes or goes, or a job that needs the room."""
    key, name = (wish.slug, wish.variant), name_of(wish)
    for worker in desk.present(wish):
        if worker.state in ("parked", "starting"):
            return "starting", f"worker {worker.id} of {name} is starting"
        return "busy", f"worker {worker.id} of {name} ends after its job, and is not replaced before"
    if key in desk.started:
        return "starting", f"a worker of {name} is being started"
    lonely = turn(desk)
    if lonely is not None:
        return "reserved", f"{waits_alone(lonely)}; {name} is started after it"
    pools = _pools(desk, wish)
    for job in desk.eligible:
        if desk.was_served(job) or not (desk.absent(job) or _wants_more(desk, job)):
            continue
        if pools & _pools(desk, job):
            return "reserved", (
                f"job {job.job_id} of {name_of(job)} waits and may need the room; {name} is started when it does not"
            )
    if _lacks_cores(desk):
        return "cores", f"a job waits for cores; {name} is started when it has them"
    return None


def _pools(desk: Desk, waiting: Waiting) -> set[str]:
    """Every pool that a start of this provider could take something of."""
    places = placements(desk.demand(waiting), desk.snapshot.machine)
    return {pool for place in places for pool, gib in place.items() if gib > 0}


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
        return explain.occupied(workers[0], provider, fresh=waiting.fresh)
    if key in desk.started:
        return "starting", explain.started_now(provider)
    head = desk.head or waiting
    kept_for = desk.reserved[0].head if desk.reserved else None
    if desk.snapshot.strict and waiting is not head:
        return "reserved", explain.first_in_line(name_of(waiting), head)
    verdict = desk.standing(waiting).decide(desk.demand(waiting))
    if verdict.admit and kept_for is None:
        return "reserved", explain.would_delay(name_of(waiting), head)
    if not verdict.admit and not desk.admitted_but_for_kept(waiting):
        return verdict.ruling, verdict
    if kept_for is not None and kept_for.job_id != waiting.job_id:
        return "reserved", explain.reserved(name_of(waiting), kept_for)
    return "reserved", explain.beside(name_of(waiting))
