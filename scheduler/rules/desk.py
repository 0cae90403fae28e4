"""One plan in the making: what is charged, computed on, promised and decided so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.model.plan import Instruction, Raise, Retire, Send, Snapshot, Start, Stop, Waiting, WorkerView
from scheduler.model.provider import Provider
from scheduler.model.verdict import Demand, Verdict
from scheduler.rules import explain
from scheduler.rules.admission import Claim, Standing, claims_of, decide
from scheduler.rules.closing import Reservation
from scheduler.rules.eviction import evictable, victims
from scheduler.rules.expected import Expected
from scheduler.rules.forecast import Group, Leaving, Part, Rooms
from scheduler.rules.order import PRESENT, Key, line, name_of, place_of, window_closed
from scheduler.rules.peaks import beyond, demand_for, kept_claim
from scheduler.rules.placement import placements
from scheduler.rules.reclaim import Cache, refusal
from scheduler.rules.retirement import stops, takes

Why = tuple[str, "str | Verdict"]
"""A ruling, and its sentence or the verdict that it can be made from."""

IDLE_COST = 1e-3
"""Loading a worker again for which nothing waits counts so little beside one for which something does."""


class Desk:
    """The snapshot, and what a plan has made of it up to now. `look` brings the line up to date with that."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.claims = list(claims_of(snapshot))
        whole = line(snapshot, self.claims)
        self.excluded: Mapping[Key, Why] = whole.excluded
        self.eligible = whole.eligible
        self.living = sorted(snapshot.workers, key=lambda worker: worker.id)
        wanted, fresh = map(_key, whole.eligible), (_key(w) for w in whole.eligible if w.fresh)
        self.stops: list[Stop] = list(stops(snapshot, set(wanted), set(fresh)))
        self.leaving = {stop.worker_id for stop in self.stops}
        self.starts: list[Instruction] = []
        self.wishes: list[Instruction] = []
        self.alone_why: Why | None = None
        self.sent: dict[int, Key] = {}
        self.kept: list[Claim] = []
        self.reserved: list[Reservation] = []
        self.making: dict[Key, Why] = {}
        self.why: dict[Key, Why] = {}
        self.refused: dict[Key, Verdict] = {}
        self.clearing: dict[Key, Cache] = {}
        self.order = snapshot.order
        self.expected = Expected(snapshot)
        self.started: dict[Key, Mapping[str, float]] = {}
        self._served: set[int] = set()
        self._standing: dict[tuple[int, ...], Standing] = {}
        self._first = {_key(w): w for w in whole.eligible}
        self._threads = {w.id: self.provider(_key(w)).threads for w in self.living if _computes(w)}
        self._places: dict[Key, tuple[tuple[Part, ...], ...]] = {}
        self._present: dict[Key, list[WorkerView]] = {}
        for worker in self.living:
            if worker.state in PRESENT and not worker.alone and worker.revision == self.provider(_key(worker)).revision:
                self._present.setdefault(_key(worker), []).append(worker)

    def provider(self, key: Key) -> Provider:
        """The provider's figures; those of one that is not known are its defaults."""
        return self.snapshot.providers.get(key) or Provider(*key)

    def demand(self, waiting: Waiting) -> Demand:
        """What a worker for this job costs: what is declared, or what jobs of its size were seen to use."""
        return demand_for(self.provider(_key(waiting)), waiting.learned, self.snapshot.machine)

    # The line

    def look(self) -> None:
        """Put the job behind a served one in its place."""
        self.eligible = tuple(
            sorted((w for w in map(self._next, self.eligible) if w is not None), key=lambda w: (-w.priority, w.job_id))
        )
        self._first = {_key(w): w for w in self.eligible}

    def _next(self, waiting: Waiting) -> Waiting | None:
        if waiting.job_id not in self._served:
            return waiting
        if waiting.following is None or waiting.slug in self.snapshot.breakers:
            return None
        priority, job_id = waiting.following
        return Waiting(
            waiting.slug, waiting.variant, job_id, priority, waiting.count - 1,
            revision=waiting.revision, paused=waiting.paused, learned=waiting.following_learned,
            fresh=waiting.following_fresh, out=waiting.out,
        )  # fmt: skip

    @property
    def head(self) -> Waiting | None:
        """The first that may go."""
        return self.eligible[0] if self.eligible else None

    def closed(self, waiting: Waiting) -> bool:
        """Whether it is a head that was overtaken for as long as it may."""
        if self.snapshot.strict:
            return waiting is self.head
        return (waiting is self.head or waiting.head_for_s is not None) and window_closed(
            waiting, self.snapshot.overtake_s
        )

    def was_served(self, waiting: Waiting) -> bool:
        """Whether it was sent or started in this plan."""
        return waiting.job_id in self._served

    def first(self, key: Key) -> Waiting:
        """The first waiting job of this provider that may go."""
        return self._first[key]

    def serve(self, waiting: Waiting) -> None:
        """It is sent or started."""
        self._served.add(waiting.job_id)

    # Workers

    def present(self, waiting: Waiting) -> list[WorkerView]:
        """The workers of its provider that serve, or will serve, its revision, by id."""
        here = self._present.get((waiting.slug, waiting.variant))
        return [worker for worker in here if worker.id not in self.leaving] if here else []

    def absent(self, waiting: Waiting) -> bool:
        """Whether its provider has no worker, and none is started in this plan."""
        return not self.present(waiting) and _key(waiting) not in self.started

    def free(self, waiting: Waiting) -> WorkerView | None:
        """A ready worker that it can be sent to."""
        return next((w for w in self.present(waiting) if takes(w, waiting) and w.id not in self.sent), None)

    def send(self, worker: WorkerView, order: Send | Raise) -> None:
        """Give a job to a ready worker, or raise its charges for it first."""
        self.starts.append(order)
        if isinstance(order, Raise):
            risen = [c for c in self.claims if c.worker_id == worker.id]
            risen = [replace(c, charges=order.charges, host_gib=max(c.host_gib, order.host_gib)) for c in risen]
            self.claims = [*(c for c in self.claims if c.worker_id != worker.id), *risen]
        self.sent[worker.id] = _key(worker)
        self._threads[worker.id] = self.provider(_key(worker)).threads
        self.compete(worker.id)

    def dry(self) -> list[WorkerView]:
        """The idle workers for which nothing waits and that no closed head counts on."""
        held = {worker_id for each in self.reserved for worker_id in each.victims or ()}
        held |= self.leaving | self.sent.keys()
        return [w for w in self.living if evictable(w) and w.id not in held and (w.alone or _key(w) not in self._first)]

    def compete(self, worker_id: int) -> None:
        """From now on this worker of ours loads or computes."""
        self.claims = [replace(c, competes=True) if c.worker_id == worker_id else c for c in self.claims]
        self._standing.clear()

    def is_victim(self, worker: WorkerView, waiting: Waiting) -> bool:
        """Whether a closed head before this job waits for this worker's end: it is sent nothing more."""
        for each in self.binding(waiting):
            if worker.id in (each.victims or ()):
                self.why[_key(waiting)] = ("reserved", explain.victim(name_of(waiting), worker.id, each.head))
                return True
        return False

    # Room

    def binding(self, waiting: Waiting) -> list[Reservation]:
        """What is reserved for heads that stand before this job."""
        place = place_of(waiting)
        return [each for each in self.reserved if place_of(each.head) < place]

    def all_claims(self, waiting: Waiting) -> list[Claim]:
        """Everything that its start must fit beside."""
        return [*self.claims, *self.kept, *(each.claim for each in self.binding(waiting) if each.claim.charges)]

    def standing(self, waiting: Waiting) -> Standing:
        """What its start must fit beside, summed; kept until something is decided that changes it."""
        bound = tuple(each.head.job_id for each in self.binding(waiting))
        found = self._standing.get(bound)
        if found is None:
            found = self._standing[bound] = Standing(self.snapshot.machine, self.all_claims(waiting))
        return found

    def returning(self) -> list[Claim]:
        """The claims whose memory is on its way back."""
        retiring = self.leaving | {worker.id for worker in self.living if worker.state == "retiring"}
        return [c for c in self.claims if c.worker_id in retiring or (c.gone and not c.stays)]

    def dry_claims(self) -> list[Claim]:
        """The claims of idle workers for which nothing waits."""
        dry = {worker.id for worker in self.dry()}
        return [claim for claim in self.claims if claim.worker_id in dry]

    def cores_left(self, waiting: Waiting) -> bool:
        """Whether it has cores beside all that computes and all heads before it; if not, that is noted.

        A job that is wider than the machine runs alone.
        """
        threads, in_use = self.provider(_key(waiting)).threads, sum(self._threads.values())
        cores, binding = self.snapshot.machine.cores, self.binding(waiting)
        kept = sum(each.threads for each in binding)
        if (in_use == 0 and not binding) or in_use + kept + threads <= cores:
            return True
        if in_use == 0 or in_use + threads <= cores:
            self.why[_key(waiting)] = ("reserved", explain.reserved(name_of(waiting), binding[0].head))
        else:
            self.why[_key(waiting)] = ("cores", explain.too_few_cores(name_of(waiting), threads, in_use, cores))
        return False

    def refused_by_reading(self, waiting: Waiting) -> bool:
        """Whether it is refused now for another reason than what is charged."""
        verdict = self.standing(waiting).decide(self.demand(waiting))
        return verdict.ruling in ("unreadable", "unknown_holding", "no_room_now")

    def admitted_but_for_kept(self, waiting: Waiting) -> bool:
        """Whether only what is kept for others, or being made for them, stands in its way."""
        if not self.kept and not self.reserved:
            return False
        return Standing(self.snapshot.machine, self.claims).decide(self.demand(waiting)).admit

    def start(self, waiting: Waiting) -> bool:
        """Start a worker for this job if it is admitted beside all that was decided so far; if not, say why.

        The id of a wish is 0: no job is bound to its worker.
        """
        key = _key(waiting)
        provider = self.provider(key)
        if not self.cores_left(waiting):
            return False
        demand = self.demand(waiting)
        verdict = self.standing(waiting).decide(demand)
        refused, cache = refusal(verdict, self.snapshot.machine)
        if cache is not None:
            self.clearing[key], self.refused[key] = cache, verdict
        if refused is not None:
            self.why[key] = refused
            return False
        charges = {place.pool: place.demand_gib for place in verdict.evidence.placement}
        self.starts.append(Start(waiting.job_id or None, waiting.slug, waiting.variant, charges, verdict))
        self.claims.append(kept_claim(demand, charges))
        self._standing.clear()
        self._threads[-waiting.job_id] = provider.threads
        self.started[key] = charges
        self.serve(waiting)
        return True

    def started_alone(self, job: Waiting, claim: Claim) -> None:
        """A worker is started for a job that runs alone: it is charged, and serves nobody else."""
        self.claims.append(claim)
        self._standing.clear()
        self._threads[-job.job_id] = self.provider(_key(job)).threads
        self.serve(job)

    def make_room(
        self, waiting: Waiting, offered: Sequence[WorkerView], places: Sequence[Mapping[str, float]] | None = None
    ) -> bool:
        """Retire those of the offered workers that suffice, if any do, and keep what they give back for this job.

        `places`: what it takes from which pool, one of them; None = anywhere that its demand may go.
        """
        key = _key(waiting)
        ruling, why = self.why[key]
        if ruling in ("cores", "reserved") or key in self.clearing:
            return False
        provider, claims, returning = self.provider(key), self.all_claims(waiting), self.returning()
        demand = beyond(self.demand(waiting), places)
        chosen = victims(demand, self.snapshot.machine, claims, offered, returning, self._reload_cost, places)
        if chosen is None:
            return False
        for worker in chosen:
            self.stops.append(Retire(worker.id, f"its room is needed for job {waiting.job_id} of {provider.name}"))
            self.leaving.add(worker.id)
        if places is None:
            verdict = decide(demand, self.snapshot.machine, claims, away=self.returning())
            places = ({place.pool: place.demand_gib for place in verdict.evidence.placement},)
        self.kept.append(kept_claim(demand, places[0]))
        self._standing.clear()
        if isinstance(why, Verdict):
            why = self.refused[key] = Standing(self.snapshot.machine, claims).verdict(demand, places[0])
        self.making[key] = (ruling, explain.evicting(why, [worker.id for worker in chosen]))
        return True

    def _reload_cost(self, worker: WorkerView) -> float:
        waits = next((w.count for w in self.snapshot.waiting if _key(w) == _key(worker)), 0)
        return self.expected.reload_cost(_key(worker), waits)

    # The future

    def rooms(self) -> Rooms:
        """What is free of each pool, or will be as soon as it is asked for: beside all but idle and leaving workers."""
        rooms = Rooms(self.snapshot.machine)
        away = {claim.worker_id for claim in (*self.returning(), *self.dry_claims())} - {0}
        for claim in (*self.claims, *self.kept):
            if claim.worker_id not in away:
                rooms.take(rooms.parts(claim.charges))
        for holding in self.snapshot.machine.holdings:
            if holding.worker_id is None:
                rooms.take(rooms.parts({c.pool: c.charge_gib or 0.0 for c in holding.charges}))
        return rooms

    def group(self, waiting: Waiting, rooms: Rooms) -> Group:
        """A provider's waiting jobs, as a forecast sees them."""
        key = _key(waiting)
        places = self._places.get(key)
        if places is None:
            found = placements(self.demand(waiting), self.snapshot.machine)
            places = self._places[key] = tuple(rooms.parts(place) for place in found)
        share = min((rooms.share(parts) for parts in places), default=0.0)
        work_s = waiting.count * self.expected.run_s(key)
        return Group(key, places, share, self.expected.load_s(key), work_s, (-waiting.priority, waiting.job_id))

    def running_dry(self, rooms: Rooms) -> list[tuple[float, Leaving]]:
        """Every worker that is neither idle nor leaving, with its share of a pool: when it will have run dry."""
        spare = {worker.id for worker in self.dry()} | self.leaving
        found = []
        for worker in self.living:
            if worker.id in spare or worker.state == "retiring" or worker.pinned:
                continue
            parts, key = rooms.parts(worker.charges), _key(worker)
            work_s = self.expected.work_s(self._first.get(key))
            known = self.expected.knows_rest(worker, works=key in self._first or worker.id in self.sent)
            leaving = Leaving(self.rest_s(worker) + work_s, parts, known)
            found.append((rooms.share(parts), leaving))
        for key, charges in self.started.items():
            parts = rooms.parts(charges)
            lasts_s = self.expected.load_s(key) + self.expected.run_s(key) + self.expected.work_s(self._first.get(key))
            found.append((rooms.share(parts), Leaving(lasts_s, parts, self.expected.knows_whole(key))))
        return found

    def rest_s(self, worker: WorkerView) -> float:
        """Until what this worker is at, or was just sent, is done."""
        return self.expected.run_s(_key(worker)) if worker.id in self.sent else self.expected.rest_s(worker)

    def end_cost_s(self, worker: WorkerView) -> float:
        """What waiting for a worker's end and loading it again would cost; of an idle one next to nothing."""
        if _key(worker) in self._first:
            return self.rest_s(worker) + self.expected.load_s(_key(worker))
        return self.rest_s(worker) + IDLE_COST * self._reload_cost(worker)

    def closes_in_s(self, waiting: Waiting) -> float:
        """When the window of this head closes, if it is one now."""
        return max(0.0, self.snapshot.overtake_s - (waiting.head_for_s or 0.0))


def _key(thing: Waiting | WorkerView) -> Key:
    return thing.slug, thing.variant


def _computes(worker: WorkerView) -> bool:
    return worker.state in ("parked", "starting", "busy") or (worker.state == "ready" and worker.job_id is not None)
