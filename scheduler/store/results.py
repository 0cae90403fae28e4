"""What an attempt answered: the reply, as it is, and where its outputs went."""

from __future__ import annotations

from sqlalchemy import Connection

from scheduler.config import Paths
from scheduler.store import content, rows
from scheduler.store.identity import digest


def put(tx: Connection, job_id: int, attempt: int, reply: bytes | None, destination: str | None) -> None:
    """Keep the answer of the attempt that ended the job; a reply of more than 64 KiB goes to the content."""
    sha256 = digest(reply) if reply is not None else None
    inline = reply
    if reply is not None and len(reply) > content.INLINE_MAX:
        content.put(_paths(tx), reply, sha256 or "")
        inline = None
    rows.write(
        tx, "INSERT INTO results (job_id, attempt, bytes, sha256, reply, destination)"
        " VALUES (:job_id, :attempt, :bytes, :sha256, :reply, :destination)"
        " ON CONFLICT (job_id) DO UPDATE SET attempt = excluded.attempt, bytes = excluded.bytes,"
        " sha256 = excluded.sha256, reply = excluded.reply, destination = excluded.destination",
        {
            "job_id": job_id, "attempt": attempt, "bytes": len(reply) if reply is not None else 0, "sha256": sha256,
            "reply": inline, "destination": destination,
        },
    )  # fmt: skip


def get(tx: Connection, job_id: int) -> tuple[bytes | None, str | None]:
    """(reply, destination) of a job; None where there is none. Corrupt if a large reply is not what was stored."""
    row = rows.first(tx, "SELECT reply, sha256, destination FROM results WHERE job_id = :job_id", {"job_id": job_id})
    if row is None:
        return None, None
    reply = row.reply
    if reply is None and row.sha256 is not None:
        reply = content.read(_paths(tx), row.sha256)
    return reply, row.destination


def _paths(tx: Connection) -> Paths:
    paths = tx.info["paths"]
    assert isinstance(paths, Paths)
    return paths
