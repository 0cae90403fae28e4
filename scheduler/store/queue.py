"""The waiting line and the claims on it: what is first, what is due, what is bound, and every start of an attempt.

Functions over the connection of a write (`Store.write`) or a read. A move reads the job, asks the table of
states, and writes compare-and-set on state and attempt; each writes its line of the story. `at` is a stamp.
How attempts end stands in `ending`.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.errors import Fenced, NoSuchJob
from scheduler.model.states import JOB, advance
from scheduler.store import events, rows
from scheduler.store.commands import HEAD_COMMANDS
from scheduler.store.ending import cancel_admitted, finish
from scheduler.store.operator import hold, release, requeue

__all__ = [
    "admit", "bound", "cancel_admitted", "claim_warm", "claims", "drain", "drained", "due", "finish", "heads", "hold",
    "json_object", "last_submitted_at", "live", "next_due_at", "pause", "paused", "progress", "release",
    "requeue", "resume", "row", "send", "sent_at", "set_revision_blocks",
]  # fmt: skip

OF_GROUP = (
    "SELECT {} FROM jobs WHERE slug = {}.slug AND variant = {}.variant AND state = 'queued' AND blocked IS NULL"
    " ORDER BY priority DESC, id LIMIT 1 OFFSET {}"
)
HEADS = (
    "SELECT j.id, j.slug, j.variant, j.priority, j.revision, j.submitted_at, j.head_since_at, g.n AS count,"
    f" ({OF_GROUP.format('priority', 'g', 'g', 1)}) AS next_priority, ({OF_GROUP.format('id', 'g', 'g', 1)}) AS next_id"
    " FROM (SELECT slug, variant, sum(n) AS n FROM depth WHERE state = 'queued' AND slug <> 'exec'"
    " GROUP BY slug, variant) AS g"
    f" JOIN jobs AS j ON j.id = ({OF_GROUP.format('id', 'g', 'g', 0)})"
    f" UNION ALL SELECT * FROM ({HEAD_COMMANDS})"
)
MISMATCHED = (
    "WITH known AS (SELECT json_extract(value, '$[0]') AS slug, json_extract(value, '$[1]') AS variant,"
    " json_extract(value, '$[2]') AS revision FROM json_each(:known))"
    " SELECT k.slug, k.variant, k.revision FROM known AS k WHERE"
    " EXISTS (SELECT 1 FROM jobs WHERE slug = k.slug AND variant = k.variant AND state = 'queued'"
    " AND blocked IS NULL AND revision < k.revision)"
    " OR EXISTS (SELECT 1 FROM jobs WHERE slug = k.slug AND variant = k.variant AND state = 'queued'"
    " AND blocked IS NULL AND revision > k.revision)"
    " OR EXISTS (SELECT 1 FROM jobs WHERE slug = k.slug AND variant = k.variant AND state = 'queued'"
    " AND blocked = 'revision' AND revision = k.revision)"
    " OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_alone_firsts WHERE slug = k.slug AND variant = k.variant"
    " AND behind IS NOT NULL AND state = 'queued' AND blocked = 'after' AND slug <> 'exec' AND revision <> k.revision)"
)
FOLLOWING = (
    "SELECT priority, id FROM jobs WHERE slug = :slug AND variant = :variant AND state = 'queued' AND blocked IS NULL"
    " ORDER BY priority DESC, id LIMIT 1 OFFSET 1"
)
LIVE = (
    "SELECT {} FROM jobs WHERE state IN ('held', 'admitted', 'running')"
    " AND state IN ('admitted', 'running') ORDER BY id"
)
LAST_SUBMITTED = "SELECT submitted_at FROM jobs WHERE id = (SELECT max(id) FROM jobs)"
BOUND = "SELECT * FROM jobs WHERE worker_id = :worker_id AND worker_id IS NOT NULL AND state IN ('admitted', 'running')"
DUE = (
    "UPDATE jobs SET blocked = iif(behind IS NULL, NULL, 'after'), not_before_at = NULL,"
    " free_at = iif(blocked = 'begin', not_before_at, free_at) WHERE state = 'queued' AND blocked IS NOT NULL"
    " AND not_before_at <= :now_at AND blocked IN ('backoff', 'begin')"
)
NEXT_DUE = (
    "SELECT not_before_at FROM jobs WHERE state = 'queued' AND blocked IS NOT NULL AND not_before_at > ''"
    " AND blocked IN ('backoff', 'begin') ORDER BY not_before_at LIMIT 1"
)
OTHER_REVISION = (
    "UPDATE jobs SET blocked = 'revision', head_since_at = NULL WHERE slug = :slug AND variant = :variant"
    " AND state = 'queued' AND {} AND revision {} :revision"
)
IN_LINE = "blocked IS NULL", "blocked = 'after' AND behind IS NOT NULL"
"""What may go: in its provider's line, and in that of the jobs that run alone."""

