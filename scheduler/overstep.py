"""What the guard did to a worker, as the queue records it: its end began before anything was decided here.

A start goes back uncounted and is not tried again for a while; one above its charge counts as a failed start too, since
it would overstep again, and its job runs alone from then on. One that did so already had all that its pools can give:
that was its one try more, and its job ends. An attempt of a busy worker ends with it, by the outcome that its row
carries from now on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy import Connection

from scheduler.clock import SystemClock, stamp
from scheduler.model.command import EXEC
from scheduler.model.host import Overstepped
from scheduler.store import queue, workers

GONE_S = 60.0
"""A worker that was killed and lives on after so long is shown as unkillable."""

AGAIN_S = 60.0
"""How long a job that runs alone is not tried again whose idle worker made room before it was sent anything."""


class Hands(Protocol):
    """What is needed of one tick's recorder."""

    tx: Connection
    clock: SystemClock

    @property
    def at(self) -> str:
        """This tick's stamp."""

    def give_back(
        self, job_id: int, attempt: int, text: str, wait_s: float | None = None, *, alone: bool = False
    ) -> None:
        """Undo a claim."""


def overstep(hands: Hands, event: Overstepped, failed_start: Callable[[Any, str], None]) -> None:
    """Record it; of a worker that is on its way out already nothing changes."""
    row = workers.row(hands.tx, event.worker_id)
    if row is None or row.state in ("retiring", "gone"):
        return
    job = queue.bound(hands.tx, row.id)
    retires = row.state == "ready" and job is None
    why = f"{event.outcome or 'interrupted'}: {event.text}" if row.state == "busy" else event.text
    overdue_at = stamp(hands.clock.now_s() + GONE_S)
    workers.move(hands.tx, row.id, "retire" if retires else "abort", hands.at, why=why, overdue_at=overdue_at)
    if event.outcome and row.state == "starting":
        failed_start(row, f"{event.outcome}: {event.text}")
    if job is not None and job.state == "admitted":
        again_alone = event.outcome == "over_budget" and row.slug != EXEC
        wait_s = event.wait_s or (AGAIN_S if row.alone and row.state == "ready" else None)
        hands.give_back(job.id, job.attempt, event.text, wait_s, alone=again_alone)
