"""Reads for people and scripts: what waits, what runs, what came out. Never writes, never makes a queue.

One snapshot a call, its cost independent of history and of the length of the queue (P12). Every function works
with the scheduler down, and before there is a queue. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import sqlite3
from functools import partial

from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.store import brief, command_rows, content
from scheduler.store.absent import missing
from scheduler.store.connection import open_reader, require_current, revision, told
from scheduler.store.kept import is_made
from scheduler.store.wholly import in_full, in_short
from scheduler.wake import scheduler_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")

SCHEMA_VERSION = 1
WAITING_SHOWN, HELD_SHOWN, ENDED_SHOWN = 20, 100, 5
AT_ONCE = 1000
"""Jobs read in full in one snapshot, which is to last far less than 5 s."""

COLUMNS = (
    "id, slug, variant, name, user, state, blocked, priority, batch, attempt, tries, laters, submitted_at,"
    " not_before_at, started_at, ended_at, worker_id, cancel_requested_at, outcome, outcome_text, exit_code, progress,"
    " revision, out, behind, measures"
)

ACTIVE = (
    f"SELECT {COLUMNS} FROM jobs WHERE state IN ('held', 'admitted', 'running') AND state IN ('admitted', 'running')"
    " ORDER BY id"
)
HELD = (
    f"SELECT {COLUMNS} FROM jobs WHERE state IN ('held', 'admitted', 'running') AND state = 'held' ORDER BY id LIMIT ?"
)
WAITING = (
    f"SELECT {COLUMNS} FROM jobs WHERE slug = ? AND variant = ? AND state = 'queued' AND blocked IS NULL"
    " ORDER BY priority DESC, id LIMIT ?"
)
BLOCKED = f"SELECT {COLUMNS} FROM jobs WHERE state = 'queued' AND blocked IS NOT NULL ORDER BY not_before_at LIMIT ?"
ENDED = f"SELECT {COLUMNS} FROM jobs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?"
REFUSED_COUNTED = 1000
REFUSED = f"SELECT state FROM jobs WHERE outcome = 'refused' AND outcome IS NOT NULL LIMIT {REFUSED_COUNTED + 1}"
DEPTH = "SELECT slug, variant, state, sum(n) FROM depth GROUP BY slug, variant, state"
UNRETURNED = (
    "SELECT l.worker_id, l.slug, l.pool, l.charge_gib, l.state FROM leases l JOIN workers w ON w.id = l.worker_id"
    " WHERE l.state <> 'released' AND w.state = 'gone' ORDER BY l.worker_id, l.id"
)
SCHEDULER = (
    "SELECT pid, started_at, version, boot_id <> (SELECT boot_id FROM schedulers AS last WHERE last.epoch < now.epoch"
    " AND last.host_id = now.host_id ORDER BY epoch DESC LIMIT 1) AS rebooted"
    " FROM schedulers AS now ORDER BY epoch DESC LIMIT 1"
)
LIVE_QUERIES = (ACTIVE, HELD, WAITING, BLOCKED, ENDED, DEPTH, REFUSED, UNRETURNED, SCHEDULER)


def looked(paths: Paths, question: Callable[[sqlite3.Connection], T], empty: T, *, at_rest: bool = False) -> T:
    """The answer of one read snapshot; `empty` where there is no queue yet. `at_rest`: nobody else is expected."""
    if not is_made(paths):
        return empty
    with told(paths, reading=True):
        connection = open_reader(paths, at_rest=at_rest)
        try:
            connection.execute("BEGIN")
            found = revision(connection, paths)
            if not found:
                return empty
            require_current(found, paths)
            connection.row_factory = sqlite3.Row
            return question(connection)
        finally:
            connection.close()


def status(paths: Paths) -> dict[str, Any]:
    """What `status --json` says: pools, workers, other holders, the jobs that run and wait and why, the last ended.

    Shown are all jobs admitted or running, the first 100 held, the first 20 that wait (those that may start before
    those that are blocked), the last 5 that ended; `counts` has all, by state, `refused_by_worker` those of the failed
    ones that were refused, None where these are too many to count. GiB and seconds.
    """
    at_s = now_s()
    runs = scheduler_runs(paths)
    empty: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION, "at": stamp(at_s), "home": paths.home,
        "scheduler": {"running": runs, "pid": None, "since_at": None, "rebooted": False},
        "pools": [], "workers": [], "others": [], "jobs": [],
        "counts": {}, "refused_by_worker": 0, "waiting_more": 0, "held_more": 0, "paused_at": None, "drained_at": None,
        "facts_at": None, "notes": [], "schedules": [], "notices": None,
    }  # fmt: skip
    return looked(paths, lambda connection: {**empty, **_status(connection, at_s, runs)}, empty)


def _status(connection: sqlite3.Connection, at_s: float, runs: bool) -> dict[str, Any]:
    from scheduler.store import sighted, upcoming
    from scheduler.store.outlook import Outlook
    from scheduler.store.reason import Reasons

    counts: dict[str, int] = {}
    waiting: list[sqlite3.Row] = []
    for slug, variant, state, n in connection.execute(DEPTH):
        counts[state] = counts.get(state, 0) + n
        if state == "queued":
            waiting += connection.execute(command_rows.waiting_of(slug, WAITING), (slug, variant, WAITING_SHOWN))
    waiting.sort(key=lambda row: (-row["priority"], row["id"]))
    del waiting[WAITING_SHOWN:]
    blocked = counts.pop("blocked", 0)
    queued = counts.get("queued", 0) + blocked
    if blocked:
        counts["queued"] = queued
        waiting += connection.execute(BLOCKED, (WAITING_SHOWN - len(waiting),))
    held = connection.execute(HELD, (HELD_SHOWN,)).fetchall()
    shown = [*connection.execute(ACTIVE), *waiting, *held, *connection.execute(ENDED, (ENDED_SHOWN,))]
    reasons = Reasons(connection, runs)
    outlook = Outlook(connection, at_s, runs)
    scheduler = connection.execute(SCHEDULER).fetchone()
    paused = connection.execute("SELECT paused_at, drained_at FROM queue").fetchone()
    return {
        "scheduler": {
            "running": runs,
            "pid": scheduler["pid"] if runs and scheduler else None,
            "since_at": scheduler["started_at"] if runs and scheduler else None,
            "rebooted": bool(runs and scheduler and scheduler["rebooted"]),
        },
        **sighted.machine(connection),
        **upcoming.ahead(connection, at_s),
        "workers": sighted.workers(connection, at_s),
        "jobs": [in_short(connection, row, reasons.of(row), outlook.of(row)) for row in shown],
        "counts": counts,
        "refused_by_worker": _refused_by_worker(connection) if counts.get("failed") else 0,
        "waiting_more": queued - len(waiting),
        "held_more": counts.get("held", 0) - len(held),
        "paused_at": paused["paused_at"] if paused else None,
        "drained_at": paused["drained_at"] if paused else None,
    }


def _refused_by_worker(connection: sqlite3.Connection) -> int | None:
    """How many of the failed jobs were refused by their workers; None where so many were that nobody counts them."""
    found = connection.execute(REFUSED).fetchall()
    return None if len(found) > REFUSED_COUNTED else sum(row["state"] == "failed" for row in found)


def job(paths: Paths, job_id: int) -> dict[str, Any]:
    """What `show ID --json` says: the job as in `status`, its request, outcome, attempts and story. NoSuchJob."""
    return _there(next(iter(jobs(paths, [job_id])), None), job_id, paths)


def jobs(paths: Paths, ids: Iterable[int]) -> list[dict[str, Any]]:
    """The same of each of these jobs that is there, in that order; at most AT_ONCE in one snapshot."""
    asked = list(ids)
    found: list[dict[str, Any]] = []
    for at in range(0, len(asked), AT_ONCE):
        part = asked[at : at + AT_ONCE]
        found += looked(paths, partial(in_full, ids=part, runs=scheduler_runs(paths), at_s=now_s()), found[:0])
    return found


def decisions(paths: Paths, job_id: int) -> dict[str, Any]:
    """What `why ID --json` says: the job's state and every decision on it so far, newest first. NoSuchJob."""

    def question(connection: sqlite3.Connection) -> dict[str, Any] | None:
        from scheduler.store.decisions import decisions

        row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            return None
        shown = {key: row[key] for key in ("id", "slug", "variant", "name", "state")}
        made = decisions(connection, row, scheduler_runs(paths))
        return {"schema_version": SCHEMA_VERSION, **shown, "decisions": made}

    return _there(looked(paths, question, None), job_id, paths)


