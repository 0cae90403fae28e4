"""Jobs that nothing moves by itself: held, paused, not to begin yet, of a broken provider; and why, in words.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler.store import brief, peek
from scheduler.wake import scheduler_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from typing import Any

    from scheduler.config import Paths

LASTING = (
    "held", "paused", "begin", "breaker", "scheduler_down", "revision", "not_installed", "undeclared", "no_device",
    "too_big", "unknown_holding", "disk",
)  # fmt: skip
"""Rulings that no other job's end changes."""

STATES_OF, LOOKED_AT = 1000, 50
"""The states of so many of the jobs that were asked for are read, and the reasons of so many that wait: the first."""

AT_WORK = "SELECT id FROM jobs WHERE state IN ('held', 'admitted', 'running') AND state IN ('admitted', 'running')"
ROW = "SELECT * FROM jobs WHERE id = ?"


def stalls(paths: Paths, ids: Iterable[int]) -> list[dict[str, Any]]:
    """{"ids", "ruling", "text"} of each reason for which some of these jobs wait until somebody does something.

    Of jobs that are held always, of others only while none of all these is at work.
    """
    asked, runs = list(ids), scheduler_runs(paths)

    def question(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        from scheduler.store.reason import Reasons

        states, all_of_them = brief.states(connection, asked[:STATES_OF]), frozenset(asked)
        works = any(row["id"] in all_of_them for row in connection.execute(AT_WORK))
        waits = ("held",) if works else ("held", "queued")
        still = [job_id for job_id in asked[:STATES_OF] if states.get(job_id) in waits]
        reasons, found = Reasons(connection, runs), {}  # type: Reasons, dict[tuple[str, str], dict[str, Any]]
        for job_id in still[:LOOKED_AT]:
            reason = _reason(connection, reasons, job_id)
            if reason is not None:
                key = reason["ruling"], reason["text"]
                found.setdefault(key, {"ids": [], "ruling": key[0], "text": key[1]})["ids"].append(job_id)
        return list(found.values())

    none: list[dict[str, Any]] = []
    return peek.looked(paths, question, none)


def _reason(connection: sqlite3.Connection, reasons: Any, job_id: int) -> dict[str, Any] | None:
    """What keeps a job, or the one that it stands behind, if that is of the lasting kind."""
    row = connection.execute(ROW, (job_id,)).fetchone()
    reason = reasons.of(row) if row is not None else None
    behind = (reason or {}).get("behind")
    if behind:
        reason = reasons.of(connection.execute(ROW, (behind,)).fetchone())
    if reason is None or (reason["ruling"] not in LASTING and "which is held" not in reason["text"]):
        return None
    return dict(reason)
