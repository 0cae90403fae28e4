"""When jobs are expected to be sent and to end: the scheduler's last forecast, carried on to this moment.

A forecast rests on learned means and on the queue as it is; it promises nothing. Standard library only.
"""

from __future__ import annotations

import json
import math
import sqlite3

from scheduler.clock import seconds
from scheduler.model.command import EXEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    Times = tuple[float | None, float | None]

LEAST_LEFT = 0.1
"""Of what a load or a run usually takes, or has taken by now, as much is always still to come."""

ENOUGH, ENOUGH_S = 0.05, 5.0
"""From when on a job's own pace counts for more than what its provider usually takes: that part of it, or that long."""

COUNTED = 10_000
"""Jobs ahead of one that are counted; farther back nothing is said (P12)."""

HIGHER = (
    "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE slug = ? AND variant = ? AND state = 'queued' AND blocked IS NULL"
    f" AND priority > ? LIMIT {COUNTED})"
)
EARLIER = (
    "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE slug = ? AND variant = ? AND state = 'queued' AND blocked IS NULL"
    f" AND priority = ? AND id < ? LIMIT {COUNTED})"
)
BOUND = (
    "SELECT id, slug, variant, state, attempt, worker_id, progress FROM jobs"
    " WHERE state IN ('held', 'admitted', 'running') AND state IN ('admitted', 'running')"
)
SENT = "SELECT sent_at FROM attempts WHERE job_id = ? AND attempt = ?"
LOADING = "SELECT created_at FROM workers WHERE id = ? AND state IN ('parked', 'starting')"


class Outlook:
    """The forecasts of one read snapshot, at one moment. `runs` = whether a scheduler holds the queue's lock.

    `own_s`: what a job of a provider takes here, by (slug, variant), where that is known better than by its mean.
    """

    def __init__(
        self, connection: sqlite3.Connection, at_s: float, runs: bool, own_s: dict[tuple[str, str], float] | None = None
    ) -> None:
        self._own_s = own_s or {}
        self._connection, self._at_s, self._runs = connection, at_s, runs
        self._ends: dict[tuple[str, str], list[float]] | None = None
        self._forecasts = {(row["slug"], row["variant"]): row for row in connection.execute("SELECT * FROM forecasts")}
        self._timings = {(row["slug"], row["variant"]): row for row in connection.execute("SELECT * FROM timings")}

    def of(self, row: sqlite3.Row, ahead: int | None = None) -> Times:
        """(starts_in_s, ends_in_s) of a job; None where it has started, will not, or nobody can tell.

        `ahead`: how many of its provider's waiting jobs stand before it, counted here unless given.
        """
        if row["slug"] == EXEC:  # how long a command takes nobody can tell
            waits = self._runs and row["state"] == "queued" and row["blocked"] is None
            return self._of_waiting(row, ahead)[0] if waits else None, None
        if row["state"] == "running":
            return None, self._rest_of_run_s(row)
        if not self._runs:
            return None, None
        if row["state"] == "admitted":
            return self._of_admitted(row)
        if row["state"] == "queued" and row["blocked"] is None:
            return self._of_waiting(row, ahead)
        return None, None

    def _mean(self, row: sqlite3.Row, what: str) -> float | None:
        own_s = self._own_s.get((row["slug"], row["variant"])) if what == "run" else None
        if own_s is not None:
            return own_s
        known = self._timings.get((row["slug"], row["variant"]))
        return float(known[f"{what}_s"]) if known is not None and known[f"{what}s"] else None

    def _left_s(self, mean_s: float | None, since_at: str | None) -> float | None:
        if mean_s is None or not since_at:
            return None
        passed_s = max(0.0, self._at_s - seconds(since_at))
        return max(mean_s - passed_s, LEAST_LEFT * max(mean_s, passed_s))

    def _rest_of_run_s(self, row: sqlite3.Row) -> float | None:
        sent = self._connection.execute(SENT, (row["id"], row["attempt"])).fetchone()
        if sent is None:
            return None
        by_itself_s, meaningful = _paced_s(row["progress"], seconds(sent["sent_at"]), self._at_s)
        usual_s = self._left_s(self._mean(row, "run"), sent["sent_at"])
        return by_itself_s if meaningful or usual_s is None else usual_s

    def _of_admitted(self, row: sqlite3.Row) -> Times:
        worker = self._connection.execute(LOADING, (row["worker_id"],)).fetchone()
        starts_in_s = 0.0 if worker is None else self._left_s(self._mean(row, "load"), worker["created_at"])
        return starts_in_s, _sum(starts_in_s, self._mean(row, "run"))

    def _of_waiting(self, row: sqlite3.Row, ahead: int | None) -> Times:
        forecast = self._forecasts.get((row["slug"], row["variant"]))
        if forecast is None:
            return None, None
        before = self._ahead(row) if ahead is None else ahead
        if before >= COUNTED:
            return None, None
        soonest_s = max(0.0, seconds(forecast["starts_at"]) - self._at_s)
        rounds, place = divmod(before, max(1, forecast["workers"]))
        taken = self._taken().get((row["slug"], row["variant"]), [])
        if len(taken) >= max(1, forecast["workers"]):
            soonest_s = taken[place]
        run_s = self._own_s.get((row["slug"], row["variant"]), forecast["run_s"])
        starts_in_s = soonest_s + (rounds * run_s if rounds else 0.0)
        return _told(starts_in_s), _told(starts_in_s + run_s)

    def _taken(self) -> dict[tuple[str, str], list[float]]:
        """When each worker that has a job is expected to be free, by provider, soonest first; infinite: unknown."""
        if self._ends is None:
            self._ends = {}
            for row in self._connection.execute(BOUND).fetchall():
                ends_in_s = self.of(row)[1]
                self._ends.setdefault((row["slug"], row["variant"]), []).append(
                    math.inf if ends_in_s is None else ends_in_s
                )
            for ends in self._ends.values():
                ends.sort()
        return self._ends

    def _ahead(self, row: sqlite3.Row) -> int:
        of = (row["slug"], row["variant"], row["priority"])
        (higher,) = self._connection.execute(HIGHER, of).fetchone()
        (earlier,) = self._connection.execute(EARLIER, (*of, row["id"])).fetchone()
        return int(higher) + int(earlier)


def _paced_s(progress: str | None, sent_s: float, at_s: float) -> tuple[float | None, bool]:
    """What is left of a job that tells how much of its work is done, at the pace that it had when it last said so.

    None of one that does not tell. With it whether that rests on enough: so much of the work, or so long a time. What
    is left falls between two words of the worker, and never below a tenth of what was left or of the silence.
    """
    told = json.loads(progress) if progress else {}
    done, total = told.get("done"), told.get("total")
    told_s = seconds(told["at"]) if told.get("at") else at_s
    took_s, silent_s = told_s - sent_s, max(0.0, at_s - told_s)
    if not done or not total or not 0 < done <= total or took_s <= 0:
        return None, False
    left_s = took_s * (total - done) / done
    least_s = LEAST_LEFT * max(left_s, silent_s) if silent_s else 0.0
    return max(left_s - silent_s, least_s), took_s >= ENOUGH_S or done >= ENOUGH * total


def _told(in_s: float) -> float | None:
    """None for what is infinite: nobody can tell."""
    return in_s if math.isfinite(in_s) else None


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
