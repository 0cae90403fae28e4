"""Worlds at random: machines, holders, workers of this queue, and the jobs that wait for them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from worlds import HOST, ME, MUCH_GIB, MUCH_SHARE, OTHER, OTHERS, QUEUE, Actor, Need, Part, World

from scheduler.host.machine.asked import CHARGED
from scheduler.host.workers.protocol import CLAIM, MARK
from scheduler.model.plan import LeaseView, Waiting, WorkerView
from scheduler.model.provider import NOTHING, Learned, Provider

PYTHON = "/envs/x/bin/python3.11"
STRANGE = ("stranger", "above charge", "hidden", "too high", "too free", "ours")
"""Truths that nobody can see and that are made on purpose."""
DRIVERS = ("honest",) * 6 + ("silent", "no figures", "too low", "half", "no totals", "errs")
OWN_MEMORY = ("too high", "flat")
"""Manners of drivers of devices that have memory of their own, where the sum of the charges stands against them."""
UNMEASURED = "m0"
"""A provider that declares no budget: it is run to be measured, and nothing else."""


class Maker:
    """Makes worlds. `strange`: with truths that nobody can see. `manners`: of drivers; all of them unless given."""

    def __init__(self, rng: random.Random, *, strange: bool = False, manners: Sequence[str] = ()) -> None:
        self.rng, self.strange, self.manners = rng, strange, manners
        self.pid = 100
        self.worker_id = 0
        self.lonely = False

    def world(self) -> World:
        """One machine, its readings in themselves possible: nobody holds more than there is."""
        while True:
            made = self._world()
            if self._settle(made):
                return made

    def _world(self) -> World:
        rng = self.rng
        kind = rng.choices(("unified", "discrete", "plain"), (4, 5, 1))[0]
        total = rng.choice((16.0, 64.0, 121.0, 128.0, 256.0, 503.7))
        count = {"unified": 1, "plain": 0}.get(kind, rng.randint(1, 4))
        cards = tuple(f"GPU-{n}" for n in range(count))
        totals = {HOST: total}
        if kind == "discrete":
            totals |= {card: rng.choice((8.0, 24.0, 47.5, 79.6, 139.7)) for card in cards}
        manners = (self.manners or DRIVERS + OWN_MEMORY) if kind == "discrete" else DRIVERS
        drivers = {card: rng.choice(manners) for card in cards}
        if "errs" in drivers.values():
            drivers = dict.fromkeys(cards, "errs")
        world = World(kind == "unified", totals, cards, drivers, [], {}, [], [], {})
        self.largest = {HOST: total / 2, **{card: totals.get(card, total) * 0.7 for card in cards}}
        for n in range(rng.randint(1, 5)):
            self._provider(world, f"p{n}")
        self.lonely = rng.random() < 0.3
        is_quiet = self.lonely and rng.random() < 0.7
        for make, most in (
            (self._own, 0 if is_quiet else 4), (self._left_behind, 1), (self._foreign, 3), (self._orphan, 1),
            (self._legacy, 2), (self._stranger, 2), (self._desktop, 1),
        ):  # fmt: skip
            for _ in range(rng.choice((0, 0, min(1, most), rng.randint(0, most)))):
                make(world)
        if not is_quiet and rng.random() < 0.5:
            self._warm(world)
        if self.lonely and rng.random() < 0.4:
            self._own_alone(world)
        if kind == "discrete":
            world.nobodys = {card: rng.choice((0.0, 0.02, 0.4, rng.uniform(0, 4))) for card in cards}
        for card in (card for card in cards if drivers[card] in OWN_MEMORY):  # but they tell everybody who is there
            world.nobodys[card] = 0.0
            for actor in world.actors:
                actor.unlisted = actor.unlisted and not (actor.alive and card in actor.on)
        for card in (card for card in cards if drivers[card] == "no figures"):
            there = [actor for actor in world.actors if actor.alive and card in actor.on]
            ours = any(f"queue={QUEUE}" in actor.keeper for actor in there)
            if ours and (world.nobodys.get(card) or any(actor.unlisted for actor in there)):
                world.invisible.add("no figures")
        if self.lonely and rng.random() < 0.4:
            policy = "required" if cards and rng.random() < 0.8 else "none"
            undeclared = None if policy == "required" else 0.0
            world.providers[UNMEASURED, ""] = Provider(UNMEASURED, revision="r", policy=policy, vram_gib=undeclared)
        world.strict = rng.random() < 0.05
        if rng.random() < 0.02:
            world.missing = "the process table cannot be read"
        if rng.random() < 0.05 and kind == "discrete":
            self._ours(world)
        if self.strange:
            self._strange(world)
        return world

    def _ours(self, world: World) -> None:
        """The queue has its devices to itself, and says so; their drivers list nobody."""
        world.unattributed = "ours"
        world.actors = [actor for actor in world.actors if f"queue={QUEUE}" in actor.keeper or not actor.on]
        world.leases = [lease for lease in world.leases if not lease.pool.startswith("device:")]
        world.actors = [actor for actor in world.actors if actor.alive]
        world.drivers, world.nobodys = dict.fromkeys(world.cards, "silent"), {}

    def _strange(self, world: World) -> None:
        """One truth that nobody can see."""
        rng = self.rng
        what = rng.choice(STRANGE)
        if what == "stranger" and world.cards:
            self._stranger(world)
            actor = world.actors[-1]
            world.declared.pop(actor.pid, None)
            for part in actor.on.values():
                part.peak += rng.uniform(5, 40)
        elif what == "above charge":
            self._foreign(world)
            for part in (world.actors[-1].host, *world.actors[-1].on.values()):
                part.peak = part.peak * 1.5 + 5
        elif what == "hidden":
            self._foreign(world)
            world.actors[-1].hidden, world.actors[-1].unlisted = True, True
        elif what == "too high" and world.unified:
            world.drivers = dict.fromkeys(world.cards, "too high")
        elif what == "too free" and not world.unified and world.cards:
            world.drivers[world.cards[0]] = "too free"
        elif what == "ours" and world.cards and not world.unified:
            world.unattributed = "ours"
            world.drivers = dict.fromkeys(world.cards, "silent")
        else:
            return
        world.invisible.add(what)

    def _provider(self, world: World, slug: str) -> None:
        rng = self.rng
        needs = bool(world.cards) and rng.random() < 0.75
        device = rng.uniform(0.5, max(self.largest[card] for card in world.cards)) if needs else 0.0
        host = rng.choice((0.0, rng.uniform(0.1, self.largest[HOST] * 0.5)))
        count = rng.choice((1, 1, 1, 2)) if needs else 1
        world.providers[slug, ""] = Provider(
            slug, revision="r", policy="required" if needs else "none", vram_gib=_rounded(rng, device),
            ram_gib=_rounded(rng, host), count=count, max_workers=rng.randint(1, 3),
        )  # fmt: skip

    def _part(self, budget: float, *, settled: bool = False) -> Part:
        """What a holder that keeps to its budget holds: untouched, in flight, settled, or giving some back."""
        rng = self.rng
        how = "settled" if settled else rng.choice(("untouched", "loading", "settled", "settled", "freeing"))
        level = budget * rng.choice((1.0, rng.random(), rng.random()))
        at = (level, level, level)
        if how == "untouched":
            at = (0.0, 0.0, 0.0)
        elif how in ("loading", "freeing"):
            low, mid, high = sorted(rng.uniform(0.0, level) for _ in range(3))
            at = (low, mid, high) if how == "loading" else (high, mid, low)
        most = max(at)
        return Part(at, rng.choice((budget, budget, rng.uniform(most, max(most, budget)))))

    def _next(self) -> int:
        self.pid += self.rng.randint(1, 9)
        return self.pid

    def _placed(self, world: World, provider: Provider) -> tuple[dict[str, float], list[str]] | None:
        """(charges, devices) of a worker of this provider, anywhere."""
        cards: list[str] = []
        if provider.policy == "required":
            if provider.count > len(world.cards):
                return None
            cards = self.rng.sample(world.cards, provider.count)
        return _charges(world, cards, provider.vram_gib or 0.0, provider.ram_gib), cards

    def _own(self, world: World) -> None:
        """A worker of this queue, in some state."""
        rng = self.rng
        provider = rng.choice(list(world.providers.values()))
        placed = self._placed(world, provider)
        if placed is None:
            return
        charges, cards = placed
        self.worker_id += 1
        state = rng.choice(("parked", "starting", "ready", "busy", "retiring"))
        job = 1000 + self.worker_id if state in ("parked", "starting", "busy") else None
        view = WorkerView(self.worker_id, provider.slug, "", "r", state, charges, job_id=job, attempt=1)
        self._joins(world, view, cards, (provider.vram_gib or 0.0, provider.ram_gib))

    def _joins(self, world: World, view: WorkerView, cards: Sequence[str], charged: Need) -> None:
        """A worker of this queue is there, and holds something of what it is charged."""
        rng = self.rng
        actor = Actor(self._next(), keeper=claim(QUEUE, view.id, view.slug, view.charges), worker_id=view.id)
        if view.state != "parked":
            device_gib, host_gib = charged
            actor.argv = (PYTHON, "/m/w.py", "--socket", "/s")
            actor.env = {MARK: f"{QUEUE}:{view.id}", CHARGED: repr(device_gib)}
            actor.host = self._part(host_gib)
            actor.on = {card: self._part(device_gib) for card in cards}
            if rng.random() < 0.1:  # above its charge already, and it stays there
                for part in (actor.host, *actor.on.values()):
                    most = max(part.at) * 1.2
                    part.at, part.peak = (most, most, most), max(most, part.peak)
            actor.competes = view.state in ("starting", "busy")
        world.actors.append(actor)
        world.workers.append(view)

    def _warm(self, world: World) -> None:
        """A ready worker of this queue that its provider's next job may find too small; perhaps it is raised already.

        Perhaps it was raised for a job before, and is charged more of one part than its provider declares.
        """
        rng = self.rng
        provider = rng.choice(list(world.providers.values()))
        placed = self._placed(world, provider)
        if placed is None:
            return
        _, cards = placed
        self.worker_id += 1
        part = rng.choice(("device", "host", "none", "none")) if cards else rng.choice(("host", "none"))
        charged = _more(rng, (provider.vram_gib or 0.0, provider.ram_gib), part, 0.0, 8.0)
        kept_gib = None if part == "none" and rng.random() < 0.5 else charged[1]
        view = WorkerView(
            self.worker_id, provider.slug, "", "r", "ready", _charges(world, cards, *charged), jobs_served=1,
            idle_s=rng.choice((0.0, 700.0)), state_s=20.0, host_gib=kept_gib,
        )  # fmt: skip
        self._joins(world, view, cards, charged)
        if rng.random() < 0.25:
            parts = ("device", "host", "both") if cards else ("host",)
            need = _more(rng, charged, rng.choice(parts), 0.05, rng.choice((1.0, 8.0, self.largest[HOST])))
            job_id = 2000 + self.worker_id
            world.needs[job_id], world.raised_host[self.worker_id] = need, need[1]
            raised, before = rng.choice(("shown", "shown", "asked", "unasked")), view.charges
            view = replace(
                view, charges=_charges(world, cards, *need), before=before, raised=raised, job_id=job_id, attempt=1
            )
            world.put(view)
            if raised == "shown":
                world.actor(view.id).keeper = claim(QUEUE, view.id, view.slug, view.charges)

    def _own_alone(self, world: World) -> None:
        """A worker that was started for jobs that run alone, with much of what there is."""
        rng = self.rng
        provider = rng.choice(list(world.providers.values()))
        placed = self._placed(world, provider)
        if placed is None:
            return
        _, cards = placed
        most = [self.largest[HOST], *(self.largest[card] for card in cards)]
        device_gib = max(provider.vram_gib or 0.0, min(most) * rng.random()) if cards else 0.0
        charged = device_gib, max(provider.ram_gib, self.largest[HOST] * rng.random())
        self.worker_id += 1
        state = rng.choice(("ready", "ready", "busy", "parked"))
        job_id = 2000 + self.worker_id if state != "ready" or rng.random() < 0.3 else None
        if job_id is not None:
            world.needs[job_id] = None
        view = WorkerView(
            self.worker_id, provider.slug, "", "r", state, _charges(world, cards, *charged), job_id=job_id, attempt=1,
            state_s=rng.choice((0.0, 10.0)), host_gib=charged[1], alone=True,
        )  # fmt: skip
        self._joins(world, view, cards, charged)

    def _left_behind(self, world: World) -> None:
        """A lease whose worker is gone, and what of its memory is not back: on nobody's name, or on a dead pid's."""
        rng = self.rng
        provider = rng.choice(list(world.providers.values()))
        placed = self._placed(world, provider)
        if placed is None:
            return
        self.worker_id += 1
        charges, cards = placed
        state = rng.choice(("returning", "leaked"))
        world.leases += [LeaseView(self.worker_id, provider.slug, pool, gib, state) for pool, gib in charges.items()]
        dead = Actor(self._next(), alive=False, unlisted=rng.random() < 0.6)
        for card in cards:
            held = (provider.vram_gib or 0.0) * rng.choice((0.0, 1.0, rng.random()))
            dead.on[card] = Part((held, held, held), held)
        world.actors.append(dead)

    def _foreign(self, world: World) -> None:
        """Another queue's worker, this user's or another's: parked, loading or loaded."""
        rng = self.rng
        placed_on = rng.sample(world.cards, 1) if world.cards and rng.random() < 0.8 else []
        device = rng.uniform(0.5, self.largest[placed_on[0]]) if placed_on else 0.0
        host = rng.uniform(0.0, self.largest[HOST] * 0.4)
        known = rng.random() < 0.4
        slug = rng.choice(list(world.providers))[0] if known else f"theirs{rng.randint(1, 9)}"
        if world.unified:
            charges = {"unified": device + host}
            if known:  # this queue takes the two apart by what it knows of the slug itself
                provider = world.providers[slug, ""]
                device, host = (provider.vram_gib or 0.0) * bool(placed_on), provider.ram_gib
                charges = {"unified": device + host}
        else:
            charges = {**{f"device:{card}": device for card in placed_on}, "host": host}
        actor = Actor(
            self._next(), keeper=claim(OTHERS, self.pid, slug, charges), uid=rng.choice((ME, OTHER)), slug=slug,
            charged=(device, host),
        )  # fmt: skip
        if rng.random() < 0.7:
            actor.argv = (PYTHON, "/m/w.py", "--socket", "/s")
            actor.env = {MARK: f"{OTHERS}:{self.pid}"}
            actor.host, actor.on = self._part(host), {card: self._part(device) for card in placed_on}
            actor.competes = any(max(part.at) > 0 for part in actor.on.values())
        else:  # parked: it may be let go any moment
            actor.host.peak = host
            actor.on = {card: Part(peak=device) for card in placed_on}
        world.actors.append(actor)

    def _orphan(self, world: World) -> None:
        """A worker of another queue of this user whose keeper was killed: its environment tells its charge."""
        rng = self.rng
        cards = rng.sample(world.cards, 1) if world.cards else []
        slug, provider = next(iter(world.providers.items()))
        device = (provider.vram_gib or 0.0) if cards else 0.0
        actor = Actor(
            self._next(), argv=(PYTHON, f"/t/{slug[0]}/resident/{slug[0]}_resident_worker.py", "--socket", "/s")
        )
        actor.env = {MARK: f"{OTHERS}:{self.pid}", CHARGED: repr(device)}
        actor.host, actor.on = self._part(provider.ram_gib), {card: self._part(device) for card in cards}
        actor.competes = any(max(part.at) > 0 for part in actor.on.values())
        world.actors.append(actor)

    def _legacy(self, world: World) -> None:
        """A worker that somebody started by hand: its budget stands in a manifest, in argv, or nowhere."""
        rng = self.rng
        cards = rng.sample(world.cards, 1) if world.cards else []
        kind = rng.choice(("manifest", "argv", "nowhere"))
        slug, provider = rng.choice(list(world.providers.items()))
        device = (provider.vram_gib or 0.0) if cards else 0.0
        host, words = provider.ram_gib, []
        name = slug[0]
        if kind != "manifest":
            name, device, host = "stray", rng.uniform(0.5, 20.0) if cards else 0.0, rng.uniform(0.1, 8.0)
        if kind == "argv":
            words = ["--vram-budget-gb", repr(device), "--ram-budget-gb", repr(host)]
        script = f"/lab/{name}/resident/{name}_resident_worker.py"
        actor = Actor(self._next(), argv=(PYTHON, script, "--socket", "/s", *words), uid=rng.choice((ME, OTHER)))
        actor.env = {} if actor.uid == ME else None
        actor.host, actor.on = self._part(host), {card: self._part(device) for card in cards}
        if kind == "nowhere":
            for part in (actor.host, *actor.on.values()):
                part.peak = max(part.at) + rng.uniform(0.0, 60.0)
        actor.competes = any(max(part.at) > 0 for part in actor.on.values())
        world.actors.append(actor)

    def _stranger(self, world: World) -> None:
        """Somebody's own program: it stays as it is, or what it will take was declared."""
        rng = self.rng
        if not world.cards:
            return
        card = rng.choice(world.cards)
        device, host = rng.uniform(0.3, self.largest[card]), rng.uniform(0.1, 10.0)
        actor = Actor(self._next(), argv=("/usr/bin/python3", "train.py"), uid=rng.choice((ME, OTHER)))
        actor.host, actor.on, actor.competes = (
            self._part(host, settled=True),
            {card: self._part(device, settled=True)},
            True,
        )
        parts = (actor.host, actor.on[card])
        listed = max(actor.on[card].at) > 0 and world.drivers[card] not in ("silent", "errs")
        if rng.random() < 0.3 and listed:
            world.declared[actor.pid] = (device, host)
        else:
            for part in parts:
                part.peak = max(part.at)
        if rng.random() < 0.2 and not world.unified:
            actor.unlisted = True
            for part in parts:
                part.peak = max(part.at)
        if not listed or actor.unlisted or world.drivers[card] == "no figures":
            shown = actor.on[card].at[1]
            actor.competes = shown > max(MUCH_GIB, world.totals.get(card, 0.0) * MUCH_SHARE)
        world.actors.append(actor)

    def _desktop(self, world: World) -> None:
        """A screen: it is on the device and computes nothing."""
        if not world.cards:
            return
        held = self.rng.uniform(0.05, 0.9)
        card = world.cards[0]
        world.actors.append(Actor(self._next(), ("/usr/bin/Xorg",), on={card: Part((held, held, held), held)}, uid=0))

    def _settle(self, world: World) -> bool:
        """Give the rest of the machine's memory to kernel, cache and nobody; False if more is held than there is."""
        rng = self.rng
        for card in () if world.unified else world.cards:
            held = [part.at for actor in world.actors for name, part in actor.on.items() if name == card]
            if any(
                math.fsum(at[n] for at in held) + world.nobodys.get(card, 0.0) > world.totals[card] for n in range(3)
            ):
                return False
        rest = world.totals[HOST]
        for n in (0, 1, 2):
            held_gib = [actor.host.at[n] for actor in world.actors]
            if world.unified:
                held_gib += [part.at[n] for actor in world.actors for part in actor.on.values()]
            rest = min(rest, world.totals[HOST] - math.fsum(held_gib))
        if rest < 0.5:
            return False
        world.kernel_gib = rng.uniform(0.1, rest * rng.choice((0.1, 0.9)))
        rest -= world.kernel_gib
        world.cache_gib = rest * rng.choice((0.0, rng.random(), rng.uniform(0.8, 1.0)))
        world.given_back_gib = world.cache_gib * rng.uniform(0.7, 1.0)
        world.per_cpu_gib = min(rest - world.cache_gib, rng.choice((0.0, 0.0, 1.0)))
        return True

    # What waits

    def line(self, world: World) -> tuple[list[Waiting], list[Waiting]]:
        """The first waiting jobs of the providers, and of those that run alone: some larger than what is declared."""
        rng, waiting, alone = self.rng, [], []
        free = {worker.slug: worker for worker in world.workers if _is_free(worker)}
        for n, (slug, _) in enumerate(world.providers):
            if rng.random() < (0.1 if slug in free else 0.25):
                continue
            job = Waiting(
                slug, "", 1 + n, rng.choice((0,) * 9 + (1,)), 1, revision="r",
                head_for_s=rng.choice((None, None, None, 10.0, 899.0, 900.0, 5000.0)),
            )  # fmt: skip
            job = replace(job, learned=self._learned(world, slug, free.get(slug), job.job_id))
            if rng.random() < 0.2:
                learned = self._learned(world, slug, free.get(slug), 200 + n)
                job = replace(job, count=2, following=(0, 200 + n), following_learned=learned)
            waiting.append(job)
        kept = {worker.slug for worker in world.workers if worker.alone}
        for n, slug in enumerate(self._lonely(world, kept) if self.lonely else ()):
            is_new = slug == UNMEASURED
            kind = "measure" if is_new or rng.random() < 0.3 else "again"
            world.needs[600 + n] = None
            alone.append(
                Waiting(
                    slug, "", 600 + n, 0, 1, revision="r", alone=kind, behind=rng.choice((0, 0, 3, 700)), batch="b",
                    head_for_s=rng.choice((None, 10.0, 899.0, 900.0, 5000.0)),
                )
            )  # fmt: skip
        return waiting, sorted(alone, key=lambda job: (job.behind, job.job_id))

    def _lonely(self, world: World, kept: set[str]) -> list[str]:
        """The providers of which a job runs alone."""
        slugs = [slug for slug, _ in world.providers]
        first = [slug for slug in slugs if slug in kept or slug == UNMEASURED]
        return list(dict.fromkeys([*first, self.rng.choice(slugs)]))[:2]

    def _learned(self, world: World, slug: str, worker: WorkerView | None, job_id: int) -> Learned:
        """What jobs of that size were seen to use; more than their worker is charged where one is there for them.

        What the machine could never give is not asked for (P6): such a job takes what it is charged.
        """
        rng, provider = self.rng, world.providers[slug, ""]
        declared = provider.vram_gib or 0.0, provider.ram_gib
        world.needs[job_id] = declared
        if provider.vram_gib is None or rng.random() < (0.1 if worker is not None else 0.75):
            return NOTHING
        cards = world.cards_of(worker) if worker is not None else []
        base = world.split(worker) if worker is not None else declared
        has_device = provider.policy == "required"
        homes = {HOST} if world.unified else {HOST, *cards}
        will = world.will_hold()
        left_gib = max(0.1, min(world.totals[name] - will[name] - world.reserve_gib(name) for name in homes))
        part = rng.choice(("device", "host", "both")) if has_device else "host"
        most_gib = rng.choice((2.0, left_gib * 1.3, left_gib * 1.05, self.largest[HOST]))
        device_gib, host_gib = _more(rng, base, part, 0.05, most_gib)
        if part == "device" and rng.random() < 0.5:
            host_gib *= rng.random()
        if part == "host" and rng.random() < 0.5:
            device_gib *= rng.random()
        need = max(declared[0], device_gib), max(declared[1], host_gib)
        gives = {name: gib - world.reserve_gib(name) for name, gib in world.totals.items()}
        if world.unified:
            could = math.fsum(need) <= gives[HOST]
        else:
            could = need[1] <= gives[HOST] and need[0] <= max((gives[card] for card in world.cards), default=0.0)
        world.needs[job_id] = need if could else None
        return Learned(device_gib if has_device else 0.0, host_gib, rng.choice((3, 50)))

    # What others do meanwhile

    def others_move(self, world: World) -> None:
        """Another queue has parked a worker, or has raised one of its own, at the moment at which this one did."""
        rng = self.rng
        theirs = [actor for actor in world.actors if actor.slug and actor.argv]
        if theirs and rng.random() < 0.4:
            self._raise_theirs(world, rng.choice(theirs))
        if rng.random() < 0.5:
            self._foreign(world)
            late = world.actors[-1]
            late.argv, late.env, late.competes = (), None, False
            for part in (late.host, *late.on.values()):
                part.at = (0.0, 0.0, 0.0)

    def _raise_theirs(self, world: World, actor: Actor) -> None:
        part = self.rng.choice(("device", "host", "both")) if actor.on else "host"
        device_gib, host_gib = _more(self.rng, actor.charged, part, 0.05, self.largest[HOST])
        charges = _charges(world, list(actor.on), device_gib, host_gib)
        actor.keeper = claim(OTHERS, actor.pid, actor.slug, charges)
        actor.host.peak = max(actor.host.peak, host_gib)
        for each in actor.on.values():
            each.peak = max(each.peak, device_gib)


