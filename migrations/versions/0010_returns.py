"""What a worker's memory is known to be back by and since when it is awaited, and charges that are being raised.

Revision: 0010, after 0009. Leases of before have neither: of them the processes and the driver's lists alone decide.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE leases ADD COLUMN before_gib REAL",
    "ALTER TABLE leases ADD COLUMN returning_at TEXT",
    "ALTER TABLE workers ADD COLUMN raising TEXT",
)


def upgrade() -> None:
    """Add the columns; SQLite rewrites no row for that."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
