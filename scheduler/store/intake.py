"""The only INSERT of a job, and the light verbs' only writes. Imported by the fast paths: standard library only.

A job's row names nothing that is not durable: its input and the files that it names are synced first. All rows
of one call are written in one transaction, or none. An id leaves here after COMMIT only (P1), with the signals
that would tear the answer apart held back until it was said.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler.clock import now_at
from scheduler.config import Paths, settings
from scheduler.crash import crashpoint
from scheduler.errors import NoSuchJob, Refused
from scheduler.store import content, identity
from scheduler.store.connection import checkpoint, open_writer, require_current, revision, told
from scheduler.store.folders import prepare, require_local, settle
from scheduler.store.kept import is_made, leave_mark
from scheduler.store.row import DEFAULTS, INSERT, as_text, completed, equal, same, values
from scheduler.store.turnstile import PATIENCE_S, Signals, Turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from scheduler.store.destinations import Destinations

CACHE_KIB = 64 << 10
"""What a large call may keep in memory until its commit, instead of writing pages again and again."""

CANCEL = {
    "queued": "cancelled", "held": "cancelled", "admitted": "cancelled", "running": "ask",
    "succeeded": "says", "failed": "says", "cancelled": "same", "timed_out": "says", "refused": "says",
}  # fmt: skip
"""What `cancel` does in each state, as the table of states has it. `ask` = the scheduler stops the worker."""


def submit(
    paths: Paths,
    rows: list[dict[str, Any]],
    say: Callable[[list[int]], None] | None = None,
    *,
    moved: list[tuple[str, str]] | None = None,
    timeout_s: float = PATIENCE_S,
) -> list[int]:
    """Put jobs into the queue, all or none, and answer with their ids in the order of `rows`.

    A row has columns of a job (see DEFAULTS) plus `data` (the input's bytes) and `overwrite` (its destination may
    exist). A `key` that this user gave before means that job: its id is the answer, and nothing is written for it.
    `say` is called with the ids after the commit, outside the turnstile, while signals are still held back.
    What is at a destination that may be overwritten is moved aside, and stays where it is if nothing goes in; `moved`
    gets (destination, where it lies now) of each.
    Makes folders and database at first use. Refused, Temporary or StoreError: nothing was written.
    """
    batch = _Intake(paths, rows)
    signals = Signals()
    try:
        with told(paths):
            require_local(paths)
            prepare(paths)
            batch.stage()
            with Turnstile(paths).section(timeout_s):
                signals.block()
                connection = open_or_create(paths)
                try:
                    ids = batch.write(connection)
                    crashpoint("intake.committed")
                    batch.settled()
                    checkpoint(connection, paths)
                finally:
                    connection.close()
        if moved is not None:
            moved += batch.moved
        if say is not None:
            say(ids)
        return ids
    finally:
        batch.discard()
        signals.unblock()


def open_or_create(paths: Paths) -> sqlite3.Connection:
    """The queue's database for writing, made from the migrations if it is not there. Inside the turnstile.

    The schema is written when every name that leads to it is durable, whoever made it: where it is, they are (P1).
    Corrupt if the database is gone or empty and the folder shows that jobs were in it.
    """
    if not is_made(paths):
        os.close(os.open(paths.database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        crashpoint("intake.created")
    connection = open_writer(paths)
    try:
        found = revision(connection, paths)
        if not found:
            from scheduler.store.migrate import migrate

            settle(paths.home)
            migrate(connection)
            found = revision(connection, paths)
        require_current(found, paths)
        leave_mark(connection, paths)
        _restore(connection, paths)
    except BaseException:
        connection.close()
        raise
    return connection


def _restore(connection: sqlite3.Connection, paths: Paths) -> None:
    if os.path.lexists(paths.asides):
        from scheduler.store.destinations import restore

        restore(connection, paths)


class _Intake:
    """One call's rows, on their way into the queue."""

    def __init__(self, paths: Paths, rows: list[dict[str, Any]]) -> None:
        self._paths = paths
        self._staged: dict[str, str] = {}
        self._settled: set[str] = set()
        self._claimed: Destinations | None = None
        who = {**DEFAULTS, "user": identity.user(), "host_id": identity.host_id(), "submitted_at": now_at()}
        self._who = str(who["user"])
        self._rows = [completed(row, who) for row in rows]

    def stage(self) -> None:
        """Copy the files that inputs name, before the queue is locked; what is too large to copy is marked `pinned`."""
        limit_bytes = None
        for row in self._rows:
            if isinstance(row["files"], str) or not row["files"]:
                continue
            if limit_bytes is None:
                limit_bytes = settings().number("inputs_copy_max_gib") * (1 << 30)
            for entry in row["files"].values():
                sha256 = entry["sha256"]
                if entry["bytes"] > limit_bytes:
                    entry["pinned"] = True
                if entry.get("pinned") or sha256 in self._staged or content.present(self._paths, sha256):
                    continue
                said_by = row["input_name"] or "the input"
                self._staged[sha256] = content.stage(self._paths, entry["path"], sha256, said_by)

    def discard(self) -> None:
        """Remove what was staged and is not needed."""
        for staged in self._staged.values():
            content.discard(staged)
        self._staged.clear()

    @property
    def moved(self) -> list[tuple[str, str]]:
        """What was moved aside: each destination, and where what was there lies now."""
        return self._claimed.moved if self._claimed is not None else []

    def _destinations(self) -> Destinations:
        if self._claimed is None:
            from scheduler.store.destinations import Destinations

            self._claimed = Destinations(self._paths)
        return self._claimed

    def settled(self) -> None:
        """The jobs are in: what was moved aside for them stays there."""
        if self.moved:
            self._destinations().settled()

    def write(self, connection: sqlite3.Connection) -> list[int]:
        """One transaction: settle keys and destinations, place the content, insert the rows."""
        if len(self._rows) > 1000:
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            ids = self._insert(connection)
            crashpoint("intake.inserted")
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if self._claimed is not None:
                self._claimed.put_back()
            if isinstance(error, sqlite3.IntegrityError):
                raise self._destinations().refusal(connection, self._rows, error) from error
            raise
        return ids

    def _insert(self, connection: sqlite3.Connection) -> list[int]:
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
        next_id = (found[0] if found else 0) + 1
        ids: list[int] = []
        keyed: dict[str, tuple[int, dict[str, Any]]] = {}
        fresh: list[tuple[Any, ...]] = []
        for row in self._rows:
            key = row["key"]
            if key is not None:
                known = keyed[key][0] if key in keyed and same(row, keyed[key][1]) else None
                known = known or self._known(connection, row, keyed.get(key))
                if known is not None:
                    ids.append(known)
                    continue
                keyed[key] = next_id, row
            if row["out"] is not None:
                self._claim(connection, row, next_id)
            if row["data"] is not None:
                self._keep(row)
            if not isinstance(row["params"], str):
                row["params"] = as_text(row["params"])
            if not isinstance(row["files"], str):
                self._place(row["files"])
                row["files"] = as_text(row["files"])
            fresh.append((next_id, *values(row)))
            ids.append(next_id)
            next_id += 1
        connection.executemany(INSERT, fresh)
        return ids

    def _claim(self, connection: sqlite3.Connection, row: dict[str, Any], job_id: int) -> None:
        row["out"] = row["out"].replace("{id}", str(job_id))
        before = len(self.moved)
        for other in self._destinations().claim(connection, row, job_id):
            _record(connection, other, None, "overwritten", f"job {job_id} takes its destination {row['out']}")
        for out, aside in self.moved[before:]:
            _record(connection, job_id, None, "moved_aside", f"what was at {out} lies at {aside} now, and stays there")

    def _known(
        self, connection: sqlite3.Connection, row: dict[str, Any], here: tuple[int, dict[str, Any]] | None
    ) -> int | None:
        """The job that has this row's key, None if there is none. Refused if it is another request."""
        found = connection.execute(
            "SELECT id, user, slug, variant, input_sha256, params FROM jobs WHERE key = ? AND key IS NOT NULL",
            (row["key"],),
        ).fetchone()
        if found is None and here is None:
            return None
        if found is None or found[1] != self._who:
            other = f"job {found[0]} of {found[1]}" if found else "another row of this call"
            raise Refused(f"the key {row['key']!r} belongs to {other}; give this job another key")
        if found[2:5] != (row["slug"], row["variant"], row["input_sha256"]) or not equal(found[5], row["params"]):
            raise Refused(
                f"the key {row['key']!r} belongs to job {found[0]}, which asks {found[2]} for"
                f" something else; give this job another key, or see `schedq show {found[0]}`"
            )
        return int(found[0])

    def _keep(self, row: dict[str, Any]) -> None:
        data = row["data"]
        row["input_bytes"] = len(data)
        if len(data) > content.INLINE_MAX:
            content.put(self._paths, data, row["input_sha256"])
        else:
            row["input"] = data

    def _place(self, files: dict[str, Any]) -> None:
        for entry in files.values():
            sha256 = entry["sha256"]
            staged = self._staged.pop(sha256, None)
            if staged is not None:
                content.place(self._paths, staged, sha256)
            elif sha256 not in self._settled and not entry.get("pinned"):
                content.settle(self._paths, sha256)
            self._settled.add(sha256)


