"""Which scheduler is the queue's: each start has a higher epoch, and a higher epoch fences every lower one."""

from __future__ import annotations

from sqlalchemy import Connection

from scheduler.errors import TakenOver
from scheduler.store import rows


def begin(tx: Connection, *, pid: int, started: float | None, boot_id: str, host_id: str, version: str, at: str) -> int:
    """Record a scheduler that takes over, and answer with its epoch. `started` = the process's start time."""
    done = tx.exec_driver_sql(
        "INSERT INTO schedulers (pid, started, boot_id, host_id, version, started_at)"
        " VALUES (:pid, :started, :boot_id, :host_id, :version, :at)",
        {"pid": pid, "started": started, "boot_id": boot_id, "host_id": host_id, "version": version, "at": at},
    )
    return int(done.lastrowid)


def end(tx: Connection, epoch: int, at: str) -> None:
    """Record that it went by itself."""
    tx.exec_driver_sql(
        "UPDATE schedulers SET ended_at = :at WHERE epoch = :epoch AND ended_at IS NULL", {"at": at, "epoch": epoch}
    )


def latest(tx: Connection) -> tuple[int, float | None, str] | None:
    """(pid, start in clock ticks since boot, boot id) of the newest one that did not go by itself, or None."""
    row = tx.exec_driver_sql(
        "SELECT pid, started, boot_id FROM schedulers WHERE ended_at IS NULL ORDER BY epoch DESC LIMIT 1"
    ).one_or_none()
    return None if row is None else (int(row[0]), row[1], str(row[2]))


def last_of(tx: Connection, host_id: str) -> tuple[str, str] | None:
    """(boot id, start as a stamp) of the newest one on this machine, however it ended; None if there was none."""
    row = tx.exec_driver_sql(
        "SELECT boot_id, started_at FROM schedulers WHERE host_id = :host_id ORDER BY epoch DESC LIMIT 1",
        {"host_id": host_id},
    ).one_or_none()
    return None if row is None else (str(row[0]), str(row[1]))


def current(tx: Connection) -> int:
    """The highest epoch that was given, 0 if none was."""
    return int(rows.value(tx, "SELECT coalesce(max(epoch), 0) FROM schedulers"))


def fence(tx: Connection, epoch: int) -> None:
    """TakenOver if a later scheduler has taken over; what this transaction was to change stays as it is."""
    newest = current(tx)
    if newest > epoch:
        raise TakenOver(
            f"this scheduler has epoch {epoch}; one with epoch {newest} has taken over, and this one changes nothing"
        )


def queue_id(tx: Connection) -> str:
    """The queue's own id, given once when it was made."""
    return str(tx.exec_driver_sql("SELECT queue_id FROM queue").scalar_one())
