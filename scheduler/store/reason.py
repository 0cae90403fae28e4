"""Why a waiting job does not start: its own reason, or its provider's. Standard library only."""

from __future__ import annotations

import sqlite3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DOWN = "no scheduler runs for this queue; `schedq up` starts one"


class Reasons:
    """The reasons of one read snapshot. `runs` = whether a scheduler holds the queue's lock."""

    def __init__(self, connection: sqlite3.Connection, runs: bool) -> None:
        self._connection = connection
        self._runs = runs
        self._providers = {(row["slug"], row["variant"]): row for row in connection.execute("SELECT * FROM reasons")}
        self._waits: dict[int, bool] = {}

    def of(self, row: sqlite3.Row) -> dict[str, str] | None:
        """{"ruling", "text"} of a waiting job, None for one that does not wait."""
        own = _own(row)
        if own is not None or row["state"] != "queued":
            return own
        provider = self._providers.get((row["slug"], row["variant"]))
        name = f"{row['slug']}:{row['variant']}" if row["variant"] else row["slug"]
        if not self._runs:
            last = f" (the last one said: {provider['text']})" if provider is not None else ""
            return {"ruling": "scheduler_down", "text": DOWN + last}
        if provider is None:
            return {"ruling": "busy", "text": f"waits for its turn at {name}"}
        head = provider["job_id"]
        if head is None or head == row["id"]:
            return {"ruling": provider["ruling"], "text": provider["text"]}
        if self._waiting(head):
            return {"ruling": "busy", "text": f"behind job {head} of {name}: {provider['text']}"}
        return {"ruling": "busy", "text": f"waits for its turn at {name}, behind job {head}"}

    def _waiting(self, job_id: int) -> bool:
        if job_id not in self._waits:
            found = self._connection.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()
            self._waits[job_id] = found is not None and found["state"] == "queued"
        return self._waits[job_id]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _own(row: sqlite3.Row) -> dict[str, str] | None:
    at: Any = row["not_before_at"]
    when = f"{at[:19]}Z" if at else "its time"
    if row["state"] == "held":
        return {"ruling": "held", "text": "held by its operator"}
    match row["blocked"]:
        case "backoff":
            return {"ruling": "backoff", "text": f"tried {_times(row['attempt'])}, tries again after {when}"}
        case "begin":
            return {"ruling": "begin", "text": f"was told not to begin before {when}"}
        case "after":
            return {"ruling": "after", "text": "waits for the jobs that it comes after"}
        case "revision":
            return {
                "ruling": "revision",
                "text": f"was submitted for revision {row['revision'][:12]} of {row['slug']}, which is not the one that"
                " is here; put that back, or cancel it and submit it again for what is there",
            }
    return None
