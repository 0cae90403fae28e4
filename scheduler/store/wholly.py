"""A job as `status` and `show` tell it: its row with reason and outlook, and in full with attempts and story.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import json
import sqlite3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA_VERSION = 1
CASE = 'SELECT "case" FROM checks WHERE job_id = ?'


def in_short(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    reason: dict[str, Any] | None,
    times: tuple[float | None, float | None],
) -> dict[str, Any]:
    """What `status --json` says of a job: its row, why it waits, and in how many seconds it starts and ends.

    `case`: the validation case that it is, None if it is none.
    """
    case = connection.execute(CASE, (row["id"],)).fetchone()
    starts_in_s, ends_in_s = times
    return {
        "id": row["id"], "slug": row["slug"], "variant": row["variant"], "name": row["name"],
        "case": None if case is None else case[0], "user": row["user"],
        "state": row["state"], "priority": row["priority"], "batch": row["batch"], "attempt": row["attempt"],
        "submitted_at": row["submitted_at"], "started_at": row["started_at"], "ended_at": row["ended_at"],
        "reason": reason, "progress": json.loads(row["progress"]) if row["progress"] else None,
        "starts_in_s": starts_in_s, "ends_in_s": ends_in_s, "worker_id": row["worker_id"],
        "cancel_requested_at": row["cancel_requested_at"], "outcome_kind": row["outcome"], "out": row["out"],
    }  # fmt: skip


def in_full(connection: sqlite3.Connection, ids: list[int], runs: bool, at_s: float) -> list[dict[str, Any]]:
    """What `show --json` says of each of these jobs that is there. `runs`: a scheduler holds the queue's lock."""
    from scheduler.store.outlook import Outlook
    from scheduler.store.reason import Reasons

    outlook, reasons = Outlook(connection, at_s, runs), Reasons(connection, runs)
    rows = (connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone() for job_id in ids)
    return [_full(connection, row, reasons.of(row), outlook.of(row)) for row in rows if row is not None]


def _full(
    connection: sqlite3.Connection,
    row: sqlite3.Row,
    reason: dict[str, Any] | None,
    times: tuple[float | None, float | None],
) -> dict[str, Any]:
    from scheduler.store import ancestry, drafts
    from scheduler.store.story import story

    answer = {"schema_version": SCHEMA_VERSION, **in_short(connection, row, reason, times)}
    ended = row["outcome"] is not None
    answer["outcome"] = (
        {"kind": row["outcome"], "text": row["outcome_text"] or "", "exit_code": row["exit_code"]} if ended else None
    )
    answer["params"], answer["files"] = json.loads(row["params"]), json.loads(row["files"])
    for key in (
        "host_id", "input_sha256", "input_name", "input_kind", "input_bytes", "size", "revision", "key", "blocked",
        "timeout_s", "max_attempts", "on_lost", "retry_on", "not_before_at", "tries", "laters", "deaths",
        "pruned_at", "logs_pruned_at", "free_at",
    ):  # fmt: skip
        answer[key] = row[key]
    labels = connection.execute("SELECT label FROM labels WHERE job_id = ? ORDER BY label", (row["id"],))
    answer["labels"] = [each["label"] for each in labels]
    answer["parents"] = ancestry.parents(connection, row["id"])
    answer["children"] = ancestry.children(connection, row["id"], row["batch"])
    answer["draft"], answer["on_parent"] = drafts.told(connection, row["id"]), row["on_parent"]
    tried = connection.execute("SELECT * FROM attempts WHERE job_id = ? ORDER BY attempt", (row["id"],))
    answer["attempts"] = [
        {**dict(each), "warm": bool(each["warm"]), "versions": json.loads(each["versions"] or "null")} for each in tried
    ]
    answer["story"] = story(connection, row)
    made = connection.execute("SELECT destination, bytes FROM results WHERE job_id = ?", (row["id"],)).fetchone()
    answer["result"] = dict(made) if made is not None else None
    answer["check"] = _check(connection, row["id"])
    return answer


def _check(connection: sqlite3.Connection, job_id: int) -> dict[str, Any] | None:
    """{"case", "expect", "fresh", "verdict", "faults", "at"} of a validation case, None if it is none."""
    asked = 'SELECT "case", expect, fresh, verdict, faults, at FROM checks WHERE job_id = ?'
    found = connection.execute(asked, (job_id,)).fetchone()
    if found is None:
        return None
    read = {"expect": json.loads(found["expect"]), "faults": json.loads(found["faults"])}
    return {**dict(found), **read, "fresh": bool(found["fresh"])}
