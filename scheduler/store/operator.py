"""What an operator may do to a job: hold it, let it go, open it again, change what it asked for; by its state.

Each looks before it writes: what is refused has changed nothing, and the same transaction may go on with the next job.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.clock import local_day, seconds
from scheduler.errors import Fenced, NoSuchJob, Refused, UsageError
from scheduler.model.command import EXEC
from scheduler.model.outcome import Outcome
from scheduler.model.states import JOB, SAME, SAYS, advance
from scheduler.store import events, passing, rows
from scheduler.store.ending import close_attempt, move
from scheduler.store.resuming import ANEW, TAKEN

JOBS = (
    "SELECT id, state, attempt, blocked, out, worker_id, not_before_at, slug, variant, revision, priority, timeout_s,"
    " max_attempts, on_lost, retry_on, params, size, behind, measures, pruned_at, tries FROM jobs WHERE id = :id"
)
NO_BACKOFF = (
    "UPDATE jobs SET blocked = iif(behind IS NULL, NULL, 'after'), not_before_at = NULL WHERE state = 'queued'"
    " AND blocked IS NOT NULL AND blocked = 'backoff' AND slug = :slug"
)

WAITING, UNSENT = ("queued", "held"), ("queued", "held", "admitted")
UNENDED = ("queued", "held", "admitted", "running")
CHANGEABLE = {
    "priority": WAITING, "not_before_at": WAITING, "revision": WAITING, "params": WAITING, "size": WAITING,
    "timeout_s": UNSENT, "max_attempts": UNENDED, "on_lost": UNENDED, "retry_on": UNENDED,
}  # fmt: skip
"""In which states a job's column may be changed: as long as what it decides has not been decided."""

WORDS = {
    "priority": "--priority", "not_before_at": "--begin",
    "revision": "revision", "timeout_s": "--timeout", "max_attempts": "--max-attempts",
    "on_lost": "--on-lost", "retry_on": "--retry-on",
}  # fmt: skip


def row(tx: Connection, job_id: int) -> Any:
    """What an operator may look at and change of a job. NoSuchJob if there is none."""
    found = rows.first(tx, JOBS, {"id": job_id})
    if found is None:
        raise NoSuchJob(f"no job {job_id} in this queue; `schedq status` lists those that wait and run")
    return found


def hold(tx: Connection, job_id: int, at: str) -> str:
    """Set a waiting or admitted job aside until `release`; its state then. UsageError where that cannot be."""
    job, state = _asked(tx, job_id, "hold")
    if state != job.state:
        if job.state == "admitted":
            close_attempt(tx, job, Outcome("interrupted", "held by an operator"), None, at)
        move(tx, job, state, blocked=None, head_since_at=None, worker_id=None, progress=None)
        events.record(tx, at, job_id=job_id, event="hold")
    return state


def release(tx: Connection, job_id: int, at: str) -> str:
    """Put a held job back into the line, at its old place; its state then. UsageError if it is not held.

    A back-off is over with that; a time before which it was not to begin is not.
    """
    job, state = _asked(tx, job_id, "release")
    if state != job.state:
        passing.refuse_broken(tx, job_id)
        begin = job.not_before_at is not None and job.not_before_at > at and not job.attempt
        blocked = passing.blocked_again(tx, job_id) or ("begin" if begin else _line(job))
        move(tx, job, state, blocked=blocked, not_before_at=job.not_before_at if begin else None, free_at=at)
        passing.look_at(tx, job_id)
        events.record(tx, at, job_id=job_id, event="release")
    return state


def requeue(tx: Connection, job_id: int, at: str) -> str:
    """Open a failed, cancelled, timed out or refused job again under its id; its state then.

    Its tries count anew, its attempts go on; how many tries it had stands in the event. UsageError for any other
    state; Refused if another job has its destination by now.
    """
    job, state = _asked(tx, job_id, "requeue")
    if job.slug == EXEC and state != job.state:
        raise UsageError(
            f"job {job_id} is a command, and neither its terminal nor its environment is kept after its end; run it"
            " again with schedq exec"
        )
    if job.pruned_at is not None and state != job.state:
        raise Refused(
            f"job {job_id} was pruned on {local_day(seconds(job.pruned_at))}: its input is not kept; submit it again"
        )
    other = rows.first(tx, TAKEN, {"out": job.out, "id": job_id}) if job.out is not None else None
    if other is not None:
        raise Refused(
            f"job {other.id} ({other.state}) has the destination {job.out} of job {job_id} now;"
            " submit it again with another --out"
        )
    passing.refuse_broken(tx, job_id)
    done = rows.write(
        tx,
        f"UPDATE jobs SET state = :state, {ANEW} WHERE id = :id AND state = :was AND attempt = :attempt",
        {"state": state, "id": job_id, "was": job.state, "attempt": job.attempt, "at": at},
    )
    if done.rowcount != 1:
        raise Fenced(f"job {job_id} is no longer {job.state} with attempt {job.attempt}; nothing was changed")
    passing.look_at(tx, job_id)
    tried = {"tries": job.tries}
    events.record(tx, at, job_id=job_id, event="requeue", text=f"was {job.state}", evidence=tried)
    return state


