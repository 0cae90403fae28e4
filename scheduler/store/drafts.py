"""Drafts as they are read to be made into inputs: what each takes from which job, and what that job answered.

Standard library only, over a connection that only reads.
"""

from __future__ import annotations

import json
import sqlite3

from scheduler.config import Paths
from scheduler.store import content
from scheduler.store.peek import looked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPEN = (
    "SELECT d.input, d.refs, d.pins, j.id, j.slug, j.variant, j.revision, j.name, j.input_name, j.params, j.files"
    " FROM drafts d JOIN jobs j ON j.id = d.job_id"
    " WHERE d.job_id = ? AND d.made_at IS NULL AND j.state IN ('queued', 'held')"
)
PARENT = (
    "SELECT j.id, j.slug, j.variant, j.name, j.state, r.reply, r.sha256, r.destination, r.job_id AS answered,"
    " r.attempt, j.pruned_at"
    " FROM jobs j LEFT JOIN results r ON r.job_id = j.id WHERE j.id = ?"
)
TOLD = "SELECT refs, pins, made_at FROM drafts WHERE job_id = ?"


class Draft:
    """An input that is still to be made: `input` its bytes, `refs` what it takes, `pins` what of it is there.

    `job` is its job's row; `parents` what it takes from, by id: None for one that is not there any more.
    """

    __slots__ = ("input", "job", "parents", "pins", "refs")

    def __init__(self, row: sqlite3.Row, parents: dict[int, dict[str, Any] | None]) -> None:
        self.input, self.refs, self.pins = bytes(row["input"]), json.loads(row["refs"]), json.loads(row["pins"])
        self.job: dict[str, Any] = {key: row[key] for key in row.keys() if key not in ("input", "refs", "pins")}  # noqa: SIM118
        self.job["params"], self.job["files"] = json.loads(row["params"]), json.loads(row["files"])
        self.parents = parents


def opened(paths: Paths, job_id: int) -> Draft | None:
    """The draft of a job that waits for its input; None if there is none any more."""

    def question(connection: sqlite3.Connection) -> Draft | None:
        row = connection.execute(OPEN, (job_id,)).fetchone()
        if row is None:
            return None
        parents: dict[int, dict[str, Any] | None] = {}
        for ref in json.loads(row["refs"]):
            found = connection.execute(PARENT, (ref["job"],)).fetchone()
            parents[ref["job"]] = dict(found) if found is not None else None
        return Draft(row, parents)

    return looked(paths, question, None)


def reply(paths: Paths, parent: dict[str, Any]) -> bytes | None:
    """What a parent answered, None if nothing of it is kept. Corrupt if a large one is damaged or gone."""
    if parent["reply"] is None and parent["sha256"] is not None:
        return content.read(paths, parent["sha256"])
    return None if parent["reply"] is None else bytes(parent["reply"])


def told(connection: sqlite3.Connection, job_id: int) -> dict[str, Any] | None:
    """What `show --json` says of a job's draft: {"refs", "pinned", "made_at"}; None if its input was whole."""
    row = connection.execute(TOLD, (job_id,)).fetchone()
    if row is None:
        return None
    return {"refs": json.loads(row["refs"]), "pinned": len(json.loads(row["pins"])), "made_at": row["made_at"]}
