"""Why a waiting job does not start: its own reason, or its provider's. Standard library only."""

from __future__ import annotations

import sqlite3

from scheduler.clock import now_s, seconds
from scheduler.model.command import called, line_alone
from scheduler.rules import explain_after
from scheduler.store import ancestry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOPS = "SELECT paused_at, drained_at FROM queue"
REASONS = "SELECT slug, variant, job_id, ruling, text, at FROM reasons"
SERVED = "SELECT revision FROM served WHERE slug = ? AND variant = ?"
NEXT_TRY = "SELECT next_try_at FROM breakers WHERE slug = ?"
HELD_BY = (
    "SELECT event, attempt, text FROM events WHERE job_id = ? AND event IN ('park', 'hold', 'submit')"
    " ORDER BY id DESC LIMIT 1"
)
EVIDENCE = "SELECT evidence FROM reasons WHERE slug = ? AND variant = ?"
PASSING = ("backoff", "begin")
BEHIND = "runs alone, behind everything else of its priority"

DOWN = "no scheduler runs for this queue; `schedq up` starts one"


class Reasons:
    """The reasons of one read snapshot. `runs` = whether a scheduler holds the queue's lock."""

    def __init__(self, connection: sqlite3.Connection, runs: bool) -> None:
        self._connection = connection
        self._runs = runs
        self._providers = {(row["slug"], row["variant"]): row for row in connection.execute(REASONS)}
        self._waits: dict[int, bool] = {}
        self._stop = _stop(connection.execute(STOPS).fetchone(), runs)

    def of(self, row: sqlite3.Row) -> dict[str, Any] | None:
        """{"ruling", "text"} of a waiting job, None for one that does not wait.

        With it `behind`, the waiting job that it waits for the same as; `last`, what a scheduler said that is gone.
        """
        own = self._own(row)
        if own is not None and own["ruling"] == "backoff":
            return {**own, "text": own["text"] + self._last(row)}
        if own is not None and row["state"] == "held":
            return self._held(row) or own
        if own is not None or row["state"] != "queued":
            return own
        alone = _is_alone(row)
        provider = self._providers.get(_key(row))
        name = called(row["slug"], row["variant"]) + (", alone" if alone else "")
        if not self._runs:
            if provider is None:
                return {"ruling": "scheduler_down", "text": DOWN}
            last = provider["text"]
            return {"ruling": "scheduler_down", "text": f"{DOWN} (the last one said: {last})", "last": last}
        if provider is None:
            return {"ruling": "busy", "text": BEHIND if alone else f"waits for its turn at {name}"}
        head = provider["job_id"]
        if head is None or head == row["id"]:
            return {"ruling": provider["ruling"], "text": provider["text"] + self._again(provider)}
        if self._waiting(head):
            text = f"behind job {head} of {name}, which waits: {provider['ruling']}"
            return {"ruling": "busy", "text": text, "behind": head}
        return {"ruling": "busy", "text": f"waits for its turn at {name}, behind job {head}"}

    def in_full(self, row: sqlite3.Row) -> dict[str, Any] | None:
        """The reason with what `of` leaves out: when it was found, its evidence, and of a job that is not the first of
        its provider what the first one waits for. Its stamp is None if it is true at the moment that it is asked.
        """
        reason = self.of(row)
        if reason is None:
            return None
        found: dict[str, Any] = {"at": None, **reason, "evidence": None}
        key = _key(row)
        provider = self._providers.get(key)
        if provider is None or not self._runs or self._own(row) is not None:
            return found
        head = provider["job_id"]
        if head not in (None, row["id"]):
            if not self._waiting(head):
                return found
            found["text"] += f": {provider['text']}"
        evidence = self._connection.execute(EVIDENCE, key).fetchone()[0]
        return {**found, "at": provider["at"], "evidence": parsed(evidence)}

    def _own(self, row: sqlite3.Row) -> dict[str, str] | None:
        """What keeps this job whatever its provider does. A stop of the whole queue outlasts what passes with time."""
        own = self._revision(row) if row["blocked"] == "revision" and row["state"] == "queued" else _own(row)
        own = self._after(row) if own is not None and own["ruling"] == "after" else own
        if self._stop and row["state"] == "queued" and (own is None or own["ruling"] in PASSING):
            return {"ruling": "paused", "text": self._stop}
        return own

    def _after(self, row: sqlite3.Row) -> dict[str, str]:
        """Whom a job comes after that has not ended as it needs; once all have, only the scheduler is missing."""
        text, closed, put_off = ancestry.reason(self._connection, row["id"])
        if put_off and self._runs and self._moved(row):
            return self._revision(row)
        if closed or self._runs:
            return {"ruling": "after", "text": text}
        return {"ruling": "scheduler_down", "text": DOWN}

    def _moved(self, row: sqlite3.Row) -> bool:
        """Whether another revision of its provider is here than a job was submitted for."""
        served = self._connection.execute(SERVED, (row["slug"], row["variant"])).fetchone()
        return served is not None and bool(row["revision"]) and row["revision"] != served["revision"]

    def _revision(self, row: sqlite3.Row) -> dict[str, str]:
        """A job is pinned to what decides its answer; here is something else, named as far as a scheduler knew it."""
        served = self._connection.execute(SERVED, (row["slug"], row["variant"])).fetchone()
        here = f"revision {served['revision'][:12]} is" if served is not None else "that is not what is"
        return {
            "ruling": "revision",
            "text": f"was submitted for revision {row['revision'][:12]} of {row['slug']}, and {here} here now; put the"
            f" first one back, or move the job to the one that is here: `schedq update --repin {row['id']}`",
        }

    def _held(self, row: sqlite3.Row) -> dict[str, str] | None:
        """That nobody held it, but its policy: a lost attempt is not repeated without a word of its operator."""
        found = self._connection.execute(HELD_BY, (row["id"],)).fetchone()
        if found is None or found["event"] != "park":
            return None
        if found["attempt"] is None:
            return {"ruling": "held", "text": explain_after.held(found["text"], row["id"])}
        text = f"its worker was lost in attempt {row['attempt']}, and it asked to be held then (--on-lost hold);"
        return {"ruling": "held", "text": f"{text} schedq release {row['id']} tries it again"}

    def _again(self, provider: sqlite3.Row) -> str:
        """When a provider whose breaker is open is tried again, and what does so at once."""
        if provider["ruling"] != "breaker":
            return ""
        found = self._connection.execute(NEXT_TRY, (provider["slug"],)).fetchone()
        when = f" {_when(found['next_try_at'])}" if found is not None and found["next_try_at"] else ""
        return f"{when and ',' + when}; at once with schedq providers reset {provider['slug']}"

    def _last(self, row: sqlite3.Row) -> str:
        """What the attempt before said, which is what has to change."""
        asked = "SELECT outcome_text FROM attempts WHERE job_id = ? AND attempt = ?"
        found = self._connection.execute(asked, (row["id"], row["attempt"])).fetchone()
        return f"; the last time: {found['outcome_text']}" if found is not None and found["outcome_text"] else ""

    def _waiting(self, job_id: int) -> bool:
        if job_id not in self._waits:
            found = self._connection.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()
            self._waits[job_id] = found is not None and found["state"] == "queued"
        return self._waits[job_id]


