"""The stored replies of many jobs, a few hundred at a time: no snapshot is held for long. Standard library only."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from scheduler.config import Paths
from scheduler.errors import Corrupt
from scheduler.store import content, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

AT_ONCE = 500
ASKED = (
    'SELECT j.id, coalesce(c."case", j.name), j.state, r.reply, r.sha256, r.destination, j.outcome,'
    " substr(j.outcome_text, 1, 240), c.verdict, substr(c.faults, 1, 2000), j.timeout_s, j.pruned_at IS NOT NULL"
    " FROM jobs j LEFT JOIN results r ON r.job_id = j.id LEFT JOIN checks c ON c.job_id = j.id"
    " WHERE j.id IN (SELECT value FROM json_each(?)) ORDER BY j.id"
)


class Reply(NamedTuple):
    """A job with its reply. `name`: of a validation case the case's. `output`: the folder of its outputs, "" = none.

    `damaged`: one was stored and cannot be read. `ended`: outcome, its text, verdict, faults and timeout_s, as
    `night.because` takes them after the state. `pruned`: what it answered is not kept.
    """

    id: int
    name: str
    state: str
    reply: bytes | None
    output: str
    damaged: bool
    ended: tuple[Any, ...]
    pruned: bool


def replies(paths: Paths, ids: list[int]) -> Iterator[Reply]:
    """Each of these jobs that is there, in the order of the ids given."""
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]

        def question(connection: sqlite3.Connection, some: list[int] = some) -> dict[int, tuple[Any, ...]]:
            return {row[0]: tuple(row) for row in connection.execute(ASKED, (json.dumps(some),))}

        nothing: dict[int, tuple[Any, ...]] = {}
        found = peek.looked(paths, question, nothing)
        for job_id in some:
            row = found.get(job_id)
            if row is None:
                continue
            _, name, state, reply, sha256, destination, *ended, pruned = row
            damaged = False
            if reply is None and sha256 is not None:
                try:
                    reply = content.read(paths, sha256)
                except Corrupt:
                    damaged = True
            yield Reply(job_id, name, state, reply, destination or "", damaged, tuple(ended), bool(pruned))
