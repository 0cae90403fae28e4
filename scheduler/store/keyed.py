"""The job that has a key, and whether a row that has it too may mean that. Imported by the fast paths: standard library
only.
"""

from __future__ import annotations

from scheduler.errors import Refused
from scheduler.store.row import draft_asks, equal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    Row = dict[str, Any]

OF_KEY = "SELECT id, user, slug, variant, input_sha256, params FROM jobs WHERE key = ? AND key IS NOT NULL"


def job_of_key(
    connection: sqlite3.Connection, row: Row, here: tuple[int, Row] | None, user: str, *, asks_alike: bool
) -> int | None:
    """The job that has a row's key, None if there is none.

    `here`: another row of the call that has this key, and asks for something else. Refused if the key is that one's or
    another user's; if `asks_alike`, also if its job asks for something else.
    """
    found = connection.execute(OF_KEY, (row["key"],)).fetchone()
    if found is None and here is None:
        return None
    if found is None or here is not None or found[1] != user:
        other = "another row of this call" if here is not None else f"job {found[0]} of {found[1]}"
        raise Refused(f"the key {row['key']!r} belongs to {other}; give this job another key")
    asked = found[2:5] == (row["slug"], row["variant"], row["input_sha256"]) and equal(found[5], row["params"])
    if asks_alike and not asked and not _drafted(connection, found, row):
        raise key_taken(row["key"], found[0], found[2])
    return int(found[0])


def key_taken(key: str, job_id: int, slug: str) -> Refused:
    """The error for a key whose job asks for something else, and keeps that."""
    return Refused(
        f"the key {key!r} belongs to job {job_id}, which asks {slug} for something else; give this job another key, or"
        f" see `schedq show {job_id}`"
    )


def _drafted(connection: sqlite3.Connection, found: Any, row: Row) -> bool:
    """Whether this row's input is what the job's was made from, which takes results of other jobs."""
    if not (row["beside"] or {}).get("draft") or found[2:4] != (row["slug"], row["variant"]):
        return False
    draft = connection.execute("SELECT input, asked FROM drafts WHERE job_id = ?", (found[0],)).fetchone()
    return draft is not None and draft[0] == row["data"] and draft[1] == draft_asks(row)
