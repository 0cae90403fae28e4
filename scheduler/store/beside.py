"""What comes with a job beside its row: labels, what a validation case expects, a refusal. Standard library only.

Written in the transaction of the job's own INSERT, or not at all.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any


def insert(connection: sqlite3.Connection, given: list[tuple[int, dict[str, Any]]]) -> None:
    """Write what comes with jobs that were just inserted: (id, what) of each.

    What: `labels` (texts), `check` ({case, expect, fresh, files}: expectations as the manifest has them, what the
    provider's files look like), `refused` (why the job never can start here: it is in the queue to be reported, and has
    ended).
    """
    labels = [(label, job_id) for job_id, what in given for label in dict.fromkeys(what.get("labels") or ())]
    connection.executemany("INSERT INTO labels (label, job_id) VALUES (?, ?)", labels)
    checks = [(job_id, what["check"]) for job_id, what in given if what.get("check")]
    if checks:
        import json

        connection.executemany(
            'INSERT INTO checks (job_id, slug, variant, "case", expect, fresh, files)'
            " SELECT id, slug, variant, ?, ?, ?, ? FROM jobs WHERE id = ?",
            [
                (c["case"], json.dumps(c["expect"]), int(c.get("fresh") or 0), c.get("files") or "", job_id)
                for job_id, c in checks
            ],
        )
    for job_id, what in given:
        if what.get("refused"):
            _refuse(connection, job_id, what["refused"])


def _refuse(connection: sqlite3.Connection, job_id: int, why: str) -> None:
    connection.execute(
        "UPDATE jobs SET state = 'refused', ended_at = submitted_at, outcome = 'refused', outcome_text = ?"
        " WHERE id = ? AND state = 'queued'",
        (why, job_id),
    )
