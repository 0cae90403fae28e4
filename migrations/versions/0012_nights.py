"""What a night of many jobs is made of: labels, jobs after others, validation cases, batches, schedules, a record.

Revision: 0012, after 0011. Batches that are there are counted, and nobody is told of those that have ended.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

OVER = "('succeeded', 'failed', 'cancelled', 'timed_out', 'refused')"
BAD = "('failed', 'cancelled', 'timed_out', 'refused')"

ENDS = (
    "open = open - 1, bad = bad + (NEW.state <> 'succeeded'), changed = changed OR (need = 'ok' AND bad = 0 AND"
    " NEW.state <> 'succeeded') OR (open = 1 AND (need = 'any' OR (bad = 0 AND NEW.state = 'succeeded')))"
)
"""A member of a gate ended: it is looked at where that decides something, and not with each one of a broken batch."""

STATEMENTS = (
    "ALTER TABLE jobs ADD COLUMN on_parent TEXT NOT NULL DEFAULT 'fail' CHECK (on_parent IN ('fail', 'hold'))",
    "ALTER TABLE jobs ADD COLUMN pruned_at TEXT",
    "ALTER TABLE jobs ADD COLUMN logs_pruned_at TEXT",
    "ALTER TABLE jobs ADD COLUMN free_at TEXT",
    "CREATE INDEX jobs_unpruned ON jobs (ended_at, id) WHERE ended_at IS NOT NULL AND pruned_at IS NULL",
    "CREATE INDEX jobs_content ON jobs (input_sha256) WHERE input IS NULL AND input_bytes > 0 AND pruned_at IS NULL",
    "CREATE INDEX jobs_files ON jobs (id) WHERE files <> '{}' AND pruned_at IS NULL",
    "CREATE INDEX results_content ON results (sha256) WHERE reply IS NULL AND sha256 IS NOT NULL",
    """
    CREATE TABLE labels (
        label TEXT NOT NULL,
        job_id INTEGER NOT NULL,
        PRIMARY KEY (label, job_id)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX labels_job ON labels (job_id)",
    """
    CREATE TABLE gates (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        parent_id INTEGER,
        batch TEXT,
        upto_id INTEGER,
        need TEXT NOT NULL,
        jobs INTEGER DEFAULT 1 NOT NULL,
        open INTEGER NOT NULL,
        bad INTEGER DEFAULT 0 NOT NULL,
        changed INTEGER DEFAULT 1 NOT NULL,
        CHECK (need IN ('ok', 'any')),
        CHECK ((parent_id IS NULL) <> (batch IS NULL))
    ) STRICT
    """,
    "CREATE INDEX gates_parent ON gates (parent_id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX gates_batch ON gates (batch, upto_id) WHERE batch IS NOT NULL",
    "CREATE INDEX gates_changed ON gates (id) WHERE changed = 1",
    f"CREATE INDEX jobs_bad ON jobs (batch, id) WHERE batch IS NOT NULL AND state IN {BAD}",
    """
    CREATE TABLE waits (
        job_id INTEGER NOT NULL,
        gate_id INTEGER NOT NULL,
        PRIMARY KEY (job_id, gate_id),
        FOREIGN KEY(job_id) REFERENCES jobs (id),
        FOREIGN KEY(gate_id) REFERENCES gates (id)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX waits_gate ON waits (gate_id, job_id)",
    """
    CREATE TABLE drafts (
        job_id INTEGER NOT NULL PRIMARY KEY,
        refs TEXT NOT NULL,
        pins TEXT DEFAULT '{}' NOT NULL,
        asked TEXT DEFAULT '' NOT NULL,
        put_off TEXT DEFAULT '' NOT NULL,
        made_at TEXT,
        input BLOB NOT NULL,
        FOREIGN KEY(job_id) REFERENCES jobs (id)
    ) STRICT
    """,
    "CREATE INDEX drafts_open ON drafts (job_id) WHERE made_at IS NULL",
    """
    CREATE TABLE checks (
        job_id INTEGER NOT NULL PRIMARY KEY,
        slug TEXT DEFAULT '' NOT NULL,
        variant TEXT DEFAULT '' NOT NULL,
        "case" TEXT NOT NULL,
        expect TEXT NOT NULL,
        fresh INTEGER DEFAULT 0 NOT NULL,
        files TEXT DEFAULT '' NOT NULL,
        open INTEGER DEFAULT 0 NOT NULL,
        verdict TEXT,
        faults TEXT DEFAULT '[]' NOT NULL,
        at TEXT,
        FOREIGN KEY(job_id) REFERENCES jobs (id),
        CHECK (verdict IS NULL OR verdict IN ('passed', 'failed'))
    ) STRICT
    """,
    "CREATE INDEX checks_open ON checks (job_id) WHERE open = 1",
    'CREATE INDEX checks_case ON checks (slug, variant, "case", job_id)',
    """
    CREATE TRIGGER checks_due AFTER UPDATE OF state ON jobs WHEN NEW.state = 'succeeded' AND OLD.state <> 'succeeded'
    BEGIN
        UPDATE checks SET open = 1 WHERE job_id = NEW.id AND verdict IS NULL;
    END
    """,
    """
    CREATE TABLE batches (
        batch TEXT NOT NULL,
        jobs INTEGER NOT NULL,
        open INTEGER NOT NULL,
        succeeded INTEGER NOT NULL,
        first_at TEXT NOT NULL,
        ended_at TEXT,
        told_at TEXT,
        PRIMARY KEY (batch)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX batches_untold ON batches (ended_at) WHERE open = 0 AND told_at IS NULL",
    "CREATE INDEX batches_first ON batches (first_at)",
    """
    CREATE TABLE samples (
        at TEXT NOT NULL,
        host_id TEXT NOT NULL,
        pool TEXT NOT NULL,
        capacity_gib REAL NOT NULL,
        reserve_gib REAL NOT NULL,
        charged_gib REAL NOT NULL,
        used_gib REAL,
        live_gib REAL,
        PRIMARY KEY (at, host_id, pool)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE incidents (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        kind TEXT NOT NULL,
        slug TEXT,
        batch TEXT,
        text TEXT DEFAULT '' NOT NULL,
        body TEXT DEFAULT '{}' NOT NULL,
        tries INTEGER DEFAULT 0 NOT NULL,
        next_try_at TEXT,
        sent_at TEXT,
        took TEXT DEFAULT '' NOT NULL,
        error TEXT
    ) STRICT
    """,
    "CREATE INDEX incidents_at ON incidents (at)",
    "CREATE INDEX incidents_due ON incidents (next_try_at) WHERE next_try_at IS NOT NULL AND sent_at IS NULL",
    """
    CREATE TABLE schedules (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        cron TEXT NOT NULL,
        zone TEXT NOT NULL,
        argv TEXT NOT NULL,
        cwd TEXT NOT NULL,
        environment TEXT DEFAULT '{}' NOT NULL,
        user TEXT NOT NULL,
        created_at TEXT NOT NULL,
        next_at TEXT,
        removed_at TEXT
    ) STRICT
    """,
    "CREATE INDEX schedules_next ON schedules (next_at) WHERE next_at IS NOT NULL AND removed_at IS NULL",
    """
    CREATE TABLE runs (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        schedule_id INTEGER NOT NULL,
        due_at TEXT NOT NULL,
        began_at TEXT NOT NULL,
        ended_at TEXT,
        exit_code INTEGER,
        text TEXT DEFAULT '' NOT NULL,
        batch TEXT,
        UNIQUE (schedule_id, due_at),
        FOREIGN KEY(schedule_id) REFERENCES schedules (id)
    ) STRICT
    """,
    "CREATE INDEX runs_unended ON runs (id) WHERE ended_at IS NULL",
    "INSERT INTO batches SELECT batch, count(*), sum(ended_at IS NULL), sum(state = 'succeeded'), min(submitted_at),"
    " iif(sum(ended_at IS NULL) = 0, max(ended_at), NULL),"
    " iif(sum(ended_at IS NULL) = 0, strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z', NULL)"
    " FROM jobs WHERE batch IS NOT NULL GROUP BY batch",
    """
    CREATE TRIGGER batches_insert AFTER INSERT ON jobs WHEN NEW.batch IS NOT NULL BEGIN
        INSERT INTO batches VALUES (NEW.batch, 1, NEW.ended_at IS NULL, NEW.state = 'succeeded', NEW.submitted_at,
            NEW.ended_at, NULL)
        ON CONFLICT (batch) DO UPDATE SET jobs = jobs + 1, open = open + (NEW.ended_at IS NULL),
            succeeded = succeeded + (NEW.state = 'succeeded'), ended_at = iif(NEW.ended_at IS NULL, NULL, ended_at),
            told_at = NULL;
    END
    """,
    """
    CREATE TRIGGER batches_update AFTER UPDATE OF state ON jobs
    WHEN NEW.batch IS NOT NULL AND (NEW.ended_at IS NULL) <> (OLD.ended_at IS NULL)
    BEGIN
        UPDATE batches SET open = open + (NEW.ended_at IS NULL) - (OLD.ended_at IS NULL),
            succeeded = succeeded + (NEW.state = 'succeeded') - (OLD.state = 'succeeded'),
            ended_at = iif(open + (NEW.ended_at IS NULL) - (OLD.ended_at IS NULL) = 0, NEW.ended_at, NULL),
            told_at = iif(NEW.ended_at IS NULL, NULL, told_at)
        WHERE batch = NEW.batch;
    END
    """,
    """
    CREATE TRIGGER batches_delete AFTER DELETE ON jobs WHEN OLD.batch IS NOT NULL BEGIN
        UPDATE batches SET jobs = jobs - 1, open = open - (OLD.ended_at IS NULL),
            succeeded = succeeded - (OLD.state = 'succeeded')
        WHERE batch = OLD.batch;
        DELETE FROM batches WHERE batch = OLD.batch AND jobs <= 0;
    END
    """,
    f"""
    CREATE TRIGGER gates_ended AFTER UPDATE OF state ON jobs WHEN NEW.state IN {OVER} AND OLD.state NOT IN {OVER} BEGIN
        UPDATE gates SET {ENDS} WHERE parent_id = NEW.id AND parent_id IS NOT NULL;
        UPDATE gates SET {ENDS} WHERE batch = NEW.batch AND upto_id >= NEW.id AND batch IS NOT NULL;
    END
    """,
    f"""
    CREATE TRIGGER gates_reopened AFTER UPDATE OF state ON jobs
    WHEN OLD.state IN {OVER} AND NEW.state NOT IN {OVER}
    BEGIN
        UPDATE gates SET open = open + 1, bad = bad - (OLD.state <> 'succeeded')
        WHERE parent_id = NEW.id AND parent_id IS NOT NULL;
        UPDATE gates SET open = open + 1, bad = bad - (OLD.state <> 'succeeded')
        WHERE batch = NEW.batch AND upto_id >= NEW.id AND batch IS NOT NULL;
    END
    """,
    f"""
    CREATE TRIGGER gates_deleted AFTER DELETE ON jobs BEGIN
        UPDATE gates SET open = 0, bad = 1, changed = 1
        WHERE parent_id = OLD.id AND parent_id IS NOT NULL AND OLD.state NOT IN {OVER};
        UPDATE gates SET jobs = jobs - 1, open = open - (OLD.state NOT IN {OVER}), bad = bad - (OLD.state IN {BAD}),
            changed = changed OR (OLD.state <> 'succeeded' AND open = (OLD.state NOT IN {OVER})
                AND (need = 'any' OR bad = (OLD.state IN {BAD})))
        WHERE batch = OLD.batch AND upto_id >= OLD.id AND batch IS NOT NULL;
    END
    """,
)


def upgrade() -> None:
    """Make the tables and their triggers, and count the batches that are there."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
