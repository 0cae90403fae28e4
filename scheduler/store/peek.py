"""Reads for people and scripts: what waits, what runs, what came out. Never writes, never makes a queue.

One snapshot a call, its cost independent of history and of the length of the queue (P12). Every function works
with the scheduler down, and before there is a queue. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import json
import sqlite3

from scheduler.clock import now_s, seconds, stamp
from scheduler.config import Paths
from scheduler.store import content, identity
from scheduler.store.connection import open_reader, require_current, revision, told
from scheduler.store.intake import missing
from scheduler.store.kept import is_made
from scheduler.wake import scheduler_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")

SCHEMA_VERSION = 1
WAITING_SHOWN, HELD_SHOWN, ENDED_SHOWN = 20, 100, 5

COLUMNS = (
    "id, slug, variant, name, user, state, blocked, priority, batch, attempt, tries, laters, submitted_at,"
    " not_before_at, started_at, ended_at, worker_id, cancel_requested_at, outcome, outcome_text, exit_code, progress,"
    " revision, out"
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
DEPTH = "SELECT slug, variant, state, sum(n) FROM depth GROUP BY slug, variant, state"
WORKERS = "SELECT * FROM workers WHERE state <> 'gone' ORDER BY id"
CHARGED = "SELECT worker_id, pool, charge_gib FROM leases WHERE state <> 'released'"
UNRETURNED = (
    "SELECT l.worker_id, l.slug, l.pool, l.charge_gib, l.state FROM leases l JOIN workers w ON w.id = l.worker_id"
    " WHERE l.state <> 'released' AND w.state = 'gone' ORDER BY l.worker_id, l.id"
)
SCHEDULER = "SELECT pid, started_at, version FROM schedulers ORDER BY epoch DESC LIMIT 1"
LIVE_QUERIES = (ACTIVE, HELD, WAITING, BLOCKED, ENDED, DEPTH, WORKERS, CHARGED, UNRETURNED, SCHEDULER)


def _look(paths: Paths, question: Callable[[sqlite3.Connection], T], empty: T) -> T:
    """The answer of one read snapshot; `empty` where there is no queue yet."""
    if not is_made(paths):
        return empty
    with told(paths, reading=True):
        connection = open_reader(paths)
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
    those that are blocked), the last 5 that ended; `counts` has all, by state. GiB and seconds.
    """
    at_s = now_s()
    runs = scheduler_runs(paths)
    empty: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION, "at": stamp(at_s), "home": paths.home,
        "scheduler": {"running": runs, "pid": None, "since_at": None},
        "pools": [], "workers": [], "others": [], "jobs": [],
        "counts": {}, "waiting_more": 0, "held_more": 0, "paused_at": None, "facts_at": None, "notes": [],
    }  # fmt: skip
    return _look(paths, lambda connection: {**empty, **_status(connection, at_s, runs)}, empty)


def _status(connection: sqlite3.Connection, at_s: float, runs: bool) -> dict[str, Any]:
    from scheduler.store.reason import Reasons

    counts: dict[str, int] = {}
    waiting: list[sqlite3.Row] = []
    for slug, variant, state, n in connection.execute(DEPTH):
        counts[state] = counts.get(state, 0) + n
        if state == "queued":
            waiting += connection.execute(WAITING, (slug, variant, WAITING_SHOWN))
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
    means = {(row["slug"], row["variant"]): row["run_s"] for row in connection.execute("SELECT * FROM timings")}
    scheduler = connection.execute(SCHEDULER).fetchone()
    paused = connection.execute("SELECT paused_at FROM queue").fetchone()
    return {
        "scheduler": {
            "running": runs,
            "pid": scheduler["pid"] if runs and scheduler else None,
            "since_at": scheduler["started_at"] if runs and scheduler else None,
        },
        **_machine(connection),
        "workers": _workers(connection, at_s),
        "jobs": [_job(connection, row, reasons.of(row), means, at_s) for row in shown],
        "counts": counts,
        "waiting_more": queued - len(waiting),
        "held_more": counts.get("held", 0) - len(held),
        "paused_at": paused["paused_at"] if paused else None,
    }


def _facts(connection: sqlite3.Connection) -> tuple[str, dict[str, Any]] | None:
    """(stamp, snapshot) of this machine as it was last seen, else of the one that was seen last."""
    row = connection.execute("SELECT at, snapshot FROM facts WHERE host_id = ?", (identity.host_id(),)).fetchone()
    row = row or connection.execute("SELECT at, snapshot FROM facts ORDER BY at DESC LIMIT 1").fetchone()
    return None if row is None else (row["at"], json.loads(row["snapshot"]))


