"""Commands in the queue, as the scheduler reads and moves them: who waits for which, and what is left of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from scheduler.model.command import EXEC, Offers, provider_of
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider
from scheduler.store import alone, ending, rows, workers
from scheduler.store.command_rows import ELIGIBLE

SEEN = 32
"""So many waiting commands are planned for at once, the first of them: each is a provider of its own in a plan."""

HEAD_COMMANDS = (
    "SELECT id, slug, variant, priority, revision, submitted_at, head_since_at, 1 AS count,"
    " NULL AS next_priority, NULL AS next_id FROM jobs INDEXED BY jobs_commands"
    f" WHERE {ELIGIBLE} ORDER BY priority DESC, id LIMIT {SEEN}"
)
RUN_S = "SELECT run_s FROM timings WHERE slug = 'exec' AND variant = '' AND runs > 0"
PARAMS = "SELECT id, params FROM jobs WHERE id IN (SELECT value FROM json_each(:ids))"
STATE = "SELECT id, state, attempt, worker_id FROM jobs WHERE id = :id"
ASK = "UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, :at) WHERE id = :id"
LIVE = (
    "SELECT variant FROM jobs WHERE slug = 'exec' AND state = 'queued' UNION ALL"
    " SELECT variant FROM jobs WHERE state IN ('held', 'admitted', 'running') AND slug = 'exec'"
)


def callers(tx: Connection, jobs: Iterable[Any], known: set[int]) -> dict[int, dict[str, Any]]:
    """Who keeps which of these jobs by living, by job id: {"pid", "started", "boot_id"}. `known` ones are left out."""
    ids = [job.id for job in jobs if job.slug == EXEC and job.id not in known]
    found = rows.found(tx, PARAMS, {"ids": json.dumps(ids)}) if ids else []
    told = {row.id: json.loads(row.params).get("caller") for row in found}
    return {job_id: caller for job_id, caller in told.items() if caller}


def desert(tx: Connection, job_id: int, text: str, at: str) -> str | None:
    """Nobody is left who waits for a command: it ends, unless it runs, which its keeper sees to. Its state if it ended.

    One that is admitted is cancelled like any other, before anything is sent.
    """
    job = rows.first(tx, STATE, {"id": job_id})
    if job is None or job.state not in ("queued", "held", "admitted"):
        return None
    rows.write(tx, ASK, {"id": job_id, "at": at})
    return ending.finish(tx, job_id, job.attempt, "cancel", Outcome("cancelled", text), at)


def live(tx: Connection) -> set[str]:
    """The variants of all commands that have not ended."""
    return {str(row.variant) for row in rows.found(tx, LIVE)}


def in_sight(tx: Connection, heads: list[Any]) -> list[Any]:
    """These heads, and the first of the jobs that run alone."""
    return [*heads, *alone.firsts(tx)]


def offered(tx: Connection, jobs: Iterable[Any], known: dict[tuple[str, str], Provider]) -> Offers:
    """The providers with those of these jobs, and of all workers, that are commands."""
    keys = {(row.slug, row.variant) for row in (*jobs, *workers.live(tx)) if row.slug == EXEC}
    run_s = rows.value(tx, RUN_S) if keys else None
    more = {key: replace(made, run_s=run_s) for key in keys if (made := provider_of(key[1])) is not None}
    return Offers({**known, **more})