def _stop(row: sqlite3.Row | None, runs: bool) -> str:
    """What an operator said of the whole queue, for its waiting jobs; "" for nothing."""
    if row is None or not (row["paused_at"] or row["drained_at"]):
        return ""
    at = row["drained_at"] or row["paused_at"]
    since = f"the queue is {'drained' if row['drained_at'] else 'paused'} since {at[:19]}Z"
    return f"{since}: nothing new is sent or started until `schedq queue resume`" + (f"; {DOWN}" if not runs else "")


def parsed(evidence: str | None) -> Any:
    """Evidence as it was stored, None if there is none."""
    import json

    return json.loads(evidence) if evidence else None


def _tried(row: sqlite3.Row) -> str:
    """How often its request was sent and counted; a claim that was undone before that is no try."""
    told = [f"tried {_times(row['tries'])}"] if row["tries"] else []
    told += [f"told to come later {_times(row['laters'])}"] if row["laters"] else []
    return ", ".join(told) or "not tried yet"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _when(at: str | None) -> str:
    """How far off a stamp is, in its largest unit: `in 10 s`, `in 5 min`, `in 3 h`, `now`."""
    left_s = seconds(at) - now_s() if at else 0.0
    if left_s < 0.5:
        return "now"
    if left_s < 100:
        return f"in {left_s:.0f} s"
    return f"in {left_s / 60:.0f} min" if left_s < 6000 else f"in {left_s / 3600:.0f} h"


def _is_alone(row: sqlite3.Row) -> bool:
    """Whether it waits for its turn to run alone: put back behind the others, or to be measured."""
    return row["blocked"] == "after" and row["behind"] is not None


def _key(row: sqlite3.Row) -> tuple[str, str]:
    """Whose reason it shares: its provider's, or that of its provider's jobs that run alone."""
    of = row["slug"], row["variant"]
    return line_alone(*of, bool(row["measures"])) if _is_alone(row) else of


def _own(row: sqlite3.Row) -> dict[str, str] | None:
    at: Any = row["not_before_at"]
    if row["state"] == "held":
        return {"ruling": "held", "text": "held by its operator"}
    match row["blocked"]:
        case "backoff":
            return {"ruling": "backoff", "text": f"{_tried(row)}, tries again {_when(at)}"}
        case "begin":
            return {"ruling": "begin", "text": f"was told not to begin before {f'{at[:19]}Z' if at else 'its time'}"}
        case "after" if not _is_alone(row):
            return {"ruling": "after", "text": "waits for the jobs that it comes after"}
    return None
