"""What jobs wait for, as they go in: words made into gates in the transaction of their INSERT, or refused there.

A gate is shared by all that wait for the same: one job, or the jobs that a batch has by now. Standard library only:
imported by the fast paths, if a row comes after something.
"""

from __future__ import annotations

import json
import sqlite3

from scheduler import after
from scheduler.clock import local_day, seconds
from scheduler.errors import NoSuchJob, Refused, UsageError
from scheduler.rules import explain_after, shellwords
from scheduler.rules.circles import circles
from scheduler.rules.gating import BROKEN, SHUT, THROUGH, ruling
from scheduler.store.meant import Meant
from scheduler.store.row import draft_asks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.errors import SchedqError
    from scheduler.store.resuming import Resumed

    Row = dict[str, Any]
    Target = tuple[str, int | str, str]
    Fault = tuple[int, str, SchedqError]

ENDED = ("succeeded", "failed", "cancelled", "timed_out", "refused")
OF_BATCH = "SELECT jobs, open, succeeded FROM batches WHERE batch = ?"
BAD_OF = (
    "SELECT id, slug, variant, name, state, outcome, outcome_text FROM jobs WHERE batch = ? AND batch IS NOT NULL"
    " AND state IN ('failed', 'cancelled', 'timed_out', 'refused') ORDER BY id LIMIT 1"
)
ON_JOB = "SELECT id FROM gates WHERE parent_id = ? AND parent_id IS NOT NULL AND need = ?"
ON_BATCH = "SELECT id FROM gates WHERE batch = ? AND upto_id = ? AND batch IS NOT NULL AND need = ?"
NEW_GATE = (
    "INSERT INTO gates (parent_id, batch, upto_id, need, jobs, open, bad, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
GATES_OF = (
    "SELECT g.parent_id, g.batch, g.upto_id, g.need, g.open, g.bad FROM waits AS w JOIN gates AS g ON g.id = w.gate_id"
    " WHERE w.job_id = ?"
)
BELOW = (
    "WITH RECURSIVE below (id) AS (VALUES (?) UNION SELECT w.job_id FROM below"
    " JOIN gates AS g ON g.parent_id = below.id AND g.parent_id IS NOT NULL"
    " JOIN waits AS w ON w.gate_id = g.id JOIN jobs AS j ON j.id = w.job_id WHERE j.ended_at IS NULL"
    " UNION SELECT w.job_id FROM below JOIN jobs AS i ON i.id = below.id"
    " JOIN gates AS g ON g.batch = i.batch AND g.upto_id >= i.id AND g.batch IS NOT NULL"
    " JOIN waits AS w ON w.gate_id = g.id JOIN jobs AS j ON j.id = w.job_id WHERE j.ended_at IS NULL)"
    " SELECT below.id, jobs.batch FROM below JOIN jobs ON jobs.id = below.id"
)
"""A job, and those that have not ended and come after it, however far: (id, batch) of each."""

UNTIED = "DELETE FROM waits WHERE job_id = ?"
UNDRAFTED = "DELETE FROM drafts WHERE job_id = ?"
DRAFT = "INSERT INTO drafts (job_id, refs, asked, input) VALUES (?, ?, ?, ?)"
KEPT = "SELECT destination FROM results WHERE job_id = ?"

SHOWN = 12
"""Rows of a circle that its error names."""

CLOSED = "(g.open > 0 OR (g.need = 'ok' AND g.bad > 0))"
"""A gate `g` that nobody passes now: rules.gating says SHUT or BROKEN of it."""

AGAIN = (
    f"(SELECT 'after' WHERE EXISTS (SELECT 1 FROM waits w JOIN gates g ON g.id = w.gate_id WHERE w.job_id = jobs.id"
    f" AND {CLOSED}) OR EXISTS (SELECT 1 FROM drafts d WHERE d.job_id = jobs.id AND d.made_at IS NULL))"
)
"""What blocks a row of `jobs` that comes into the line again: `after` while a gate of it is closed or its input is not
there, else NULL. For an UPDATE of jobs."""

LOOK_AGAIN = (
    "UPDATE gates SET changed = 1 WHERE id IN (SELECT gate_id FROM waits WHERE job_id = :id)"
    " AND (open = 0 OR (need = 'ok' AND bad > 0))"
)
"""After that: whoever can go on at once, or never, is looked at in the scheduler's next turn."""

PINNED = "SELECT pins FROM drafts WHERE pins <> '{}'"
"""What drafts have pinned: each value of these objects with a `sha256` is a piece of the content that is in use."""


def tied(
    connection: sqlite3.Connection,
    call: list[tuple[int, Row]],
    fresh: list[tuple[int, Row]],
    user: str,
    resumed: Resumed | None,
) -> Ties:
    """Who of a call's `fresh` rows waits for what; nothing is written yet.

    `call` has every row with its id, those of jobs that are there already too (0: refused). Rows that have to wait are
    blocked. `resumed`: the jobs that this call opens again; those with another request are tied anew. What is wrong
    with one is in the answer's `faults`.
    """
    ties = Ties(connection, call, fresh, user, resumed)
    ties.look()
    return ties


class Ties:
    """The gates of one call's rows. `faults`: (index in the call, what it is called, why it cannot be queued).

    `doomed`: how many will fail with the reason of a parent that did not succeed: a row names that for itself alone.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        call: list[tuple[int, Row]],
        fresh: list[tuple[int, Row]],
        user: str,
        resumed: Resumed | None,
    ) -> None:
        self._connection, self._call, self._user, self._resumed = connection, call, user, resumed
        self._again = resumed.replaced if resumed is not None else {}
        self._rows = [*fresh, *((job_id, row) for job_id, (_job, row, _changes) in self._again.items())]
        self._own = {job_id for job_id, _row in self._rows}
        self._meant = Meant(connection, call, {job_id for job_id, _row in fresh}, user)
        self._untied: list[tuple[int]] = []
        self.doomed = 0
        self._standing: dict[Target, tuple[int, int]] = {}
        self._waits: list[tuple[int, Target]] = []
        self._drafts: list[tuple[int, str, str, bytes]] = []
        self._edges: dict[int, list[int]] = {}
        self._called: set[Target] = set()
        self.faults: list[Fault] = []

    def look(self) -> None:
        """Find what each row waits for, block those that have to, and collect what is wrong."""
        bad: dict[int, SchedqError] = {}
        for job_id, row in self._rows:
            what = row["beside"] or {}
            if not what.get("after") and not what.get("draft") and job_id not in self._again:
                continue
            try:
                self._tie(job_id, row, what)
            except (NoSuchJob, Refused, UsageError) as error:
                bad[job_id] = error
        rows: dict[int, Row] = {}
        for circle in circles(self._edges):
            rows = rows or dict(self._rows)
            shown = circle if len(circle) <= SHOWN else [*circle[:SHOWN], circle[-1]]
            words = " -> ".join(_called(rows[each]) for each in shown)
            words += f" ({len(circle) - 1} rows)" * (shown is not circle)
            bad[circle[0]] = UsageError(f"waits for itself: {words}; take one of these out")
        if bad:
            self.faults = [
                (index, row["where"] or row["name"], bad[job_id])
                for index, (job_id, row) in enumerate(self._call)
                if job_id in bad and (row["beside"] or job_id in self._again)
            ]

    def insert(self) -> None:
        """Write gates, who waits at them, and drafts; the rows themselves are in."""
        self._connection.executemany(UNTIED, self._untied)
        self._connection.executemany(UNDRAFTED, [(job_id,) for job_id in self._again])
        gates = {target: self._gate(target) for target in dict.fromkeys(target for _id, target in self._waits)}
        self._connection.executemany(
            "INSERT INTO waits (job_id, gate_id) VALUES (?, ?)", [(job, gates[target]) for job, target in self._waits]
        )
        self._connection.executemany(DRAFT, self._drafts)

    def _gate(self, target: Target) -> int:
        kind, key, need = target
        open_, bad = self._standing[target]
        if kind == "job":
            known, values = self._connection.execute(ON_JOB, (key, need)).fetchone(), (key, None, None)
        else:
            upto = self._meant.upto_of(str(key))
            known = self._connection.execute(ON_BATCH, (key, upto, need)).fetchone()
            values = (None, key, upto)  # type: ignore[assignment]
        changed = int(target in self._called and ruling(need, open_, bad) != SHUT)
        if known is None:
            jobs = 1 if kind == "job" else self._connection.execute(OF_BATCH, (key,)).fetchone()[0]
            made = self._connection.execute(NEW_GATE, (*values, need, jobs, open_, bad, changed))
            assert made.lastrowid is not None
            return made.lastrowid
        if changed:
            self._connection.execute("UPDATE gates SET changed = 1 WHERE id = ?", known)
        return int(known[0])

    def _tie(self, job_id: int, row: Row, what: Row) -> None:
        targets: dict[Target, None] = {}
        hold = row["on_parent"] == "hold"
        singles: list[int] = []
        wrong: SchedqError | None = None
        own = set(what.get("own") or ())
        let: set[Target] = set()
        named = [(text, word) for text in what.get("after") or () for word in after.words(str(text))]
        for text, word in named:
            try:
                target = self._meant.target(job_id, row, word)
            except (NoSuchJob, UsageError) as error:
                wrong = wrong or error
                continue
            targets[target] = None
            if text in own:
                let.add(target)
            if target[0] == "job":
                singles.append(int(target[1]))
                self._link(job_id, int(target[1]))
        if wrong is not None:
            raise wrong
        refs = (what.get("draft") or {}).get("refs") or ()
        if refs:
            singles = [what["parent"]] if what.get("parent") else singles
            bound = [{**ref, "job": self._meant.source(job_id, row, ref, singles)} for ref in refs]
            taken: dict[Target, None] = dict.fromkeys(("job", ref["job"], "ok") for ref in bound)
            targets |= taken
            let |= taken.keys() if own else set()
            for ref in bound:
                self._link(job_id, ref["job"])
                self._refuse_pruned(ref)
            self._drafts.append((job_id, json.dumps(bound, ensure_ascii=False), draft_asks(row), row["data"]))
        if job_id in self._again and self._stays(job_id, targets, what):
            targets = {}
        rulings, lost = [], False
        for target in targets:
            if target[0] == "job" and target[1] == 0:
                continue
            standing = self._stands(target)
            rulings.append(ruling(target[2], *standing))
            if rulings[-1] == BROKEN and not hold:
                if target not in let:
                    raise self._refusal(target)
                lost = True
            self._waits.append((job_id, target))
        self.doomed += lost
        if refs or any(each != THROUGH for each in rulings):
            self._called.update(targets)
            if row["state"] == "queued":
                row["blocked"] = "after"

    def _stays(self, job_id: int, targets: dict[Target, None], what: Row) -> bool:
        """Whether a job that is opened again waits where it did: it comes after the same, or its row does not say.

        What it waited for is forgotten otherwise. UsageError if it would come after what comes after it.
        """
        job = self._again[job_id][0]
        gates = self._connection.execute(GATES_OF, (job_id,)).fetchall()
        before: dict[Target, tuple[int, int]] = {
            (("job", parent_id, need) if batch is None else ("batch", batch, need)): self._opened(
                parent_id, batch, upto_id, open_, bad
            )
            for parent_id, batch, upto_id, need, open_, bad in gates
        }
        if before.keys() == targets.keys() or not (targets or job.draft is not None):
            for target, standing in before.items():
                if ruling(target[2], *standing) == BROKEN and self._again[job_id][1]["on_parent"] != "hold":
                    if not what.get("own"):
                        raise self._refusal(target)
                    self.doomed += 1
                    break
            return True
        self._untied.append((job_id,))
        below = self._connection.execute(BELOW, (job_id,)).fetchall()
        batches, ids = {batch for _id, batch in below}, {each for each, _batch in below}
        for kind, key, _need in targets:
            if key in (ids if kind == "job" else batches):
                raise UsageError(f"waits for itself: {kind} {key} comes after job {job_id}, or has it; name another")
        return False

    def _link(self, child: int, parent: int) -> None:
        if parent in self._own:
            self._edges.setdefault(child, []).append(parent)

    def _refuse_pruned(self, ref: Row) -> None:
        row = self._meant.parent(ref["job"])
        if row is None or row[7] is None:
            return
        kept = self._connection.execute(KEPT, (ref["job"],)).fetchone() if "file" in ref else None
        if kept is None or kept[0] is None:
            raise Refused(
                f"the $from at {ref['at'] or 'the top'} takes the result of job {ref['job']}, which was pruned on"
                f" {local_day(seconds(row[7]))}; submit that one again, and name that"
            )

    def _stands(self, target: Target) -> tuple[int, int]:
        """(how many parents have not ended, how many did not succeed) at this moment."""
        if target in self._standing:
            return self._standing[target]
        kind, key, _need = target
        if kind == "batch":
            jobs, open_, succeeded = self._connection.execute(OF_BATCH, (key,)).fetchone()
            found = self._opened(None, str(key), self._meant.upto_of(str(key)), open_, jobs - open_ - succeeded)
        elif key in self._own:
            found = 1, 0
        else:
            state = self._meant.parent(int(key))[4]
            found = self._opened(int(key), None, None, state not in ENDED, state in ENDED and state != "succeeded")
        self._standing[target] = found
        return found

    def _opened(
        self, parent_id: int | None, batch: str | None, upto_id: int | None, open_: int, bad: int
    ) -> tuple[int, int]:
        """(how many have not ended, how many did not succeed) once this call has opened again what it does."""
        more = self._resumed.would_open(parent_id, batch, upto_id) if self._resumed is not None else 0
        return int(open_) + more, int(bad) - more

    def _refusal(self, target: Target) -> Refused:
        kind, key, _need = target
        if kind == "job":
            row, many = self._meant.parent(int(key)), ""
            if row is None:
                return Refused(f"job {key} did not succeed and its row was removed, and this needs it to succeed")
        else:
            jobs, open_, succeeded = self._connection.execute(OF_BATCH, (key,)).fetchone()
            row, many = self._connection.execute(BAD_OF, (key,)).fetchone(), f"{jobs - open_ - succeeded} of {jobs}"
        first = explain_after.ended(*row[:7])
        text = f"{many} jobs of batch {key} did not succeed, the first is {first}" if many else first
        which, any_of = (f"{row[0]}", "it") if kind == "job" else (shellwords.option("--batch", str(key)), "them")
        any_end = shellwords.option("--after", f"{key}:any")
        return Refused(
            f"{text}, and this needs {any_of} to succeed: schedq requeue {which} tries again, {any_end} takes any"
            " end, --on-parent hold queues it held"
        )


def _called(row: Row) -> str:
    return str(row["key"] or row["name"] or row["where"])
