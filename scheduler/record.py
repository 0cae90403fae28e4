"""What an event from the host does to the queue: one function an event, all inside the tick's transaction.

Each returns nothing and spends nothing in the world; what must happen outside follows from the plan.
A job whose state changed is put on `told`, so that those who wait for it hear of it after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, assert_never

from sqlalchemy import Connection

from scheduler import raises
from scheduler.clock import SystemClock, seconds, stamp
from scheduler.errors import Fenced
from scheduler.measured import Measured, unsent
from scheduler.model.command import EXEC
from scheduler.model.host import (
    UNKNOWN,
    Alive,
    Answered,
    Asked,
    Charged,
    Deserted,
    Failed,
    Forgotten,
    Gone,
    HostEvent,
    Nudged,
    Overstepped,
    Progressed,
    Reclaimed,
    Replied,
    Returned,
    Shown,
)  # fmt: skip
from scheduler.model.outcome import Outcome, exit_words, later_s
from scheduler.model.provider import Provider
from scheduler.overstep import overstep
from scheduler.rules import breaker as breaker_rules
from scheduler.rules import retry as retry_rules
from scheduler.rules.deaths import asks_for_later, death, end_of, failed_start, ran_out_unsent
from scheduler.store import breakers, commands, events, leases, queue, timings, wishes, workers
from scheduler.view import Memory

OVERDUE_S = 60.0
"""A worker that is not gone so long after its grace has a process that no signal ends: it is shown as unkillable."""


PIN_AGAIN_S = 60.0
"""How long another worker is waited for when a pinned one ended by itself: the next may do so as soon."""


@dataclass
class Recorder:
    """One tick's hands on the queue: the transaction, the time, and what to tell afterwards."""

    tx: Connection
    memory: Memory
    clock: SystemClock
    providers: dict[tuple[str, str], Provider]
    jitter: float = 0.5
    draining: bool = False
    measured: Measured | None = None
    told: dict[int, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    stops: list[tuple[int, str]] = field(default_factory=list)

    @property
    def at(self) -> str:
        """This tick's stamp."""
        return stamp(self.clock.now_s())

    def record(self, event: HostEvent) -> None:
        """Store what one event says. Late and repeated events change nothing."""
        match event:
            case Shown(worker_id, pid, started, boot_id):
                keeper = {"keeper_pid": pid, "keeper_started": started, "boot_id": boot_id}
                workers.move(self.tx, worker_id, "shown", self.at, **keeper)
            case Charged():
                raises.shown(self.tx, self.memory, event)
            case Alive():
                self._alive(event)
            case Answered():
                self._answered(event)
            case Progressed():
                self._progressed(event)
            case Replied():
                self._replied(event)
            case Forgotten():
                self._forgotten(event)
            case Gone():
                self._gone(event)
            case Returned():
                what = "back" if event.back else "overdue"
                leases.move(self.tx, event.worker_id, what, self.at, event.text, event.pool)
            case Failed():
                self._failed(event)
            case Asked():
                self.asked.append(event)
            case Deserted():
                ended = commands.desert(self.tx, event.job_id, event.text, self.at)
                self.told |= {event.job_id: ended} if ended else {}
            case Overstepped():
                overstep(self, event, self._failed_start)
            case Reclaimed():
                events.record(self.tx, self.at, job_id=event.job_id, event="reclaimed", text=event.text)
            case Nudged():
                pass
            case _:
                assert_never(event)

    def _enter(self, worker_id: int) -> None:
        now = self.clock.monotonic_s()
        self.memory.state_since[worker_id] = now
        self.memory.alive_at[worker_id] = now

    def _alive(self, event: Alive) -> None:
        if event.worker_id in self.memory.alive_at:
            self.memory.alive_at[event.worker_id] = self.clock.monotonic_s()

    def _answered(self, event: Answered) -> None:
        row = workers.row(self.tx, event.worker_id)
        if row is None or row.state in ("retiring", "gone"):
            return
        columns: dict[str, Any] = {
            "leader_pid": event.leader_pid, "leader_started": event.leader_started, "versions": event.versions,
        }  # fmt: skip
        if row.state == "starting":
            columns.update(ready_at=self.at, idle_since_at=self.at)
        workers.move(self.tx, event.worker_id, "answer", self.at, **columns)
        if row.state == "starting":
            self._enter(event.worker_id)
            self.memory.idle_since[event.worker_id] = self.clock.monotonic_s()
            since = self.memory.loading_since.pop(event.worker_id, None)
            if since is not None:
                timings.loaded(self.tx, row.slug, row.variant, self.clock.monotonic_s() - since)
            self._breaker(row.slug, "started", "")

    def _progressed(self, event: Progressed) -> None:
        self.memory.alive_at[event.worker_id] = self.clock.monotonic_s()
        if queue.progress(self.tx, event.job_id, event.attempt, event.done, event.total, event.message, self.at):
            self.told.setdefault(event.job_id, "running")

    def _replied(self, event: Replied) -> None:
        row = workers.row(self.tx, event.worker_id)
        if row is None:
            return
        ran = None
        if row.state != "busy" or self._is_on(event):
            moved = workers.move(
                self.tx, event.worker_id, "reply", self.at, idle_since_at=self.at,
                jobs_served=row.jobs_served + (not event.untaken),
            )  # fmt: skip
            ran = self._free(event.worker_id, moved)
            if event.untaken:
                self._died_unasked(row, event.outcome.text)
            if (event.exiting or event.untaken) and moved == "ready":
                workers.retire_after(self.tx, event.worker_id, "the worker is going down after its reply")
        if ran is not None and event.outcome.kind == "ok":
            timings.ran(self.tx, row.slug, row.variant, max(0.0, self.clock.monotonic_s() - ran - event.ago_s))
        self.finish(
            event.job_id, event.attempt, event.outcome, reply=event.reply, destination=event.destination or None,
            versions=event.versions, ago_s=event.ago_s,
        )  # fmt: skip

    def _is_on(self, event: Replied | Forgotten) -> bool:
        """Whether the worker is bound to the very attempt that is spoken of."""
        job = queue.bound(self.tx, event.worker_id)
        return job is not None and (job.id, job.attempt) == (event.job_id, event.attempt)

    def _free(self, worker_id: int, state: str) -> float | None:
        """A worker's attempt is over: nothing of it is remembered. When it was sent, monotonic seconds."""
        self.memory.deadline.pop(worker_id, None)
        if state == "ready":
            self._enter(worker_id)
            self.memory.idle_since[worker_id] = self.clock.monotonic_s()
        return self.memory.sent_at.pop(worker_id, None)

    def _forgotten(self, event: Forgotten) -> None:
        if not self._is_on(event):
            text = f"attempt {event.attempt} is unknown to worker {event.worker_id}, and was over; nothing changed"
            events.record(self.tx, self.at, job_id=event.job_id, attempt=event.attempt, event="late", text=text)
            return
        row = workers.row(self.tx, event.worker_id)
        if row.state == "busy":
            self._free(event.worker_id, workers.move(self.tx, event.worker_id, "reply", self.at, idle_since_at=self.at))
        self.give_back(event.job_id, event.attempt, "its worker knows nothing of this attempt")

    def _failed(self, event: Failed) -> None:
        """A keeper that never started held nothing; whatever may live is stopped, and charged until it is gone."""
        row = workers.row(self.tx, event.worker_id)
        if row is None or row.state == "gone":
            return
        if not event.alive:
            self._exit(row, event)
            return
        if row.state == "retiring":
            return
        if row.state in ("parked", "starting"):
            self._failed_start(row, event.text)
        grace_s = (self.providers.get((row.slug, row.variant)) or Provider(row.slug)).stop_grace_s
        overdue_at = stamp(self.clock.now_s() + grace_s + OVERDUE_S)
        workers.move(self.tx, row.id, "abort", self.at, why=f"interrupted: {event.text}", overdue_at=overdue_at)
        job = queue.bound(self.tx, row.id)
        if job is not None and job.state == "admitted":
            self.give_back(job.id, job.attempt, event.text, self._wait_s(row) if row.state == "parked" else None)
        self.stops.append((row.id, event.text))

    def _failed_start(self, row: Any, text: str, kind: str = "failed_start", input_sha256: str = "") -> None:
        self._breaker(row.slug, kind, text, input_sha256)
        events.record(self.tx, self.at, worker_id=row.id, event="failed_start", text=text)
        if wishes.failed(self.tx, row.slug, row.variant, text, self.at):
            wait_s = self._wait_s(row) or 0.0
            self.memory.wish_after[row.slug, row.variant] = self.clock.monotonic_s() + wait_s

    def _pin_again(self, row: Any) -> None:
        """A pin is its provider's until an operator takes it back: the worker is gone, another is wished for."""
        wishes.put(self.tx, row.slug, row.variant, self.at, f"the pin of worker {row.id}", pinned=True)
        if row.state != "retiring":
            self.memory.wish_after[row.slug, row.variant] = self.clock.monotonic_s() + PIN_AGAIN_S

    def _put_off(self, row: Any, text: str, wait_s: float) -> None:
        before, now_s = breakers.row(self.tx, row.slug), self.clock.now_s()
        breakers.put(self.tx, row.slug, breaker_rules.put_off(before, text, now_s + wait_s, now_s), self.at)
        events.record(self.tx, self.at, worker_id=row.id, event="put_off", text=text)

    def _wait_s(self, row: Any) -> float | None:
        """How long a job is not tried again that was given back for no fault of its own; None when nothing starts."""
        provider = self.providers.get((row.slug, row.variant)) or Provider(row.slug, row.variant)
        return None if self.draining else retry_rules.backoff_s(provider.backoff_s, 1, self.jitter)

    def _gone(self, event: Gone) -> None:
        row = workers.row(self.tx, event.worker_id)
        if row is None or row.state == "gone":
            return
        job = queue.bound(self.tx, row.id)
        if job is not None and job.state == "running" and event.begun not in (UNKNOWN, (job.id, job.attempt)):
            text = "its worker ended before the request reached it"
            self.finish(job.id, job.attempt, Outcome("interrupted", text, unsent=True))
            self._died_unasked(row, text)
        self._exit(row, event)

    def _died_unasked(self, row: Any, text: str) -> None:
        """One that never answered anything ended before it began with its first request: three in a row are a fault."""
        if not row.jobs_served:
            self._breaker(row.slug, "crashed", text, f"(worker {row.id})")

    def _exit(self, row: Any, event: Gone | Failed) -> None:
        """Nothing of a worker lives: it is gone, or its keeper never came to be.

        One that ends on its own before it was sent anything is a failed start, and its job waits a while if no load was
        waited for; exit 75 (asked for another time) is no failure, and all of its provider's jobs wait for that time.
        """
        end = end_of(event, row.state, self.measured.disk_full if self.measured is not None else "")
        workers.move(self.tx, row.id, "exit", self.at, exit_code=end.exit_code, gone_at=self.at)
        if end.spawned and leases.is_spent(self.tx, row.id):
            leases.move(self.tx, row.id, "exit", self.at, "")
        else:
            leases.move(self.tx, row.id, "unspawned", self.at, end.text)
        self.memory.forget(row.id)
        if row.pinned and not self.draining:
            self._pin_again(row)
        job, why = queue.bound(self.tx, row.id), row.why or ""
        later = row.slug != EXEC and asks_for_later(end, row.state)
        blamed = failed_start(end, row.state, ready=row.ready_at is not None, why=why, bound=job is not None)
        if later:
            self._put_off(row, end.said, later_s(end.text))
        elif blamed is not None:
            self._failed_start(row, *blamed, job.input_sha256 if job is not None and blamed[1] == "crashed" else "")
        if job is None:
            return
        if job.state == "admitted":
            waits = row.state in ("parked", "ready") and (end.full or not end.stopped)
            wait_s = later_s(end.text) if later else self._wait_s(row) if waits else None
            ran_out_of_it = row.slug != EXEC and ran_out_unsent(end, row.state, alone=bool(row.alone))
            said = f"its worker did not come up: {end.text or exit_words(end.exit_code)}"
            self.give_back(job.id, job.attempt, said, wait_s, alone=ran_out_of_it)
            return
        self.finish(job.id, job.attempt, death(why, end.exit_code, end.text, told=end.outside), death=True)

    def give_back(
        self, job_id: int, attempt: int, text: str, wait_s: float | None = None, *, alone: bool = False
    ) -> None:
        """Undo a claim: queued again, uncounted, and not tried again for `wait_s`; `alone`: since memory ran out."""
        not_before = stamp(self.clock.now_s() + wait_s) if wait_s is not None else None
        event, outcome = unsent(self.tx, self.measured, job_id, text, ran_out=alone)
        self._end(job_id, attempt, event, outcome, not_before_at=not_before, alone=alone)

    def finish(
        self,
        job_id: int,
        attempt: int,
        outcome: Outcome,
        *,
        reply: bytes | None = None,
        destination: str | None = None,
        death: bool = False,
        versions: dict[str, str] | None = None,
        ago_s: float = 0.0,
    ) -> None:
        """End an attempt by its outcome, so long ago: the job ends, or is queued again by its policy."""
        job = queue.row(self.tx, job_id)
        if job is None or job.attempt != attempt or job.state != "running":
            events.record(
                self.tx, self.at, job_id=job_id, attempt=attempt, event="late",
                text=f"a reply of attempt {attempt} came late ({outcome.kind}); kept beside, nothing changed",
            )  # fmt: skip
            return
        provider = self.providers.get((job.slug, job.variant)) or Provider(job.slug, job.variant)
        if self.measured is not None:
            outcome = self.measured.ended(self.tx, job, outcome, provider, self.at)
        counted = death and outcome.kind in ("crashed", "no_reply", "over_budget")
        decision = retry_rules.decide(
            outcome, provider=provider, tries=job.tries, laters=job.laters, deaths=job.deaths + int(counted),
            max_attempts=job.max_attempts, waited_s=self.clock.now_s() - _first_later_s(job, self.clock.now_s()),
            on_lost=job.on_lost, retry_on=None if job.retry_on is None else tuple(job.retry_on.split(",")),
            jitter=self.jitter, cancel_asked=job.cancel_requested_at is not None, alone=job.behind is not None,
        )  # fmt: skip
        wait_s = self._wait_s(job) if decision.event == "give_back" else decision.backoff_s
        not_before = stamp(self.clock.now_s() + wait_s) if wait_s else None
        self._end(
            job_id, attempt, decision.event, decision.outcome, reply=reply, destination=destination,
            not_before_at=not_before, count_death=counted, later=outcome.later, versions=versions,
            alone=decision.alone, ended_at=stamp(self.clock.now_s() - ago_s) if ago_s else None,
        )  # fmt: skip
        kind = "accelerator" if outcome.kind == "no_accelerator" else outcome.kind
        self._breaker(job.slug, kind, outcome.text, job.input_sha256)

    def _end(self, job_id: int, attempt: int, event: str, outcome: Outcome, **rest: Any) -> None:
        try:
            state = queue.finish(self.tx, job_id, attempt, event, outcome, self.at, **rest)
        except Fenced:
            return
        if state != "late":
            self.told[job_id] = state

    def _breaker(self, slug: str, kind: str, text: str, input_sha256: str = "") -> None:
        if slug == EXEC:  # no command says anything of another one
            return
        before = breakers.row(self.tx, slug)
        after = breaker_rules.after(before, kind, text, input_sha256, self.clock.now_s())
        if after != before:
            breakers.put(self.tx, slug, after, self.at)


def _first_later_s(job: Any, now_s: float) -> float:
    return seconds(job.started_at) if job.laters and job.started_at else now_s
