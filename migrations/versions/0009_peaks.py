"""What attempts were seen to use of memory, which jobs are tried alone, which part of a worker's charge is the host's.

Revision: 0009, after 0008. Nothing is known of attempts that ended before.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE jobs ADD COLUMN behind INTEGER",
    "ALTER TABLE jobs ADD COLUMN measures INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX jobs_alone ON jobs (priority DESC, behind, batch, id)"
    " WHERE behind IS NOT NULL AND state IN ('queued', 'admitted', 'running')",
    "CREATE INDEX jobs_alone_firsts ON jobs (slug, variant, measures, priority DESC, behind, batch, id)"
    " WHERE behind IS NOT NULL AND state = 'queued' AND blocked = 'after' AND slug <> 'exec'",
    "CREATE INDEX jobs_alone_commands ON jobs (priority DESC, behind, batch, id)"
    " WHERE slug = 'exec' AND behind IS NOT NULL AND state = 'queued' AND blocked = 'after'",
    "ALTER TABLE workers ADD COLUMN host_gib REAL",
    "ALTER TABLE workers ADD COLUMN alone INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE workers ADD COLUMN bucket INTEGER",
    "CREATE TABLE peaks ("
    " id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,"
    " slug TEXT NOT NULL,"
    " variant TEXT NOT NULL,"
    " host_id TEXT NOT NULL,"
    " bucket INTEGER,"
    " device_gib REAL,"
    " host_gib REAL,"
    " at TEXT NOT NULL,"
    " device TEXT,"
    " job_id INTEGER,"
    " attempt INTEGER,"
    " worker_id INTEGER,"
    " outcome TEXT NOT NULL DEFAULT ''"
    ") STRICT",
    "CREATE INDEX peaks_bucket ON peaks (slug, variant, host_id, bucket, id)",
    "CREATE TABLE learned ("
    " slug TEXT NOT NULL,"
    " variant TEXT NOT NULL,"
    " host_id TEXT NOT NULL,"
    " bucket INTEGER NOT NULL,"
    " device_gib REAL,"
    " host_gib REAL,"
    " runs INTEGER NOT NULL,"
    " at TEXT NOT NULL,"
    " PRIMARY KEY (slug, variant, host_id, bucket)"
    ") STRICT, WITHOUT ROWID",
)


def upgrade() -> None:
    """Add the columns and make the tables; SQLite rewrites no row for that."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