def _record(connection: sqlite3.Connection, job_id: int, attempt: int | None, event: str, text: str) -> None:
    connection.execute(
        "INSERT INTO events (at, job_id, attempt, event, text) VALUES (?, ?, ?, ?, ?)",
        (now_at(), job_id, attempt, event, text),
    )


def cancel(paths: Paths, ids: list[int], *, timeout_s: float = PATIENCE_S) -> list[tuple[int, str, str]]:
    """Cancel jobs, and answer with (id, state before, state now) of each, in order.

    One whose request was not sent is cancelled at once, and a worker that loads for it goes on loading; one that is
    running is marked, and the scheduler stops it; one that has ended stays as it is. NoSuchJob names every id that is
    not there; then nothing changed.
    """
    with told(paths):
        if not is_made(paths):
            raise missing(ids, paths)
        prepare(paths)
        with Turnstile(paths).section(timeout_s):
            connection = open_writer(paths)
            try:
                require_current(revision(connection, paths), paths)
                _restore(connection, paths)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    answer = _cancel(connection, paths, ids)
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                checkpoint(connection, paths)
            finally:
                connection.close()
    return answer


def _cancel(connection: sqlite3.Connection, paths: Paths, ids: list[int]) -> list[tuple[int, str, str]]:
    before: dict[int, tuple[str, int]] = {}
    for job_id in ids:
        found = connection.execute("SELECT state, attempt FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if found is not None:
            before[job_id] = found
    if len(before) < len(set(ids)):
        raise missing([job_id for job_id in ids if job_id not in before], paths)
    at, text = now_at(), f"asked by {identity.user()}"
    now: dict[int, str] = {}
    for job_id, (state, attempt) in before.items():
        cell = CANCEL[state]
        now[job_id] = "cancelled" if cell == "cancelled" else state
        if cell == "cancelled":
            connection.execute(
                "UPDATE jobs SET state = 'cancelled', blocked = NULL, head_since_at = NULL, ended_at = ?,"
                " cancel_requested_at = ?, outcome = 'cancelled', outcome_text = ?"
                " WHERE id = ? AND state = ? AND attempt = ?",
                (at, at, f"cancelled before it ran, {text}", job_id, state, attempt),
            )
            connection.execute(
                "UPDATE attempts SET ended_at = ?, outcome = 'cancelled', outcome_text = ?"
                " WHERE job_id = ? AND attempt = ? AND ended_at IS NULL",
                (at, text, job_id, attempt),
            )
        elif cell == "ask":
            connection.execute(
                "UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, ?) WHERE id = ?", (at, job_id)
            )
        else:
            continue
        _record(connection, job_id, attempt or None, "cancel", text)
    return [(job_id, before[job_id][0], now[job_id]) for job_id in ids]


def missing(ids: list[int], paths: Paths) -> NoSuchJob:
    """The error for ids that are not in this queue."""
    named = ", ".join(str(each) for each in ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    return NoSuchJob(
        f"no job {named} in the queue at {paths.home}; `schedq status` lists those that wait and run, "
        "`schedq status --state succeeded --since 24h` those that ended so"
    )


def missing_queue(paths: Paths) -> NoSuchJob:
    """The error where a queue is needed and none was made yet."""
    return NoSuchJob(f"there is no queue at {paths.home} yet; the first `schedq submit` makes it")
