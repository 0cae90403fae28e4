"""What is told to whoever is to know: batches that ended, breakers that opened. The outbox is the store's `incidents`.

A batch is told of once all of its jobs have been over for a few seconds: one that is still being submitted goes on
being open. What could not be told is tried again, also by the next scheduler; nobody is told twice of what they took.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds, stamp
from scheduler.model.telling import Notice, Teller, Told
from scheduler.rules.again import next_try_s
from scheduler.store import incidents

log = logging.getLogger("schedq")

SETTLED_S = 5.0
"""How long every job of a batch has to be over before that is told."""

JUDGED_S = 60.0
"""How long it may wait for its validation cases to be judged."""


class Telling:
    """The outbox of one queue, for one scheduler."""

    def __init__(self, teller: Teller, clock: SystemClock, queue_id: str) -> None:
        self._teller, self._clock, self._queue_id = teller, clock, queue_id
        self._settled = False
        self._due_s: float | None = None
        self._told: list[Told] = []
        self._under_way: int | None = None

    def doubt(self) -> None:
        """The last transaction may have been rolled back: all is looked at anew, and what it wrote written again."""
        self._settled = False

    def due_in_s(self) -> list[float]:
        """When something is to be told, seconds from now."""
        return [] if self._due_s is None else [max(0.01, self._due_s - self._clock.now_s())]

    def turn(self, tx: Connection) -> list[Callable[[], None]]:
        """Record what was told, and take the next; what it answers is done after the commit."""
        now_s = self._clock.now_s()
        self.record(tx, now_s)
        soonest = incidents.soonest(tx)
        batches_s = None if soonest.batch_at is None else self._note_batches(tx, now_s)
        at, notice = soonest.try_at if soonest.batch_at is None else incidents.soonest(tx).try_at, None
        if at is not None and self._under_way is None and seconds(at) <= now_s:
            notice = self._next(tx, now_s)
            at = incidents.soonest(tx).try_at
        waiting_s = None if at is None or notice is not None or self._under_way is not None else seconds(at)
        self._due_s = min((each for each in (batches_s, waiting_s) if each is not None), default=None)
        self._settled = True
        return [] if notice is None else [partial(self._tell, notice)]

    def record(self, tx: Connection, now_s: float) -> None:
        """Write down what became of those that were tried."""
        self._told = ([] if self._settled else self._told) + self._teller.over()
        for told in self._told:
            row = incidents.row(tx, told.incident_id)
            if row is None:
                continue
            took = ",".join(told.took)
            if not told.error:
                incidents.sent(tx, row.id, stamp(now_s), took)
                continue
            again_s = next_try_s(row.tries + 1, seconds(row.at), now_s)
            incidents.failed(tx, row.id, took, told.error, None if again_s is None else stamp(again_s))
            if row.tries == 0 or again_s is None:
                rest = "it is tried again" if again_s is not None else "given up"
                log.warning("nobody could be told that %s: %s; %s", row.text[:80], told.error, rest)
        if any(told.incident_id == self._under_way for told in self._told):
            self._under_way = None

    def _note_batches(self, tx: Connection, now_s: float) -> float | None:
        """Write down the batches that are over; when the next one may be, None if none is about to."""
        soonest: float | None = None
        for batch in incidents.ended_batches(tx):
            ended_s = seconds(batch.ended_at)
            over_s = ended_s + SETTLED_S if ended_s <= now_s else now_s  # the clock was turned back since
            if over_s <= now_s and now_s < over_s + JUDGED_S and incidents.unjudged(tx, batch.batch):
                over_s = now_s + SETTLED_S
            if over_s <= now_s:
                incidents.tell_batch(tx, batch, stamp(now_s))
            else:
                soonest = over_s if soonest is None else min(soonest, over_s)
        return soonest

    def _next(self, tx: Connection, now_s: float) -> Notice | None:
        while (row := incidents.due(tx, stamp(now_s))) is not None:
            if self._teller.wants(row.kind):
                return Notice(row.id, row.kind, body(row, self._queue_id), tuple(filter(None, row.took.split(","))))
            incidents.untold(tx, row.id)
        return None

    def _tell(self, notice: Notice) -> None:
        self._under_way = notice.incident_id
        self._teller.tell(notice)


def body(row: Any, queue_id: str) -> dict[str, Any]:
    """What is sent of an incident's row. `id` is the same each time that it is tried."""
    host = socket.gethostname()
    told = {
        "schema_version": 1, "id": f"{queue_id}:{row.id}", "event": row.kind, "at": row.at, "host": host,
        "text": f"schedq on {host}: {row.text}",
    }  # fmt: skip
    return {**told, **json.loads(row.body)}
