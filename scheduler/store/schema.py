"""The tables of a queue: the one truth that the migrations are tested against.

Every table is STRICT. Times are text stamps (clock.stamp), memory is GiB, JSON is text. Ids are AUTOINCREMENT:
an id that was given once is never given again. The partial indexes keep the cost of a claim and of `status`
independent of history (P12): a query uses one only if it repeats the index's own condition, word for word.
"""

from __future__ import annotations

from sqlalchemy import BLOB as BYTES
from sqlalchemy import INTEGER as INT
from sqlalchemy import REAL, CheckConstraint, Column, ForeignKey, Index, desc, text
from sqlalchemy import TEXT as STR

from scheduler.store import schema_nights, schema_peaks
from scheduler.store.columns import given_id as _id
from scheduler.store.columns import metadata as metadata
from scheduler.store.columns import must as _must
from scheduler.store.columns import one_of as _one_of
from scheduler.store.columns import table as _table

PEAKS = schema_peaks.peaks, schema_peaks.learned
NIGHTS = schema_nights.gates, schema_nights.waits
"""Tables that are described apart."""

JOB_STATES = ("queued", "held", "admitted", "running", "succeeded", "failed", "cancelled", "timed_out", "refused")
WORKER_STATES = ("parked", "starting", "ready", "busy", "retiring", "gone")
LEASE_STATES = ("reserved", "held", "returning", "leaked", "released")
BLOCKS = ("backoff", "begin", "after", "revision")
ON_LOST = ("requeue", "hold", "fail")
ON_PARENT = ("fail", "hold")

ELIGIBLE = "state = 'queued' AND blocked IS NULL"
BAD = "('failed', 'cancelled', 'timed_out', 'refused')"
BLOCKED = "state = 'queued' AND blocked IS NOT NULL"
ACTIVE = "state IN ('held', 'admitted', 'running')"
PAST = "state IN ('succeeded', 'failed', 'cancelled', 'timed_out', 'refused')"
ALONE = "behind IS NOT NULL AND state IN ('queued', 'admitted', 'running')"
LONELY = "behind IS NOT NULL AND state = 'queued' AND blocked = 'after'"
BOUND = "worker_id IS NOT NULL AND state IN ('admitted', 'running')"

queue = _table(
    "queue",
    Column("one", INT, primary_key=True, autoincrement=False),
    _must("queue_id", STR),
    _must("created_at", STR),
    Column("paused_at", STR),
    Column("drained_at", STR),
    CheckConstraint("one = 1"),
)

schedulers = _table(
    "schedulers",
    _id("epoch"),
    _must("pid", INT),
    Column("started", REAL),
    _must("boot_id", STR),
    _must("host_id", STR),
    _must("version", STR),
    _must("started_at", STR),
    Column("ended_at", STR),
    sqlite_autoincrement=True,
)

workers = _table(
    "workers",
    _id(),
    _must("slug", STR),
    _must("variant", STR, "''"),
    _must("revision", STR, "''"),
    _must("mode", STR, "'resident'"),
    _must("host_id", STR),
    _must("epoch", INT),
    Column("device", STR),
    _must("state", STR),
    Column("env_hash", STR),
    Column("boot_id", STR),
    Column("keeper_pid", INT),
    Column("keeper_started", REAL),
    Column("leader_pid", INT),
    Column("leader_started", REAL),
    _must("created_at", STR),
    Column("ready_at", STR),
    Column("idle_since_at", STR),
    Column("gone_at", STR),
    _must("jobs_served", INT, "0"),
    Column("retire_after", STR),
    Column("why", STR),
    Column("exit_code", INT),
    _must("pinned", INT, "0"),
    Column("versions", STR),
    _must("warm_hits", INT, "0"),
    Column("overdue_at", STR),
    Column("host_gib", REAL),
    _must("alone", INT, "0"),
    Column("bucket", INT),
    Column("raising", STR),
    Column("driver", STR),
    _one_of("state", WORKER_STATES),
    sqlite_autoincrement=True,
)
Index("workers_live", workers.c.id, sqlite_where=text("state <> 'gone'"))

