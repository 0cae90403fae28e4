"""What filters are led by: jobs by their state, their outcome, their user and when they were submitted.

Revision: 0003, after 0002. Two of the indexes hold only jobs that have ended, so a submit does not write them.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    "CREATE INDEX jobs_past ON jobs (state, slug, variant)"
    " WHERE state IN ('succeeded', 'failed', 'cancelled', 'timed_out', 'refused')",
    "CREATE INDEX jobs_outcome ON jobs (outcome, slug, variant) WHERE outcome IS NOT NULL",
    "CREATE INDEX jobs_user ON jobs (user, submitted_at)",
)


def upgrade() -> None:
    """Make the indexes."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
