"""What a call costs does not grow with history (P12): no statement walks through the jobs."""

from __future__ import annotations

import fnmatch
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from queues import AT, row, steps, submitted, writing

from scheduler.config import Paths
from scheduler.model.outcome import Outcome
from scheduler.store import ahead, glanced, heads, intake, operator, peek, queue, stalls, whole_batch, workers
from scheduler.store import history as past
from scheduler.store.engine import Store
from scheduler.store.schema import JOB_STATES

FAR = "2099-01-01T00:00:00.000000Z"

LIVE_ONLY = {"jobs_heads", "jobs_due", "jobs_revisions", "jobs_active", "jobs_bound", "jobs_waited_for"}
"""Indexes that hold no job that has ended: walking through one costs what lives."""

FIRST_FEW = {"jobs_ended", "jobs_commands", "jobs_alone_firsts", "jobs_alone_commands"}
"""Indexes in the order that is asked for, of which a LIMIT takes the first few."""

FILTERS: list[dict[str, Any]] = [
    {"state": ["refused"]},
    {"state": ["failed"]},
    {"state": ["refused", "cancelled"]},
    {"batch": "night"},
    {"batch": "night", "slug": "esm", "state": "failed"},
    {"slug": "esm"},
    {"slug": "esm:big"},
    {"slug": "esm", "state": ["queued", "failed"]},
    {"state": "queued"},
    {"state": "running"},
    {"state": ["held", "admitted", "running"]},
    {"state": "failed"},
    {"state": "succeeded", "slug": "esm:big", "name": "a*"},
    {"state": ["queued", "failed"]},
    {"state": ["queued", "held", "admitted", "running", "succeeded", "failed", "cancelled", "timed_out", "refused"]},
    {"outcome": "crashed"},
    {"outcome": ["crashed", "lost"], "slug": "esm"},
    {"outcome": "crashed", "state": "queued"},
    {"user": "ada"},
    {"user": "ada", "state": "failed"},
    {"since": FAR},
    {"since": FAR, "user": "ada", "state": "succeeded"},
    {"since": FAR, "slug": "esm", "name": "*x*"},
    {"label": ["gpu"]},
    {"label": ["gpu", "big"], "state": "failed"},
    {"label": ["big"], "batch": "night"},
]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "queue"))
    submitted(made)
    return made


def history(paths: Paths, count: int, slug: str = "boltz", state: str = "succeeded") -> None:
    """Jobs that ended, as a queue has them after a long time."""
    with writing(paths) as db:
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO jobs (slug, user, host_id, state, submitted_at, ended_at, outcome, name)"
            " SELECT ?, 'bob', 'h', ?, ?, ?, 'ok', 'b' FROM n",
            (count, slug, state, AT, AT),
        )


