"""The request of a job that is opened again, replaced by that of a row which asks for something else.

The job keeps its id, its place among what others wait for, and what is told of its attempts. What its folder `work`
has of the request before is set aside there. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler.store.gates import AGAIN, LOOK_AGAIN
from scheduler.store.opening import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths
    from scheduler.store.resuming import Job

COLUMNS = (
    "name", "key", "state", "priority", "params", "input_sha256", "input_name", "input_kind", "input_bytes", "files",
    "size", "revision", "out", "timeout_s", "max_attempts", "on_lost", "retry_on", "not_before_at", "on_parent",
    "input",
)  # fmt: skip
"""What a job takes from the row."""

REPLACE = (
    f"UPDATE jobs SET {', '.join(f'{each} = :{each}' for each in COLUMNS)}, blocked = iif(:state = 'held', NULL,"
    f" coalesce({AGAIN}, iif(:not_before_at IS NULL, NULL, 'begin'))) WHERE id = :id AND state = 'queued'"
)
LABEL = "INSERT OR IGNORE INTO labels (label, job_id) VALUES (?, ?)"


class Replaced:
    """The jobs of one call whose request is another one from now on. `put_back` when that does not go in."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._aside: list[tuple[str, str]] = []

    def write(self, connection: sqlite3.Connection, found: dict[int, tuple[Job, dict[str, Any], list[str]]]) -> None:
        """Give each of these open jobs its row's request: (the job before, the row, what changes) by id.

        What it has and the row does not name stays: destination, key, labels. What it comes after is written already.
        """
        for job_id, (job, row, changes) in found.items():
            out = job.out if row["out"] is None else row["out"].replace("{id}", str(job_id))
            kept = {"key": row["key"] or job.key, "out": out, "id": job_id}
            connection.execute(REPLACE, {**{each: row[each] for each in COLUMNS}, **kept})
            connection.execute(LOOK_AGAIN, {"id": job_id})
            labels = dict.fromkeys((row["beside"] or {}).get("labels") or ())
            connection.executemany(LABEL, [(label, job_id) for label in labels])
            self._set_aside(job)
            of_them = f"; attempts up to {job.attempt} had those" if job.attempt else ""
            record(connection, job_id, None, "replaced", f"replaced: {', '.join(changes)}{of_them}")

    def _set_aside(self, job: Job) -> None:
        work = os.path.join(self._paths.job(job.id), "work")
        aside = f"{work}.{job.attempt}"
        if os.path.isdir(work) and not os.path.lexists(aside):
            os.rename(work, aside)
            self._aside.append((work, aside))

    def put_back(self) -> None:
        """Nothing went in: what was set aside is where it was."""
        while self._aside:
            work, aside = self._aside.pop()
            try:
                os.rename(aside, work)
            except OSError:
                pass  # it is there to be looked at, and the job makes another
