"""The scheduler's way into the queue: one writing connection, read snapshots, and the care of the database.

A write is a stay inside the turnstile around BEGIN IMMEDIATE ... COMMIT, so what is read in it is still true
when it is acted on; act on it in the world only after the block has ended. Checkpoints and the closing of the
writer happen inside the turnstile as well (E11).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, StaticPool

from scheduler.clock import SystemClock, stamp
from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.errors import Refused
from scheduler.store import content, destinations
from scheduler.store.absent import missing_queue
from scheduler.store.connection import (
    REVISIONS,
    checkpoint,
    open_reader,
    open_writer,
    require_current,
    revision,
    told,
)
from scheduler.store.folders import prepare, require_local, settle, sync
from scheduler.store.intake import open_or_create
from scheduler.store.kept import is_made, leave_mark
from scheduler.store.migrate import migrate
from scheduler.store.turnstile import PATIENCE_S, Turnstile

log = logging.getLogger("schedq")


class Store:
    """One queue's database. `write` belongs to the thread that first used it; `read` to any."""

    def __init__(self, paths: Paths, clock: SystemClock | None = None, *, timeout_s: float = PATIENCE_S) -> None:
        self.paths = paths
        self.clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._turnstile = Turnstile(paths)
        self._raw: sqlite3.Connection | None = None
        self._writer: Engine | None = None
        self._trouble = ""
        self._reader = create_engine("sqlite://", creator=self._open_reader, poolclass=NullPool)
        event.listen(self._reader, "begin", _begin)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that nobody else writes beside: committed at the end, rolled back on an error.

        Makes the queue at first use. Temporary (locked, full, read-only), Corrupt, NewerSchema, OlderSchema.
        """
        with told(self.paths):
            if self._raw is None:
                require_local(self.paths)
                prepare(self.paths)
            with self._turnstile.section(self._timeout_s):
                raw, engine = self._open_writer()
                destinations.restore(raw, self.paths)
                with engine.connect() as tx:
                    tx.info["paths"] = self.paths
                    with tx.begin():
                        yield tx
                        crashpoint("store.write")
                self._note(checkpoint(raw, self.paths))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot that cannot write. Hold it for 5 s at most: a log cannot be emptied past a reader."""
        with told(self.paths, reading=True):
            if not is_made(self.paths):
                raise missing_queue(self.paths)
            with self._reader.connect() as tx, tx.begin():
                tx.info["paths"] = self.paths
                yield tx

    def close(self) -> None:
        """Let go of the database, inside the turnstile."""
        self._reader.dispose()
        if self._raw is not None and self._writer is not None:
            with told(self.paths), self._turnstile.section(self._timeout_s):
                self._writer.dispose()
                self._raw.close()
                self._raw = self._writer = None

    def _note(self, trouble: str) -> None:
        """Say what keeps the database's log long, once and not in each turn: the figures in it change."""
        if trouble and not self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble

    def _open_writer(self) -> tuple[sqlite3.Connection, Engine]:
        if self._raw is None or self._writer is None:
            raw = open_or_create(self.paths)
            self._raw, self._writer = raw, create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
            event.listen(self._writer, "begin", _begin_immediate)
        return self._raw, self._writer

    def _open_reader(self) -> sqlite3.Connection:
        raw = open_reader(self.paths)
        try:
            require_current(revision(raw, self.paths), self.paths)
        except BaseException:
            raw.close()
            raise
        return raw


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def upgrade(paths: Paths, *, timeout_s: float = PATIENCE_S) -> str | None:
    """Bring the queue to this version's schema, making it if it is not there; None, or where its backup lies.

    An older one is backed up first, all inside the turnstile and in one transaction. NewerSchema: left as it is.
    What killed submitters left half copied is removed, what they had moved aside is moved back.
    """
    kept: str | None = None
    with told(paths):
        require_local(paths)
        prepare(paths)
        with Turnstile(paths).section(timeout_s):
            content.tidy(paths)
            if not is_made(paths):
                open_or_create(paths).close()
                return None
            connection = open_writer(paths)
            try:
                found = revision(connection, paths)
                if found and found in REVISIONS[:-1]:
                    name = f"queue-{stamp(SystemClock().now_s()).replace(':', '')}-{found}.db"
                    kept = os.path.join(paths.backups, name)
                    _copy(connection, kept)
                    crashpoint("store.backed_up")
                    migrate(connection)
                elif not found:
                    settle(paths.home)
                    migrate(connection)
                require_current(revision(connection, paths), paths)
                leave_mark(connection, paths)
                destinations.restore(connection, paths)
            finally:
                connection.close()
    return kept