def planned(paths: Paths, most: int) -> dict[str, Any]:
    """What `plan --json` says: every job that runs, comes up or may start, by when it should be sent.

    At most `most` waiting jobs of each provider; `waiting_more` counts the rest, `blocked` those that may not start.
    """
    at_s, runs = now_s(), scheduler_runs(paths)
    empty: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "at": stamp(at_s), "scheduler": {"running": runs}}
    empty |= {"jobs": [], "waiting_more": 0, "blocked": 0}

    def question(connection: sqlite3.Connection) -> dict[str, Any]:
        from scheduler.store.outlook import Outlook
        from scheduler.store.reason import Reasons

        outlook, reasons = Outlook(connection, at_s, runs), Reasons(connection, runs)
        jobs = [in_short(connection, row, None, outlook.of(row)) for row in connection.execute(ACTIVE)]
        waiting_more = blocked = 0
        for slug, variant, state, n in connection.execute(DEPTH).fetchall():
            blocked += n if state in ("blocked", "held") else 0
            if state == "queued":
                rows = connection.execute(command_rows.waiting_of(slug, WAITING), (slug, variant, most)).fetchall()
                waiting_more += n - len(rows)
                jobs += [
                    in_short(connection, row, reasons.of(row), outlook.of(row, ahead)) for ahead, row in enumerate(rows)
                ]
        return {**empty, "jobs": sorted(jobs, key=_turn), "waiting_more": waiting_more, "blocked": blocked}

    return looked(paths, question, empty)


