"""A batch that is submitted once more: which of its jobs a row means, and those that did not succeed opened again.

A row means the job of its key, else one that asks for the same, else the only one of its provider and name that did
not succeed: that gets the row's request (see replacing). Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import json
import sqlite3
from collections import namedtuple

from scheduler.clock import local_day, now_at, seconds
from scheduler.errors import NoSuchJob, Refused, UsageError
from scheduler.rules import explain_after, shellwords
from scheduler.store import identity
from scheduler.store.gates import AGAIN, BAD_OF, LOOK_AGAIN
from scheduler.store.keyed import key_taken
from scheduler.store.meant import PARENT
from scheduler.store.opening import record
from scheduler.store.row import as_text, draft_asks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from typing import Any

    Row = dict[str, Any]

LEFT = {"succeeded": "succeeded", "queued": "unended", "held": "unended", "admitted": "unended", "running": "unended"}
"""The states of jobs that stay as they are, and what that is called."""

Job = namedtuple(  # noqa: PYI024
    "Job", "id slug variant name sha256 params state attempt out pruned_at files key batch fixed tries draft asks"
)
"""A job as it is looked at. `fixed`: it keeps its request, which is a validation case or a measurement."""

COLUMNS = (
    "SELECT id, slug, variant, name, input_sha256, params, state, attempt, out, pruned_at, files, key, batch, measures"
    " OR EXISTS (SELECT 1 FROM checks WHERE checks.job_id = jobs.id), tries, drafts.input, drafts.asked"
    " FROM jobs LEFT JOIN drafts ON drafts.job_id = jobs.id"
)
OF_BATCH = f"{COLUMNS} WHERE batch = ? AND batch IS NOT NULL AND user = ? ORDER BY id"
OF_ID = f"{COLUMNS} WHERE id = ?"
IS_THERE = "SELECT 1 FROM batches WHERE batch = ?"
TAKEN = (
    "SELECT id, state FROM jobs WHERE out = :out AND out IS NOT NULL AND id <> :id"
    " AND state IN ('queued', 'held', 'admitted', 'running', 'succeeded')"
)
"""Another job that has a job's destination by now."""

ANEW = (
    "tries = 0, laters = 0, deaths = 0, worker_id = NULL, started_at = NULL, ended_at = NULL,"
    " cancel_requested_at = NULL, outcome = NULL, outcome_text = NULL, exit_code = NULL, progress = NULL,"
    " logs_pruned_at = NULL, free_at = :at,"
    " not_before_at = NULL, behind = iif(measures, behind, NULL),"
    f" blocked = iif(measures, 'after', {AGAIN})"
)
"""What a job that is opened again `:at` that time begins with."""

BROKEN = (
    "SELECT g.id, g.parent_id, g.batch, g.upto_id, g.bad FROM waits AS w JOIN gates AS g ON g.id = w.gate_id"
    " JOIN jobs AS j ON j.id = w.job_id"
    " WHERE w.job_id = ? AND g.need = 'ok' AND g.bad > 0 AND j.on_parent = 'fail' ORDER BY g.id"
)
"""The gates of a job that it can never pass as they are."""

REOPEN = (
    f"UPDATE jobs SET state = 'queued', {ANEW}, revision = :revision, size = :size"
    " WHERE id = :id AND state = :was AND attempt = :attempt"
)


