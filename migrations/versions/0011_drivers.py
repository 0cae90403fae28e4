"""Which version of the devices' driver a worker, and so each attempt on it, ran with.

Revision: 0011, after 0010. Of what ran before nobody knows it.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE workers ADD COLUMN driver TEXT",
    "ALTER TABLE attempts ADD COLUMN driver TEXT",
)


def upgrade() -> None:
    """Add the columns; SQLite rewrites no row for that."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