OTHER_REVISIONS = tuple(OTHER_REVISION.format(line, sign) for line in IN_LINE for sign in "<>")
SERVED = (
    "INSERT INTO served (slug, variant, revision) SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),"
    " json_extract(value, '$[2]') FROM json_each(:known) WHERE true"
    " ON CONFLICT (slug, variant) DO UPDATE SET revision = excluded.revision WHERE revision <> excluded.revision"
)
SAME_REVISION = (
    "UPDATE jobs SET blocked = iif(behind IS NULL, NULL, 'after') WHERE slug = :slug AND variant = :variant"
    " AND state = 'queued' AND blocked = 'revision' AND revision = :revision"
)


def heads(tx: Connection) -> list[Any]:
    """The first job that may start of each (slug, variant): what a plan sees of it.

    And `count`, how many there are; `next_priority` and `next_id` of the one behind it, None if it is the last. Each
    command is one of its own, the first of them are seen. Costs O(providers), whatever the length of the queue.
    """
    return rows.found(tx, HEADS)


def last_submitted_at(tx: Connection) -> str | None:
    """When the newest job was submitted, None if there never was one."""
    found = rows.value(tx, LAST_SUBMITTED)
    return None if found is None else str(found)


def row(tx: Connection, job_id: int) -> Any:
    """The job's row, None if there is none."""
    return rows.first(tx, "SELECT * FROM jobs WHERE id = :id", {"id": job_id})


def live(tx: Connection) -> list[Any]:
    """The rows of all jobs that are admitted or running, by id."""
    return rows.found(tx, LIVE.format("*"))


def claims(tx: Connection) -> list[Any]:
    """Which attempt of which job is bound to which worker, by job id, and whether it was asked to be cancelled."""
    columns = "id, state, attempt, worker_id, cancel_requested_at"
    return rows.found(tx, LIVE.format(columns))


def bound(tx: Connection, worker_id: int) -> Any:
    """The job that is bound to this worker (admitted or running), None if it is free."""
    return rows.first(tx, BOUND, {"worker_id": worker_id})


def due(tx: Connection, now_at: str) -> int:
    """Let go the jobs whose back-off or begin has passed; how many."""
    return int(rows.write(tx, DUE, {"now_at": now_at}).rowcount)


def next_due_at(tx: Connection) -> str | None:
    """When the next back-off or begin passes, None if none is waited for."""
    found = rows.value(tx, NEXT_DUE)
    return None if found is None else str(found)


def set_revision_blocks(tx: Connection, revisions: dict[tuple[str, str], str]) -> int:
    """Block the jobs that are pinned to another revision than the one installed, free those that match; how many.

    What is installed is kept beside, for the words to those that wait. `revisions` by (slug, variant); a provider that
    is not in it is left as it is. Costs O(providers + changed).
    """
    changed = 0
    known = json.dumps([[slug, variant, revision] for (slug, variant), revision in revisions.items()])
    rows.write(tx, SERVED, {"known": known})
    for group in rows.found(tx, MISMATCHED, {"known": known}):
        values = group._asdict()
        for statement in (*OTHER_REVISIONS, SAME_REVISION):
            changed += rows.write(tx, statement, values).rowcount
    return changed


def admit(
    tx: Connection,
    job_id: int,
    worker_id: int,
    epoch: int,
    at: str,
    *,
    why: str = "",
    evidence: dict[str, Any] | None = None,
) -> int:
    """Claim a waiting job for a worker that is to be started, and answer with the attempt's number: its fence.

    `why` and `evidence` are the sentence and the numbers that it is admitted on. Fenced if it may not start any more.
    """
    job = _existing(tx, job_id)
    attempt = _claim(tx, job, advance(JOB, job.state, "admit", lambda: events.story(tx, job_id=job_id)), worker_id)
    _open_attempt(tx, job_id, attempt, worker_id, epoch, at, sent_at=None)
    events.record(
        tx, at, job_id=job_id, worker_id=worker_id, attempt=attempt, event="admit", text=why, evidence=evidence
    )
    return attempt


def claim_warm(tx: Connection, job_id: int, worker_id: int, epoch: int, at: str) -> int:
    """Admit a waiting job to a ready worker and count its try, at once: its request is about to leave.

    Answers with the attempt's number. Fenced if the job may not start any more.
    """
    job = _existing(tx, job_id)
    admitted = advance(JOB, job.state, "admit", lambda: events.story(tx, job_id=job_id))
    attempt = _claim(tx, job, advance(JOB, admitted, "send"), worker_id, sent_at=at)
    _open_attempt(tx, job_id, attempt, worker_id, epoch, at, sent_at=at)
    events.record(tx, at, job_id=job_id, worker_id=worker_id, attempt=attempt, event="admit", text="warm")
    events.record(tx, at, job_id=job_id, worker_id=worker_id, attempt=attempt, event="send")
    return attempt


def _claim(tx: Connection, job: Any, state: str, worker_id: int, sent_at: str | None = None) -> int:
    done = rows.write(
        tx, "UPDATE jobs SET state = :state, attempt = :attempt, worker_id = :worker_id, head_since_at = NULL,"
        " blocked = NULL,"
        " progress = NULL, tries = tries + :tried, started_at = coalesce(started_at, :sent_at)"
        " WHERE id = :id AND state = :was AND attempt = :before"
        " AND (blocked IS NULL OR (blocked = 'after' AND behind IS NOT NULL))",
        {
            "state": state, "attempt": job.attempt + 1, "worker_id": worker_id, "id": job.id, "was": job.state,
            "before": job.attempt, "tried": int(sent_at is not None), "sent_at": sent_at,
        },
    )  # fmt: skip
    if done.rowcount != 1:
        raise Fenced(f"job {job.id} may not start now ({job.blocked or job.state}); nothing was changed")
    return int(job.attempt + 1)


