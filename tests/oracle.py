"""Random machines whose future is known, shown to schedq as it would see them: does it ever admit what will not fit?

A `World` is the truth: who is on the machine, what each holds at three instants, and the most that it will ever hold.
`World.seen` is what of that can be read: a process table, what drivers say of their devices (some lie, err or list
nobody), the kernel's memory figures. The real reader of holdings, the real layout of pools and the real plan work on
that and on nothing else. `judge` then compares with the truth: an over-admission is a start, or a raise of a warm
worker for a larger job, whose demand, beside all that everybody will ever hold and the reserve, is more than a memory
has. While somebody competes for memory that is being reclaimed the page cache counts as taken (E4); while one loads
alone it is given back (E3). Two plans are judged: what the first parks and raises, the second confirms or takes back,
now that all can see it; another queue may have parked a worker, or raised one of its own, at the same moment.

What a job takes is the truth too: what its provider declares or what was learned of its size, each part for itself. A
worker that one job made touch much of the one part does not give that back for the other part of the next job. A job
that runs alone takes all that it is charged, and nobody else of this queue is where it goes. So does a job that was
seen to use more than the machine could ever give. A worker that is sent a job within its charge competes from then on,
not for what was let go in the same plan before it.

Drivers err, list nobody (a container), list without figures, say too little or too much of a process, give no totals,
or say that all of a device is free. Where the sum of the charges stands against such a figure it must hold.

What nobody can see is no fault of a decision. These truths are left out by definition, made on purpose in some worlds
(`World.invisible` names them), and counted apart:

- `stranger`: a process without a budget (no worker, nothing declared) that takes more later on.
- `above charge`: a worker that takes more than it is charged later on; the guard is for that, not admission.
- `hidden`: a worker of another user that /proc hides (hidepid), whose claim nobody can read, that takes more later on.
- `too high`: a driver that says a process holds more than it does, on unified memory, where nothing else tells. (On a
  device of its own the charges tell, unless there is memory on nobody's name too, which such a figure hides.)
- `no figures`: a driver that lists this queue's workers without figures (WSL). All that is in use there is taken for
  theirs, up to their charges; what the driver itself, or somebody whom it does not list, holds beside is not seen.
- `too free`: a driver that says more of its device is free than is, and lists nobody there.
- `ours`: unattributed = "ours" was set, and what is on nobody's name is somebody else's.

Refusals of what would have fitted are counted by ruling, those of raises apart. They are the price of P4, each for its
own reason:

- `unreadable`: a reading is missing; the truth would have been that there is room.
- `unknown_holding`: a holder that nobody declared will not take the room after all.
- `pool_full`: charges are peaks, and holders stay below them; memory on nobody's name is charged beside the claims of
  workers whom their driver does not list; claims that are parked may never be let go.
- `no_room_now`: holders are taken to touch their whole charge; what a load gained between two readings counts as owed
  and as used; free memory counts, not what the cache would give back, where somebody may compete; and what per-cpu
  lists keep off MemFree (E28).

Of raises there are two more:

- `reserved`, `busy`, `starting`: the order. A closed head before it keeps the room, or one that runs alone does; in
  strict order nobody goes before the first.
- `seen`: decided once more, when all could see it, and taken back. A claim that another queue shows at that moment
  counts as if it were spent, and each of two that show theirs at once steps back from the other.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from made_worlds import Maker, claim
from worlds import HOST, QUEUE, Actor, Part, World

from scheduler.model.machine import Machine
from scheduler.model.plan import (
    Abort,
    Explain,
    Go,
    Instruction,
    Lower,
    Raise,
    Retire,
    Send,
    Show,
    Start,
    Waiting,
    WorkerView,
)  # fmt: skip
from scheduler.model.provider import Provider
from scheduler.rules.admission import Standing, claims_of
from scheduler.rules.placement import demand_of
from scheduler.rules.plan import plan

NEVER = ("undeclared", "no_device", "too_big")
SLACK_GIB = 1.0 / (1 << 20)
"""What every comparison may be wrong by."""
LOADING = ("go", "sent raised", "sent")
"""Orders after which memory is taken right away; the others are decided once more."""


@dataclass
class Tally:
    """What came of many worlds.

    `starts` were decided, `gone` confirmed and let go; `lone` of them run alone. Of warm workers that are charged less
    than the job costs, `raised` were raised and shown, `sent` were sent after that, `lowered` taken back.
    `beside`: a job that runs alone was given room where another worker of this queue was.
    """

    worlds: int = 0
    starts: int = 0
    gone: int = 0
    lone: int = 0
    raised: int = 0
    sent: int = 0
    lowered: int = 0
    over: list[str] = field(default_factory=list)
    over_unseen: Counter[str] = field(default_factory=Counter)
    beside: list[str] = field(default_factory=list)
    never_wrong: list[str] = field(default_factory=list)
    asked: int = 0
    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_wrongly: Counter[str] = field(default_factory=Counter)
    not_raised: Counter[str] = field(default_factory=Counter)
    not_raised_wrongly: Counter[str] = field(default_factory=Counter)


def judge(seed: int, tally: Tally, *, planned: Any = plan, manners: Sequence[str] = ()) -> None:
    """One world, from its first look to the moment at which what was parked and raised is confirmed or taken back."""
    rng = random.Random(seed)
    maker = Maker(rng, strange=rng.random() < 0.1, manners=manners)
    world = maker.world()
    machine = world.seen()
    tally.worlds += 1
    if not world.invisible:
        _refusals(seed, world, machine, tally)
    waiting, alone = maker.line(world)
    _decided(seed, world, planned, waiting, alone, tally)
    maker.pid, maker.worker_id, maker.largest = 50_000, 9000, {HOST: 8.0, **dict.fromkeys(world.cards, 8.0)}
    maker.others_move(world)
    bound = {worker.job_id for worker in world.workers}
    waiting = [job for job in waiting if job.job_id not in bound] if rng.random() < 0.5 else []
    _decided(seed, world, planned, waiting, [job for job in alone if job.job_id not in bound and waiting], tally)


def _decided(
    seed: int, world: World, planned: Any, waiting: Sequence[Waiting], alone: Sequence[Waiting], tally: Tally
) -> None:
    """One plan is made from what is seen, judged by the truth, and performed."""
    lacking = {worker.id: job for job in waiting for worker in world.workers if _lacks(world, worker, job)}
    orders = planned(world.snapshot(world.seen(), waiting, alone), explained=bool(lacking))
    contested, touched = world.is_contested(), [_touched(world, order) for order in orders]
    kinds = [_kind(world, order) for order in orders]
    raised = {worker.id: worker.job_id for worker in world.workers if worker.raised}
    if not world.invisible:
        tally.beside += [f"seed {seed}: {text}" for text in _beside(world, orders)]
    for order in orders:
        _count(order, world, tally)
        _perform(world, order)
    admitted = {name: [kind for kind, on in zip(kinds, touched, strict=True) if name in on] for name in world.totals}
    on_host = admitted[HOST]
    at_once = sum(kind in LOADING for kind in on_host) + any(kind not in LOADING for kind in on_host)
    _check(seed, world, admitted, at_once, contested, tally)
    if not world.invisible:
        _raises(world, orders, lacking, raised, at_once, contested, tally)


def _kind(world: World, order: Instruction) -> str:
    match order:
        case Start():
            return "alone" if order.alone else "start"
        case Go():
            return "go"
        case Raise():
            return "raise"
        case Send(worker_id):
            return "sent raised" if world.worker(worker_id).raised else "sent"
    return ""


def _touched(world: World, order: Instruction) -> set[str]:
    """The memories of which an order gives somebody more than it was admitted to before."""
    match order:
        case Start():
            return _positive(world.charged(order.charges))
        case Go(worker_id):
            return _positive(world.charged(world.worker(worker_id).charges))
        case Raise(worker_id, job_id, charges):
            return _more(world, worker_id, job_id, world.worker(worker_id).charges, charges)
        case Send(worker_id, job_id):
            worker = world.worker(worker_id)
            return _more(world, worker_id, job_id, worker.before or worker.charges, worker.charges)
    return set()


def _more(
    world: World, worker_id: int, job_id: int, before: Mapping[str, float], charges: Mapping[str, float]
) -> set[str]:
    """The memories of which this worker is charged more than before, or its job takes more than that of a part."""
    was, will, worker = world.charged(before), world.charged(charges), world.worker(worker_id)
    found = {name for name, gib in will.items() if gib > was.get(name, 0.0)}
    need, charged, actor = (
        world.needs.get(job_id),
        world.split(replace(worker, charges={**before})),
        world.actor(worker_id),
    )
    if need is None:
        return found
    if need[1] > max(charged[1], actor.host.peak) + SLACK_GIB:
        found.add(HOST)
    for card in world.cards_of(worker):
        if need[0] > max(charged[0], actor.on[card].peak) + SLACK_GIB:
            found.add(world.home(card))
    return found


def _positive(charged: Mapping[str, float]) -> set[str]:
    return {name for name, gib in charged.items() if gib > 0}


def _beside(world: World, orders: Sequence[Instruction]) -> list[str]:
    """Orders that give room to a job that runs alone where another worker of this queue is."""
    ended = {order.worker_id for order in orders if isinstance(order, Abort | Retire)}
    found = []
    for order in orders:
        if isinstance(order, Start) and order.alone:
            itself, charges = 0, order.charges
        elif isinstance(order, Send) and world.worker(order.worker_id).alone:
            itself, charges = order.worker_id, world.worker(order.worker_id).charges
        else:
            continue
        if not itself or world.worker(itself).job_id is None:
            there = [w.id for w in world.workers if w.id not in {itself, *ended} and w.charges.keys() & charges.keys()]
            found += [f"job {order.job_id} beside worker {there[0]}"] if there else []
    return found


def _count(order: Instruction, world: World, tally: Tally) -> None:
    match order:
        case Start():
            tally.starts += 1
            tally.lone += order.alone
        case Go():
            tally.gone += 1
        case Raise():
            tally.raised += 1
        case Send(worker_id):
            tally.sent += bool(world.worker(worker_id).raised)
        case Lower():
            tally.lowered += 1


def _perform(world: World, order: Instruction) -> None:
    """What the scheduler makes of an order, as all can see it then."""
    match order:
        case Start(job_id, slug, variant, charges, verdict, alone):
            worker_id = max((worker.id for worker in world.workers), default=0) + 9000
            world.actors.append(Actor(100_000 + worker_id, keeper=claim(QUEUE, worker_id, slug, charges)))
            world.actors[-1].worker_id = worker_id
            host_gib = verdict.evidence.demand.host_gib
            world.workers.append(
                WorkerView(
                    worker_id, slug, variant, "r", "parked", {**charges}, job_id=job_id, attempt=1, host_gib=host_gib,
                    alone=alone,
                )
            )  # fmt: skip
        case Go(worker_id):
            _go(world, world.worker(worker_id))
        case Raise(worker_id, job_id, charges, host_gib):
            worker = world.worker(worker_id)
            world.raised_host[worker_id] = host_gib
            _shown(
                world,
                replace(worker, charges={**charges}, before=worker.charges, raised="shown", job_id=job_id, attempt=1),
            )
        case Show(worker_id):
            _shown(world, replace(world.worker(worker_id), raised="shown"))
        case Lower(worker_id):
            worker = world.worker(worker_id)
            _shown(world, replace(worker, charges=worker.before, before={}, raised="", job_id=None, attempt=None))
        case Send(worker_id, job_id):
            worker = world.worker(worker_id)
            host_gib = world.raised_host[worker_id] if worker.raised else worker.host_gib
            world.actor(worker_id).competes = True
            world.put(replace(worker, state="busy", job_id=job_id, attempt=1, before={}, raised="", host_gib=host_gib))
        case Abort(worker_id) | Retire(worker_id):
            world.put(replace(world.worker(worker_id), state="retiring", job_id=None))


def _go(world: World, worker: WorkerView) -> None:
    """It loads from now on, and will hold what it is charged, or what its job takes."""
    actor, (device_gib, host_gib) = world.actor(worker.id), world.split(worker)
    need = world.needs.get(worker.job_id) if worker.job_id is not None else None
    if need is not None:
        device_gib, host_gib = max(device_gib, need[0]), max(host_gib, need[1])
    actor.host.peak, actor.competes = host_gib, True
    actor.on = {card: Part(peak=device_gib) for card in world.cards_of(worker)}
    world.put(replace(worker, state="starting"))


def _shown(world: World, worker: WorkerView) -> None:
    """All can see these charges."""
    world.put(worker)
    world.actor(worker.id).keeper = claim(QUEUE, worker.id, worker.slug, worker.charges)


def _check(
    seed: int, world: World, admitted: Mapping[str, list[str]], at_once: int, contested: bool, tally: Tally
) -> None:
    """Whether all that was admitted fits beside all that will ever be held, and the reserve."""
    will = world.will_hold()
    for name, kinds in admitted.items():
        if not kinds:
            continue
        over_gib = _over_gib(world, name, will[name], at_once, contested)
        if over_gib > len(kinds) * SLACK_GIB:
            if world.invisible:
                tally.over_unseen.update(world.invisible)
            else:
                what = ", ".join(dict.fromkeys(kinds))
                tally.over.append(
                    f"seed {seed}: {what} on {name}: {over_gib:.3f} GiB more than its {world.totals[name]:.3f}"
                )
            return


def _over_gib(world: World, name: str, will_gib: float, at_once: int, contested: bool) -> float:
    """What will be held, what cannot be had of the cache, and the reserve are more than a memory has. GiB."""
    cache_gib = world.cache(at_once, contested) if name == HOST else 0.0
    return math.fsum((will_gib, cache_gib, world.reserve_gib(name), -world.totals[name]))


# Refusals


def _lacks(world: World, worker: WorkerView, job: Waiting) -> bool:
    """Whether this worker could take this job if it were charged more."""
    free = worker.state == "ready" and worker.job_id is None and not worker.alone
    need = world.needs.get(job.job_id)
    if not free or worker.slug != job.slug or need is None:
        return False
    return any(need[n] > charged + SLACK_GIB for n, charged in enumerate(world.split(worker)))


def _raises(
    world: World,
    orders: Sequence[Instruction],
    lacking: Mapping[int, Waiting],
    raised: Mapping[int, int | None],
    at_once: int,
    contested: bool,
    tally: Tally,
) -> None:
    """Which raises were refused, or taken back, and whether the job would have fitted beside all that was admitted."""
    why = {order.job_id: order.ruling for order in orders if isinstance(order, Explain)}
    told: set[int] = set()
    for worker_id, job in lacking.items():
        worker = world.worker(worker_id)
        if job.job_id in why and job.job_id not in told and worker.state == "ready" and worker.job_id is None:
            told.add(job.job_id)
            _refused(world, worker, job.job_id, why[job.job_id], at_once, contested, tally)
    for order in orders:
        if isinstance(order, Lower) and order.verdict is not None and not order.verdict.admit:
            job_id = raised[order.worker_id]
            assert job_id is not None
            _refused(
                world, world.worker(order.worker_id), job_id, f"seen: {order.verdict.ruling}", at_once, contested, tally
            )


def _refused(
    world: World, worker: WorkerView, job_id: int, ruling: str, at_once: int, contested: bool, tally: Tally
) -> None:
    tally.not_raised[ruling] += 1
    then = replace(world, workers=[replace(w, job_id=job_id) if w.id == worker.id else w for w in world.workers])
    was, will = world.will_hold(), then.will_hold()
    more = [name for name in will if will[name] > was[name]]
    if all(_over_gib(world, name, will[name], at_once + 1, contested) <= 0.0 for name in more):
        tally.not_raised_wrongly[ruling] += 1


def _refusals(seed: int, world: World, machine: Machine, tally: Tally) -> None:
    """What each provider alone would be told, and whether that is so."""
    claims = claims_of(world.snapshot(machine, ()))
    standing = Standing(machine, claims)
    for provider in world.providers.values():
        verdict = standing.decide(demand_of(provider))
        tally.asked += 1
        if verdict.admit:
            tally.admitted += 1
            continue
        tally.refused[verdict.ruling] += 1
        if provider.vram_gib is None:
            continue
        if verdict.ruling in NEVER:
            if _fits(world, provider, empty=True):
                tally.never_wrong.append(f"seed {seed}: {provider.slug} {verdict.ruling}")
        elif _fits(world, provider):
            tally.refused_wrongly[verdict.ruling] += 1


def _fits(world: World, provider: Provider, *, empty: bool = False) -> bool:
    """Whether one more worker would fit somewhere by the truth; `empty`: if nobody were there."""
    will = dict.fromkeys(world.totals, 0.0) if empty else world.will_hold()
    cache_gib = 0.0 if empty else world.cache(1, world.is_contested())
    device_gib = provider.vram_gib or 0.0
    needs = provider.policy == "required"
    if needs and (not world.cards or (world.unified and provider.count > 1)):
        return False
    places = combinations(world.cards, provider.count) if needs and not world.unified else [()]
    host_gib = provider.ram_gib + (device_gib if needs and world.unified else 0.0)
    if host_gib > 0 and will[HOST] + cache_gib + host_gib + world.reserve_gib(HOST) > world.totals[HOST]:
        return False
    return any(
        all(will[card] + device_gib + world.reserve_gib(card) <= world.totals[card] for card in place)
        for place in places
    )
