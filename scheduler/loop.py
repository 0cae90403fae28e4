"""The loop: events in, a pure plan, instructions out, one writer.

A tick is one transaction: what happened is recorded, what is there is read, the plan decides, and its marks
(claims, leases, moves) are written; only after the commit is anything started, sent or stopped. A crash
between the two leaves a claim without a deed, which `recover` undoes.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds, stamp
from scheduler.crash import crashpoint
from scheduler.errors import Fenced, IllegalTransition, TakenOver, Temporary
from scheduler.handover import adoption
from scheduler.model.host import Asked, Host, HostEvent, Nudged
from scheduler.model.plan import Snapshot
from scheduler.model.provider import Provider
from scheduler.perform import Identity, Performer
from scheduler.record import Recorder
from scheduler.rules.plan import plan
from scheduler.rules.predict import predict
from scheduler.store import breakers, facts, heads, leases, queue, reasons, schedulers, timings, workers
from scheduler.store.engine import Store
from scheduler.view import Memory, Orders, learned, snapshot

log = logging.getLogger("schedq")

SLOW_POLL_S = 5.0
STOP_FAILED_S = 5.0
"""Grace of a worker that an order did not reach."""

SETTLE_S = 0.02
"""After a tick that changed something the next is soon, events or not: what it made possible is then seen."""

FACTS_EVERY_S = 5.0


class Loop:
    """One queue's scheduler on one host.

    `told`: reasons, forecasts and the machine's figures are written down for whoever looks; a simulation has nobody.
    """

    def __init__(
        self,
        store: Store,
        host: Host,
        clock: SystemClock,
        identity: Identity,
        orders: Orders,
        draw: Callable[[], float] = random.random,
        *,
        told: bool = True,
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
        self.told = told
        self.performer = Performer(host, clock, self.memory, identity, store.paths, draw)
        self._seen: Snapshot | None = None
        self._facts_at: float | None = None
        self._moved = False
        self._watched_at = clock.monotonic_s()
        self._inbox: list[HostEvent] = []
        self._trouble = ""
        self._due_in_s = 0.0
        self._known: dict[tuple[str, str], Provider] = {}
        self._learned: dict[tuple[str, str], Any] = {}

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
                self._remember(tx, row, job)
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

    def _remember(self, tx: Connection, row: Any, job: Any) -> None:
        """Patience with a worker begins anew with its new scheduler; what a job was given in all does not."""
        now = self.clock.monotonic_s()
        self.memory.state_since[row.id] = self.memory.alive_at[row.id] = now
        sent_at = queue.sent_at(tx, job.id, job.attempt) if job is not None and job.state == "running" else None
        if sent_at is None:
            return
        ran_s = max(0.0, self.clock.now_s() - seconds(sent_at))
        self.memory.sent_at[row.id] = now - ran_s
        if job.timeout_s is not None:
            self.memory.deadline[row.id] = now + max(0.0, job.timeout_s - ran_s)

    def tick(self, timeout_s: float | None = None) -> bool:
        """One turn: wait for events, record, plan, perform. False when the scheduler has nothing left to stay for.

        While the queue cannot be written (disk full, locked) nothing is forgotten: the events wait for the next turn.
        """
        self._inbox += self.host.poll(self.patience_s() if timeout_s is None else timeout_s)
        try:
            stay = self._turn(self._inbox)
        except Temporary as error:
            self._wait_out(error)
            return True
        except (IllegalTransition, Fenced) as error:
            if isinstance(error, TakenOver) or not self._inbox:
                raise
            stay = self._one_by_one(self._inbox)
        self._inbox = []
        self._trouble = ""
        return stay

    def _wait_out(self, error: Temporary) -> None:
        if str(error) != self._trouble:
            log.warning("the queue cannot be written, trying again every second: %s", error)
            self._trouble = str(error)
        self.performer.doubt()
        self.clock.sleep(1.0)

    def _one_by_one(self, happened: list[HostEvent]) -> bool:
        """Record each event by itself; one that contradicts the queue is said and dropped, the night goes on."""
        self.performer.doubt()
        stay = True
        for event in happened:
            try:
                stay = self._turn([event])
            except (IllegalTransition, Fenced) as error:
                if isinstance(error, TakenOver):
                    raise
                log.error("%s contradicts the queue and is left out: %s", event, error)
        return stay

    def _turn(self, happened: list[HostEvent]) -> bool:
        providers = self.host.providers()
        effects: list[Callable[[], None]] = []
        with self.store.write() as tx:
            schedulers.fence(tx, self.identity.epoch)
            recorder = self._recorder(tx, providers)
            for event in happened:
                recorder.record(event)
            queue.due(tx, recorder.at)
            self._match_revisions(tx, providers, happened)
            self._obey(recorder.asked)
            live = self._cancel_admitted(tx, recorder, queue.claims(tx))
            firsts = queue.heads(tx)
            known = learned(providers, timings.known(tx), self._learned)
            seen = snapshot(tx, self.host.machine(), known, self.memory, self.clock, self.orders, firsts, live)
            self.performer.begin()
            for instruction in plan(seen, explained=self.told):
                effect = self.performer.mark(tx, recorder, instruction)
                if effect is not None:
                    effects.append(effect)
            self.performer.forget_reasons(tx)
            self.performer.settle_heads(tx, seen)
            self._record_facts(tx, seen)
            self._look_ahead(tx)
        crashpoint("tick.committed")
        for worker_id, why in recorder.stops:
            self.host.stop(worker_id, STOP_FAILED_S, why)
        for effect in effects:
            effect()
        for job_id, state in recorder.told.items():
            self.host.tell(job_id, state)
        self._watch_loose(seen)
        self._seen = seen
        self._moved = bool(effects)
        self._note_activity(happened, seen)
        return not self._done(seen)

    def patience_s(self, most_s: float = SLOW_POLL_S, settle_s: float = SETTLE_S) -> float:
        """How long the loop may sleep: until the next thing that is due, at most the slow poll.

        `settle_s` after a turn that changed something.
        """
        seen, now = self._seen, self.clock.monotonic_s()
        if seen is None:
            return 0.0
        if self._moved and settle_s:
            return settle_s
        ahead = [self._due_in_s, *(at - now for at in self.memory.deadline.values())]
        ahead += [breaker.next_try_in_s for breaker in seen.breakers.values()]
        ahead += [seen.overtake_s - (waiting.head_for_s or 0.0) for waiting in seen.waiting]
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
        return max(0.01, min([most_s, *(wait for wait in ahead if wait > 0)]))

    def _watch_loose(self, seen: Snapshot) -> None:
        """Look again at charges whose worker is gone: what leaked heals by itself, or stays shown."""
        now = self.clock.monotonic_s()
        if seen.leases and now - self._watched_at >= SLOW_POLL_S:
            self._watched_at = now
            self.host.watch_return(sorted({lease.worker_id for lease in seen.leases}))

    def _look_ahead(self, tx: Connection) -> None:
        due_at = queue.next_due_at(tx)
        self._due_in_s = max(0.0, seconds(due_at) - self.clock.now_s()) if due_at else math.inf

    def _recorder(self, tx: Connection, providers: dict[tuple[str, str], Provider]) -> Recorder:
        return Recorder(tx, self.memory, self.clock, providers, jitter=self.draw(), draining=self.orders.draining)

    def _obey(self, asked: list[Asked]) -> None:
        for order in asked:
            self.leaving = order.op
            if order.op == "down":
                stopping = order.now or self.orders.stopping
                self.orders = replace(self.orders, draining=True, stopping=stopping)

    def _match_revisions(
        self, tx: Connection, providers: dict[tuple[str, str], Provider], happened: list[HostEvent]
    ) -> None:
        """Set jobs aside that are pinned to another revision than is here; looked at when either may have changed.

        A provider that changed in any way (manifest, environment) gets a new chance: its breaker closes.
        """
        changed = {key[0] for key, provider in providers.items() if self._known.get(key) not in (None, provider)}
        for slug in changed:
            breakers.put(tx, slug, None)
        if providers != self._known or not happened or any(isinstance(event, Nudged) for event in happened):
            queue.set_revision_blocks(tx, {key: provider.revision for key, provider in providers.items()})
            self._known = dict(providers)

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

    def _record_facts(self, tx: Connection, seen: Snapshot) -> None:
        """Keep what `status` shows of the machine: when something lives or waits, at most every few seconds."""
        now = self.clock.monotonic_s()
        first = self._facts_at is None
        busy = bool(seen.workers or seen.waiting or seen.leases)
        if self.told and (first or (busy and now - (self._facts_at or 0.0) >= FACTS_EVERY_S)):
            facts.put(tx, self.identity.host_id, self.host.facts(seen.machine), stamp(self.clock.now_s()))
            wall = self.clock.now_s()
            heads.set_forecasts(tx, ((each, stamp(wall + each.starts_in_s)) for each in predict(seen)))
            self._facts_at = now

    def _note_activity(self, happened: list[HostEvent], seen: Snapshot) -> None:
        if happened or seen.workers or seen.waiting:
            self.last_activity = self.clock.monotonic_s()

    def _done(self, seen: Snapshot) -> bool:
        if self.leaving == "restart":
            return True
        return self.leaving == "down" and not seen.workers and not seen.leases