@contextmanager
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Every statement that any connection carries out in the block."""
    seen: set[str] = set()
    real = sqlite3.connect

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = real(*args, **options)
        connection.set_trace_callback(seen.add)
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect)
        yield seen


def walks(paths: Paths, statements: set[str]) -> list[str]:
    """The statements whose plan goes through all jobs, or all that ended."""
    found = []
    with writing(paths) as db:
        for statement in statements:
            if not re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement):
                continue
            for *_, step in db.execute("EXPLAIN QUERY PLAN " + statement).fetchall():
                walked = re.match(r"SCAN jobs\b(?: USING (?:COVERING )?INDEX (\w+))?", step)
                if walked and walked[1] not in LIVE_ONLY and not (walked[1] in FIRST_FEW and "LIMIT" in statement):
                    found.append(f"{step}: {statement}")
    return found


def test_no_statement_of_a_submit_or_a_cancel_walks_through_the_jobs(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    with noted(monkeypatch) as seen:
        submitted(paths, key="k", out=out)
        submitted(paths, key="k")
        intake.cancel(paths, [2])
        submitted(paths, out=out, overwrite=True)
        with pytest.raises(Exception, match="has the destination"):
            submitted(paths, out=out)
        with pytest.raises(Exception, match="two jobs of this call"):
            intake.submit(paths, [row(out=out + "2"), row(out=out + "2")])
        submitted(paths, batch="night", out=out + "3")
        intake.cancel(paths, [peek.last_id(paths) or 0])
        for ask in (intake.foretold, intake.submit):
            ask(paths, [row(batch="night"), row(batch="night", name="new")], resume=True)
        ahead.ahead(paths)
    assert any("FROM jobs LEFT JOIN drafts" in each for each in seen)
    assert any(each.startswith("UPDATE jobs SET state = 'queued'") for each in seen)
    assert any("overwritten" not in each and "SET out = NULL" in each for each in seen)
    assert walks(paths, seen) == []


def test_no_statement_that_reads_walks_through_the_jobs(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(paths, blocked="begin", not_before_at=FAR)
    with noted(monkeypatch) as seen:
        for ask in (peek.status, peek.workers, peek.facts, peek.last_id):
            ask(paths)
        peek.job(paths, 1), peek.result(paths, 1), peek.input_bytes(paths, 1), peek.states(paths, [1, 2])
        for filters in FILTERS:
            peek.ids(paths, filters)
            list(past.parts(paths, filters, 20))
            glanced.some(paths, filters, 20)
        past.labels(paths, "none"), whole_batch.batch(paths, "night"), whole_batch.ends_in_s(paths, [1, 2])
        peek.jobs(paths, [1, 2]), stalls.stalls(paths, [1, 2]), peek.looked(paths, peek._refused_by_worker, None)
    assert len(seen) > 2 * len(FILTERS)
    assert walks(paths, seen) == []


def test_no_statement_of_the_scheduler_walks_through_the_jobs(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(paths, 6)
    with noted(monkeypatch) as seen:
        store = Store(paths)
        with store.write() as tx:
            queue.set_revision_blocks(tx, {("boltz", ""): "r2"})
            queue.set_revision_blocks(tx, {("boltz", ""): "r1"})
            queue.due(tx, AT), queue.next_due_at(tx), queue.heads(tx), queue.claims(tx), queue.live(tx)
            queue.last_submitted_at(tx), heads.open_head(tx, 1, AT), heads.close_heads(tx, ()), heads.victims(tx)
            queue.pause(tx, AT), queue.drain(tx, AT), queue.resume(tx), queue.paused(tx), queue.drained(tx)
            worker_id = workers.insert(
                tx, slug="boltz", variant="", revision="r1", mode="resident", host_id="h", epoch=1, created_at=AT
            )
            for job_id, ending in ((1, "succeed"), (2, "fail"), (3, "retry")):
                queue.admit(tx, job_id, worker_id, 1, AT)
                queue.send(tx, job_id, 1, AT), queue.sent_at(tx, job_id, 1), queue.bound(tx, worker_id)
                queue.progress(tx, job_id, 1, 1, 2)
                queue.finish(tx, job_id, 1, ending, Outcome("error"), AT, not_before_at=AT)
            queue.claim_warm(tx, 4, worker_id, 1, AT)
            queue.admit(tx, 5, worker_id, 1, AT)
            queue.cancel_admitted(tx, 5, 1, AT)
            operator.hold(tx, 6, AT), operator.release(tx, 6, AT), operator.requeue(tx, 2, AT)
            operator.update(tx, 6, AT, {"priority": 3, "revision": "r2"})
        store.close()
    assert walks(paths, seen) == []


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_filter_that_finds_nothing_costs_the_same_after_a_long_history(
    paths: Paths, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in steps of SQLite's machine, not in time; what was found is counted apart, by what was asked."""

    def found() -> None:
        if "succeeded" not in filters.get("state", ()) or "slug" in filters or "since" in filters:
            assert len(peek.ids(paths, filters)) <= 1
        else:
            peek.ids(paths, {**filters, "state": [each for each in filters["state"] if each != "succeeded"]})

    cost = steps(monkeypatch)
    history(paths, 40)
    small = cost(found)
    history(paths, 20_000)
    assert cost(found) <= small * 1.3 + 20


