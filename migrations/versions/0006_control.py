"""What an operator says of the whole queue and of one job: a drain, and the outcomes that are tried again.

Revision: 0006, after 0005. No queue is drained, and every job follows its provider's manifest.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE queue ADD COLUMN drained_at TEXT",
    "ALTER TABLE jobs ADD COLUMN retry_on TEXT",
)


def upgrade() -> None:
    """Add the columns; SQLite rewrites no row for that."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
