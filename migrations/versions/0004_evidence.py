"""What a decision was made from: every number of it, as JSON, beside its sentence.

Revision: 0004, after 0003. What was decided before has none.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE events ADD COLUMN evidence TEXT",
    "ALTER TABLE reasons ADD COLUMN evidence TEXT",
)


def upgrade() -> None:
    """Add the columns; SQLite rewrites no row for that."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
