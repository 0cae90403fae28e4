"""What an instruction of the plan does: its marks in the queue at once, its deed in the world after the commit.

`mark` writes inside the tick's transaction and gives back the deed, or None where there is none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from sqlalchemy import Connection

from scheduler import raises
from scheduler.clock import SystemClock, stamp
from scheduler.config import Paths
from scheduler.deeds import Deed, tried
from scheduler.errors import SchedqError
from scheduler.handover import task_of
from scheduler.model.command import Offers
from scheduler.model.host import Failed, Host, Park
from scheduler.model.machine import Machine
from scheduler.model.plan import (
    Abort,
    Explain,
    Go,
    Head,
    Instruction,
    Lower,
    Postpone,
    Prefer,
    Raise,
    Reclaim,
    Retire,
    Send,
    Settle,
    Show,
    Snapshot,
    Start,
)
from scheduler.model.provider import Provider
from scheduler.model.verdict import Verdict
from scheduler.record import OVERDUE_S, Recorder
from scheduler.rules import explain
from scheduler.rules.evidence import as_json
from scheduler.rules.placement import drivers, given
from scheduler.store import alone, checks, commands, content, events, heads, leases, queue, reasons, wishes, workers
from scheduler.view import Memory

log = logging.getLogger("schedq")

REASON_EVERY_S = 5.0
"""How often the figures of a reason that is otherwise the same are written anew."""


WISH_AGAIN_S = 2.0
"""How long a wish whose worker lost its room while it was parked is not tried again: nobody waits for it."""

RULING_EVERY_S = 600.0
"""How often the same ruling of a job is recorded anew when others came in between."""


@dataclass(frozen=True)
class Identity:
    """Which scheduler this is: its epoch fences every lower one."""

    epoch: int
    host_id: str
    queue_id: str


class Performer:
    """One scheduler's hands."""

    def __init__(
        self,
        host: Host,
        clock: SystemClock,
        memory: Memory,
        identity: Identity,
        paths: Paths,
        draw: Callable[[], float],
    ) -> None:
        self.host, self.clock, self.memory = host, clock, memory
        self.identity, self.paths, self.draw = identity, paths, draw
        self._reasons: dict[tuple[str, str], tuple[int, str, str, float]] = {}
        self._recorded: dict[int, dict[str, float]] = {}
        self._explained: set[tuple[str, str]] = set()
        self._heads: dict[int, tuple[int, ...]] = {}
        self._machine: Machine | None = None
        self.undone: list[Deed] = []
        self._attended: set[int] = set()

    def offer(self, tx: Connection, heads: list[Any], known: dict[tuple[str, str], Provider]) -> Offers:
        """The providers with the commands that are heads or run; who waits for one of them is watched from then on."""
        heads = commands.in_sight(tx, heads)
        callers = commands.callers(tx, heads, self._attended)
        self._attended = {job.id for job in heads}
        if callers:
            self.host.attend(callers)
        return commands.offered(tx, heads, known)

    def begin(self, machine: Machine) -> None:
        """A new plan is about to be performed, which was made for this machine."""
        self._machine = machine
        self._explained = set()
        self._heads = {}

    def doubt(self) -> None:
        """What was written last may have been rolled back: every reason is written anew."""
        self._reasons.clear()
        self._recorded.clear()

    def mark(self, tx: Connection, recorder: Recorder, instruction: Instruction) -> Deed | None:
        """Write an instruction's marks; what is to be done after the commit."""
        match instruction:
            case Start():
                return self._start(tx, recorder, instruction)
            case Go(worker_id, verdict):
                outdated = self._outdated(tx, recorder, worker_id)
                if outdated:
                    return self._stop(tx, recorder, worker_id, "abort", outdated)
                workers.move(tx, worker_id, "go", recorder.at)
                self._confirmed(tx, recorder, worker_id, verdict)
                leases.move(tx, worker_id, "go", recorder.at, "")
                now = self.clock.monotonic_s()
                self.memory.state_since[worker_id] = self.memory.alive_at[worker_id] = now
                self.memory.loading_since[worker_id] = now
                return Deed(worker_id, partial(self.host.go, worker_id))
            case Send(worker_id, job_id):
                return self._send(tx, recorder, instruction, queue.row(tx, job_id))
            case Raise(worker_id):
                charges = raises.begin(tx, recorder, self.memory, instruction, self.identity.epoch)
                return Deed(worker_id, partial(self.host.charge, worker_id, charges))
            case Show(worker_id):
                charges = raises.show(tx, self.memory, worker_id, self.clock.monotonic_s())
                return Deed(worker_id, partial(self.host.charge, worker_id, charges))
            case Lower(worker_id, _, verdict):
                self._confirmed(tx, recorder, worker_id, verdict)
                charges = raises.lower(tx, recorder, self.memory, instruction, self._again_s(recorder))
                return Deed(worker_id, partial(self.host.charge, worker_id, charges)) if charges else None
            case Abort(worker_id, why, outcome, verdict):
                self._confirmed(tx, recorder, worker_id, verdict)
                return self._stop(tx, recorder, worker_id, "abort", f"{outcome}: {why}" if outcome else why)
            case Retire(worker_id, why, again):
                if not again:
                    workers.pin(tx, worker_id, pinned=False)
                return self._stop(tx, recorder, worker_id, "retire", why)
            case Head(job_id, victims):
                if job_id not in self.memory.head_since:
                    heads.open_head(tx, job_id, recorder.at)
                    alone.open_head(tx, job_id, recorder.at)
                    self.memory.head_since[job_id] = self.clock.monotonic_s()
                self._heads[job_id] = victims or ()
                return None
            case Prefer(order):
                self.memory.order = order
                return None
            case Explain():
                self._explained.add((instruction.slug, instruction.variant))
                self._explain(tx, recorder, instruction)
                return None
            case Reclaim(pool, gib, job_id):
                events.record(tx, recorder.at, job_id=job_id, event="reclaim", text=explain.reclaiming(pool, gib))
                return Deed(0, partial(self.host.reclaim, pool, gib, job_id))
            case Settle() | Postpone():
                self._wish(tx, recorder, instruction)
                return None
            case _:
                assert_never(instruction)

    def carry_out(self, deeds: list[Deed], told: dict[int, str]) -> list[Failed]:
        """Do each deed, then tell the news; what is to be recorded. One that fails keeps no other from being done.

        A stop that failed is kept in `undone` and done again with the next ones: nobody else ends that worker.
        """
        deeds, self.undone = [*self.undone, *deeds], []
        failed = []
        for deed in deeds:
            text = tried(f"the order to worker {deed.worker_id}", deed.do)
            if text and deed.ends:
                self.undone.append(deed)
            elif text:
                failed.append(Failed(deed.worker_id, text))
        for job_id, state in told.items():
            tried(f"the news of job {job_id}", partial(self.host.tell, job_id, state))
        return failed

    def stop(self, worker_id: int, grace_s: float, why: str) -> Deed:
        """The deed that ends a worker's whole tree."""
        return Deed(worker_id, partial(self.host.stop, worker_id, grace_s, why), ends=True)

    def _outdated(self, tx: Connection, recorder: Recorder, worker_id: int, revision: str | None = None) -> str:
        """Why this worker may not start or be sent the job: one of them is of another revision; "" = neither is."""
        worker = workers.row(tx, worker_id)
        provider = recorder.providers.get((worker.slug, worker.variant))
        if provider is None or {worker.revision, revision or worker.revision} == {provider.revision}:
            return ""
        return f"the manifest of {provider.name} changed while its worker came up; nothing was sent"

    def _start(self, tx: Connection, recorder: Recorder, start: Start) -> Deed | None:
        provider = recorder.providers[start.slug, start.variant]
        if start.job_id is not None and queue.row(tx, start.job_id).revision != provider.revision:
            return None
        devices = given(provider.policy, start.charges)
        device = ",".join(devices)
        worker_id = workers.insert(
            tx, slug=start.slug, variant=start.variant, revision=provider.revision, mode=provider.mode,
            host_id=self.identity.host_id, epoch=self.identity.epoch, created_at=recorder.at,
            device=device, driver=drivers(devices, self._machine) or None, env_hash=provider.environment or None,
            host_gib=start.verdict.evidence.demand.host_gib, alone=start.alone,
        )  # fmt: skip
        before_gib = {pool: self._machine.nobodys_gib(pool) for pool in start.charges} if self._machine else {}
        lease_ids = leases.reserve(
            tx, worker_id, start.slug, start.charges, self.identity.host_id, recorder.at, before_gib
        )
        why, evidence = explain.sentence(start.verdict), as_json(start.verdict)
        if start.job_id is None:
            events.record(tx, recorder.at, worker_id=worker_id, event="wished", text=why, evidence=evidence)
        else:
            queue.admit(tx, start.job_id, worker_id, self.identity.epoch, recorder.at, why=why, evidence=evidence)
            recorder.told[start.job_id] = "admitted"
        self.memory.state_since[worker_id] = self.memory.alive_at[worker_id] = self.clock.monotonic_s()
        order = Park(
            worker_id, start.slug, start.variant, provider.revision, provider.mode, dict(start.charges), lease_ids,
            device, start.verdict.evidence.demand.host_gib,
        )  # fmt: skip
        return Deed(worker_id, partial(self.host.park, order))

    def _send(self, tx: Connection, recorder: Recorder, send: Send, job: Any) -> Deed | None:
        job_id, worker_id = job.id, send.worker_id
        outdated = self._outdated(tx, recorder, worker_id, job.revision)
        if outdated:
            admitted = job.state == "admitted"
            return self._stop(tx, recorder, worker_id, "abort", outdated) if admitted else None
        if job.state == "queued":
            attempt = queue.claim_warm(tx, job_id, worker_id, self.identity.epoch, recorder.at)
            workers.move(tx, worker_id, "send", recorder.at, warm_hits=workers.row(tx, worker_id).warm_hits + 1)
        else:
            attempt = job.attempt
            queue.send(tx, job_id, attempt, recorder.at)
            warm = workers.row(tx, worker_id)
            workers.move(tx, worker_id, "send", recorder.at, warm_hits=warm.warm_hits + bool(warm.raising))
            raises.settle(tx, recorder, self.memory, send, attempt)
        if recorder.measured is not None and job.measures:
            provider = recorder.providers.get((job.slug, job.variant)) or Provider(job.slug, job.variant)
            recorder.measured.idle(tx, worker_id, provider, recorder.at)
        if checks.fresh(tx, (job_id,)):
            workers.retire_after(tx, worker_id, "it is for one case alone")
        recorder.told[job_id] = "running"
        now = self.clock.monotonic_s()
        self.memory.state_since[worker_id] = self.memory.alive_at[worker_id] = self.memory.sent_at[worker_id] = now
        self.memory.deadline.pop(worker_id, None)
        if job.timeout_s is not None:
            self.memory.deadline[worker_id] = now + job.timeout_s
        body = job.input if job.input is not None else self._kept(job.input_sha256)
        task = task_of(job, workers.row(tx, worker_id), attempt, body, leases.by_pool(tx, worker_id))
        return Deed(worker_id, partial(self.host.submit, task))

    def _kept(self, sha256: str) -> bytes | None:
        """A large input's bytes; None if they are gone or damaged, which ends that job and no other."""
        try:
            return content.read(self.paths, sha256)
        except (SchedqError, OSError):
            return None

    def _stop(self, tx: Connection, recorder: Recorder, worker_id: int, event: str, why: str) -> Deed | None:
        row = workers.row(tx, worker_id)
        if row is None or row.state in ("retiring", "gone"):
            return None
        provider = recorder.providers.get((row.slug, row.variant)) or Provider(row.slug, row.variant)
        overdue_at = stamp(self.clock.now_s() + provider.stop_grace_s + OVERDUE_S)
        workers.move(tx, worker_id, event, recorder.at, why=why, overdue_at=overdue_at)
        now = self.memory.state_since[worker_id] = self.clock.monotonic_s()
        job = queue.bound(tx, worker_id)
        if job is None and row.state == "parked":
            self.memory.wish_after[row.slug, row.variant] = now + WISH_AGAIN_S
            wishes.postpone(tx, row.slug, row.variant, "no_room_now", why)
        if job is not None and job.state == "admitted":
            wait_s = self._again_s(recorder) if row.state == "parked" else None
            recorder.give_back(job.id, job.attempt, why, wait_s=wait_s)
        return self.stop(worker_id, provider.stop_grace_s, why)

    def _again_s(self, recorder: Recorder) -> float | None:
        """How long a job waits whose claim was refused: two that refused each other come at different times."""
        return None if recorder.draining else 0.02 + 0.18 * self.draw()

    def _confirmed(self, tx: Connection, recorder: Recorder, worker_id: int, verdict: Verdict | None) -> None:
        """Record what was found for a parked worker's job once all could see its claim: `confirm`, or what closed."""
        job = queue.bound(tx, worker_id) if verdict is not None else None
        if verdict is None or job is None:
            return
        events.record(
            tx, recorder.at, job_id=job.id, worker_id=worker_id, attempt=job.attempt,
            event="confirm" if verdict.admit else verdict.ruling,
            text=explain.sentence(verdict), evidence=as_json(verdict),
        )  # fmt: skip

    def _explain(self, tx: Connection, recorder: Recorder, e: Explain) -> None:
        now = self.clock.monotonic_s()
        last = self._reasons.get((e.slug, e.variant))
        if last is not None and last[:2] == (e.job_id, e.ruling) and now - last[3] < REASON_EVERY_S:
            return
        text = explain.told(e.why)
        if last is None or last[:3] != (e.job_id, e.ruling, text):
            verdict = e.why if isinstance(e.why, Verdict) else e.verdict
            evidence = as_json(verdict) if verdict is not None else None
            reasons.put(tx, e.slug, e.variant, e.job_id, e.ruling, text, recorder.at, evidence)
            if self._is_news(e.job_id, e.ruling, now):
                events.record(tx, recorder.at, job_id=e.job_id, event=e.ruling, text=text, evidence=evidence)
        self._reasons[e.slug, e.variant] = (e.job_id, e.ruling, text, now)

    def _wish(self, tx: Connection, recorder: Recorder, end: Settle | Postpone) -> None:
        """A wish is met, dropped, or waits."""
        key, text = (end.slug, end.variant), explain.told(end.why)
        if isinstance(end, Postpone):
            wishes.postpone(tx, *key, end.ruling, text)
        elif end.worker_id is not None:
            wishes.meet(tx, *key, end.worker_id, recorder.at)
        else:
            wishes.drop(tx, *key, text, recorder.at)
            log.warning("no worker of %s is kept warm: %s", ":".join(filter(None, key)), text)

    def _is_news(self, job_id: int, ruling: str, now: float) -> bool:
        """Whether this ruling has not been recorded of this job in a while: two gates that take turns are not."""
        recorded = self._recorded.setdefault(job_id, {})
        news = now - recorded.get(ruling, -math.inf) >= RULING_EVERY_S
        if news:
            recorded[ruling] = now
        return news

    def settle_heads(self, tx: Connection, seen: Snapshot) -> None:
        """Who is a head no longer loses its window, and what was stored of closed heads follows the plan."""
        were = {w.job_id: w.victims or () for w in (*seen.waiting, *seen.alone) if w.head_for_s is not None}
        if not (seen.draining or seen.stopping) and not were.keys() <= self._heads.keys():
            heads.close_heads(tx, self._heads)
        closed = {job_id: victims for job_id, victims in self._heads.items() if victims}
        if closed != {job_id: victims for job_id, victims in were.items() if victims}:
            heads.set_victims(tx, closed)

    def forget_reasons(self, tx: Connection) -> None:
        """Take back what was said of providers that nothing stands in the way of any more."""
        for key in [key for key in self._reasons if key not in self._explained]:
            reasons.clear(tx, *key)
            del self._reasons[key]
        waited = {reason[0] for reason in self._reasons.values()}
        self._recorded = {job_id: rulings for job_id, rulings in self._recorded.items() if job_id in waited}