class Resumed:
    """The jobs of the batches that rows of one call belong to, each meant by one row at most. `dry`: only looked at.

    `claim` is called with a row and the id of its job for a destination that this job did not have.
    NoSuchJob if all rows belong to one batch, and that is not there.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        user: str,
        rows: Sequence[Row],
        claim: Callable[[Row, int], None],
        *,
        dry: bool,
    ) -> None:
        self._connection, self._user, self._rows, self._claim, self._dry = connection, user, rows, claim, dry
        self._planned: dict[str, dict[int, Job]] = {}
        self._texts: dict[str, str] = {}
        self._reopened: dict[int, str | None] = {}
        self._at = now_at()
        self.replaced: dict[int, tuple[Job, Row, list[str]]] = {}
        """By job: what it was, the row whose request it gets, and what of it is another than before, in words."""
        self.unclear: list[Row] = []
        """Rows that are added although jobs that did not succeed have their name: which of these they mean is open."""
        batches = {row["batch"] for row in rows}
        if len(batches) == 1 and None not in batches:
            self._require(batches.pop())

    def of(self, row: Row, known: int | None = None) -> tuple[int, str] | None:
        """(the job that a row means, what became of it); None if its batch has none that it could mean.

        `known`: the job that its key says. UsageError for a row without a batch, NoSuchJob for a batch that is not
        there, Refused if the job cannot be opened.
        """
        if row["batch"] is None:
            raise UsageError("--resume needs a batch: --batch NAME, or the key batch in each row of the file")
        if known is not None:
            job = Job(*self._connection.execute(OF_ID, (known,)).fetchone())
            changes = self._changes(job, row)
            other = job.slug, job.variant, job.batch
            keeps = job.state in LEFT or job.fixed or job.pruned_at or other != (*_which(row)[:2], row["batch"])
            if keeps and not self._alike(job, row):
                raise key_taken(row["key"], job.id, job.slug)
            return self._again(job, row, [] if keeps else changes)
        plan = self._planned.get(row["batch"])
        if plan is None:
            plan = self._planned[row["batch"]] = self._plan(row["batch"])
        meant = plan.get(id(row))
        return None if meant is None else self._again(meant, row, [] if meant.fixed else self._changes(meant, row))

    def _require(self, batch: str) -> None:
        if self._connection.execute(IS_THERE, (batch,)).fetchone() is not None:
            return
        from difflib import get_close_matches

        from scheduler.store import brief

        near = get_close_matches(batch, brief.batches(self._connection, batch) or [], n=1)
        hint = f"did you mean {near[0]}? Of one that is not there yet, leave" if near else "the first time, leave"
        raise NoSuchJob(
            f"--resume goes on with a batch that is there, and no job has the batch {batch!r}; {hint} out --resume"
        )

    def _plan(self, batch: str) -> dict[int, Job]:
        """Which job each row of a batch means whose key says none: what asks for the same first, then names."""
        self._require(batch)
        jobs = [Job(*each) for each in self._connection.execute(OF_BATCH, (batch, self._user)).fetchall()]
        there, asked = {job.key for job in jobs if job.key}, {row["key"] for row in self._rows}
        free: dict[tuple[str, ...], list[Job]] = {}
        for job in jobs:
            if not (job.key and job.key in asked) and (job.pruned_at is None or job.state in LEFT):
                free.setdefault(self._asked_of(job), []).append(job)
        plan: dict[int, Job] = {}
        rest: dict[tuple[str, ...], tuple[list[Row], list[Job]]] = {}
        for row in self._rows:
            if row["batch"] != batch or (row["key"] is not None and row["key"] in there):
                continue
            if row["key"] is not None:
                there.add(row["key"])  # a second row of that key is the first one's job
            if same := free.get(self._asked(row)):
                plan[id(row)] = same.pop(0)
            else:
                rest.setdefault(_which(row), ([], []))[0].append(row)
        for job in (job for jobs in free.values() for job in jobs if job.state not in LEFT and not job.fixed):
            if (named := rest.get((job.slug, job.variant, job.name))) is not None:
                named[1].append(job)
        for rows, bad in rest.values():
            if len(rows) == len(bad) == 1:
                if bad[0].key is None or rows[0]["key"] is None:
                    plan[id(rows[0])] = bad[0]
            elif bad:
                self.unclear += rows
        return plan

    def _asked(self, row: Row) -> tuple[str, ...]:
        """What a row asks for, as what is the same for the same."""
        if (row["beside"] or {}).get("draft"):
            return (*_which(row), identity.digest(row["data"]), draft_asks(row))
        params = row["params"] if isinstance(row["params"], str) else as_text(row["params"])
        return (*_which(row), row["input_sha256"], self._sorted(params))

    def _asked_of(self, job: Job) -> tuple[str, ...]:
        asked = (job.sha256, self._sorted(job.params)) if job.draft is None else (identity.digest(job.draft), job.asks)
        return (job.slug, job.variant, job.name, *asked)

    def _alike(self, job: Job, row: Row) -> bool:
        """Whether a row asks for what a job does, whatever the two are called: by the document or what came of it."""
        mine, theirs = self._asked(row), self._asked_of(job)
        made = (job.slug, job.variant, job.sha256, self._sorted(job.params))
        return made == (*mine[:2], *mine[3:]) or (*mine[:2], *mine[3:]) == (*theirs[:2], *theirs[3:])

    def _changes(self, job: Job, row: Row) -> list[str]:
        """What of a row's request is another than its job's, in words."""
        found = []
        if not self._alike(job, row):
            before, after = self._asked_of(job)[3:], self._asked(row)[3:]
            found += [f"input (sha256 {before[0][:12]} -> {after[0][:12]})"] if before[0] != after[0] else []
            found += ["parameters"] if before[1] != after[1] else []
        if job.draft is None and not (row["beside"] or {}).get("draft") and _pinned(job.files) != _pinned(row["files"]):
            found.append("the files that its input names")
        if row["out"] is not None and row["out"].replace("{id}", str(job.id)) != job.out:
            found.append(f"destination ({job.out or 'none'} -> {row['out'].replace('{id}', str(job.id))})")
        return found

    def _sorted(self, params: str) -> str:
        if params not in self._texts:
            self._texts[params] = json.dumps(json.loads(params), sort_keys=True)
        return self._texts[params]

    def _again(self, job: Job, row: Row, changes: list[str]) -> tuple[int, str]:
        if job.state in LEFT or (self._dry and job.id in self._reopened):
            return job.id, LEFT.get(job.state, "unended")
        if job.pruned_at is not None:
            raise Refused(
                f"job {job.id} was pruned on {local_day(seconds(job.pruned_at))}: its input is not kept; give this one"
                " another key"
            )
        if row["out"] is not None and any(each.startswith("destination") for each in changes):
            self._claim(row, job.id)
        elif job.out is not None:
            taken = self._connection.execute(TAKEN, {"out": job.out, "id": job.id}).fetchone()
            if taken is not None:
                raise Refused(
                    f"job {taken[0]} ({taken[1]}) has the destination {job.out} of job {job.id} now; submit it again"
                    " with another --out"
                )
        self._reopened[job.id] = job.batch
        if changes:
            self.replaced[job.id] = job, row, changes
        if not self._dry:
            columns = {"revision": row["revision"], "size": row["size"], "at": self._at}
            self._connection.execute(REOPEN, {**columns, "id": job.id, "was": job.state, "attempt": job.attempt})
            self._connection.execute(LOOK_AGAIN, {"id": job.id})
            text, tried = f"was {job.state}; its batch was submitted again", json.dumps({"tries": job.tries})
            record(self._connection, job.id, None, "requeue", text, tried)
        return job.id, "replaced" if changes else "reopened"

    def broken(self, rows: dict[int, Row], tied: Container[int]) -> tuple[dict[int, Refused], int]:
        """(of those that were opened again the jobs that would only fail once more, and why; how many more there are).

        A parent of these stays as it is. The others are named by a row for its own parent: they are let fail once more.
        `tied` are left out, whose gates are looked at apart.
        """
        found: dict[int, Refused] = {}
        let = 0
        for job_id in self._reopened:
            if job_id in tied:
                continue
            for _gate_id, parent_id, batch, upto_id, bad in self._connection.execute(BROKEN, (job_id,)).fetchall():
                if self._dry and bad <= self.would_open(parent_id, batch, upto_id):
                    continue
                if (rows[job_id]["beside"] or {}).get("own"):
                    let += 1
                    break
                which, asked = ((batch,), BAD_OF) if batch is not None else ((parent_id,), PARENT)
                row = self._connection.execute(asked, which).fetchone()
                those = shellwords.option("--batch", batch) if batch else parent_id
                mends = f"; schedq requeue {those} first" if row is not None else ""
                why = explain_after.ended(*row[:7]) if row is not None else "the row of that one was removed"
                found[job_id] = Refused(
                    f"job {job_id} comes after a job that did not succeed, and would fail again: {why}{mends}"
                )
                break
        return found, let

    def would_open(self, parent_id: int | None, batch: str | None, upto_id: int | None) -> int:
        """How many of a gate's jobs this call opens again, if it is only looked at; else the gate has them already."""
        if not self._dry:
            return 0
        if batch is None or upto_id is None:
            return int(parent_id in self._reopened)
        return sum(of == batch and job_id <= upto_id for job_id, of in self._reopened.items())


def _which(row: Row) -> tuple[str, str, str]:
    return row["slug"], row["variant"], row["name"]


def _pinned(files: Any) -> dict[str, str]:
    """The content of each file that an input names, by where it names it."""
    if not files or files == "{}":
        return {}
    entries = json.loads(files) if isinstance(files, str) else files
    return {pointer: entry["sha256"] for pointer, entry in entries.items()}
