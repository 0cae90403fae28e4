"""Commands as the fast paths read them: those that wait, and what their callers need. Standard library only."""

from __future__ import annotations

from scheduler.model.command import EXEC

ELIGIBLE = "slug = 'exec' AND state = 'queued' AND blocked IS NULL"


def waiting_of(slug: str, asked: str) -> str:
    """The query for the first waiting jobs of a provider, given as (slug, variant, most): `asked`, but for commands.

    They are counted together, under no variant, and each has one of its own.
    """
    if slug != EXEC:
        return asked
    columns = asked.partition(" FROM ")[0]
    of_commands = f"jobs INDEXED BY jobs_commands WHERE ? = 'exec' AND ? = '' AND {ELIGIBLE}"
    return f"{columns} FROM {of_commands} ORDER BY priority DESC, id LIMIT ?"