def _machine(connection: sqlite3.Connection) -> dict[str, Any]:
    """The last recorded snapshot, its charges summed anew from the live leases."""
    import math

    found = _facts(connection)
    if found is None:
        return {}
    at, snapshot = found
    charged: dict[str, list[float]] = {}
    for _, pool, charge_gib in connection.execute(CHARGED):
        charged.setdefault(pool, []).append(charge_gib)
    pools = []
    for pool in snapshot.get("pools", []):
        held = [*charged.get(pool["id"], ()), pool.get("others_gib") or 0.0]
        pools.append({**pool, "charged_gib": math.fsum(held)})
    return {
        "facts_at": at, "pools": pools, "others": snapshot.get("others", []), "cores": snapshot.get("cores"),
        "notes": snapshot.get("notes", []),
    }  # fmt: skip


def _workers(connection: sqlite3.Connection, at_s: float) -> list[dict[str, Any]]:
    charges: dict[int, list[dict[str, Any]]] = {}
    found = _facts(connection)
    used = found[1].get("used_gib", {}) if found else {}
    for worker_id, pool, charge_gib in connection.execute(CHARGED):
        in_memory = used.get(str(worker_id)) if pool in ("host", "unified") else None
        charges.setdefault(worker_id, []).append({"pool": pool, "charge_gib": charge_gib, "used_gib": in_memory})
    answer = []
    for row in connection.execute(WORKERS):
        idle = row["state"] == "ready" and row["idle_since_at"] is not None
        answer.append(
            {
                "id": row["id"],
                "slug": row["slug"],
                "variant": row["variant"],
                "state": row["state"],
                "pid": row["leader_pid"] or row["keeper_pid"],
                "charges": charges.get(row["id"], []),
                "idle_s": max(0.0, at_s - seconds(row["idle_since_at"])) if idle else None,
                "jobs_served": row["jobs_served"],
                "pinned": bool(row["pinned"]),
                "retire_after": row["retire_after"],
                "why": row["why"],
                "created_at": row["created_at"],
            }
        )
    return answer


def _job(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    reason: dict[str, str] | None,
    means: dict[tuple[str, str], float],
    at_s: float,
) -> dict[str, Any]:
    ends_in_s = None
    mean_s = means.get((row["slug"], row["variant"]))
    if row["state"] == "running" and mean_s:
        sent = connection.execute(
            "SELECT sent_at FROM attempts WHERE job_id = ? AND attempt = ?", (row["id"], row["attempt"])
        ).fetchone()
        if sent is not None and sent["sent_at"]:
            ends_in_s = max(0.0, mean_s - (at_s - seconds(sent["sent_at"])))
    return {
        "id": row["id"], "slug": row["slug"], "variant": row["variant"], "name": row["name"], "user": row["user"],
        "state": row["state"], "priority": row["priority"], "batch": row["batch"], "attempt": row["attempt"],
        "submitted_at": row["submitted_at"], "started_at": row["started_at"], "ended_at": row["ended_at"],
        "reason": reason, "progress": json.loads(row["progress"]) if row["progress"] else None,
        "starts_in_s": None, "ends_in_s": ends_in_s, "worker_id": row["worker_id"],
        "cancel_requested_at": row["cancel_requested_at"], "outcome_kind": row["outcome"], "out": row["out"],
    }  # fmt: skip


def job(paths: Paths, job_id: int) -> dict[str, Any]:
    """What `show ID --json` says: the job as in `status`, its request, outcome, attempts and story. NoSuchJob."""

    def question(connection: sqlite3.Connection) -> dict[str, Any] | None:
        from scheduler.store.reason import Reasons
        from scheduler.store.story import story

        row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            return None
        means = {(t["slug"], t["variant"]): t["run_s"] for t in connection.execute("SELECT * FROM timings")}
        reason = Reasons(connection, scheduler_runs(paths)).of(row)
        answer = {"schema_version": SCHEMA_VERSION, **_job(connection, row, reason, means, now_s())}
        ended = row["outcome"] is not None
        answer["outcome"] = (
            {"kind": row["outcome"], "text": row["outcome_text"] or "", "exit_code": row["exit_code"]}
            if ended
            else None
        )
        answer["params"], answer["files"] = json.loads(row["params"]), json.loads(row["files"])
        for key in (
            "host_id", "input_sha256", "input_name", "input_kind", "input_bytes", "size", "revision", "key", "blocked",
            "timeout_s", "max_attempts", "on_lost", "not_before_at", "tries", "laters", "deaths",
        ):  # fmt: skip
            answer[key] = row[key]
        tried = connection.execute("SELECT * FROM attempts WHERE job_id = ? ORDER BY attempt", (job_id,))
        answer["attempts"] = [
            {**dict(each), "warm": bool(each["warm"]), "versions": json.loads(each["versions"] or "null")}
            for each in tried
        ]
        answer["story"] = story(connection, row)
        made = connection.execute("SELECT destination, bytes FROM results WHERE job_id = ?", (job_id,)).fetchone()
        answer["result"] = dict(made) if made is not None else None
        return answer

    return _there(_look(paths, question, None), job_id, paths)


