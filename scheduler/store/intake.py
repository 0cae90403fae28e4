"""The only INSERT of a job, and the light verbs' only writes. Imported by the fast paths: standard library only.

A job's row names nothing that is not durable: its input and the files that it names are synced first. All rows
of one call are written in one transaction, or none. An id leaves here after COMMIT only (P1), with the signals
that would tear the answer apart held back until it was said.
"""

from __future__ import annotations

import sqlite3

from scheduler.clock import now_at
from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.errors import BatchTaken, NoSuchJob, Refused, UsageError, all_of
from scheduler.store import called, identity
from scheduler.store.brought import Brought
from scheduler.store.cancelling import CANCEL as CANCEL
from scheduler.store.cancelling import cancel as cancel
from scheduler.store.connection import checkpoint, told
from scheduler.store.folders import prepare, require_local
from scheduler.store.keyed import job_of_key
from scheduler.store.opening import open_or_create as open_or_create
from scheduler.store.opening import record
from scheduler.store.row import DEFAULTS, INSERT, after_alike, completed, same, values
from scheduler.store.turnstile import PATIENCE_S, Signals, Turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from scheduler.errors import SchedqError
    from scheduler.store.destinations import Destinations
    from scheduler.store.gates import Ties
    from scheduler.store.replacing import Replaced
    from scheduler.store.resuming import Resumed

FATES = ("added", "known", "succeeded", "unended", "reopened", "replaced")
"""What becomes of a row: its own job; that of its key; of `resume`, one that stays as it is, is opened again, or is
opened again with the request of the row."""

COUNTED = ("doomed", "unclear")
"""What is counted of a call beside: jobs that will fail with the reason of a parent which did not succeed; those of
`resume` that were added although others which did not succeed have their name."""

AT_ONCE = 5000
"""Rows inserted between two looks at who is told how far it is."""

TAKEN = "SELECT 1 FROM batches WHERE batch = ?"

NOT_YET = 10**11
"""The first id of rows that are only looked at: no job has it."""

CACHE_KIB = 64 << 10
"""What a large call may keep in memory until its commit, instead of writing pages again and again."""


def submit(
    paths: Paths,
    rows: list[dict[str, Any]],
    say: Callable[[list[int]], None] | None = None,
    *,
    moved: list[tuple[str, str]] | None = None,
    resume: bool = False,
    new_batch: str = "",
    fates: list[str] | None = None,
    counts: dict[str, int] | None = None,
    tell: Callable[[int], None] | None = None,
    timeout_s: float = PATIENCE_S,
) -> list[int]:
    """Put jobs into the queue, all or none, and answer with their ids in the order of `rows`.

    A row has columns of a job (see DEFAULTS) plus `data` (the input's bytes), or for an input that a row cannot hold
    `source` (the file that has them), `overwrite` (its destination may exist), `beside` (see beside.insert) and `where`
    (what errors call it). A `key` that this user gave before means that job:
    its id is the answer, and nothing is written for it. `resume`: so does a job of the row's batch that asks for the
    same, and one that did not succeed is opened again. `new_batch`: BatchTaken if that has jobs already.
    `fates` gets what became of each row (FATES), `counts` what else is to be said (COUNTED), `tell` is called with how
    many rows are through.
    `say` is called with the ids after the commit, outside the turnstile, while signals are still held back.
    What is at a destination that may be overwritten is moved aside, and stays where it is if nothing goes in; `moved`
    gets (destination, where it lies now) of each.
    Makes folders and database at first use. Refused, UsageError, Temporary or StoreError: nothing was written. Every
    row that is refused is in the error's `faults`.
    """
    batch = _Intake(paths, rows, resume=resume, new_batch=new_batch, tell=tell)
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
        if fates is not None:
            fates += batch.fates
        if counts is not None:
            counts |= batch.counts()
        if say is not None:
            say(ids)
        return ids
    finally:
        batch.discard()
        signals.unblock()


