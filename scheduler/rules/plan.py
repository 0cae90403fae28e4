"""What to do now, from everything that is known now: a pure function, the same for the same snapshot.

Stops first, then starts, each start seeing the charges of those before it. While the head's window is open, ready
workers are sent their provider's next job and every absent provider that is admitted may start, in order; idle
workers for which nothing waits make room. Once it has closed, nothing is started or sent but the head, and every idle
worker may have to go for it.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.model.plan import (
    Abort,
    Explain,
    Go,
    Head,
    Instruction,
    Retire,
    Send,
    Snapshot,
    Start,
    Waiting,
    WorkerView,
)
from scheduler.model.provider import Provider
from scheduler.rules import explain
from scheduler.rules.admission import Claim, claims_of, confirm, decide
from scheduler.rules.eviction import evictable, victims
from scheduler.rules.order import Key, Line, line, name_of, present, window_closed
from scheduler.rules.placement import demand_of
from scheduler.rules.retirement import stops


def plan(snapshot: Snapshot) -> list[Instruction]:
    """The instructions of this tick, stops before starts, and why whatever waits still waits."""
    claims = claims_of(snapshot)
    whole = line(snapshot, claims)
    tick = _Tick(snapshot, whole, list(claims))
    tick.confirm_parked()
    tick.send_bound()
    while tick.serve():
        pass
    tick.start_more()
    return tick.told()


class _Tick:
    """One plan in the making: what is charged, computed on and decided so far."""

    def __init__(self, snapshot: Snapshot, whole: Line, claims: list[Claim]) -> None:
        self.snapshot = snapshot
        self.line = whole
        self.claims = claims
        self.wanted = {(w.slug, w.variant) for w in whole.eligible}
        self.stops: list[Abort | Retire] = list(stops(snapshot, self.wanted))
        self.leaving = {stop.worker_id for stop in self.stops}
        self.starts: list[Go | Send | Start] = []
        self.why: dict[Key, tuple[str, str]] = dict(whole.excluded)
        self.served: set[Key] = set()
        self.sent: set[int] = set()
        self.kept: list[Claim] = []
        self.making: dict[Key, tuple[str, str]] = {}
        self.short = False
        self.threads = {
            w.id: self._provider(w).threads
            for w in snapshot.workers
            if w.state in ("parked", "starting", "busy") or (w.state == "ready" and w.job_id is not None)
        }

    def _provider(self, worker: WorkerView) -> Provider:
        return self.snapshot.providers.get((worker.slug, worker.variant)) or Provider(worker.slug, worker.variant)

    def _present(self, key: Key) -> list[WorkerView]:
        return [worker for worker in present(self.snapshot, key) if worker.id not in self.leaving]

    def _free(self, key: Key) -> WorkerView | None:
        return next((w for w in self._present(key) if w.state == "ready" and w.job_id is None), None)

    @property
    def head(self) -> Waiting | None:
        """The first that may go and is not served yet."""
        return next((w for w in self.line.eligible if (w.slug, w.variant) not in self.served), None)

    @property
    def closed(self) -> bool:
        """Whether only the head may go: its window has closed, and it needs room or cores that others could take."""
        head = self.head
        if head is None or not window_closed(head, self.snapshot.overtake_s):
            return False
        key = (head.slug, head.variant)
        return not self._present(key) or self._free(key) is not None

    def serve(self) -> bool:
        """Send and start what may go; whether to look again, because a head that stood before others was served."""
        stood, closed = self.head, self.closed
        self.why = {**self.line.excluded, **self.making}
        self.send_warm()
        self.start_absent()
        return closed and self.head is not stood

    def _cores_left(self, threads: int) -> bool:
        in_use = sum(self.threads.values())
        return in_use == 0 or in_use + threads <= self.snapshot.machine.cores

    def _may_go(self, waiting: Waiting) -> bool:
        """False, with the reason noted, for everybody but the head once its window has closed."""
        head = self.head
        if head is None or waiting is head or not self.closed:
            return True
        text = explain.reserved(name_of(waiting), head, name_of(head))
        self.why[waiting.slug, waiting.variant] = ("reserved", text)
        return False

    def confirm_parked(self) -> None:
        """Every parked worker whose claim all can see now: go, or end it before anything is spent."""
        for worker in sorted(self.snapshot.workers, key=lambda w: w.id):
            if worker.state != "parked" or not worker.shown or worker.id in self.leaving:
                continue
            provider = self.snapshot.providers.get((worker.slug, worker.variant))
            if provider is None:
                refused = explain.not_installed(worker.slug, None)
            else:
                verdict = confirm(demand_of(provider), worker.charges, self.snapshot.machine, self.claims, worker.id)
                refused = "" if verdict.admit else explain.sentence(verdict)
            if refused:
                self.stops.append(Abort(worker.id, refused))
                self.leaving.add(worker.id)
            else:
                self.starts.append(Go(worker.id))
                self._compete(worker.id)

    def _compete(self, worker_id: int) -> None:
        self.claims = [replace(c, competes=True) if c.worker_id == worker_id else c for c in self.claims]

    def send_bound(self) -> None:
        """Every ready worker that a job was admitted to gets it, whatever the window: it was first when it was."""
        for worker in sorted(self.snapshot.workers, key=lambda w: w.id):
            if worker.state == "ready" and worker.job_id is not None and worker.id not in self.leaving:
                self.starts.append(Send(worker.id, worker.job_id))
                self._compete(worker.id)

    def send_warm(self) -> None:
        """Ready workers get their provider's next job."""
        for waiting in self.line.eligible:
            key = (waiting.slug, waiting.variant)
            worker = self._free(key)
            if worker is None or key in self.served or not self._may_go(waiting):
                continue
            threads = self._provider(worker).threads
            if not self._cores_left(threads):
                self._short_of_cores(waiting, threads)
                continue
            self.starts.append(Send(worker.id, waiting.job_id))
            self.sent.add(worker.id)
            self.threads[worker.id] = threads
            self.served.add(key)
            self._compete(worker.id)

    def _short_of_cores(self, waiting: Waiting, threads: int) -> None:
        in_use, cores = sum(self.threads.values()), self.snapshot.machine.cores
        text = explain.too_few_cores(name_of(waiting), threads, in_use, cores)
        self.why[waiting.slug, waiting.variant] = ("cores", text)

    def start_absent(self) -> None:
        """Providers without a worker start in order where they are admitted; idle workers go where that suffices."""
        for waiting in self.line.eligible:
            key = (waiting.slug, waiting.variant)
            if key in self.served or key in self.why or not self._may_go(waiting):
                continue
            workers = self._present(key)
            if workers:
                self.why[key] = explain.occupied(workers[0], self.snapshot.providers[key])
            elif not self._start(waiting):
                self._make_room(waiting)

    def _start(self, waiting: Waiting) -> bool:
        """Start a worker for this job if it is admitted beside all that was decided so far."""
        key = (waiting.slug, waiting.variant)
        provider = self.snapshot.providers[key]
        if not self._cores_left(provider.threads):
            self._short_of_cores(waiting, provider.threads)
            return False
        verdict = decide(demand_of(provider), self.snapshot.machine, [*self.claims, *self.kept])
        if not verdict.admit:
            self.short = True
            if self.kept and decide(demand_of(provider), self.snapshot.machine, self.claims).admit:
                self.why[key] = ("reserved", explain.beside(provider.name, self.kept[0].name))
            else:
                self.why[key] = (verdict.ruling, explain.sentence(verdict))
            return False
        charges = {place.pool: place.demand_gib for place in verdict.evidence.placement}
        self.starts.append(Start(waiting.job_id, waiting.slug, waiting.variant, charges, verdict))
        self.claims.append(_kept(provider, charges))
        self.threads[-waiting.job_id] = provider.threads
        self.served.add(key)
        self.why.pop(key, None)
        return True

    def _make_room(self, waiting: Waiting) -> None:
        """Retire the idle workers that suffice, if any do, and keep what they give back for this job."""
        key = (waiting.slug, waiting.variant)
        ruling, text = self.why[key]
        if ruling in ("cores", "reserved"):
            return
        provider, closed = self.snapshot.providers[key], self.closed
        idle = [
            worker
            for worker in self.snapshot.workers
            if evictable(worker)
            and worker.id not in self.leaving | self.sent
            and (closed or (worker.slug, worker.variant) not in self.wanted)
        ]
        chosen = victims(
            demand_of(provider), self.snapshot.machine, [*self.claims, *self.kept], idle, self.snapshot.providers,
            returning=self._returning(),
        )  # fmt: skip
        if chosen is None:
            return
        for worker in chosen:
            self.stops.append(Retire(worker.id, f"its room is needed for job {waiting.job_id} of {provider.name}"))
            self.leaving.add(worker.id)
        claims = [*self.claims, *self.kept]
        verdict = decide(demand_of(provider), self.snapshot.machine, claims, away=self._returning())
        self.kept.append(_kept(provider, {place.pool: place.demand_gib for place in verdict.evidence.placement}))
        self.making[key] = self.why[key] = (ruling, explain.evicting(text, [worker.id for worker in chosen]))

    def _returning(self) -> list[Claim]:
        """The claims whose memory is on its way back."""
        retiring = self.leaving | {worker.id for worker in self.snapshot.workers if worker.state == "retiring"}
        return [c for c in self.claims if c.worker_id in retiring or (c.gone and not c.stays)]

    def start_more(self) -> None:
        """A further worker of a provider that may have several, when nobody else needs the room."""
        for waiting in self.line.eligible:
            key = (waiting.slug, waiting.variant)
            if self.short or self.closed or key in self.served:
                continue
            workers = self._present(key)
            if not workers or self._free(key) is not None or len(workers) >= self.snapshot.providers[key].max_workers:
                continue
            before, short = self.why.get(key), self.short
            if not self._start(waiting) and before is not None:
                self.why[key], self.short = before, short

    def told(self) -> list[Instruction]:
        """All of it, in the order in which it is performed.

        A head that was served names no new one: its provider's next job may be the first now, and is not known here.
        """
        found: list[Instruction] = [*self.stops, *self.starts]
        head = self.line.head
        if head is not None and (head.slug, head.variant) not in self.served:
            found.append(Head(head.job_id))
        for waiting in sorted(self.snapshot.waiting, key=lambda w: (-w.priority, w.job_id)):
            key = (waiting.slug, waiting.variant)
            if key not in self.served and key in self.why:
                ruling, text = self.why[key]
                found.append(Explain(waiting.slug, waiting.variant, waiting.job_id, ruling, text))
        return found


def _kept(provider: Provider, charges: dict[str, float]) -> Claim:
    host_gib = provider.ram_gib if provider.policy == "required" else max(charges.values(), default=0.0)
    return Claim(0, provider.name, charges, host_gib)