def result(paths: Paths, job_id: int) -> tuple[bytes | None, str | None, dict[str, Any]]:
    """(reply, destination, the job as `job` shows it); None where there is none. NoSuchJob, Corrupt."""
    shown = job(paths, job_id)

    def question(connection: sqlite3.Connection) -> Any:
        row = connection.execute(
            "SELECT reply, destination, sha256 FROM results WHERE job_id = ?", (job_id,)
        ).fetchone()
        return (row["reply"], row["destination"], row["sha256"]) if row is not None else (None, None, None)

    reply, destination, sha256 = _look(paths, question, (None, None, None))
    if reply is None and sha256 is not None:
        reply = content.read(paths, sha256)
    return reply, destination, shown


def input_bytes(paths: Paths, job_id: int) -> bytes | None:
    """The input as it was submitted, checked; None if the job has none. NoSuchJob, Corrupt."""

    def question(connection: sqlite3.Connection) -> Any:
        row = "SELECT input, input_sha256, input_bytes FROM jobs WHERE id = ?"
        return connection.execute(row, (job_id,)).fetchone()

    data, sha256, size = _there(_look(paths, question, None), job_id, paths)
    return content.read(paths, sha256) if data is None and size else data


def states(paths: Paths, ids: Iterable[int]) -> dict[int, str]:
    """The state of each of these jobs; one that is not there is not in the answer."""
    wanted = list(ids)

    def question(connection: sqlite3.Connection) -> dict[int, str]:
        found: dict[int, str] = {}
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            marks = ",".join("?" * len(some))
            found.update(
                (i, s) for i, s in connection.execute(f"SELECT id, state FROM jobs WHERE id IN ({marks})", some)
            )
        return found

    return _look(paths, question, {})


def last_id(paths: Paths) -> int | None:
    """The id of the job submitted last, None if there is none."""
    found = _look(paths, lambda c: c.execute("SELECT max(id) FROM jobs").fetchone()[0], None)
    return None if found is None else int(found)


def ids(paths: Paths, filters: dict[str, Any]) -> list[int]:
    """The ids of the jobs that meet every filter, rising.

    Filters: batch, slug (`slug` or `slug:variant`), state, outcome (a word or several), name (a glob), user,
    since (a stamp: submitted then or later). A key that is none of these is a TypeError.
    """
    from scheduler.store.filters import query

    asked, values = query(filters)
    return _look(paths, lambda connection: [row[0] for row in connection.execute(asked, values)], [])


def workers(paths: Paths) -> list[dict[str, Any]]:
    """The live workers, as in `status`."""
    return _look(paths, lambda connection: _workers(connection, now_s()), [])


def unreturned(paths: Paths) -> list[dict[str, Any]]:
    """{"worker_id", "slug", "pool", "charge_gib", "state"} of each charge that outlives its worker."""
    return _look(paths, lambda connection: [dict(row) for row in connection.execute(UNRETURNED)], [])


def last_scheduler(paths: Paths) -> dict[str, Any] | None:
    """{"pid", "started_at", "ended_at" (None: runs, or was killed)} of the newest scheduler, None if none ever was."""
    last = "SELECT pid, started_at, ended_at FROM schedulers ORDER BY epoch DESC LIMIT 1"
    found = _look(paths, lambda connection: connection.execute(last).fetchone(), None)
    return None if found is None else dict(found)


def facts(paths: Paths) -> dict[str, Any] | None:
    """The last recorded snapshot of this machine, None if it was never recorded."""
    found = _look(paths, _facts, None)
    return None if found is None else found[1]


def _there(found: T | None, job_id: int, paths: Paths) -> T:
    if found is None:
        raise missing([job_id], paths)
    return found
