"""The loop: events in, a pure plan, instructions out, one writer.

A tick is one transaction: what happened is recorded, what is there is read, the plan decides, and its marks
(claims, leases, moves) are written; only after the commit is anything started, sent or stopped. A crash
between the two leaves a claim without a deed, which `recover` undoes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds, stamp
from scheduler.crash import crashpoint
from scheduler.handover import adoption, task_of
from scheduler.model.host import Asked, Host, HostEvent, Nudged, Park
from scheduler.model.plan import Abort, Explain, Go, Head, Instruction, Retire, Send, Snapshot, Start
from scheduler.model.provider import Provider
from scheduler.record import Recorder
from scheduler.rules.plan import plan
from scheduler.store import content, events, facts, leases, queue, reasons, schedulers, workers
from scheduler.store.engine import Store
from scheduler.view import Memory, Orders, snapshot

SLOW_POLL_S = 5.0
SETTLE_S = 0.02
"""After a tick that changed something the next is soon, events or not: what it made possible is then seen."""

REASON_EVERY_S = 5.0
FACTS_EVERY_S = 5.0


@dataclass(frozen=True)
class Identity:
    """Which scheduler this is: its epoch fences every lower one."""

    epoch: int
    host_id: str
    queue_id: str


class Loop:
    """One queue's scheduler on one host."""

    def __init__(
        self,
        store: Store,
        host: Host,
        clock: SystemClock,
        identity: Identity,
        orders: Orders,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.host = host
        self.clock = clock
        self.identity = identity
        self.orders = orders
        self.draw = draw
        self.memory = Memory()
        self.leaving = ""
        self.last_activity = clock.monotonic_s()
        self._reasons: dict[tuple[str, str], tuple[int, str, str, float]] = {}
        self._seen: Snapshot | None = None
        self._facts_at: float | None = None
        self._moved = False
        self._due_in_s = 0.0
        self._revisions: dict[tuple[str, str], str] = {}
        self._rows: dict[int, Any] = {}

    def recover(self) -> None:
        """Reconcile before anything is scheduled: every live row is put before the host, which says what is true.

        Claims that were never sent are given back; workers that live are adopted, idle and busy; what is gone
        comes back as an event and ends by the same rules as on any other day.
        """
        with self.store.write() as tx:
            schedulers.fence(tx, self.identity.epoch)
            rows = workers.live(tx)
            bound = {row.worker_id: row for row in queue.live(tx)}
            providers = self.host.providers()
            adopt = [adoption(row, bound.get(row.id)) for row in rows]
            recorder = self._recorder(tx, providers)
            for row in rows:
                job = bound.get(row.id)
                if job is not None and job.state == "admitted":
                    recorder.give_back(job.id, job.attempt, "the scheduler ended before the request was sent")
                if row.state == "parked":
                    workers.move(tx, row.id, "abort", recorder.at, why="its scheduler ended before it was let go")
            living = {row.id for row in rows}
            for job in bound.values():
                if job.worker_id not in living:
                    self._strand(recorder, job)
            revisions = {key: p.revision for key, p in providers.items()}
            queue.set_revision_blocks(tx, revisions)
            reasons.clear_all(tx)
            loose = {row.worker_id: row.state for row in leases.charged(tx) if row.worker_id not in living}
            for worker_id, state in loose.items():
                if state in ("reserved", "held"):
                    leases.move(tx, worker_id, "exit", recorder.at, "found without a worker at start-up")
        self.host.adopt(adopt)
        self.host.watch_return(sorted(loose))

    def tick(self, timeout_s: float | None = None) -> bool:
        """One turn: wait for events, record, plan, perform. False when the scheduler has nothing left to stay for."""
        happened = self.host.poll(self.patience_s() if timeout_s is None else timeout_s)
        effects: list[Callable[[], None]] = []
        with self.store.write() as tx:
            schedulers.fence(tx, self.identity.epoch)
            providers = self.host.providers()
            recorder = self._recorder(tx, providers)
            for event in happened:
                recorder.record(event)
            queue.due(tx, recorder.at)
            self._match_revisions(tx, providers, happened)
            self._obey(recorder.asked)
            live = self._cancel_admitted(tx, recorder, queue.live(tx))
            heads = queue.heads(tx)
            seen = snapshot(tx, self.host.machine(), providers, self.memory, self.clock, self.orders, heads, live)
            self._rows = {row.id: row for row in [*heads, *live]}
            explained: set[tuple[str, str]] = set()
            for instruction in plan(seen):
                effect = self._mark(tx, recorder, instruction, explained)
                if effect is not None:
                    effects.append(effect)
            self._forget_reasons(tx, seen, explained)
            self._record_facts(tx, seen)
            self._look_ahead(tx)
        crashpoint("tick.committed")
        for effect in effects:
            effect()
        for job_id, state in recorder.told.items():
            self.host.tell(job_id, state)
        self._seen = seen
        self._moved = bool(effects)
        self._note_activity(happened, seen)
        return not self._done(seen)

    def patience_s(self) -> float:
        """How long the loop may sleep: until the next thing that is due, at most the slow poll."""
        seen, now = self._seen, self.clock.monotonic_s()
        if seen is None:
            return 0.0
        if self._moved:
            return SETTLE_S
        ahead = [self._due_in_s, *(at - now for at in self.memory.deadline.values())]
        ahead += [breaker.next_try_in_s for breaker in seen.breakers.values()]
        for worker in seen.workers:
            provider = seen.providers.get((worker.slug, worker.variant))
            if provider is None:
                continue
            if worker.state == "ready" and worker.job_id is None and provider.idle_timeout_s > 0:
                ahead.append(provider.idle_timeout_s - worker.idle_s)
            if worker.state == "starting":
                ahead.append(provider.start_timeout_s - worker.alive_s)
        if any(not p.installed for p in (seen.providers.get((w.slug, w.variant)) for w in seen.waiting) if p):
            ahead.append(1.0)
        return max(0.01, min([SLOW_POLL_S, *(wait for wait in ahead if wait > 0)]))

    def _look_ahead(self, tx: Connection) -> None:
        due_at = queue.next_due_at(tx)
        self._due_in_s = max(0.0, seconds(due_at) - self.clock.now_s()) if due_at else SLOW_POLL_S

    def _recorder(self, tx: Connection, providers: dict[tuple[str, str], Provider]) -> Recorder:
        return Recorder(tx, self.memory, self.clock, providers, jitter=self.draw())

    def _obey(self, asked: list[Asked]) -> None:
        for order in asked:
            self.leaving = order.op
            if order.op == "down":
                self.orders = Orders(self.orders.overtake_s, draining=True, stopping=order.now or self.orders.stopping)

    def _match_revisions(
        self, tx: Connection, providers: dict[tuple[str, str], Provider], happened: list[HostEvent]
    ) -> None:
        """Set jobs aside that are pinned to another revision than is here; looked at when either may have changed."""
        revisions = {key: provider.revision for key, provider in providers.items()}
        if revisions != self._revisions or not happened or any(isinstance(event, Nudged) for event in happened):
            queue.set_revision_blocks(tx, revisions)
            self._revisions = revisions

    def _cancel_admitted(self, tx: Connection, recorder: Recorder, live: list[Any]) -> list[Any]:
        """A job that was cancelled before its request was sent ends at once; its worker goes on loading."""
        left = []
        for job in live:
            if job.state == "admitted" and job.cancel_requested_at is not None:
                recorder.told[job.id] = queue.cancel_admitted(tx, job.id, job.attempt, recorder.at)
            else:
                left.append(job)
        return left

    def _strand(self, recorder: Recorder, job: Any) -> None:
        """A job whose worker's row has ended while it was still bound: finish what a crash left half done."""
        if job.state == "admitted":
            recorder.give_back(job.id, job.attempt, "its worker was gone at start-up")
        else:
            from scheduler.model.outcome import Outcome

            recorder.finish(job.id, job.attempt, Outcome("lost", "its worker was gone at start-up"))

    def _mark(
        self, tx: Connection, recorder: Recorder, instruction: Instruction, explained: set[tuple[str, str]]
    ) -> Callable[[], None] | None:
        match instruction:
            case Start():
                return self._start(tx, recorder, instruction)
            case Go(worker_id):
                workers.move(tx, worker_id, "go", recorder.at)
                leases.move(tx, worker_id, "go", recorder.at, "")
                now = self.clock.monotonic_s()
                self.memory.state_since[worker_id] = self.memory.alive_at[worker_id] = now
                self.memory.loading_since[worker_id] = now
                return lambda: self.host.go(worker_id)
            case Send(worker_id, job_id):
                return self._send(tx, recorder, worker_id, job_id)
            case Abort(worker_id, why, outcome):
                return self._stop(tx, recorder, worker_id, "abort", f"{outcome}: {why}" if outcome else why)
            case Retire(worker_id, why):
                return self._stop(tx, recorder, worker_id, "retire", why)
            case Head(job_id):
                queue.open_head(tx, job_id, recorder.at)
                self.memory.head_since.setdefault(job_id, self.clock.monotonic_s())
                return None
            case Explain():
                explained.add((instruction.slug, instruction.variant))
                self._explain(tx, recorder, instruction)
                return None
            case _:
                assert_never(instruction)

    def _start(self, tx: Connection, recorder: Recorder, start: Start) -> Callable[[], None]:
        provider = recorder.providers[start.slug, start.variant]
        worker_id = workers.insert(
            tx, slug=start.slug, variant=start.variant, revision=provider.revision, mode=provider.mode,
            host_id=self.identity.host_id, epoch=self.identity.epoch, created_at=recorder.at,
        )  # fmt: skip
        lease_ids = leases.reserve(tx, worker_id, start.slug, start.charges, self.identity.host_id, recorder.at)
        queue.admit(tx, start.job_id, worker_id, self.identity.epoch, recorder.at)
        recorder.told[start.job_id] = "admitted"
        self.memory.state_since[worker_id] = self.memory.alive_at[worker_id] = self.clock.monotonic_s()
        order = Park(
            worker_id, start.slug, start.variant, provider.revision, provider.mode, dict(start.charges), lease_ids,
        )  # fmt: skip
        return lambda: self.host.park(order)

    def _send(self, tx: Connection, recorder: Recorder, worker_id: int, job_id: int) -> Callable[[], None]:
        job = self._rows[job_id]
        if job.state == "queued":
            attempt = queue.claim_warm(tx, job_id, worker_id, self.identity.epoch, recorder.at)
        else:
            attempt = job.attempt
            queue.send(tx, job_id, attempt, recorder.at)
        workers.move(tx, worker_id, "send", recorder.at)
        recorder.told[job_id] = "running"
        now = self.clock.monotonic_s()
        self.memory.state_since[worker_id] = self.memory.alive_at[worker_id] = self.memory.sent_at[worker_id] = now
        if job.timeout_s is not None:
            self.memory.deadline[worker_id] = now + job.timeout_s
        body = job.input if job.input is not None else content.read(self.store.paths, job.input_sha256)
        task = task_of(job, worker_id, attempt, body)
        return lambda: self.host.submit(task)

    def _stop(
        self, tx: Connection, recorder: Recorder, worker_id: int, event: str, why: str
    ) -> Callable[[], None] | None:
        row = workers.row(tx, worker_id)
        if row is None or row.state in ("retiring", "gone"):
            return None
        workers.move(tx, worker_id, event, recorder.at, why=why)
        self.memory.state_since[worker_id] = self.clock.monotonic_s()
        job = queue.bound(tx, worker_id)
        if job is not None and job.state == "admitted":
            wait_s = 0.02 + 0.18 * self.draw() if row.state == "parked" and not self.orders.draining else None
            recorder.give_back(job.id, job.attempt, why, wait_s=wait_s)
        provider = recorder.providers.get((row.slug, row.variant)) or Provider(row.slug, row.variant)
        return lambda: self.host.stop(worker_id, provider.stop_grace_s, why)

    def _explain(self, tx: Connection, recorder: Recorder, e: Explain) -> None:
        now = self.clock.monotonic_s()
        last = self._reasons.get((e.slug, e.variant))
        if last is not None:
            job_id, ruling, text, at = last
            unchanged = (job_id, ruling, text) == (e.job_id, e.ruling, e.text)
            if unchanged or ((job_id, ruling) == (e.job_id, e.ruling) and now - at < REASON_EVERY_S):
                return
        reasons.put(tx, e.slug, e.variant, e.job_id, e.ruling, e.text, recorder.at)
        if last is None or last[:2] != (e.job_id, e.ruling):
            events.record(tx, recorder.at, job_id=e.job_id, event=e.ruling, text=e.text)
        self._reasons[e.slug, e.variant] = (e.job_id, e.ruling, e.text, now)

    def _forget_reasons(self, tx: Connection, seen: Snapshot, explained: set[tuple[str, str]]) -> None:
        for key in [key for key in self._reasons if key not in explained]:
            reasons.clear(tx, *key)
            del self._reasons[key]

    def _record_facts(self, tx: Connection, seen: Snapshot) -> None:
        """Keep what `status` shows of the machine: when something lives or waits, at most every few seconds."""
        now = self.clock.monotonic_s()
        first = self._facts_at is None
        busy = bool(seen.workers or seen.waiting or seen.leases)
        if first or (busy and now - (self._facts_at or 0.0) >= FACTS_EVERY_S):
            facts.put(tx, self.identity.host_id, self.host.facts(seen.machine), stamp(self.clock.now_s()))
            self._facts_at = now

    def _note_activity(self, happened: list[HostEvent], seen: Snapshot) -> None:
        if happened or seen.workers or seen.waiting:
            self.last_activity = self.clock.monotonic_s()

    def _done(self, seen: Snapshot) -> bool:
        if self.leaving == "restart":
            return True
        return self.leaving == "down" and not seen.workers and not seen.leases
