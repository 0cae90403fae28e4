"""Which revision of each provider the scheduler serves, so that a job that waits for another can name both.

Revision: 0007, after 0006. The table is filled by the first turn of a scheduler.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STATEMENTS = (
    "CREATE TABLE served ("
    " slug TEXT NOT NULL,"
    " variant TEXT NOT NULL,"
    " revision TEXT NOT NULL,"
    " PRIMARY KEY (slug, variant)"
    ") STRICT, WITHOUT ROWID",
)


def upgrade() -> None:
    """Make the table."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
