"""The loop: events in, a pure plan, instructions out, one writer.

A tick is one transaction: what happened is recorded, what is there is read, the plan decides, and its marks
(claims, leases, moves) are written; only after the commit is anything started, sent or stopped. A crash
between the two leaves a claim without a deed, which `recover` undoes.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from scheduler.chores import Chores
from scheduler.clock import SystemClock, seconds, stamp
from scheduler.crash import crashpoint
from scheduler.deeds import Deed, shows, tried
from scheduler.errors import Fenced, IllegalTransition, SchedqError, TakenOver, Temporary
from scheduler.journal import Journal
from scheduler.loose import Watch
from scheduler.measured import Measured
from scheduler.model.command import Offers
from scheduler.model.host import Asked, Host, HostEvent, Nudged
from scheduler.model.machine import Machine
from scheduler.model.plan import Snapshot
from scheduler.model.provider import Provider
from scheduler.perform import Identity, Performer
from scheduler.reconcile import reconcile
from scheduler.record import Recorder
from scheduler.rules.plan import plan
from scheduler.store import breakers, commands, queue, reasons, schedulers, timings
from scheduler.store.engine import Store
from scheduler.troubles import Troubles
from scheduler.view import Memory, Orders, learned, snapshot

log = logging.getLogger("schedq")

SLOW_POLL_S = 5.0
RETRY_S = 1.0
STOP_FAILED_S = 5.0
"""Grace of a worker that an order did not reach."""

SETTLE_S = 0.02
"""After a tick that changed something the next is soon, events or not: what it made possible is then seen."""


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
        journal: Journal | None = None,
    ) -> None:
        self.store = store
        self.host = host
        self.clock = clock
        self.identity = identity
        self.orders = orders
        self.draw = draw
        self.journal = journal or Journal()
        self.memory = Memory()
        self.leaving, self._moved = "", False
        self.troubles = Troubles(clock)
        self.last_activity = clock.monotonic_s()
        self.told = told
        self.performer = Performer(host, clock, self.memory, identity, store.paths, draw)
        self._seen: Snapshot | None = None
        self.chores = Chores(host, clock, identity.host_id, told=told)
        self.watch = Watch(host, clock)
        self._inbox: list[HostEvent] = []
        self._due_in_s: float | None = None
        self._known: dict[tuple[str, str], Provider] = {}
        self._learned: dict[tuple[str, str], Any] = {}
        self._providers: dict[tuple[str, str], Provider] = {}

    @property
    def trouble(self) -> str:
        """What kept the last tick from its work, "" for nothing."""
        return self.troubles.now

    def recover(self) -> None:
        """Reconcile before anything is scheduled: every live row is put before the host, which says what is true.

        Claims that were never sent are given back; workers that live are adopted, idle and busy; what is gone
        comes back as an event and ends by the same rules as on any other day.
        """
        with self.store.write() as tx:
            schedulers.fence(tx, self.identity.epoch)
            providers = self._provided()
            adopt, loose = reconcile(tx, self._recorder(tx, providers), self.memory, self.clock)
            queue.set_revision_blocks(tx, _revisions(providers))
            reasons.clear_all(tx)
            commands_left = commands.live(tx)
        self.host.adopt(adopt)
        self.host.watch_return(loose)
        self.host.keep_environments(commands_left)

    def tick(self, timeout_s: float | None = None) -> bool:
        """One turn: wait for events, record, plan, perform. False when the scheduler has nothing left to stay for.

        While the queue cannot be written (disk full, locked) nothing is forgotten: the events wait for the next turn.
        """
        wait_s = self.patience_s() if timeout_s is None else timeout_s
        self.troubles.now = ""
        self._inbox += self.host.poll(0.0 if self._inbox else wait_s)
        machine = self._read()
        try:
            stay = self._turns(machine)
        except TakenOver:
            raise
        except (Temporary, IllegalTransition, Fenced) as error:
            full = isinstance(error, Temporary)
            self.troubles.say("the queue cannot be written" if full else "the plan contradicts the queue", error)
            return self._wait_out()
        except SchedqError:
            raise
        except Exception as error:  # a turn that fails by a fault of ours is not the end of the night
            if self.troubles.say("a turn failed", error):
                log.exception("this is a fault of schedq; what it was about waits, workers go on")
            return self._wait_out()
        finally:
            self.journal.write()
        return stay if machine is not None else self._wait_out()

    def _provided(self) -> dict[tuple[str, str], Provider]:
        """The host's providers; those of the last time while it cannot tell."""
        try:
            self._providers = Offers(self.host.providers())
        except (SchedqError, OSError) as error:
            self.troubles.say("the providers cannot be read", error)
        return self._providers

    def _read(self) -> Machine | None:
        """The host's machine; None while it cannot tell: nothing is planned on a guess (P4)."""
        try:
            return self.host.machine()
        except (SchedqError, OSError) as error:
            self.troubles.say("the machine cannot be read", error)
            return None

    def _wait_out(self) -> bool:
        """Nothing was planned in this tick, and its last transaction may have been rolled back."""
        self.performer.doubt()
        self.chores.doubt()
        self.last_activity = self.clock.monotonic_s()
        self.clock.sleep(RETRY_S)
        return self.leaving != "restart"

    def _turns(self, machine: Machine | None) -> bool:
        """All of the inbox in one turn; if that contradicts the queue, each event by itself and then the plan.

        An event that contradicts is said and dropped, the night goes on.
        """
        try:
            return self._turn(self._inbox[:], machine)
        except (TakenOver, Temporary):
            raise
        except Exception:
            if not self._inbox:
                raise
        self.performer.doubt()
        self.chores.doubt()
        while self._inbox:
            event = self._inbox[0]
            try:
                self._turn([event], None)
            except (TakenOver, Temporary):
                raise
            except Exception as error:
                log.error("%s contradicts the queue and is left out: %s: %s", event, type(error).__name__, error)
                del self._inbox[0]
        return self._turn([], machine)

    def _turn(self, happened: list[HostEvent], machine: Machine | None) -> bool:
        """One transaction and what follows from it. `happened` is what the inbox begins with; None: plan nothing."""
        providers = self._provided()
        deeds, seen = [], None  # type: list[Deed], Snapshot | None
        with self.journal.turn(happened), self.memory.provisional(), self.store.write() as tx:
            schedulers.fence(tx, self.identity.epoch)
            recorder = self._recorder(tx, providers)
            for event in happened:
                recorder.record(event)
            self._obey(recorder.asked)
            if machine is not None:
                seen = self._plan(tx, recorder, machine, happened, deeds)
        crashpoint("tick.committed")
        del self._inbox[: len(happened)]
        if not all(isinstance(event, Nudged) for event in happened):
            self.last_activity = self.clock.monotonic_s()
        stops = [self.performer.stop(worker_id, STOP_FAILED_S, why) for worker_id, why in recorder.stops]
        lowered = recorder.measured.lowered if recorder.measured is not None else {}
        self._inbox += self.performer.carry_out([*stops, *shows(self.host.charge, lowered), *deeds], recorder.told)
        if seen is None:
            return True
        self._known = dict(providers)
        tried("the look at what is charged without a worker", self.watch.ask)
        self._seen = seen
        self._moved = bool(deeds)
        self._note_activity(seen)
        return not self._done(seen)

    def _plan(
        self, tx: Connection, recorder: Recorder, machine: Machine, happened: list[HostEvent], deeds: list[Deed]
    ) -> Snapshot:
        """Read, decide, and write the marks of what was decided; what is to be done for it is added to `deeds`."""
        queue.due(tx, recorder.at)
        recorder.told.update(self.chores.before(tx))
        anew = not happened or self.chores.dependents.came or any(isinstance(event, Nudged) for event in happened)
        self._match_revisions(tx, recorder.providers, anew=anew)
        live = self._cancel_admitted(tx, recorder, queue.claims(tx))
        firsts = self._firsts(tx, recorder.providers)
        known = learned(recorder.providers, timings.known(tx), self._learned)
        known = self.performer.offer(tx, firsts, known)
        seen = snapshot(tx, machine, known, self.memory, self.clock, self.orders, firsts, live)
        self.performer.begin(seen.machine)
        self.journal.sees(seen, explained=self.told)
        found = plan(seen, explained=self.told)
        self.journal.decides(found)
        for instruction in found:
            deed = self.performer.mark(tx, recorder, instruction)
            if deed is not None:
                deeds.append(deed)
        self.performer.forget_reasons(tx)
        self.performer.settle_heads(tx, seen)
        deeds += self.chores.after(tx, seen, happened, leaving=bool(self.leaving))
        self._look_ahead(tx)
        self.watch.read(tx, frozenset((lease.worker_id, lease.pool) for lease in seen.leases))
        return seen

    def patience_s(self, most_s: float = SLOW_POLL_S, settle_s: float = SETTLE_S) -> float:
        """How long the loop may sleep: until the next thing that is due, at most the slow poll.

        `settle_s` after a turn that changed something.
        """
        seen, now = self._seen, self.clock.monotonic_s()
        if seen is None:
            return 0.0
        if self._moved and settle_s:
            return settle_s
        ahead = [self._due_in_s or most_s, *self.chores.due_in_s()]
        ahead += [at - now for at in self.memory.deadline.values()]
        ahead += [breaker.next_try_in_s for breaker in seen.breakers.values()]
        ahead += [seen.overtake_s - (waiting.head_for_s or 0.0) for waiting in (*seen.waiting, *seen.alone)]
        for worker in seen.workers:
            provider = seen.providers.get((worker.slug, worker.variant))
            if provider is None:
                continue
            if worker.state == "ready" and worker.job_id is None and provider.idle_timeout_s > 0:
                ahead.append(provider.idle_timeout_s - worker.idle_s)
            if worker.state == "starting":
                ahead.append(provider.start_timeout_s - worker.alive_s)
        absent = (seen.providers.get((w.slug, w.variant)) for w in seen.waiting)
        if self.performer.undone or any(not provider.installed for provider in absent if provider):
            ahead.append(RETRY_S)
        return max(0.01, min([most_s, *(wait for wait in ahead if wait > 0)]))

    def _look_ahead(self, tx: Connection) -> None:
        due_at = queue.next_due_at(tx)
        self._due_in_s = max(0.01, seconds(due_at) - self.clock.now_s()) if due_at else None

    def _recorder(self, tx: Connection, providers: dict[tuple[str, str], Provider]) -> Recorder:
        measured = Measured(self.host, self.identity.host_id, self._seen.machine if self._seen else None)
        draining = self.orders.draining
        return Recorder(tx, self.memory, self.clock, providers, self.draw(), draining=draining, measured=measured)

    def _obey(self, asked: list[Asked]) -> None:
        for order in asked:
            self.leaving = order.op
            if order.op == "down":
                stopping = order.now or self.orders.stopping
                self.orders = replace(self.orders, draining=True, stopping=stopping)

    def _match_revisions(self, tx: Connection, providers: dict[tuple[str, str], Provider], *, anew: bool) -> None:
        """Set jobs aside that are pinned to another revision than is here; looked at `anew` when a job may have come.

        A provider that changed in any way (manifest, environment) gets a new chance: its breaker closes.
        """
        changed = {key[0] for key, provider in providers.items() if self._known.get(key) not in (None, provider)}
        for slug in changed:
            breakers.put(tx, slug, None, stamp(self.clock.now_s()))
        if anew or providers != self._known:
            queue.set_revision_blocks(tx, _revisions(providers))

    def _firsts(self, tx: Connection, providers: dict[tuple[str, str], Provider]) -> list[Any]:
        """The first job of each provider; none is of another revision than is here, however it came into the line."""
        firsts, revisions = queue.heads(tx), _revisions(providers)
        if all(revisions.get((first.slug, first.variant), first.revision) == first.revision for first in firsts):
            return firsts
        queue.set_revision_blocks(tx, revisions)
        return queue.heads(tx)

    def _cancel_admitted(self, tx: Connection, recorder: Recorder, live: list[Any]) -> list[Any]:
        """A job that was cancelled before its request was sent ends at once; its worker goes on loading."""
        left = []
        for job in live:
            if job.state == "admitted" and job.cancel_requested_at is not None:
                recorder.told[job.id] = queue.cancel_admitted(tx, job.id, job.attempt, recorder.at)
            else:
                left.append(job)
        return left

    def _note_activity(self, seen: Snapshot) -> None:
        """It stays while anything lives, waits, is wished for, or waits for its time."""
        if seen.workers or seen.waiting or seen.alone or seen.wishes or self._due_in_s is not None or self.chores.stays:
            self.last_activity = self.clock.monotonic_s()

    def _done(self, seen: Snapshot) -> bool:
        if self.leaving == "restart":
            return True
        returning = any(lease.state != "leaked" for lease in seen.leases)  # a leak stays charged, for the next one
        return self.leaving == "down" and not seen.workers and not returning


def _revisions(providers: dict[tuple[str, str], Provider]) -> dict[tuple[str, str], str]:
    """What jobs are matched against; a provider whose manifest cannot be read has none."""
    return {key: provider.revision for key, provider in providers.items() if provider.revision}
