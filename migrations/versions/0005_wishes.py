"""Workers that an operator wants before a job asks for them, how often a worker was warm, and when its end is overdue.

Revision: 0005, after 0004. The warm hits of workers that are still there are counted once from their attempts.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    "CREATE TABLE wishes ("
    " slug TEXT NOT NULL,"
    " variant TEXT DEFAULT '' NOT NULL,"
    " at TEXT NOT NULL,"
    " user TEXT NOT NULL,"
    " pinned INTEGER DEFAULT 0 NOT NULL,"
    " failures INTEGER DEFAULT 0 NOT NULL,"
    " ruling TEXT DEFAULT '' NOT NULL,"
    " text TEXT DEFAULT '' NOT NULL,"
    " dropped_at TEXT,"
    " PRIMARY KEY (slug, variant)"
    ") STRICT, WITHOUT ROWID",
    "ALTER TABLE workers ADD COLUMN warm_hits INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE workers ADD COLUMN overdue_at TEXT",
    "UPDATE workers SET warm_hits = (SELECT count(*) FROM attempts WHERE worker_id = workers.id AND warm)"
    " WHERE state <> 'gone'",
)


def upgrade() -> None:
    """Make the table, add the columns, count what is there."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
