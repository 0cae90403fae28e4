"""What a report is made of: the jobs of a batch or of a time, their attempts, the workers, the pools meanwhile.

One index leads every statement: the batch, the users' submissions, the ends, the live states, ids. Standard library
only. Times come as seconds since the epoch, memory as GiB; of what a worker said come the first letters only.
"""

from __future__ import annotations

import json
import sqlite3

from scheduler.clock import stamp
from scheduler.store.filters import ACTIVE, USERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LETTERS = 240
"""Of an outcome's text."""

LONG_S, MOST_LEASES = 86400.0, 100_000
"""How long before a time a charge of it may have begun, and how many of them are read."""


def _s(column: str) -> str:
    return f"(julianday({column}) - 2440587.5) * 86400.0"


RETRIES = (
    "max(j.tries - 1, 0) + iif(j.attempt > j.tries, (SELECT coalesce(sum(max(json_extract(e.evidence, '$.tries') - 1,"
    " 0)), 0) FROM events e WHERE e.job_id = j.id AND e.job_id IS NOT NULL AND e.event = 'requeue'), 0)"
)
"""Tries beyond the first, each time that the job was opened."""

COLUMNS = (
    "j.id, j.slug, j.variant, j.name, j.state, j.blocked, j.outcome, substr(j.outcome_text, 1, {letters}), "
    + ", ".join(_s(f"j.{each}_at") for each in ("submitted", "started", "ended"))
    + ', c."case", c.verdict, substr(c.faults, 1, 2000)'
    ", a.attempt, a.warm, a.load_s, "
    + ", ".join(_s(f"a.{each}_at") for each in ("sent", "ended"))
    + f", a.outcome, {RETRIES}, {_s('j.free_at')}"
    ", j.blocked IN ('begin', 'after') AND (j.blocked = 'begin' OR j.behind IS NULL), j.pruned_at IS NOT NULL"
    ", j.timeout_s"
).format(letters=LETTERS)
JOINED = "LEFT JOIN checks c ON c.job_id = j.id LEFT JOIN attempts a ON a.job_id = j.id ORDER BY j.id, a.attempt"
OF_BATCH = f"SELECT {COLUMNS} FROM jobs j {JOINED}".replace(
    "LEFT JOIN attempts a ON a.job_id = j.id",
    "LEFT JOIN attempts a ON a.job_id = j.id WHERE j.batch = :batch AND j.batch IS NOT NULL",
)
CHOSEN = (
    "chosen (id) AS (SELECT id FROM jobs WHERE user IN (SELECT name FROM who) AND submitted_at >= :since"
    " UNION SELECT id FROM jobs WHERE ended_at IS NOT NULL AND ended_at >= :since"
    " UNION SELECT id FROM jobs INDEXED BY jobs_revisions WHERE state = 'queued'"
    f" UNION SELECT id FROM jobs WHERE {ACTIVE} AND state IN ('admitted', 'running'))"
)
OF_TIME = f"{USERS.rstrip()}, {CHOSEN} SELECT {COLUMNS} FROM chosen CROSS JOIN jobs j ON j.id = chosen.id {JOINED}"

