"""Whether a queue was made in a folder, told before its database is opened: a lost database is no new queue.

A queue has a mark beside its database, written once and synced before its first id is given. With the mark, an
emptied, cut off or vanished database is damage: a new one in its place would give ids again and hide what is lost.
Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import stat

from scheduler.config import Paths
from scheduler.errors import Corrupt, SchedqError, StoreError, Temporary
from scheduler.store.folders import sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3

SMALLEST = 512
"""Bytes of the smallest page that SQLite knows: it takes a file of fewer for an empty database."""

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip


def is_made(paths: Paths) -> bool:
    """Whether the queue's database is there; False before the first submit. Looks, and opens nothing.

    Corrupt: it is gone, empty or cut off, although a queue was made here. StoreError: it is no file. Temporary: the
    folder cannot be looked into.
    """
    size = _size(paths)
    if size >= SMALLEST:
        return True
    left = _left(paths)
    size = _size(paths)  # again: somebody may have made it meanwhile
    if size >= SMALLEST or (size <= 0 and not left):
        return size >= 0
    name = os.path.basename(paths.database)
    seen = f"has {size} bytes" if size >= 0 else "is not there"
    of_it = f", but a queue was made here: {', '.join(left)} {'is' if len(left) == 1 else 'are'} left of it"
    kept = sorted(os.listdir(paths.backups)) if paths.backups in left else []
    newest = f"; the newest backup there is {os.path.join(paths.backups, kept[-1])}" if kept else ""
    log = f"move {name}-wal aside and " if f"{paths.database}-wal" in left else ""
    raise Corrupt(
        f"{paths.database} {seen}{of_it if left else ', too few for a database'}; nothing was changed{newest};"
        f" {log}put a good backup in the database's place (those of upgrades are in {paths.backups}),"
        " or set SCHEDQ_HOME to another folder for a new queue"
    )


def is_marked(paths: Paths) -> bool:
    """Whether a queue was made here, by its mark."""
    return os.path.lexists(paths.mark)


def leave_mark(connection: sqlite3.Connection, paths: Paths) -> None:
    """Write the mark if it is not there: synced on return. Inside the turnstile, once the schema is in the database."""
    if is_marked(paths):
        return
    (queue_id,) = connection.execute("SELECT queue_id FROM queue").fetchone()
    text = (
        f"queue {queue_id}\n"
        f"While this file is here, a {os.path.basename(paths.database)} that is empty or gone is damaged, and no new"
        " queue is made in its place.\n"
    )
    beside = f"{paths.mark}.new"
    with open(beside, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(beside, paths.mark)
    sync(paths.home)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def without_schema(paths: Paths) -> Corrupt:
    """The error for a database that holds nothing, although a queue was made here."""
    return Corrupt(
        f"{paths.database} is an SQLite database that holds nothing, but a queue was made here ({paths.mark}); it was"
        f" left as it is; put a good backup in its place (those of upgrades are in {paths.backups}),"
        " or set SCHEDQ_HOME to another folder for a new queue"
    )


def _size(paths: Paths) -> int:
    """Bytes of the database, -1 if it is not there. StoreError if it, or a file of SQLite's beside it, is no file."""
    size = -1
    for path in (paths.database, f"{paths.database}-wal", f"{paths.database}-shm"):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            if os.path.islink(path):
                raise StoreError(
                    f"{path} is a link to {os.readlink(path)}, which is not there; nothing was changed;"
                    " correct the link, or take it away"
                ) from None
            continue
        except OSError as error:
            raise _unseen(error, path, paths) from None
        if not stat.S_ISREG(found.st_mode):
            kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
            raise StoreError(
                f"{path} is {kind} and no file; it was not opened and nothing was changed; move it away, put the"
                " queue's own file back, or set SCHEDQ_HOME to another folder"
            )
        if path == paths.database:
            size = found.st_size
    return size


def _unseen(error: OSError, path: str, paths: Paths) -> SchedqError:
    """Why it cannot be told whether a queue is there: the folder that is closed, or what is no folder."""
    at = paths.home
    while not os.path.exists(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    if not os.path.isdir(at):
        return Temporary(f"{at} is no folder, so no queue can be at {paths.home}; set SCHEDQ_HOME to a folder of yours")
    if not isinstance(error, PermissionError):
        return StoreError(f"{path} cannot be looked at ({error.strerror}); nothing was changed; correct that first")
    return Temporary(
        f"the queue at {paths.home} cannot be looked at ({error.strerror}): {at} belongs to {_owner(at)} and is closed"
        f" to {_name(os.getuid())}; have it opened for you, or set SCHEDQ_HOME to a folder of yours"
    )


def _owner(path: str) -> str:
    found = os.stat(path)
    return f"{_name(found.st_uid)} (mode {found.st_mode & 0o7777:04o})"


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _left(paths: Paths) -> list[str]:
    """What shows that a queue was made here, its database aside."""
    found = [path for path in (paths.mark, f"{paths.database}-wal") if os.path.lexists(path)]
    return found + [path for path in (paths.jobs, paths.results, paths.backups) if _has_entries(path)]


def _has_entries(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False
