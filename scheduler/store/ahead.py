"""What is known of a queue that jobs are about to join: what waits in it by provider, and how long things took.

Standard library only: read by `submit --dry-run`.
"""

from __future__ import annotations

import sqlite3

from scheduler.config import Paths
from scheduler.store import peek, sighted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEPTH = (
    "SELECT slug, variant, max(priority), sum(n) FROM depth WHERE state IN ('queued', 'admitted', 'running')"
    " GROUP BY slug, variant"
)
HELD = "SELECT sum(n) FROM depth WHERE state IN ('held', 'blocked')"


def ahead(paths: Paths) -> dict[str, Any]:
    """{"jobs": {(slug, variant): (how many wait or run, highest priority)}, "held": how many may not start, "timings":
    {(slug, variant): (load_s, run_s)}, None where nothing is known, "pools": as last seen}; empty without a queue.
    """

    def question(connection: sqlite3.Connection) -> dict[str, Any]:
        found = sighted.facts(connection)
        return {
            "jobs": {(row[0], row[1]): (row[3], row[2]) for row in connection.execute(DEPTH)},
            "held": connection.execute(HELD).fetchone()[0] or 0,
            "timings": {
                (row["slug"], row["variant"]): (
                    row["load_s"] if row["loads"] else None, row["run_s"] if row["runs"] else None
                )
                for row in connection.execute("SELECT * FROM timings")
            },
            "pools": found[1].get("pools", []) if found else [],
        }  # fmt: skip

    return peek.looked(paths, question, {"jobs": {}, "held": 0, "timings": {}, "pools": []})
