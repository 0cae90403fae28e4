"""What an event from the host does to the queue: one function an event, all inside the tick's transaction.

Each returns nothing and spends nothing in the world; what must happen outside follows from the plan.
A job whose state changed is put on `told`, so that those who wait for it hear of it after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, assert_never

from sqlalchemy import Connection

from scheduler.clock import SystemClock, stamp
from scheduler.errors import Fenced
from scheduler.model.host import (
    Answered,
    Asked,
    Failed,
    Forgotten,
    Gone,
    HostEvent,
    Nudged,
    Progressed,
    Replied,
    Returned,
    Shown,
)
from scheduler.model.outcome import EXIT_LATER, EXIT_NO_ACCELERATOR, EXIT_REFUSED, Outcome, exit_words
from scheduler.model.provider import Provider
from scheduler.rules import breaker as breaker_rules
from scheduler.rules import retry as retry_rules
from scheduler.store import breakers, events, leases, queue, timings, workers
from scheduler.view import Memory


@dataclass
class Recorder:
    """One tick's hands on the queue: the transaction, the time, and what to tell afterwards."""

    tx: Connection
    memory: Memory
    clock: SystemClock
    providers: dict[tuple[str, str], Provider]
    jitter: float = 0.5
    draining: bool = False
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
            case Shown():
                self._shown(event)
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
                leases.move(self.tx, event.worker_id, "back" if event.back else "overdue", self.at, event.text)
            case Failed():
                self._failed(event)
            case Asked():
                self.asked.append(event)
            case Nudged():
                pass
            case _:
                assert_never(event)

    def _enter(self, worker_id: int) -> None:
        now = self.clock.monotonic_s()
        self.memory.state_since[worker_id] = now
        self.memory.alive_at[worker_id] = now

    def _shown(self, event: Shown) -> None:
        workers.move(
            self.tx, event.worker_id, "shown", self.at,
            keeper_pid=event.keeper_pid, keeper_started=event.keeper_started, boot_id=event.boot_id,
        )  # fmt: skip

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
        if queue.progress(self.tx, event.job_id, event.attempt, event.done, event.total, event.message):
            self.told.setdefault(event.job_id, "running")

    def _replied(self, event: Replied) -> None:
        row = workers.row(self.tx, event.worker_id)
        if row is None:
            return
        moved = workers.move(
            self.tx, event.worker_id, "reply", self.at, idle_since_at=self.at, jobs_served=row.jobs_served + 1,
        )  # fmt: skip
        if moved == "ready":
            self._enter(event.worker_id)
            self.memory.idle_since[event.worker_id] = self.clock.monotonic_s()
        if event.exiting and moved == "ready":
            workers.retire_after(self.tx, event.worker_id, "the worker is going down after its reply")
        self.memory.deadline.pop(event.worker_id, None)
        ran = self.memory.sent_at.pop(event.worker_id, None)
        if ran is not None and event.outcome.kind == "ok":
            timings.ran(self.tx, row.slug, row.variant, self.clock.monotonic_s() - ran)
        self.finish(
            event.job_id, event.attempt, event.outcome, reply=event.reply, destination=event.destination or None,
            versions=event.versions,
        )  # fmt: skip

    def _forgotten(self, event: Forgotten) -> None:
        row = workers.row(self.tx, event.worker_id)
        if row is not None and row.state == "busy":
            workers.move(self.tx, event.worker_id, "reply", self.at, idle_since_at=self.at)
            self._enter(event.worker_id)
        self.give_back(event.job_id, event.attempt, "its worker knows nothing of this attempt")

    def _failed(self, event: Failed) -> None:
        """A keeper that never started held nothing; whatever may live is stopped, and charged until it is gone."""
        row = workers.row(self.tx, event.worker_id)
        if row is None or row.state == "gone":
            return
        if not event.alive:
            self._exit(row, None, event.text, spawned=row.state != "parked")
            return
        if row.state == "retiring":
            return
        if row.state in ("parked", "starting"):
            self._failed_start(row, event.text)
        workers.move(self.tx, row.id, "abort", self.at, why=f"interrupted: {event.text}")
        job = queue.bound(self.tx, row.id)
        if job is not None and job.state == "admitted":
            self.give_back(job.id, job.attempt, event.text)
        self.stops.append((row.id, event.text))

    def _failed_start(self, row: Any, text: str, kind: str = "failed_start") -> None:
        self._breaker(row.slug, kind, text)
        events.record(self.tx, self.at, worker_id=row.id, event="failed_start", text=text)

    def _gone(self, event: Gone) -> None:
        row = workers.row(self.tx, event.worker_id)
        if row is None or row.state == "gone":
            return
        self._exit(row, event.exit_code, event.text or event.why, spawned=True)

    def _exit(self, row: Any, exit_code: int | None, text: str, *, spawned: bool) -> None:
        workers.move(self.tx, row.id, "exit", self.at, exit_code=exit_code, gone_at=self.at)
        if spawned:
            leases.move(self.tx, row.id, "exit", self.at, "")
        else:
            leases.move(self.tx, row.id, "unspawned", self.at, text)
        self.memory.forget(row.id)
        why = row.why or ""
        if row.state == "starting" or (row.ready_at is None and why.startswith("timed_out: ")):
            said = why.partition(": ")[2] or (f"{text} ({exit_words(exit_code)})" if text else exit_words(exit_code))
            self._failed_start(row, said, "accelerator" if exit_code == EXIT_NO_ACCELERATOR else "failed_start")
        job = queue.bound(self.tx, row.id)
        if job is None:
            return
        if job.state == "admitted":
            self.give_back(job.id, job.attempt, f"its worker did not come up: {text or exit_words(exit_code)}")
            return
        self.finish(job.id, job.attempt, _death(row.why or "", exit_code, text), death=True)

    def give_back(self, job_id: int, attempt: int, text: str, wait_s: float | None = None) -> None:
        """Undo a claim: the job is queued again, uncounted; for `wait_s` it is not tried again."""
        not_before = stamp(self.clock.now_s() + wait_s) if wait_s is not None else None
        self._end(job_id, attempt, "give_back", Outcome("interrupted", text), not_before_at=not_before)

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
    ) -> None:
        """End an attempt by its outcome: the job ends, or is queued again by its policy."""
        job = queue.row(self.tx, job_id)
        if job is None or job.attempt != attempt or job.state != "running":
            events.record(
                self.tx, self.at, job_id=job_id, attempt=attempt, event="late",
                text=f"a reply of attempt {attempt} came late ({outcome.kind}); kept beside, nothing changed",
            )  # fmt: skip
            return
        provider = self.providers.get((job.slug, job.variant)) or Provider(job.slug, job.variant)
        counted = death and outcome.kind in ("crashed", "no_reply", "over_budget")
        decision = retry_rules.decide(
            outcome,
            provider=provider,
            tries=job.tries,
            laters=job.laters,
            deaths=job.deaths + (1 if counted else 0),
            max_attempts=job.max_attempts,
            waited_s=self.clock.now_s() - _first_later_s(job, self.clock.now_s()),
            on_lost=job.on_lost,
            jitter=self.jitter,
            cancel_asked=job.cancel_requested_at is not None,
        )
        not_before = stamp(self.clock.now_s() + decision.backoff_s) if decision.backoff_s else None
        self._end(
            job_id, attempt, decision.event, decision.outcome, reply=reply, destination=destination,
            not_before_at=not_before, count_death=counted, later=outcome.later, versions=versions,
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
        before = breakers.row(self.tx, slug)
        after = breaker_rules.after(before, kind, text, input_sha256, self.clock.now_s())
        if after != before:
            breakers.put(self.tx, slug, after)


def _first_later_s(job: Any, now_s: float) -> float:
    from scheduler.clock import seconds

    return seconds(job.started_at) if job.laters and job.started_at else now_s


def _death(why: str, exit_code: int | None, text: str) -> Outcome:
    """The outcome of an attempt whose worker's whole tree is gone and that left no reply."""
    aborted, _, said = why.partition(": ")
    if aborted in ("timed_out", "cancelled", "interrupted", "over_budget"):
        return Outcome(aborted, said or text, exit_code)
    if exit_code is None:
        return Outcome("lost", "the worker vanished and nobody recorded its exit status", None)
    if exit_code == EXIT_REFUSED:
        return Outcome("refused", text or exit_words(exit_code), exit_code)
    if exit_code == EXIT_NO_ACCELERATOR:
        return Outcome("no_accelerator", text or exit_words(exit_code), exit_code)
    if exit_code == EXIT_LATER:
        return Outcome("error", text or exit_words(exit_code), exit_code, retry_after_s=60.0)
    if exit_code == 0:
        return Outcome("no_reply", "the worker left (exit 0) without an answer", 0)
    return Outcome("crashed", f"the worker was {exit_words(exit_code)}" + (f": {text}" if text else ""), exit_code)