def _is_free(worker: WorkerView) -> bool:
    return worker.state == "ready" and worker.job_id is None and not worker.alone


def _charges(world: World, cards: Sequence[str], device_gib: float, host_gib: float) -> dict[str, float]:
    """What is charged for so much of each of these devices and of host memory, by pool."""
    if world.unified:
        return {"unified": (device_gib if cards else 0.0) + host_gib}
    return {**{f"device:{card}": device_gib for card in cards}, "host": host_gib}


def _more(rng: random.Random, charged: Need, part: str, least_gib: float, most_gib: float) -> Need:
    """So much more of one part, of both or of none."""
    device_gib, host_gib = charged
    if part in ("device", "both"):
        device_gib += rng.uniform(least_gib, max(least_gib, most_gib))
    if part in ("host", "both"):
        host_gib += rng.uniform(least_gib, max(least_gib, most_gib))
    return device_gib, host_gib


def _rounded(rng: random.Random, gib: float) -> float:
    """Budgets are often written with few decimals, so that sums of them fit exactly."""
    return gib if rng.random() < 0.5 else round(gib, 1)


def claim(queue: str, worker_id: int, slug: str, charges: Mapping[str, float]) -> tuple[str, ...]:
    words = [f"charge={pool}:{gib!r}" for pool, gib in charges.items()]
    return (
        "/opt/py/bin/python3.11", "-I", "-S", "/x/keeper.py", CLAIM, f"worker={worker_id}", f"slug={slug}", "variant=",
        f"queue={queue}", *words, "control=/c", f"/h/workers/{worker_id}",
    )  # fmt: skip