BATCH = "SELECT batch, jobs, open, succeeded, first_at, ended_at FROM batches WHERE batch = :batch"
EARLIER = (
    "SELECT batch FROM batches INDEXED BY batches_first WHERE first_at < :before ORDER BY first_at DESC LIMIT :most"
)
NEWEST = "SELECT batch FROM batches INDEXED BY batches_first ORDER BY first_at DESC LIMIT 1"
CASES = (
    'SELECT DISTINCT j.slug, j.variant, c."case" FROM (SELECT id, slug, variant FROM jobs WHERE batch = :batch'
    " AND batch IS NOT NULL ORDER BY id LIMIT 5000) j JOIN checks c ON c.job_id = j.id"
)
FIRST = "SELECT min(id) FROM jobs WHERE batch = ? AND batch IS NOT NULL"
SHARES = (
    "SELECT c.job_id, j.batch FROM checks c INDEXED BY checks_case CROSS JOIN jobs j ON j.id = c.job_id"
    ' WHERE c.slug = ? AND c.variant = ? AND c."case" = ? AND c.job_id < ? AND j.batch IS NOT NULL AND j.batch <> ?'
    " ORDER BY c.job_id DESC LIMIT 1"
)
WORKERS = (
    f"SELECT id, slug, variant, {_s('created_at')}, {_s('ready_at')}, {_s('gone_at')}, why FROM workers"
    " WHERE id >= :first AND created_at <= :until ORDER BY id LIMIT 20000"
)
CHARGES = (
    "SELECT l.worker_id, sum(l.charge_gib) FROM leases l WHERE l.id >= :first AND l.reserved_at <= :until"
    " GROUP BY l.worker_id LIMIT 20000"
)
LEASES = (
    f"SELECT pool, charge_gib, {_s('reserved_at')}, {_s('released_at')} FROM leases WHERE id >= :first"
    " AND reserved_at <= :until AND (released_at >= :since OR state <> 'released')"
    f" UNION ALL SELECT pool, charge_gib, {_s('reserved_at')}, NULL FROM leases INDEXED BY leases_charged"
    " WHERE state <> 'released' AND id < :first LIMIT :most"
)
INCIDENTS = (
    f"SELECT {_s('at')}, slug, text FROM incidents INDEXED BY incidents_at"
    " WHERE at >= :since AND at <= :until AND kind = 'breaker_opened' ORDER BY at LIMIT 1000"
)
OPEN = "SELECT slug, failures, last_error FROM breakers WHERE opened_at IS NOT NULL"
SAMPLES = (
    f"SELECT pool, {_s('at')}, capacity_gib, reserve_gib, charged_gib, used_gib, live_gib FROM samples"
    " WHERE at >= :since AND at <= :until ORDER BY at, pool"
)
PEAKS = (
    "SELECT max(device_gib), max(host_gib), count(*) FROM peaks WHERE slug = :slug AND variant = :variant"
    " AND at >= :since AND at <= :until AND bucket IS NOT NULL"
)
LEARNED = "SELECT max(device_gib), max(host_gib) FROM learned WHERE slug = :slug AND variant = :variant"


def jobs(connection: sqlite3.Connection, batch: str | None, since: str) -> Iterator[tuple[Any, ...]]:
    """A row an attempt, COLUMNS each, of a batch's jobs; of a job without attempts one whose `attempt` is None.

    Without a batch: of the jobs that were submitted or ended since that stamp, and of all that wait, come up or run.
    """
    cursor = connection.cursor()
    cursor.row_factory = None
    if batch is not None:
        yield from cursor.execute(OF_BATCH, {"batch": batch})
    else:
        yield from cursor.execute(OF_TIME, {"since": since})


def batch(connection: sqlite3.Connection, name: str) -> dict[str, Any] | None:
    """What is counted of a batch, None if no job has it."""
    row = connection.execute(BATCH, {"batch": name}).fetchone()
    return None if row is None else dict(row)


def newest(connection: sqlite3.Connection) -> str | None:
    """The batch that was begun last, None if there is none."""
    row = connection.execute(NEWEST).fetchone()
    return None if row is None else str(row[0])


def earlier(connection: sqlite3.Connection, before: str, most: int = 1000) -> list[str]:
    """The batches that were begun before this stamp, the newest first."""
    return [row[0] for row in connection.execute(EARLIER, {"before": before, "most": most})]


def cases(connection: sqlite3.Connection, name: str) -> frozenset[tuple[str, str, str]]:
    """The validation cases (slug, variant, case) of a batch, looked for among its first 5000 jobs."""
    return frozenset(tuple(row) for row in connection.execute(CASES, {"batch": name}))


def shares_a_case(connection: sqlite3.Connection, batch: str, own: frozenset[tuple[str, str, str]]) -> str | None:
    """The newest batch with one of these cases among the jobs that were submitted before the first of this batch."""
    first = connection.execute(FIRST, (batch,)).fetchone()[0]
    found = (connection.execute(SHARES, (*case, first, batch)).fetchone() for case in own)
    newest: tuple[int, str | None] = max((tuple(row) for row in found if row is not None), default=(0, None))
    return newest[1]