def update(tx: Connection, job_id: int, at: str, columns: dict[str, Any]) -> str:
    """Change what a job asked for (keys of CHANGEABLE); what was changed, in words, "" if it was so already.

    All of it or nothing: UsageError where one of them is decided by now. A job that waited for another revision than
    is here is in the line again once its own is that one.
    """
    job = row(tx, job_id)
    for column in columns:
        if job.state not in CHANGEABLE[column]:
            raise UsageError(f"job {job_id} is {job.state}: {_decided(job.state, column)}")
    new = {column: value for column, value in columns.items() if getattr(job, column) != value}
    if not new:
        return ""
    more: dict[str, Any] = {"blocked": _line(job)} if "revision" in new and job.blocked == "revision" else {}
    at_gate = job.blocked == "after" and job.behind is None  # who waits at one is told by it when it may begin
    if "not_before_at" in new and job.state == "queued" and not at_gate:
        free = {"blocked": _line(job), "free_at": at}
        more = {"blocked": "begin", "head_since_at": None} if new["not_before_at"] else free
    terms = ", ".join(f"{column} = :{column}" for column in (*new, *more))
    done = rows.write(
        tx,
        f"UPDATE jobs SET {terms} WHERE id = :id AND state = :was AND attempt = :attempt",
        {**new, **more, "id": job_id, "was": job.state, "attempt": job.attempt},
    )
    if done.rowcount != 1:
        raise Fenced(f"job {job_id} is no longer {job.state} with attempt {job.attempt}; nothing was changed")
    text = ", ".join(_change(column, getattr(job, column), value) for column, value in new.items() if column in WORDS)
    events.record(tx, at, job_id=job_id, event="update", text=text or "its parameters")
    return text or "its parameters"


def _line(job: Any) -> str | None:
    """What blocks a job that nothing else does: `after` in the line of those that run alone, nothing in its own."""
    return None if job.behind is None else "after"


def _decided(state: str, column: str) -> str:
    if state not in UNENDED:
        return (
            "it has ended, and nothing of it can be changed; `schedq requeue` opens it again, where it did not succeed"
        )
    if column == "timeout_s":
        return "its request was sent with the --timeout that it had"
    return f"it has left the line, and its {WORDS.get(column, column)} counts there only"


def _change(column: str, before: Any, now: Any) -> str:
    if column == "revision":
        return f"revision {before[:12] or 'none'} -> {now[:12]}"
    return f"{WORDS[column]} {_shown(column, before)} -> {_shown(column, now)}"


def _shown(column: str, value: Any) -> str:
    if column == "not_before_at":
        return f"{value[:19]}Z" if value else "now"
    if value is None and column != "timeout_s":
        return "the provider's"
    return (
        f"{value:g} s" if column == "timeout_s" and value is not None else str("none" if value in (None, "") else value)
    )


def _asked(tx: Connection, job_id: int, event: str) -> tuple[Any, str]:
    job = row(tx, job_id)
    cell = advance(JOB, job.state, event, lambda: events.story(tx, job_id=job_id))
    if cell == SAYS:
        hint = _HINTS.get((event, job.state), "")
        raise UsageError(f"job {job_id} is {job.state}: {event} does nothing there{hint}")
    return job, job.state if cell == SAME else cell


_HINTS = {
    ("hold", "running"): "; `schedq cancel` stops it",
    ("release", "queued"): "; it waits for its turn, `schedq status` says for what",
    ("requeue", "succeeded"): "; submit it again, its result stays",
    ("requeue", "queued"): "; it is in the line already",
    ("requeue", "held"): "; release lets it go",
    ("requeue", "running"): "; it is being tried already",
    ("requeue", "admitted"): "; it is being tried already",
}


def try_now(tx: Connection, slug: str) -> int:
    """End the back-off of every waiting job of a provider, which an operator knows to be mended; how many."""
    return int(rows.write(tx, NO_BACKOFF, {"slug": slug}).rowcount)