jobs = _table(
    "jobs",
    _id(),
    _must("slug", STR),
    _must("variant", STR, "''"),
    _must("name", STR, "''"),
    _must("user", STR),
    _must("host_id", STR),
    _must("state", STR),
    Column("blocked", STR),
    _must("priority", INT, "0"),
    Column("batch", STR),
    Column("key", STR),
    _must("params", STR, "'{}'"),
    _must("input_sha256", STR, "''"),
    _must("input_name", STR, "''"),
    _must("input_kind", STR, "''"),
    _must("input_bytes", INT, "0"),
    _must("files", STR, "'{}'"),
    Column("size", REAL),
    _must("revision", STR, "''"),
    Column("out", STR),
    Column("timeout_s", REAL),
    Column("max_attempts", INT),
    _must("on_lost", STR, "'requeue'"),
    _must("submitted_at", STR),
    Column("not_before_at", STR),
    Column("head_since_at", STR),
    _must("attempt", INT, "0"),
    _must("tries", INT, "0"),
    _must("laters", INT, "0"),
    _must("deaths", INT, "0"),
    Column("worker_id", INT, ForeignKey("workers.id")),
    Column("started_at", STR),
    Column("ended_at", STR),
    Column("cancel_requested_at", STR),
    Column("outcome", STR),
    Column("outcome_text", STR),
    Column("exit_code", INT),
    Column("progress", STR),
    Column("input", BYTES),  # late: what stands behind a large value is slow to read
    Column("retry_on", STR),
    Column("behind", INT),
    _must("measures", INT, "0"),
    _must("on_parent", STR, "'fail'"),
    Column("pruned_at", STR),
    Column("logs_pruned_at", STR),
    Column("free_at", STR),
    _one_of("state", JOB_STATES),
    _one_of("blocked", BLOCKS, or_null=True),
    CheckConstraint("blocked IS NULL OR state = 'queued'"),
    _one_of("on_lost", ON_LOST),
    _one_of("on_parent", ON_PARENT),
    sqlite_autoincrement=True,
)
_c = jobs.c
Index("jobs_heads", _c.slug, _c.variant, desc(_c.priority), _c.id, sqlite_where=text(ELIGIBLE))
Index("jobs_commands", desc(_c.priority), _c.id, sqlite_where=text(f"slug = 'exec' AND {ELIGIBLE}"))
Index("jobs_due", _c.not_before_at, sqlite_where=text(BLOCKED))
Index("jobs_revisions", _c.slug, _c.variant, _c.blocked, _c.revision, sqlite_where=text("state = 'queued'"))
Index("jobs_active", _c.state, _c.id, sqlite_where=text(ACTIVE))
Index("jobs_bound", _c.worker_id, sqlite_where=text(BOUND))
Index("jobs_waited_for", _c.id, sqlite_where=text("head_since_at IS NOT NULL"))
Index("jobs_ended", _c.ended_at, sqlite_where=text("ended_at IS NOT NULL"))
Index("jobs_batch", _c.batch, _c.id, sqlite_where=text("batch IS NOT NULL"))
Index("jobs_bad", _c.batch, _c.id, sqlite_where=text(f"batch IS NOT NULL AND state IN {BAD}"))
Index("jobs_key", _c.key, unique=True, sqlite_where=text("key IS NOT NULL"))
Index(
    "jobs_out",
    _c.out,
    unique=True,
    sqlite_where=text("out IS NOT NULL AND state IN ('queued', 'held', 'admitted', 'running', 'succeeded')"),
)
Index("jobs_alone", desc(_c.priority), _c.behind, _c.batch, _c.id, sqlite_where=text(ALONE))
_LINE = (desc(_c.priority), _c.behind, _c.batch, _c.id)
Index("jobs_alone_firsts", _c.slug, _c.variant, _c.measures, *_LINE, sqlite_where=text(f"{LONELY} AND slug <> 'exec'"))
Index("jobs_alone_commands", *_LINE, sqlite_where=text(f"slug = 'exec' AND {LONELY}"))
Index("jobs_past", _c.state, _c.slug, _c.variant, sqlite_where=text(PAST))
Index("jobs_outcome", _c.outcome, _c.slug, _c.variant, sqlite_where=text("outcome IS NOT NULL"))
Index("jobs_user", _c.user, _c.submitted_at)
Index("jobs_unpruned", _c.ended_at, _c.id, sqlite_where=text("ended_at IS NOT NULL AND pruned_at IS NULL"))
Index("jobs_content", _c.input_sha256, sqlite_where=text("input IS NULL AND input_bytes > 0 AND pruned_at IS NULL"))
Index("jobs_files", _c.id, sqlite_where=text("files <> '{}' AND pruned_at IS NULL"))

