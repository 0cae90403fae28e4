"""Commands that queue for their room: each is a job of the slug `exec` with a variant of its own.

Revision: 0008, after 0007. The depth counts all commands together, whatever their variant, so that it does not grow
with their number; those that wait are found in their order by an index of their own.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TAKE = """
        UPDATE depth SET n = n - 1
        WHERE slug = OLD.slug AND variant = iif(OLD.slug = 'exec', '', OLD.variant) AND priority = OLD.priority
            AND state = iif(OLD.blocked IS NULL, OLD.state, 'blocked');
        DELETE FROM depth
        WHERE slug = OLD.slug AND variant = iif(OLD.slug = 'exec', '', OLD.variant) AND priority = OLD.priority
            AND state = iif(OLD.blocked IS NULL, OLD.state, 'blocked') AND n <= 0;"""
ADD = """
        INSERT INTO depth
        VALUES (NEW.slug, iif(NEW.slug = 'exec', '', NEW.variant), iif(NEW.blocked IS NULL, NEW.state, 'blocked'),
            NEW.priority, 1)
        ON CONFLICT (slug, variant, state, priority) DO UPDATE SET n = n + 1;"""

STATEMENTS = (
    "DROP TRIGGER depth_insert",
    "DROP TRIGGER depth_update",
    "DROP TRIGGER depth_delete",
    f"""
    CREATE TRIGGER depth_insert AFTER INSERT ON jobs BEGIN{ADD}
    END
    """,
    f"""
    CREATE TRIGGER depth_update AFTER UPDATE OF slug, variant, state, blocked, priority ON jobs
    WHEN NEW.state IS NOT OLD.state OR NEW.blocked IS NOT OLD.blocked OR NEW.priority IS NOT OLD.priority
        OR NEW.slug IS NOT OLD.slug OR NEW.variant IS NOT OLD.variant
    BEGIN{TAKE}{ADD}
    END
    """,
    f"""
    CREATE TRIGGER depth_delete AFTER DELETE ON jobs BEGIN{TAKE}
    END
    """,
    "DELETE FROM depth WHERE slug = 'exec'",
    "INSERT INTO depth SELECT slug, '', iif(blocked IS NULL, state, 'blocked'), priority, count(*) FROM jobs"
    " WHERE slug = 'exec' GROUP BY 1, 2, 3, 4",
    """
    CREATE INDEX jobs_commands ON jobs (priority DESC, id)
    WHERE slug = 'exec' AND state = 'queued' AND blocked IS NULL
    """,
)


def upgrade() -> None:
    """Make the triggers anew, count what is there, and make the index."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """There is no way down; the backup is the way back."""
    raise NotImplementedError("restore a backup instead")
