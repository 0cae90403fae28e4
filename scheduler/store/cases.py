"""Validation cases as whoever asked for them reads them: how each stands, and how a case went the last time.

Imported by the command line: standard library only. What a row of `checks` says stands in `store.checks`.
"""

from __future__ import annotations

import json
import sqlite3

from scheduler.rules.expectation import standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OF_JOBS = (
    'SELECT j.id, j.slug, j.variant, c."case", j.state, j.outcome, j.outcome_text, j.progress, c.verdict, c.faults'
    " FROM json_each(?) AS asked CROSS JOIN checks AS c ON c.job_id = asked.value CROSS JOIN jobs AS j ON j.id ="
    " c.job_id ORDER BY j.id"
)
LAST = (
    "SELECT c.expect, c.verdict, c.files, j.revision, j.input_sha256, j.params FROM checks AS c INDEXED BY checks_case"
    ' CROSS JOIN jobs AS j ON j.id = c.job_id WHERE c.slug = ? AND c.variant = ? AND c."case" = ?'
    " ORDER BY c.job_id DESC LIMIT 1"
)
SIZE = "SELECT jobs FROM batches WHERE batch = ?"


def of_jobs(connection: sqlite3.Connection, ids: list[int]) -> list[dict[str, Any]]:
    """How each of these cases stands, by id: its job's state and outcome, its verdict and faults, and `standing`."""
    found = connection.execute(OF_JOBS, (json.dumps(ids),)).fetchall()
    return [
        {
            "id": row["id"], "slug": row["slug"], "variant": row["variant"], "case": row["case"],
            "state": row["state"], "outcome": row["outcome"], "text": row["outcome_text"] or "",
            "progress": json.loads(row["progress"]) if row["progress"] else None,
            "verdict": row["verdict"], "faults": json.loads(row["faults"]),
            "standing": standing(row["state"], row["outcome"], row["verdict"]),
        }
        for row in found
    ]  # fmt: skip


def passed_as_is(connection: sqlite3.Connection, row: dict[str, Any], check: dict[str, Any]) -> bool:
    """Whether the last time that this case was queued it passed, with this revision, input, parameters, expectations,
    and its provider's files as they look now.

    `row`: the job's row as it would be queued, `check`: its case, what is expected, what the files look like.
    """
    last = connection.execute(LAST, (row["slug"], row["variant"], check["case"])).fetchone()
    if last is None or last["verdict"] != "passed":
        return False
    asked = json.loads(row["params"]) if isinstance(row["params"], str) else row["params"]
    same = (last["revision"], last["input_sha256"]) == (row["revision"], row["input_sha256"])
    same = same and last["files"] == check["files"]
    return same and json.loads(last["params"]) == asked and json.loads(last["expect"]) == check["expect"]


def size_of(connection: sqlite3.Connection, batch: str) -> int:
    """How many jobs of this batch are there."""
    found = connection.execute(SIZE, (batch,)).fetchone()
    return int(found[0]) if found is not None else 0
