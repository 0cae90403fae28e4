"""The order of starts: the victims that a closed head waits for, and when waiting jobs are expected to start.

Revision: 0002, after 0001.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE victims (
        job_id INTEGER NOT NULL,
        worker_id INTEGER NOT NULL,
        PRIMARY KEY (job_id, worker_id),
        FOREIGN KEY(job_id) REFERENCES jobs (id),
        FOREIGN KEY(worker_id) REFERENCES workers (id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE forecasts (
        slug TEXT NOT NULL,
        variant TEXT NOT NULL,
        starts_at TEXT NOT NULL,
        run_s REAL NOT NULL,
        workers INTEGER NOT NULL,
        PRIMARY KEY (slug, variant)
    ) STRICT, WITHOUT ROWID
    """,
)


def upgrade() -> None:
    """Make both tables; they begin empty."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """A backup is the way back."""
    raise NotImplementedError("restore a backup instead")
