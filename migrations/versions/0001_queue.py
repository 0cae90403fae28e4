"""The queue: jobs, attempts and results; workers and leases; what the scheduler remembers.

Revision: 0001, from an empty file.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE queue (
        one INTEGER NOT NULL,
        queue_id TEXT NOT NULL,
        created_at TEXT NOT NULL,
        paused_at TEXT,
        PRIMARY KEY (one),
        CHECK (one = 1)
    ) STRICT
    """,
    """
    CREATE TABLE schedulers (
        epoch INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        pid INTEGER NOT NULL,
        started REAL,
        boot_id TEXT NOT NULL,
        host_id TEXT NOT NULL,
        version TEXT NOT NULL,
        started_at TEXT NOT NULL,
        ended_at TEXT
    ) STRICT
    """,
    """
    CREATE TABLE workers (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        slug TEXT NOT NULL,
        variant TEXT DEFAULT '' NOT NULL,
        revision TEXT DEFAULT '' NOT NULL,
        mode TEXT DEFAULT 'resident' NOT NULL,
        host_id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        device TEXT,
        state TEXT NOT NULL,
        env_hash TEXT,
        boot_id TEXT,
        keeper_pid INTEGER,
        keeper_started REAL,
        leader_pid INTEGER,
        leader_started REAL,
        created_at TEXT NOT NULL,
        ready_at TEXT,
        idle_since_at TEXT,
        gone_at TEXT,
        jobs_served INTEGER DEFAULT 0 NOT NULL,
        retire_after TEXT,
        why TEXT,
        exit_code INTEGER,
        pinned INTEGER DEFAULT 0 NOT NULL,
        versions TEXT,
        CHECK (state IN ('parked', 'starting', 'ready', 'busy', 'retiring', 'gone'))
    ) STRICT
    """,
    """
    CREATE INDEX workers_live ON workers (id) WHERE state <> 'gone'
    """,
    """
    CREATE TABLE jobs (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        slug TEXT NOT NULL,
        variant TEXT DEFAULT '' NOT NULL,
        name TEXT DEFAULT '' NOT NULL,
        user TEXT NOT NULL,
        host_id TEXT NOT NULL,
        state TEXT NOT NULL,
        blocked TEXT,
        priority INTEGER DEFAULT 0 NOT NULL,
        batch TEXT,
        "key" TEXT,
        params TEXT DEFAULT '{}' NOT NULL,
        input_sha256 TEXT DEFAULT '' NOT NULL,
        input_name TEXT DEFAULT '' NOT NULL,
        input_kind TEXT DEFAULT '' NOT NULL,
        input_bytes INTEGER DEFAULT 0 NOT NULL,
        files TEXT DEFAULT '{}' NOT NULL,
        size REAL,
        revision TEXT DEFAULT '' NOT NULL,
        out TEXT,
        timeout_s REAL,
        max_attempts INTEGER,
        on_lost TEXT DEFAULT 'requeue' NOT NULL,
        submitted_at TEXT NOT NULL,
        not_before_at TEXT,
        head_since_at TEXT,
        attempt INTEGER DEFAULT 0 NOT NULL,
        tries INTEGER DEFAULT 0 NOT NULL,
        laters INTEGER DEFAULT 0 NOT NULL,
        deaths INTEGER DEFAULT 0 NOT NULL,
        worker_id INTEGER,
        started_at TEXT,
        ended_at TEXT,
        cancel_requested_at TEXT,
        outcome TEXT,
        outcome_text TEXT,
        exit_code INTEGER,
        progress TEXT,
        input BLOB,
        CHECK (state IN
            ('queued', 'held', 'admitted', 'running', 'succeeded', 'failed', 'cancelled', 'timed_out', 'refused')),
        CHECK (blocked IS NULL OR blocked IN ('backoff', 'begin', 'after', 'revision')),
        CHECK (blocked IS NULL OR state = 'queued'),
        CHECK (on_lost IN ('requeue', 'hold', 'fail')),
        FOREIGN KEY(worker_id) REFERENCES workers (id)
    ) STRICT
    """,
    """
    CREATE INDEX jobs_active ON jobs (state, id) WHERE state IN ('held', 'admitted', 'running')
    """,
    """
    CREATE INDEX jobs_batch ON jobs (batch, id) WHERE batch IS NOT NULL
    """,
    """
    CREATE INDEX jobs_bound ON jobs (worker_id)
        WHERE worker_id IS NOT NULL AND state IN ('admitted', 'running')
    """,
    """
    CREATE INDEX jobs_due ON jobs (not_before_at) WHERE state = 'queued' AND blocked IS NOT NULL
    """,
    """
    CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL
    """,
    """
    CREATE INDEX jobs_heads ON jobs (slug, variant, priority DESC, id)
        WHERE state = 'queued' AND blocked IS NULL
    """,
    """
    CREATE UNIQUE INDEX jobs_key ON jobs ("key") WHERE key IS NOT NULL
    """,
    """
    CREATE UNIQUE INDEX jobs_out ON jobs (out)
        WHERE out IS NOT NULL AND state IN ('queued', 'held', 'admitted', 'running', 'succeeded')
    """,
    """
    CREATE INDEX jobs_revisions ON jobs (slug, variant, blocked, revision) WHERE state = 'queued'
    """,
    """
    CREATE INDEX jobs_waited_for ON jobs (id) WHERE head_since_at IS NOT NULL
    """,
    """
    CREATE TABLE depth (
        slug TEXT NOT NULL,
        variant TEXT NOT NULL,
        state TEXT NOT NULL,
        priority INTEGER NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (slug, variant, state, priority)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE attempts (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        worker_id INTEGER,
        epoch INTEGER NOT NULL,
        admitted_at TEXT NOT NULL,
        sent_at TEXT,
        ended_at TEXT,
        outcome TEXT,
        outcome_text TEXT,
        exit_code INTEGER,
        device TEXT,
        revision TEXT,
        env_hash TEXT,
        versions TEXT,
        warm INTEGER DEFAULT 0 NOT NULL,
        load_s REAL,
        PRIMARY KEY (job_id, attempt),
        FOREIGN KEY(job_id) REFERENCES jobs (id)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE results (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        bytes INTEGER DEFAULT 0 NOT NULL,
        sha256 TEXT,
        reply BLOB,
        destination TEXT,
        PRIMARY KEY (job_id),
        FOREIGN KEY(job_id) REFERENCES jobs (id)
    ) STRICT
    """,
    """
    CREATE TABLE leases (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        worker_id INTEGER NOT NULL,
        slug TEXT NOT NULL,
        pool TEXT NOT NULL,
        charge_gib REAL NOT NULL,
        state TEXT NOT NULL,
        host_id TEXT NOT NULL,
        reserved_at TEXT NOT NULL,
        released_at TEXT,
        text TEXT,
        CHECK (state IN ('reserved', 'held', 'returning', 'leaked', 'released')),
        CHECK (charge_gib >= 0),
        FOREIGN KEY(worker_id) REFERENCES workers (id)
    ) STRICT
    """,
    """
    CREATE INDEX leases_charged ON leases (worker_id) WHERE state <> 'released'
    """,
    """
    CREATE TABLE events (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        job_id INTEGER,
        worker_id INTEGER,
        attempt INTEGER,
        event TEXT NOT NULL,
        text TEXT DEFAULT '' NOT NULL
    ) STRICT
    """,
    """
    CREATE INDEX events_job ON events (job_id) WHERE job_id IS NOT NULL
    """,
    """
    CREATE INDEX events_worker ON events (worker_id) WHERE worker_id IS NOT NULL
    """,
    """
    CREATE TABLE reasons (
        slug TEXT NOT NULL,
        variant TEXT NOT NULL,
        job_id INTEGER,
        ruling TEXT NOT NULL,
        text TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (slug, variant)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE breakers (
        slug TEXT NOT NULL,
        failures INTEGER DEFAULT 0 NOT NULL,
        inputs TEXT DEFAULT '[]' NOT NULL,
        last_error TEXT,
        opened_at TEXT,
        next_try_at TEXT,
        PRIMARY KEY (slug)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE facts (
        host_id TEXT NOT NULL,
        at TEXT NOT NULL,
        snapshot TEXT NOT NULL,
        PRIMARY KEY (host_id)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE timings (
        slug TEXT NOT NULL,
        variant TEXT NOT NULL,
        loads INTEGER DEFAULT 0 NOT NULL,
        load_s REAL DEFAULT 0 NOT NULL,
        runs INTEGER DEFAULT 0 NOT NULL,
        run_s REAL DEFAULT 0 NOT NULL,
        PRIMARY KEY (slug, variant)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TRIGGER depth_insert AFTER INSERT ON jobs BEGIN
        INSERT INTO depth
        VALUES (NEW.slug, NEW.variant, iif(NEW.blocked IS NULL, NEW.state, 'blocked'), NEW.priority, 1)
        ON CONFLICT (slug, variant, state, priority) DO UPDATE SET n = n + 1;
    END
    """,
    """
    CREATE TRIGGER depth_update AFTER UPDATE OF slug, variant, state, blocked, priority ON jobs
    WHEN NEW.state IS NOT OLD.state OR NEW.blocked IS NOT OLD.blocked OR NEW.priority IS NOT OLD.priority
        OR NEW.slug IS NOT OLD.slug OR NEW.variant IS NOT OLD.variant
    BEGIN
        UPDATE depth SET n = n - 1
        WHERE slug = OLD.slug AND variant = OLD.variant AND priority = OLD.priority
            AND state = iif(OLD.blocked IS NULL, OLD.state, 'blocked');
        DELETE FROM depth
        WHERE slug = OLD.slug AND variant = OLD.variant AND priority = OLD.priority
            AND state = iif(OLD.blocked IS NULL, OLD.state, 'blocked') AND n <= 0;
        INSERT INTO depth
        VALUES (NEW.slug, NEW.variant, iif(NEW.blocked IS NULL, NEW.state, 'blocked'), NEW.priority, 1)
        ON CONFLICT (slug, variant, state, priority) DO UPDATE SET n = n + 1;
    END
    """,
    """
    CREATE TRIGGER depth_delete AFTER DELETE ON jobs BEGIN
        UPDATE depth SET n = n - 1
        WHERE slug = OLD.slug AND variant = OLD.variant AND priority = OLD.priority
            AND state = iif(OLD.blocked IS NULL, OLD.state, 'blocked');
        DELETE FROM depth
        WHERE slug = OLD.slug AND variant = OLD.variant AND priority = OLD.priority
            AND state = iif(OLD.blocked IS NULL, OLD.state, 'blocked') AND n <= 0;
    END
    """,
    """
    INSERT INTO queue (one, queue_id, created_at)
    VALUES (1, lower(hex(randomblob(16))), strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')
    """,
)


def upgrade() -> None:
    """Make every table, index and trigger; the depth of the queue is kept by triggers in the changing transaction."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is nothing below the first revision; a backup is the way back."""
    raise NotImplementedError("restore a backup instead")