def foretold(
    paths: Paths,
    rows: list[dict[str, Any]],
    *,
    resume: bool = False,
    refused: Sequence[dict[str, Any]] = (),
    counts: dict[str, int] | None = None,
) -> tuple[list[str], list[tuple[int, str, SchedqError]]]:
    """What `submit` would make of these rows, by the queue as it is: (fate of each, the faults). Nothing is written.

    `refused`: key and name of what belongs to the call too and cannot be queued, for rows that come after that.
    `counts`: as of submit. NoSuchJob for a batch to resume that is not there.
    """
    from scheduler.store.peek import looked

    batch = _Intake(paths, rows, resume=resume, dry=True, refused=refused)
    nothing: list[tuple[int, str, SchedqError]] | None = None
    faults = looked(paths, lambda reader: batch.settle(reader, NOT_YET)[1], nothing)
    if faults is None:  # there is no queue: by what an empty one would say
        from scheduler.store.migrate import migrate

        empty = sqlite3.connect(":memory:", isolation_level=None)
        try:
            migrate(empty)
            faults = batch.settle(empty, NOT_YET)[1]
        finally:
            empty.close()
    if counts is not None:
        counts |= batch.counts()
    return batch.fates, faults


class _Intake:
    """One call's rows, on their way into the queue. `dry`: only looked at, over a connection that cannot write."""

    def __init__(
        self,
        paths: Paths,
        rows: list[dict[str, Any]],
        *,
        resume: bool = False,
        dry: bool = False,
        new_batch: str = "",
        refused: Sequence[dict[str, Any]] = (),
        tell: Callable[[int], None] | None = None,
    ) -> None:
        self._paths, self._resume, self._dry, self._tell = paths, resume, dry, tell
        self._new_batch, self._refused = new_batch, [(0, row) for row in refused]
        self._resumed: Resumed | None = None
        self._ties: Ties | None = None
        self._replaced: Replaced | None = None
        self._doomed = 0
        self._ids: list[int] = []
        self._first_of: dict[str, dict[str, Any]] = {}
        self.fates: list[str] = []
        self._brought = Brought(paths)
        self._claimed: Destinations | None = None
        who = {**DEFAULTS, "user": identity.user(), "host_id": identity.host_id(), "submitted_at": now_at()}
        self._who = str(who["user"])
        self._rows = [completed(row, who) for row in rows]

    def stage(self) -> None:
        """Do what takes time and needs no lock."""
        self._brought.stage(self._rows)

    def discard(self) -> None:
        """Remove what was staged and is not needed."""
        self._brought.discard()

    @property
    def moved(self) -> list[tuple[str, str]]:
        """What was moved aside: each destination, and where what was there lies now."""
        return self._claimed.moved if self._claimed is not None else []

    def _destinations(self) -> Destinations:
        if self._claimed is None:
            from scheduler.store.destinations import Destinations

            self._claimed = Destinations(self._paths)
        return self._claimed

    def counts(self) -> dict[str, int]:
        """What is to be said of the call beside what became of each row (COUNTED)."""
        doomed = self._doomed + (self._ties.doomed if self._ties is not None else 0)
        return {"doomed": doomed, "unclear": len(self._resumed.unclear) if self._resumed is not None else 0}

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
            if self._replaced is not None:
                self._replaced.put_back()
            if isinstance(error, sqlite3.IntegrityError):
                raise self._destinations().refusal(connection, self._rows, error) from error
            raise
        return ids

    def _insert(self, connection: sqlite3.Connection) -> list[int]:
        if self._new_batch and connection.execute(TAKEN, (self._new_batch,)).fetchone() is not None:
            raise BatchTaken(f"the batch {self._new_batch!r} has jobs already")
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
        fresh, faults = self.settle(connection, (found[0] if found else 0) + 1)
        if faults:
            raise all_of(faults, len(self._rows), "jobs")
        self._brought.settle()
        through = len(self._rows) - len(fresh)
        for start in range(0, len(fresh), AT_ONCE):
            part = fresh[start : start + AT_ONCE]
            connection.executemany(INSERT, [(job_id, *values(row)) for job_id, row in part])
            if self._tell is not None:
                self._tell(through + start + len(part))
        with_more = [(job_id, row["beside"]) for job_id, row in fresh if row["beside"]]
        if with_more:
            from scheduler.store import beside

            beside.insert(connection, with_more)
        if self._ties is not None:
            self._ties.insert()
        if self._resumed is not None and self._resumed.replaced:
            from scheduler.store.replacing import Replaced

            self._replaced = Replaced(self._paths)
            self._replaced.write(connection, self._resumed.replaced)
        called.note(connection, self._rows)
        return self._ids

    def settle(
        self, connection: sqlite3.Connection, next_id: int
    ) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str, SchedqError]]]:
        """(the rows to be inserted, each with its id from `next_id` on; the rows that are refused).

        The others have their job already: `fates` says which, and what was done to it.
        """
        self._ids, self.fates, self._first_of = [], [], {}
        keyed: dict[str, tuple[int, dict[str, Any]]] = {}
        fresh: list[tuple[int, dict[str, Any]]] = []
        faults: list[tuple[int, str, SchedqError]] = []
        if self._resume:
            from scheduler.store.resuming import Resumed

            self._resumed = Resumed(
                connection,
                self._who,
                self._rows,
                lambda row, job_id: self._claim(connection, row, job_id),
                dry=self._dry,
            )
        for index, row in enumerate(self._rows):
            fate = "added"
            try:
                known = self._there(connection, row, keyed)
                if known is not None:
                    job_id, fate = known
                else:
                    job_id = next_id
                    if row["out"] is not None:
                        self._claim(connection, row, job_id)
                    if row["key"] is not None:
                        keyed[row["key"]] = job_id, row
                if row["key"] is not None and fate == "replaced":
                    keyed[row["key"]] = job_id, row
            except (NoSuchJob, Refused, UsageError) as error:
                faults.append((index, row["where"] or row["name"], error))
                fate, job_id = "refused", 0
            if fate in ("added", "replaced") and not self._dry and not faults:
                self._brought.keep(row)
            if fate == "added":
                fresh.append((job_id, row))
                next_id += 1
            self._ids.append(job_id)
            self.fates.append(fate)
        tie = {job_id: row for job_id, row in fresh if row["beside"]}
        if self._resumed is not None:
            tie |= {job_id: row for job_id, (_, row, _) in self._resumed.replaced.items()}
            broken, self._doomed = self._resumed.broken(dict(zip(self._ids, self._rows, strict=True)), tie.keys())
            again = [index for index, job_id in enumerate(self._ids) if job_id in broken]
            faults += [(at, self._rows[at]["where"] or self._rows[at]["name"], broken[self._ids[at]]) for at in again]
        if tie:
            from scheduler.store import gates

            call = [*zip(self._ids, self._rows, strict=True), *self._refused]
            self._ties = gates.tied(connection, call, fresh, self._who, self._resumed)
            faults += self._ties.faults
        return fresh, faults

    def _there(
        self, connection: sqlite3.Connection, row: dict[str, Any], keyed: dict[str, tuple[int, dict[str, Any]]]
    ) -> tuple[int, str] | None:
        """(the job that a row means which is there already, its fate); None if there is none."""
        key = row["key"]
        if key is not None:
            if not after_alike(row, self._first_of.setdefault(key, row)):
                raise Refused(
                    f"the key {key!r} is that of another row of this call, which comes after another job; give this one"
                    " another key"
                )
            known = keyed[key][0] if key in keyed and same(row, keyed[key][1]) else None
            if known is None:
                known = job_of_key(connection, row, keyed.get(key), self._who, asks_alike=not self._resume)
            if known is not None and (not self._resume or key in keyed):
                return known, "known"
        if self._resumed is None:
            return None
        return self._resumed.of(row, known if key is not None else None)

    def _claim(self, connection: sqlite3.Connection, row: dict[str, Any], job_id: int) -> None:
        row["out"] = row["out"].replace("{id}", str(job_id))
        if self._dry:
            self._destinations().refuse(connection, row)
            return
        before = len(self.moved)
        for other in self._destinations().claim(connection, row, job_id):
            record(connection, other, None, "overwritten", f"job {job_id} takes its destination {row['out']}")
        for out, aside in self.moved[before:]:
            record(connection, job_id, None, "moved_aside", f"what was at {out} lies at {aside} now, and stays there")
