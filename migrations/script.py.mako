"""${message}

Revision: ${up_revision}, from ${down_revision}.
"""

from __future__ import annotations

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}

STATEMENTS: tuple[str, ...] = ()


def upgrade() -> None:
    """Say what changes for the queue, not how."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """A backup is the way back."""
    raise NotImplementedError("restore a backup instead")