def backup(paths: Paths, target: str) -> str:
    """Write a copy of the running queue's database to `target` (0600, synced), and answer with its path.

    The copy is of one moment. Refused if `target` exists. Large inputs and results lie beside the database
    (`content/`, `results/`): copy those folders too, after the database.
    """
    target = os.path.abspath(target)
    with told(paths):
        if not is_made(paths):
            raise missing_queue(paths)
        if os.path.lexists(target):
            raise Refused(f"{target} exists; give the backup another name")
        connection = open_reader(paths)
        try:
            revision(connection, paths)
            _copy(connection, target)
        finally:
            connection.close()
    return target


def _copy(source: sqlite3.Connection, target: str) -> None:
    beside = f"{target}.part-{os.getpid()}"
    try:
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        copy = sqlite3.connect(beside, isolation_level=None)
        try:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = delete").fetchall()
        finally:
            copy.close()
        fd = os.open(beside, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, target)
        sync(os.path.dirname(target))
    finally:
        content.discard(beside)


def check(paths: Paths, *, timeout_s: float = PATIENCE_S) -> list[str]:
    """What is wrong with the queue's database and its content; empty = nothing. Changes nothing.

    Looks at SQLite's own structure, references between tables, the depth that triggers keep, the revision, and
    that every large input and reply is there and hashes to its name. Takes time in proportion to the history. Where
    something was moved aside, who moves it is waited for up to `timeout_s`: of one that was killed it is a fault.
    """
    with told(paths, reading=True):
        if not is_made(paths):
            raise missing_queue(paths)
        connection = open_reader(paths)
        try:
            found = revision(connection, paths)
            require_current(found, paths)
            return [
                *_structure(connection), *_depth(connection), *_content(connection, paths),
                *_aside(connection, paths, timeout_s),
            ]  # fmt: skip
        finally:
            connection.close()


def _aside(connection: sqlite3.Connection, paths: Paths, timeout_s: float) -> list[str]:
    if not os.path.lexists(paths.asides):
        return []
    with Turnstile(paths).section(timeout_s):
        return destinations.faults(connection, paths)


def _structure(connection: sqlite3.Connection) -> list[str]:
    words = [f"structure: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        words.append(f"reference: row {rowid} of {table} names a row of {parent} that is not there")
    return words


def _depth(connection: sqlite3.Connection) -> list[str]:
    counted = (
        "SELECT slug, iif(slug = 'exec', '', variant), iif(blocked IS NULL, state, 'blocked'), priority, count(*)"
        " FROM jobs GROUP BY 1, 2, 3, 4"
    )
    kept = "SELECT slug, variant, state, priority, n FROM depth"
    have = {tuple(row[:4]): row[4] for row in connection.execute(kept)}
    true = {tuple(row[:4]): row[4] for row in connection.execute(counted)}
    return [
        f"depth: {'/'.join(map(str, key))} says {have.get(key, 0)}, there are {true.get(key, 0)}"
        for key in sorted(have.keys() | true.keys())
        if have.get(key, 0) != true.get(key, 0)
    ]


def _content(connection: sqlite3.Connection, paths: Paths) -> list[str]:
    import json

    wanted: dict[str, str] = {}
    rows = "SELECT id, input_sha256, files, input IS NULL AND input_bytes > 0 FROM jobs WHERE pruned_at IS NULL"
    for job_id, sha256, files, outside in connection.execute(rows):
        if outside:
            wanted.setdefault(sha256, f"the input of job {job_id}")
        for entry in json.loads(files).values() if files != "{}" else ():
            if not entry.get("pinned"):
                wanted.setdefault(entry["sha256"], f"a file of job {job_id}")
    replies = "SELECT job_id, sha256 FROM results WHERE reply IS NULL AND sha256 IS NOT NULL"
    for job_id, sha256 in connection.execute(replies):
        wanted.setdefault(sha256, f"the reply of job {job_id}")
    for job_id, pins in connection.execute("SELECT job_id, pins FROM drafts WHERE pins <> '{}'"):
        for pin in json.loads(pins).values():
            if "sha256" in pin and not pin.get("pinned"):
                wanted.setdefault(pin["sha256"], f"what the input of job {job_id} takes")
    words = []
    for sha256, what in wanted.items():
        where = content.path(paths, sha256)
        try:
            with open(where, "rb") as file:
                import hashlib

                good = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        except OSError as error:
            words.append(f"content: {what} ({where}) cannot be read: {error.strerror}")
            continue
        if not good:
            words.append(f"content: {what} ({where}) is not what was stored")
    return words
