"""What raising a warm worker's charges does in the queue: raised, shown to all, then sent or taken back.

Publish before check, as for a start: the job is admitted and the charges are raised in one transaction, the keeper
shows them in its argv, and only a plan that has seen the machine after that sends the job, or takes the raise back.
"""

from __future__ import annotations

import math
from typing import Protocol

from sqlalchemy import Connection

from scheduler.clock import SystemClock
from scheduler.model.host import Charged
from scheduler.model.plan import Lower, Raise, Send
from scheduler.rules import explain
from scheduler.rules.evidence import as_json
from scheduler.store import decisions, events, leases, queue, raises, workers
from scheduler.view import Memory


class Hands(Protocol):
    """What is needed of one tick's recorder."""

    clock: SystemClock
    told: dict[int, str]

    @property
    def at(self) -> str:
        """This tick's stamp."""

    def give_back(
        self, job_id: int, attempt: int, text: str, wait_s: float | None = None, *, alone: bool = False
    ) -> None:
        """Undo a claim, uncounted."""


def begin(tx: Connection, recorder: Hands, memory: Memory, order: Raise, epoch: int) -> dict[str, float]:
    """Admit the job and raise its worker's charges; what is to be shown of them, GiB by pool."""
    why, evidence = decisions.RAISED + explain.sentence(order.verdict), as_json(order.verdict)
    queue.admit(tx, order.job_id, order.worker_id, epoch, recorder.at, why=why, evidence=evidence)
    recorder.told[order.job_id] = "admitted"
    raises.begin(tx, order.worker_id, order.charges, order.host_gib, recorder.at)
    return show(tx, memory, order.worker_id, recorder.clock.monotonic_s())


def show(tx: Connection, memory: Memory, worker_id: int, now: float) -> dict[str, float]:
    """What is to be shown of a worker's charges, GiB by pool; asked for from now on."""
    memory.raised[worker_id] = now
    return leases.by_pool(tx, worker_id)


def shown(tx: Connection, memory: Memory, event: Charged) -> None:
    """All can see what a worker is charged. What an older order showed counts for nothing."""
    if event.worker_id in memory.raised and event.charges == leases.by_pool(tx, event.worker_id):
        memory.raised[event.worker_id] = math.inf


def settle(tx: Connection, recorder: Hands, memory: Memory, send: Send, attempt: int) -> None:
    """A job is sent: if charges were raised for it, they are its worker's from now on."""
    raising = raises.of(workers.row(tx, send.worker_id))
    if not raising:
        return
    raises.settle(tx, send.worker_id, raising)
    memory.raised.pop(send.worker_id, None)
    if send.verdict is not None:
        events.record(
            tx, recorder.at, job_id=send.job_id, worker_id=send.worker_id, attempt=attempt, event="raised",
            text=explain.sentence(send.verdict), evidence=as_json(send.verdict),
        )  # fmt: skip


def lower(tx: Connection, recorder: Hands, memory: Memory, order: Lower, wait_s: float | None) -> dict[str, float]:
    """Take a raise back and give its job back, uncounted, not to be tried for `wait_s`; what is to be shown then."""
    row = workers.row(tx, order.worker_id)
    raising = raises.of(row) if row is not None and row.state == "ready" else {}
    if not raising:
        return {}
    raises.undo(tx, order.worker_id, raising, recorder.at)
    memory.raised.pop(order.worker_id, None)
    job = queue.bound(tx, order.worker_id)
    if job is not None:
        recorder.give_back(job.id, job.attempt, order.why, wait_s=wait_s)
    return leases.by_pool(tx, order.worker_id)
