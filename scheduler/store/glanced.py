"""Some of many jobs, for a page that is drawn again and again: those on a worker, and the newest of the others.

What it costs grows with the page, not with the jobs. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler.store import peek
from scheduler.store.filters import ACTIVE, conditions, query

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from scheduler.config import Paths

ON_A_WORKER = f"SELECT id FROM jobs WHERE {ACTIVE} AND state IN ('admitted', 'running')"


def some(paths: Paths, filters: dict[str, Any], most: int) -> tuple[list[int], bool]:
    """The ids of at most so many jobs that meet every filter, rising; whether there are more. Filters as for ids."""
    term, values = conditions(filters)
    newest, newest_values = query(filters)

    def question(connection: sqlite3.Connection) -> tuple[list[int], list[int]]:
        live = connection.execute(f"{ON_A_WORKER}{term} ORDER BY id LIMIT ?", (*values, most))
        last = connection.execute(f"{newest} DESC LIMIT ?", (*newest_values, most + 1))
        return [row[0] for row in live], [row[0] for row in last]

    none: tuple[list[int], list[int]] = ([], [])
    live, last = peek.looked(paths, question, none)
    found = list(dict.fromkeys([*live, *last]))
    return sorted(found[:most]), len(found) > most


def some_of(paths: Paths, ids: list[int], most: int) -> list[int]:
    """At most so many of these ids, in their order: those on a worker, and the last of the others."""
    if len(ids) <= most:
        return ids
    none: set[int] = set()
    live = peek.looked(paths, lambda connection: {row[0] for row in connection.execute(ON_A_WORKER)}, none)
    kept = [job_id for job_id in ids if job_id in live][:most]
    meant = set(kept)
    others = [job_id for job_id in ids if job_id not in meant]
    meant.update(others[len(others) - (most - len(kept)) :])
    return [job_id for job_id in ids if job_id in meant]