@pytest.mark.parametrize(
    "filters",
    [
        {}, {"batch": "night"}, {"label": ["gpu"]}, {"label": ["gpu", "big"]}, {"slug": "boltz"}, {"outcome": "ok"},
        {"state": ["succeeded", "queued"]}, {"user": "bob"}, {"since": AT}, {"since": AT, "user": "bob"}, {"name": "b"},
    ],
    ids=str,
)  # fmt: skip
def test_the_last_few_of_a_history_cost_the_same_however_long_it_is(
    paths: Paths, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 jobs that meet the filter, five are asked for."""

    def found() -> None:
        assert sum(map(len, past.parts(paths, filters, 5))) == 5

    def matching(count: int) -> None:
        history(paths, count)
        with writing(paths) as db:
            db.execute("UPDATE jobs SET batch = 'night'")
            for label in ("gpu", "big"):
                db.execute("INSERT OR IGNORE INTO labels SELECT ?, id FROM jobs", (label,))

    cost = steps(monkeypatch)
    matching(40)
    small = cost(found)
    matching(10_000)
    assert cost(found) <= small * 1.3 + 20


def test_every_filter_finds_what_meets_it_and_nothing_else(paths: Paths) -> None:
    """Held against a walk through all jobs, one of each kind."""
    with writing(paths) as db:
        for slug, variant in (("esm", ""), ("esm", "big"), ("boltz", "")):
            for state in JOB_STATES:
                ended = {"failed": ("crashed", "lost", "refused"), "held": ("crashed", "lost"), "refused": ("refused",)}
                for outcome in ended.get(state, (None,)):
                    for user in ("ada", "bob"):
                        db.execute(
                            "INSERT INTO jobs (slug, variant, user, host_id, state, submitted_at, outcome, batch, name)"
                            " VALUES (?, ?, ?, 'h', ?, ?, ?, ?, ?)",
                            (slug, variant, user, state, AT if user == "bob" else FAR, outcome, None, f"a{state}x"),
                        )
        db.execute("UPDATE jobs SET batch = 'night' WHERE id % 3 = 0")
        db.execute("INSERT INTO labels SELECT 'gpu', id FROM jobs WHERE id % 2 = 0")
        db.execute("INSERT INTO labels SELECT 'big', id FROM jobs WHERE id % 5 < 3")
        marked = {(label, job) for label, job in db.execute("SELECT label, job_id FROM labels")}
        db.row_factory = sqlite3.Row
        jobs = db.execute("SELECT * FROM jobs ORDER BY id").fetchall()

    def meets(job: sqlite3.Row, filters: dict[str, Any], key: str, value: Any) -> bool:
        if key == "state" and "outcome" not in filters and job["outcome"] == "refused":
            return "refused" in ([value] if isinstance(value, str) else value)
        if key == "slug":
            slug, colon, variant = value.partition(":")
            return job["slug"] == slug and (not colon or job["variant"] == variant)
        if key == "since":
            return bool(job["submitted_at"] >= value)
        if key == "label":
            return all((label, job["id"]) in marked for label in value)
        if key == "name":
            return fnmatch.fnmatchcase(job["name"], value)
        return job[key] in ([value] if isinstance(value, str) else value)

    for filters in FILTERS:
        expected = [job["id"] for job in jobs if all(meets(job, filters, *each) for each in filters.items())]
        assert peek.ids(paths, filters) == expected, filters
        for most in (None, 3, 1000):
            told = [row["id"] for part in past.parts(paths, filters, most) for row in part]
            assert told == expected[::-1][:most], (filters, most)
