"""What was learned of memory on this machine, for people and scripts. Standard library only."""

from __future__ import annotations

from scheduler.config import Paths
from scheduler.store import identity, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

LEARNED = (
    "SELECT slug, variant, bucket, device_gib, host_gib, runs, at, (SELECT device FROM peaks AS p WHERE"
    " p.slug = l.slug AND p.variant = l.variant AND p.host_id = l.host_id AND p.bucket = l.bucket"
    " ORDER BY p.id DESC LIMIT 1) AS device FROM learned AS l WHERE host_id = ? ORDER BY slug, variant, bucket"
)


def learned(paths: Paths) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Each size bucket that enough runs were measured of, by (slug, variant): bucket, GiB by part, runs, device, at."""

    def question(connection: sqlite3.Connection) -> dict[tuple[str, str], list[dict[str, Any]]]:
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in connection.execute(LEARNED, (identity.host_id(),)):
            keys = ("bucket", "device_gib", "host_gib", "runs", "device", "at")
            found.setdefault((row["slug"], row["variant"]), []).append({key: row[key] for key in keys})
        return found

    return peek.looked(paths, question, {})