def _open_attempt(
    tx: Connection, job_id: int, attempt: int, worker_id: int, epoch: int, at: str, *, sent_at: str | None
) -> None:
    rows.write(
        tx, "INSERT INTO attempts"
        " (job_id, attempt, worker_id, epoch, admitted_at, sent_at, device, driver, revision, env_hash, versions, warm)"
        " SELECT :job_id, :attempt, id, :epoch, :at, :sent_at, device, driver, revision, env_hash, versions, :warm"
        " FROM workers WHERE id = :worker_id",
        {
            "job_id": job_id, "attempt": attempt, "epoch": epoch, "at": at, "sent_at": sent_at,
            "warm": int(sent_at is not None), "worker_id": worker_id,
        },
    )  # fmt: skip


def send(tx: Connection, job_id: int, attempt: int, at: str) -> None:
    """The request of an admitted job is about to leave: the try counts from here on, whatever becomes of it."""
    job = _existing(tx, job_id)
    state = advance(JOB, job.state, "send", lambda: events.story(tx, job_id=job_id))
    done = rows.write(
        tx,
        "UPDATE jobs SET state = :state, tries = tries + 1, started_at = coalesce(started_at, :at)"
        " WHERE id = :id AND state = :was AND attempt = :attempt",
        {"state": state, "at": at, "id": job_id, "was": job.state, "attempt": attempt},
    )
    if done.rowcount != 1:
        raise Fenced(f"attempt {attempt} of job {job_id} is not the current one ({job.attempt}); nothing was changed")
    rows.write(
        tx,
        "UPDATE attempts SET sent_at = :at, (device, driver, env_hash, versions, load_s) = (SELECT"
        " w.device, w.driver, w.env_hash, w.versions, 86400.0 * (julianday(w.ready_at) - julianday(w.created_at))"
        "  FROM workers w WHERE w.id = attempts.worker_id)"
        " WHERE job_id = :job_id AND attempt = :attempt",
        {"at": at, "job_id": job_id, "attempt": attempt},
    )
    events.record(tx, at, job_id=job_id, worker_id=job.worker_id, attempt=attempt, event="send")


def sent_at(tx: Connection, job_id: int, attempt: int) -> str | None:
    """When an attempt's request left, as a stamp; None if it did not."""
    found = rows.value(
        tx,
        "SELECT sent_at FROM attempts WHERE job_id = :job_id AND attempt = :attempt",
        {"job_id": job_id, "attempt": attempt},
    )
    return None if found is None else str(found)


def progress(
    tx: Connection, job_id: int, attempt: int, done: float | None, total: float | None, message: str = "",
    at: str | None = None,
) -> bool:  # fmt: skip
    """Keep how far a running attempt says it is, and when it did; False if it is not the running one any more."""
    told = {"done": done, "total": total, "message": message} | ({"at": at} if at else {})
    said = json.dumps(told, ensure_ascii=False)
    changed = rows.write(
        tx,
        "UPDATE jobs SET progress = :said WHERE id = :id AND state = 'running' AND attempt = :attempt",
        {"said": said, "id": job_id, "attempt": attempt},
    )
    return bool(changed.rowcount == 1)


def paused(tx: Connection) -> bool:
    """Whether an operator paused or drains the queue: nothing new is sent or started."""
    return rows.value(tx, "SELECT coalesce(paused_at, drained_at) FROM queue") is not None


def drained(tx: Connection) -> bool:
    """Whether an operator drains the queue: nothing new, and workers retire once nothing runs."""
    return rows.value(tx, "SELECT drained_at FROM queue") is not None


def pause(tx: Connection, at: str) -> None:
    """Send and start nothing new from `at` on; a queue that was paused before keeps its first moment."""
    rows.write(tx, "UPDATE queue SET paused_at = coalesce(paused_at, :at)", {"at": at})


def drain(tx: Connection, at: str) -> None:
    """The same, and let workers retire once nothing runs."""
    rows.write(tx, "UPDATE queue SET drained_at = coalesce(drained_at, :at)", {"at": at})


def resume(tx: Connection) -> None:
    """End a pause and a drain: jobs are sent and started again."""
    rows.write(tx, "UPDATE queue SET paused_at = NULL, drained_at = NULL")


def json_object(text: str | None) -> dict[str, Any]:
    """A stored JSON object as a dict; {} for none."""
    return dict(json.loads(text)) if text else {}


def _existing(tx: Connection, job_id: int) -> Any:
    found = rows.first(tx, "SELECT id, state, blocked, attempt, worker_id FROM jobs WHERE id = :id", {"id": job_id})
    if found is None:
        raise NoSuchJob(f"no job {job_id} in this queue")
    return found
