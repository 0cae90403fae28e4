"""The tables of a night of many jobs: part of `schema`, and held to the migrations with it.

A `gate` is what jobs wait for: one earlier job, or those of a batch up to an id. Triggers count how many of these are
there (`jobs`), have not ended (`open`) and did not succeed (`bad`), whoever ends or removes them, and mark the gate
`changed` where that decides it; the scheduler lets through or fails who waits at it, and takes the mark away. One job
that is removed stays as bad as it was: nobody comes after a success that was none. `drafts` are inputs that name
results of earlier jobs: `asked`, what the row said beside its document; `put_off`, why it cannot be made yet;
`checks` what a validation case expects and whether that was met, `open` while its job succeeded and it is not judged
yet (a trigger opens it); `batches` counts of each batch, kept by triggers; `samples` the pools over
time; `incidents` what is worth telling, and whether it was told; `schedules` calls that are repeated, `runs` each
time, with the `batch` that it queued.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BLOB as BYTES
from sqlalchemy import INTEGER as INT
from sqlalchemy import REAL, CheckConstraint, Column, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy import TEXT as STR

from scheduler.store.columns import given_id, must, one_of, table

NEEDS = ("ok", "any")
VERDICTS = ("passed", "failed")


def _key(name: str, kind: Any = STR) -> Column[Any]:
    return Column(name, kind, primary_key=True, nullable=False, autoincrement=False)


def _of_job() -> Column[Any]:
    return Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False)


labels = table("labels", _key("label"), _key("job_id", INT), sqlite_with_rowid=False)
Index("labels_job", labels.c.job_id)

gates = table(
    "gates",
    given_id(),
    Column("parent_id", INT),
    Column("batch", STR),
    Column("upto_id", INT),
    must("need", STR),
    must("jobs", INT, "1"),
    must("open", INT),
    must("bad", INT, "0"),
    must("changed", INT, "1"),
    one_of("need", NEEDS),
    CheckConstraint("(parent_id IS NULL) <> (batch IS NULL)"),
    sqlite_autoincrement=True,
)
Index("gates_parent", gates.c.parent_id, sqlite_where=text("parent_id IS NOT NULL"))
Index("gates_batch", gates.c.batch, gates.c.upto_id, sqlite_where=text("batch IS NOT NULL"))
Index("gates_changed", gates.c.id, sqlite_where=text("changed = 1"))

waits = table(
    "waits",
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, nullable=False, autoincrement=False),
    Column("gate_id", INT, ForeignKey("gates.id"), primary_key=True, nullable=False, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("waits_gate", waits.c.gate_id, waits.c.job_id)

drafts = table(
    "drafts",
    _of_job(),
    must("refs", STR),
    must("pins", STR, "'{}'"),
    must("asked", STR, "''"),
    must("put_off", STR, "''"),
    Column("made_at", STR),
    must("input", BYTES),
)
Index("drafts_open", drafts.c.job_id, sqlite_where=text("made_at IS NULL"))

checks = table(
    "checks",
    _of_job(),
    must("slug", STR, "''"),
    must("variant", STR, "''"),
    must("case", STR),
    must("expect", STR),
    must("fresh", INT, "0"),
    must("files", STR, "''"),
    must("open", INT, "0"),
    Column("verdict", STR),
    must("faults", STR, "'[]'"),
    Column("at", STR),
    one_of("verdict", VERDICTS, or_null=True),
)
Index("checks_open", checks.c.job_id, sqlite_where=text("open = 1"))
Index("checks_case", checks.c.slug, checks.c.variant, checks.c.case, checks.c.job_id)

batches = table(
    "batches",
    _key("batch"),
    must("jobs", INT),
    must("open", INT),
    must("succeeded", INT),
    must("first_at", STR),
    Column("ended_at", STR),
    Column("told_at", STR),
    sqlite_with_rowid=False,
)
Index("batches_untold", batches.c.ended_at, sqlite_where=text("open = 0 AND told_at IS NULL"))
Index("batches_first", batches.c.first_at)

samples = table(
    "samples",
    _key("at"),
    _key("host_id"),
    _key("pool"),
    must("capacity_gib", REAL),
    must("reserve_gib", REAL),
    must("charged_gib", REAL),
    Column("used_gib", REAL),
    Column("live_gib", REAL),
    sqlite_with_rowid=False,
)

incidents = table(
    "incidents",
    given_id(),
    must("at", STR),
    must("kind", STR),
    Column("slug", STR),
    Column("batch", STR),
    must("text", STR, "''"),
    must("body", STR, "'{}'"),
    must("tries", INT, "0"),
    Column("next_try_at", STR),
    Column("sent_at", STR),
    must("took", STR, "''"),
    Column("error", STR),
    sqlite_autoincrement=True,
)
Index("incidents_at", incidents.c.at)
Index("incidents_due", incidents.c.next_try_at, sqlite_where=text("next_try_at IS NOT NULL AND sent_at IS NULL"))

schedules = table(
    "schedules",
    given_id(),
    must("cron", STR),
    must("zone", STR),
    must("argv", STR),
    must("cwd", STR),
    must("environment", STR, "'{}'"),
    must("user", STR),
    must("created_at", STR),
    Column("next_at", STR),
    Column("removed_at", STR),
    sqlite_autoincrement=True,
)
Index("schedules_next", schedules.c.next_at, sqlite_where=text("next_at IS NOT NULL AND removed_at IS NULL"))

runs = table(
    "runs",
    given_id(),
    Column("schedule_id", INT, ForeignKey("schedules.id"), nullable=False),
    must("due_at", STR),
    must("began_at", STR),
    Column("ended_at", STR),
    Column("exit_code", INT),
    must("text", STR, "''"),
    Column("batch", STR),
    UniqueConstraint("schedule_id", "due_at"),
    sqlite_autoincrement=True,
)
Index("runs_unended", runs.c.id, sqlite_where=text("ended_at IS NULL"))

TRIGGERS = (
    "checks_due", "batches_insert", "batches_update", "batches_delete",
    "gates_ended", "gates_reopened", "gates_deleted",
)  # fmt: skip