def _turn(job: dict[str, Any]) -> tuple[float, float, int]:
    """Running ones first, then by expected start, then those of which nothing is known."""
    running = job["state"] == "running"
    starts_in_s = -1.0 if running else float("inf") if job["starts_in_s"] is None else job["starts_in_s"]
    return starts_in_s, -job["priority"], job["id"]


def result(paths: Paths, job_id: int) -> tuple[bytes | None, str | None, dict[str, Any]]:
    """(reply, destination, the job as `job` shows it); None where there is none. NoSuchJob, Corrupt."""
    shown = job(paths, job_id)

    def question(connection: sqlite3.Connection) -> Any:
        row = connection.execute(
            "SELECT reply, destination, sha256 FROM results WHERE job_id = ?", (job_id,)
        ).fetchone()
        return (row["reply"], row["destination"], row["sha256"]) if row is not None else (None, None, None)

    reply, destination, sha256 = looked(paths, question, (None, None, None))
    if reply is None and sha256 is not None:
        reply = content.read(paths, sha256)
    return reply, destination, shown


def input_bytes(paths: Paths, job_id: int) -> bytes | None:
    """The input as it was submitted, checked; None if the job has none. NoSuchJob, Corrupt."""

    def question(connection: sqlite3.Connection) -> Any:
        row = "SELECT input, input_sha256, input_bytes FROM jobs WHERE id = ?"
        return connection.execute(row, (job_id,)).fetchone()

    data, sha256, size = _there(looked(paths, question, None), job_id, paths)
    return content.read(paths, sha256) if data is None and size else data