def workers(connection: sqlite3.Connection, since_s: float, until_s: float) -> list[tuple[Any, ...]]:
    """(id, slug, variant, created, ready, gone, why) of the workers that were started then."""
    first = _first(connection, "workers", "created_at", stamp(since_s))
    return [tuple(row) for row in connection.execute(WORKERS, {"first": first, "until": stamp(until_s)})]


def charges(connection: sqlite3.Connection, since_s: float, until_s: float) -> dict[int, float]:
    """What each worker that was leased for then was charged, all its pools together, GiB, by worker id."""
    first = _first(connection, "leases", "reserved_at", stamp(since_s))
    return dict(map(tuple, connection.execute(CHARGES, {"first": first, "until": stamp(until_s)})))


def leases(connection: sqlite3.Connection, since_s: float, until_s: float) -> list[tuple[Any, ...]]:
    """(pool, GiB, since, until) of what was charged then, `until` None = it is charged now; of too many rows none.

    A charge that was raised meanwhile counts as it was raised to. What was reserved more than LONG_S before is found
    only while it is charged.
    """
    given = {"first": _first(connection, "leases", "reserved_at", stamp(since_s - LONG_S)), "most": MOST_LEASES}
    found = connection.execute(LEASES, {**given, "since": stamp(since_s), "until": stamp(until_s)}).fetchall()
    return [] if len(found) == MOST_LEASES else [tuple(row) for row in found]


def incidents(connection: sqlite3.Connection, since_s: float, until_s: float) -> list[tuple[float, str, str]]:
    """(when, slug, why) of the breakers that opened then."""
    found = connection.execute(INCIDENTS, {"since": stamp(since_s), "until": stamp(until_s)})
    return [(row[0], row[1] or "", row[2]) for row in found]


def broken(connection: sqlite3.Connection) -> dict[str, str]:
    """The providers whose breaker is open now, with the last error."""
    return {row["slug"]: row["last_error"] or "" for row in connection.execute(OPEN)}


def samples(connection: sqlite3.Connection, since_s: float, until_s: float) -> list[tuple[Any, ...]]:
    """(pool, when, capacity, reserve, charged, used, live) as the pools were then, in the order of time."""
    return [tuple(row) for row in connection.execute(SAMPLES, {"since": stamp(since_s), "until": stamp(until_s)})]


def peaks(
    connection: sqlite3.Connection, slug: str, variant: str, since_s: float, until_s: float
) -> tuple[float | None, float | None, bool]:
    """(device GiB, host GiB) that runs of a provider used at most then, and True; else what was learned, and False."""
    of = {"slug": slug, "variant": variant}
    row = connection.execute(PEAKS, {**of, "since": stamp(since_s), "until": stamp(until_s)}).fetchone()
    if row[2]:
        return row[0], row[1], True
    row = connection.execute(LEARNED, of).fetchone()
    return row[0], row[1], False


def reasons(connection: sqlite3.Connection, ids: list[int], runs: bool) -> dict[int, dict[str, str]]:
    """{"ruling", "text"} of each of these jobs that waits. `runs`: whether a scheduler holds the queue's lock."""
    from scheduler.store.reason import Reasons

    why, found = Reasons(connection, runs), {}
    asked = "SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
    for row in connection.execute(asked, (json.dumps(ids),)).fetchall():
        reason = why.of(row)
        if reason is not None:
            found[int(row["id"])] = reason
    return found


def _first(connection: sqlite3.Connection, table: str, column: str, at: str) -> int:
    """The first id of a table whose rows were written at that stamp or later, by halving: ids rise with the time."""
    low, high = 0, connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0] + 1
    asked = f"SELECT {column} FROM {table} WHERE id >= ? ORDER BY id LIMIT 1"
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(asked, (middle,)).fetchone()
        if row is None or row[0] >= at:
            high = middle
        else:
            low = middle + 1
    return int(low)
