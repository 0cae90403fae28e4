"""How an attempt ends: the job ends with it, or goes back into the line, by the table of states.

Only the attempt that is the job's current one can end anything (P2). What comes too late is recorded and
changes nothing. What was asked to be cancelled never goes back into the line.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.errors import Fenced, NoSuchJob
from scheduler.model.outcome import Outcome
from scheduler.model.states import JOB, JOB_ENDED, LATE, SAME, SAYS, advance
from scheduler.store import alone as line_of_alone
from scheduler.store import events, results, rows

REPLIES = ("succeed", "fail", "time_out", "retry")
"""Events that follow from an answer: of an attempt that is over they are late, not wrong."""


CURRENT = (
    "SELECT id, state, attempt, worker_id, cancel_requested_at, started_at, tries, laters, deaths, behind, batch,"
    " priority FROM jobs WHERE id = :id"
)


def finish(
    tx: Connection,
    job_id: int,
    attempt: int,
    event: str,
    outcome: Outcome,
    at: str,
    *,
    reply: bytes | None = None,
    destination: str | None = None,
    not_before_at: str | None = None,
    block: str | None = None,
    count_death: bool = False,
    later: bool = False,
    exit_code: int | None = None,
    versions: dict[str, str] | None = None,
    alone: bool = False,
    ended_at: str | None = None,
) -> str:
    """End an attempt by `event`, which is succeed, fail, time_out, retry, give_back, give_up, stop, park or cancel.

    The job's state then.

    `late` = the attempt is over or not the current one: recorded, nothing changed. `not_before_at`, a stamp:
    back in the line it is blocked until then (`block`, by default backoff). `count_death`: a worker died of it.
    `later`: the worker asked for another time, the try is not counted. give_back uncounts the try, too. `alone`: back
    in the line it runs alone, behind everything that is there; a job that did so once goes on doing so. `ended_at`, a
    stamp: when it ended, if that was not `at`; never before it began.
    Fenced: a give_back, give_up, stop or park of an attempt that is not the current one.
    """
    job = rows.first(tx, CURRENT, {"id": job_id})
    if job is None:
        raise NoSuchJob(f"no job {job_id} in this queue")
    if job.attempt != attempt:
        if event in REPLIES:
            return _late(tx, job, attempt, event, outcome, at)
        raise Fenced(f"attempt {attempt} of job {job_id} is not the current one ({job.attempt}); nothing was changed")
    bound = job.state in ("admitted", "running")
    if bound and job.cancel_requested_at is not None and event in ("retry", "give_back", "give_up", "park"):
        event = "stop" if job.state == "running" else "cancel"
        outcome = Outcome("cancelled", outcome.text, outcome.exit_code)
    cell = advance(JOB, job.state, event, lambda: events.story(tx, job_id=job_id))
    if cell == LATE:
        return _late(tx, job, attempt, event, outcome, at)
    if cell in (SAME, SAYS):
        return str(job.state)
    code = exit_code if exit_code is not None else outcome.exit_code
    if cell in JOB_ENDED:
        _end(tx, job, cell, outcome, code, max(ended_at or at, job.started_at or ""), count_death)
        if reply is not None or destination is not None:
            results.put(tx, job_id, attempt, reply, destination)
    else:
        uncounted = job.state == "running" and (later or event == "give_back")
        blocked = None
        if cell == "queued" and (block is not None or not_before_at is not None):
            blocked = block or "backoff"
        behind = job.behind
        if alone and behind is None and cell == "queued":
            behind = line_of_alone.stands_behind(tx, job.batch, job.priority)
        if behind is not None and cell == "queued" and blocked is None:
            blocked = "after"
        move(
            tx, job, cell, worker_id=None, progress=None, head_since_at=None, blocked=blocked,
            behind=behind, not_before_at=not_before_at, tries=job.tries - 1 if uncounted else job.tries,
            laters=job.laters + int(later), deaths=job.deaths + int(count_death),
        )  # fmt: skip
    close_attempt(tx, job, outcome, code, ended_at or at, versions)
    events.record(
        tx, at, job_id=job_id, worker_id=job.worker_id, attempt=attempt, event=event,
        text=outcome.kind + (f": {outcome.text}" if outcome.text else ""),
    )  # fmt: skip
    return cell


def cancel_admitted(tx: Connection, job_id: int, attempt: int, at: str) -> str:
    """Carry out the cancel of a job whose request was not sent; its worker goes on loading and is then free."""
    return finish(tx, job_id, attempt, "cancel", Outcome("cancelled", "cancelled before its request was sent"), at)


def close_attempt(
    tx: Connection, job: Any, outcome: Outcome, exit_code: int | None, at: str, versions: dict[str, str] | None = None
) -> None:
    """Record how the job's current attempt ended."""
    rows.write(
        tx, "UPDATE attempts SET ended_at = max(:at, coalesce(sent_at, '')), outcome = :kind, outcome_text = :text,"
        " exit_code = :exit_code, versions = coalesce(:versions, versions)"
        " WHERE job_id = :id AND attempt = :attempt AND ended_at IS NULL",
        {
            "at": at, "kind": outcome.kind, "text": outcome.text, "exit_code": exit_code, "id": job.id,
            "attempt": job.attempt, "versions": json.dumps(versions) if versions else None,
        },
    )  # fmt: skip


def _end(
    tx: Connection, job: Any, state: str, outcome: Outcome, exit_code: int | None, at: str, count_death: bool
) -> None:
    move(
        tx, job, state, ended_at=at, outcome=outcome.kind, outcome_text=outcome.text, exit_code=exit_code,
        blocked=None, not_before_at=None, head_since_at=None, deaths=job.deaths + int(count_death),
    )  # fmt: skip


def move(tx: Connection, job: Any, state: str, **columns: Any) -> None:
    """Compare-and-set of a job's state. Fenced if it is not what was read."""
    terms = "".join(f", {name} = :{name}" for name in columns)
    done = rows.write(
        tx,
        f"UPDATE jobs SET state = :state{terms} WHERE id = :id AND state = :was AND attempt = :attempt",
        {**columns, "state": state, "id": job.id, "was": job.state, "attempt": job.attempt},
    )
    if done.rowcount != 1:
        raise Fenced(f"job {job.id} is no longer {job.state} with attempt {job.attempt}; nothing was changed")


def _late(tx: Connection, job: Any, attempt: int, event: str, outcome: Outcome, at: str) -> str:
    events.record(
        tx, at, job_id=job.id, attempt=attempt, event=LATE,
        text=f"{event} ({outcome.kind}) of attempt {attempt} came when the job was {job.state}; nothing changed",
    )  # fmt: skip
    return LATE