depth = _table(
    "depth",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False),
    Column("state", STR, primary_key=True, nullable=False),
    Column("priority", INT, primary_key=True, nullable=False),
    _must("n", INT),
    sqlite_with_rowid=False,
)

attempts = _table(
    "attempts",
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, nullable=False),
    Column("attempt", INT, primary_key=True, nullable=False),
    Column("worker_id", INT),
    _must("epoch", INT),
    _must("admitted_at", STR),
    Column("sent_at", STR),
    Column("ended_at", STR),
    Column("outcome", STR),
    Column("outcome_text", STR),
    Column("exit_code", INT),
    Column("device", STR),
    Column("revision", STR),
    Column("env_hash", STR),
    Column("versions", STR),
    _must("warm", INT, "0"),
    Column("load_s", REAL),
    Column("driver", STR),
    sqlite_with_rowid=False,
)

results = _table(
    "results",
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    _must("attempt", INT),
    _must("bytes", INT, "0"),
    Column("sha256", STR),
    Column("reply", BYTES),
    Column("destination", STR),
)
Index("results_content", results.c.sha256, sqlite_where=text("reply IS NULL AND sha256 IS NOT NULL"))

leases = _table(
    "leases",
    _id(),
    Column("worker_id", INT, ForeignKey("workers.id"), nullable=False),
    _must("slug", STR),
    _must("pool", STR),
    _must("charge_gib", REAL),
    _must("state", STR),
    _must("host_id", STR),
    _must("reserved_at", STR),
    Column("released_at", STR),
    Column("text", STR),
    Column("before_gib", REAL),
    Column("returning_at", STR),
    _one_of("state", LEASE_STATES),
    CheckConstraint("charge_gib >= 0"),
    sqlite_autoincrement=True,
)
Index("leases_charged", leases.c.worker_id, sqlite_where=text("state <> 'released'"))

events = _table(
    "events",
    _id(),
    _must("at", STR),
    Column("job_id", INT),
    Column("worker_id", INT),
    Column("attempt", INT),
    _must("event", STR),
    _must("text", STR, "''"),
    Column("evidence", STR),
    sqlite_autoincrement=True,
)
Index("events_job", events.c.job_id, sqlite_where=text("job_id IS NOT NULL"))
Index("events_worker", events.c.worker_id, sqlite_where=text("worker_id IS NOT NULL"))

reasons = _table(
    "reasons",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False),
    Column("job_id", INT),
    _must("ruling", STR),
    _must("text", STR),
    _must("at", STR),
    Column("evidence", STR),
    sqlite_with_rowid=False,
)

breakers = _table(
    "breakers",
    Column("slug", STR, primary_key=True, nullable=False),
    _must("failures", INT, "0"),
    _must("inputs", STR, "'[]'"),
    Column("last_error", STR),
    Column("opened_at", STR),
    Column("next_try_at", STR),
    sqlite_with_rowid=False,
)

facts = _table(
    "facts",
    Column("host_id", STR, primary_key=True, nullable=False),
    _must("at", STR),
    _must("snapshot", STR),
    sqlite_with_rowid=False,
)

timings = _table(
    "timings",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False),
    _must("loads", INT, "0"),
    _must("load_s", REAL, "0"),
    _must("runs", INT, "0"),
    _must("run_s", REAL, "0"),
    sqlite_with_rowid=False,
)

victims = _table(
    "victims",
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, nullable=False),
    Column("worker_id", INT, ForeignKey("workers.id"), primary_key=True, nullable=False),
    sqlite_with_rowid=False,
)

forecasts = _table(
    "forecasts",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False),
    _must("starts_at", STR),
    _must("run_s", REAL),
    _must("workers", INT),
    sqlite_with_rowid=False,
)

served = _table(
    "served",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False),
    _must("revision", STR),
    sqlite_with_rowid=False,
)

wishes = _table(
    "wishes",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False, server_default=text("''")),
    _must("at", STR),
    _must("user", STR),
    _must("pinned", INT, "0"),
    _must("failures", INT, "0"),
    _must("ruling", STR, "''"),
    _must("text", STR, "''"),
    Column("dropped_at", STR),
    sqlite_with_rowid=False,
)

TRIGGERS = ("depth_insert", "depth_update", "depth_delete", *schema_nights.TRIGGERS)
