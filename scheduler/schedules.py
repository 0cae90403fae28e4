"""Calls that are repeated, as the loop sees them: which time is due now, made at once and once, and how it ended.

One call at a time. A time that was missed (nothing ran, or another call did) is made up once, late: however many
there were of a schedule, one run. One that could not be started is due again a little later, until its next time. A
clock that is turned back by less than a day makes nothing due twice.
"""

from __future__ import annotations

import json
import logging
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds, stamp
from scheduler.model.call import NOT_STARTED, Caller, Due, Ended
from scheduler.rules.again import next_try_s
from scheduler.store import schedules

log = logging.getLogger("schedq")

TURNED_BACK_S = 1.0
"""A clock that shows less than before by more than this was turned back."""

AHEAD_S = 86400.0
"""A run that lies further ahead than this was made by a clock that was wrong: its time is due again."""

TRIES = 50
"""So many runs of a schedule are looked at for how often in a row it could not be started: more than a day has."""


class Schedules:
    """The schedules of one queue, for one scheduler. `limit_s`: how long a call may take."""

    def __init__(self, caller: Caller, clock: SystemClock, limit_s: float) -> None:
        self._caller, self._clock, self._limit_s = caller, clock, limit_s
        self._settled, self._running = False, False
        self._next_s: float | None = None
        self._looked_s = 0.0
        self._ended: list[Ended] = []
        self._attended: set[int] = set()

    @property
    def any(self) -> bool:
        """Whether there is something to stay for: a schedule, or a call that runs."""
        return self._next_s is not None or self._running

    def doubt(self) -> None:
        """The last transaction may have been rolled back: all is looked at anew, and what it wrote written again."""
        self._settled = False

    def due_in_s(self) -> list[float]:
        """When the next call is due, seconds from now; nothing while one runs."""
        return [] if self._next_s is None or self._running else [max(0.01, self._next_s - self._clock.now_s())]

    def turn(self, tx: Connection, *, anew: bool, starts: bool = True) -> list[Callable[[], None]]:
        """Record what ended, begin what is due; what it answers is done after the commit.

        `anew`: somebody else may have changed something. Not `starts`: the scheduler is about to go.
        """
        now_s = self._clock.now_s()
        self._ended = self._caller.over() + ([] if self._settled else self._ended)
        back = now_s < self._looked_s - TURNED_BACK_S
        self._looked_s = now_s
        passed = self._next_s is not None and now_s >= self._next_s and not self._running
        if self._settled and not (anew or back or self._ended or passed):
            return []
        deeds: list[Callable[[], None]] = []
        for each in self._ended:
            schedules.end(tx, each.run_id, stamp(now_s), each.exit_code, each.text)
            if not each.started:
                _again(tx, each.run_id, now_s)
            deeds.append(partial(self._caller.forget, each.run_id))
        soonest = schedules.soonest(tx)
        unended = schedules.unended(tx) if soonest.running else []
        unseen = [run for run in unended if run.id not in self._attended]
        deeds += [partial(self._attend, run.id, self._left_s(run, now_s)) for run in unseen]
        settled = self._settled and not back
        if not settled:
            for schedule in schedules.all_of(tx):
                _rearm(tx, schedule, now_s)
        idle = starts and not unended and (not settled or soonest.next_at is not None)
        due = schedules.due(tx, stamp(now_s)) if idle else None
        run_id = None if due is None else self._begin(tx, due, now_s)
        if run_id is not None:
            deeds.append(partial(self._make, due, run_id))
        self._running = bool(unended) or run_id is not None
        at = soonest.next_at if settled and due is None else schedules.soonest(tx).next_at
        self._next_s, self._settled = None if at is None else seconds(at), True
        return deeds

    def _begin(self, tx: Connection, schedule: Any, now_s: float) -> int | None:
        """The run of a time that is due, its next time after now; None if that time had its run."""
        schedules.move(tx, schedule.id, _next_at(schedule, max(now_s, seconds(schedule.next_at))))
        return schedules.begin(tx, schedule.id, schedule.next_at, stamp(now_s))

    def _make(self, schedule: Any, run_id: int) -> None:
        argv, environment = tuple(json.loads(schedule.argv)), json.loads(schedule.environment)
        log.info("schedule %d is due (%s): schedq %s", schedule.id, schedule.next_at, " ".join(argv))
        self._caller.make(Due(run_id, argv, schedule.cwd, environment, self._limit_s))
        self._attended.add(run_id)

    def _attend(self, run_id: int, left_s: float) -> None:
        self._caller.attend(run_id, left_s)
        self._attended.add(run_id)

    def _left_s(self, run: Any, now_s: float) -> float:
        return min(self._limit_s, max(0.0, self._limit_s - (now_s - seconds(run.began_at))))


def _again(tx: Connection, run_id: int, now_s: float) -> None:
    """A run that was not started is made up: a little later each time, for a day, or when its schedule is due next."""
    schedule, runs = schedules.around(tx, run_id, TRIES)
    tries = list(takewhile(lambda run: (run.text or "").startswith(NOT_STARTED), runs))
    at_s = next_try_s(len(tries), seconds(tries[-1].due_at), now_s) if tries else None
    if at_s is not None and (schedule.next_at is None or at_s < seconds(schedule.next_at)):
        schedules.move(tx, schedule.id, stamp(at_s))


def _rearm(tx: Connection, schedule: Any, now_s: float) -> None:
    """Its next time is no later than the clock has it: one that was turned on and back again leaves none out.

    What was run while the clock was fast by a little is not run again; a run further ahead binds nobody.
    """
    last = schedules.last_run(tx, schedule.id)
    ran_s = seconds(last.due_at if last is not None else schedule.created_at)
    since_s = ran_s if now_s < ran_s <= now_s + AHEAD_S else now_s
    at = _next_at(schedule, since_s)
    if at is not None and (schedule.next_at is None or at < schedule.next_at):
        schedules.move(tx, schedule.id, at)


def _next_at(schedule: Any, after_s: float) -> str | None:
    """When a schedule is due first after that, as a stamp; None, which is logged, if nobody can tell."""
    try:
        from scheduler.rules import cron

        zone = zoneinfo.ZoneInfo(schedule.zone)
        at = cron.next_after(cron.read(schedule.cron), zone, datetime.fromtimestamp(after_s, UTC))
    except Exception as error:
        log.error("schedule %d is not due any more: %s: %s", schedule.id, type(error).__name__, error)
        return None
    return None if at is None else stamp(at.timestamp())
