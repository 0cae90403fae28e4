"""The machine as it was last seen, by host: what `status` shows and `submit` judges "never" by."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows


def put(tx: Connection, host_id: str, snapshot: dict[str, Any], at: str) -> None:
    """Keep the newest snapshot of a host: {"pools", "others", "cores", "notes"}, as `status --json` has them."""
    rows.write(
        tx,
        "INSERT INTO facts (host_id, at, snapshot) VALUES (:host_id, :at, :snapshot)"
        " ON CONFLICT (host_id) DO UPDATE SET at = excluded.at, snapshot = excluded.snapshot",
        {"host_id": host_id, "at": at, "snapshot": json.dumps(snapshot)},
    )