def states(paths: Paths, ids: Iterable[int]) -> dict[int, str]:
    """The state of each of these jobs; one that is not there is not in the answer."""
    return looked(paths, lambda connection: brief.states(connection, list(ids)), {})


def briefly(paths: Paths, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """{"id", "slug", "variant", "name", "state"} of each of these jobs that is there, by id."""
    return looked(paths, lambda connection: brief.jobs(connection, list(ids)), {})


def last_id(paths: Paths) -> int | None:
    """The id of the job submitted last, None if there is none."""
    found = looked(paths, lambda c: c.execute("SELECT max(id) FROM jobs").fetchone()[0], None)
    return None if found is None else int(found)


def ids(paths: Paths, filters: dict[str, Any]) -> list[int]:
    """The ids of the jobs that meet every filter, rising.

    Filters: batch, label (one, or several that a job has all of), slug (`slug` or `slug:variant`), state, outcome (a
    word or several), name (a glob), user, since (a stamp: submitted then or later). TypeError for any other key.
    """
    from scheduler.store.filters import query

    asked, values = query(filters)
    return looked(paths, lambda connection: [row[0] for row in connection.execute(asked, values)], [])


def names(paths: Paths, batch: str) -> tuple[list[str] | None, list[str]]:
    """(None if a job has this batch, else the batches of the last jobs; every slug, and `slug:variant`, with jobs)."""
    none: tuple[list[str] | None, list[str]] = ([], [])
    return looked(paths, lambda connection: (brief.batches(connection, batch), brief.providers(connection)), none)


def workers(paths: Paths) -> list[dict[str, Any]]:
    """The live workers, as in `status`."""
    from scheduler.store import sighted

    return looked(paths, lambda connection: sighted.workers(connection, now_s()), [])


def unreturned(paths: Paths, *, at_rest: bool = False) -> list[dict[str, Any]]:
    """{"worker_id", "slug", "pool", "charge_gib", "state"} of each charge that outlives its worker."""
    return looked(paths, lambda reader: [dict(row) for row in reader.execute(UNRETURNED)], [], at_rest=at_rest)


def last_scheduler(paths: Paths) -> dict[str, Any] | None:
    """{"pid", "started_at", "ended_at" (None: runs, or was killed)} of the newest scheduler, None if none ever was."""
    last = "SELECT pid, started_at, ended_at FROM schedulers ORDER BY epoch DESC LIMIT 1"
    found = looked(paths, lambda connection: connection.execute(last).fetchone(), None)
    return None if found is None else dict(found)


def broken(paths: Paths) -> dict[str, dict[str, Any]]:
    """Each slug of which failures are remembered: how many, the last, since when it is not tried, and until when."""
    asked = "SELECT slug, failures, last_error, opened_at, next_try_at FROM breakers ORDER BY slug"
    return looked(paths, lambda connection: {row["slug"]: dict(row) for row in connection.execute(asked)}, {})


def stopped(paths: Paths) -> tuple[str | None, str | None]:
    """Since when the queue is paused and since when it is drained, as stamps; None = it is not."""

    def question(connection: sqlite3.Connection) -> tuple[str | None, str | None]:
        row = connection.execute("SELECT paused_at, drained_at FROM queue").fetchone()
        return (row["paused_at"], row["drained_at"]) if row is not None else (None, None)

    neither: tuple[str | None, str | None] = (None, None)
    return looked(paths, question, neither)


def facts(paths: Paths) -> dict[str, Any] | None:
    """The last recorded snapshot of this machine, None if it was never recorded."""
    from scheduler.store import sighted

    found = looked(paths, sighted.facts, None)
    return None if found is None else found[1]


def _there(found: T | None, job_id: int, paths: Paths) -> T:
    if found is None:
        raise missing([job_id], paths)
    return found
