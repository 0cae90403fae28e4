"""Which batch a call that a schedule repeats has queued: noted at its run, in the transaction that queues it.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os

from scheduler.model.command import MARK as MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from typing import Any

NOTE = (
    "UPDATE runs SET batch = ? WHERE id = ? AND batch IS NULL AND ended_at IS NULL"
    " AND EXISTS (SELECT 1 FROM queue WHERE queue_id = ?)"
)


def note(connection: sqlite3.Connection, rows: Iterable[dict[str, Any]]) -> None:
    """Where this process is a call that a schedule of this queue repeats: these rows are what it queues.

    Jobs of no batch, or of several, are no batch of it.
    """
    mark = os.environ.get(MARK, "")
    queue_id, _, run_id = mark.rpartition(":")
    if not queue_id or not (run_id.isascii() and run_id.isdigit() and len(run_id) < 19):
        return
    batches = {row["batch"] for row in rows}
    if len(batches) == 1 and (batch := batches.pop()):
        connection.execute(NOTE, (batch, int(run_id), queue_id))
