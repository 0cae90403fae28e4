"""One way to open the queue's database: its pragmas set and read back, its errors in our words.

Writers open, write, checkpoint and close inside the turnstile only: SQLite before 3.51.3 can corrupt a WAL
database when two connections do so at once (E11). Nothing here ever open()s the database's files past SQLite;
closing such a descriptor would drop SQLite's own locks. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler.config import Paths
from scheduler.errors import Corrupt, NewerSchema, OlderSchema, SchedqError, StoreError, Temporary
from scheduler.store.folders import require_local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

REVISIONS = ("0001", "0002")
"""Every revision of the schema, oldest first; the last is what this version writes."""

WAL_LIMIT = 8 << 20
BUSY_MS = 5000
PRAGMAS = {
    "busy_timeout": BUSY_MS,
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "trusted_schema": 0,
    "wal_autocheckpoint": 0,
    "journal_size_limit": WAL_LIMIT,
    "temp_store": 2,
}
_UNQUOTED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~")


def library() -> tuple[int, int, int]:
    """The version of the SQLite library that this process runs with."""
    major, minor, patch = sqlite3.sqlite_version_info
    return major, minor, patch


def uri(path: str, mode: str) -> str:
    """A file: URI that means exactly this path, whatever bytes are in it."""
    return "file:" + "".join(chr(b) if b in _UNQUOTED else f"%{b:02X}" for b in os.fsencode(path)) + f"?mode={mode}"


def open_writer(paths: Paths, *, shared: bool = False) -> sqlite3.Connection:
    """A connection that may write. Call it inside the turnstile; close it inside one too.

    It never makes the file. `shared`: it may be used from another thread than the one that opened it.
    """
    require_local(paths)
    require_kept(paths)
    connection = sqlite3.connect(
        uri(paths.database, "rw"), uri=True, isolation_level=None, timeout=BUSY_MS / 1000, check_same_thread=not shared
    )
    try:
        configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(paths: Paths) -> sqlite3.Connection:
    """A connection that cannot write and never checkpoints. Hold its snapshot for 5 s at most.

    In a folder that cannot be written and where no log is, nobody has the database open: it is read as it lies,
    without the shared memory that SQLite would make beside it.
    """
    require_local(paths)
    require_kept(paths)
    as_it_lies = not os.path.exists(paths.database + "-wal") and not os.access(paths.home, os.W_OK)
    where = uri(paths.database, "ro") + ("&immutable=1" if as_it_lies else "")
    connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=BUSY_MS / 1000, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def require_kept(paths: Paths) -> None:
    """Corrupt if the database is empty or gone, although the folder shows that jobs were in it.

    A new one in its place would give their ids again, and hide that they are lost.
    """
    if _bytes_of(paths.database) > 0:
        return
    left = [path for path in (paths.jobs, paths.results, paths.backups) if _has_entries(path)]
    log = paths.database + "-wal"
    if os.path.exists(log):
        left.append(log)
    size = _bytes_of(paths.database)  # again: somebody may have made it meanwhile
    if not left or size > 0:
        return
    kept = sorted(os.listdir(paths.backups)) if paths.backups in left else []
    newest = f"; the newest backup there is {os.path.join(paths.backups, kept[-1])}" if kept else ""
    raise Corrupt(
        f"{paths.database} {'has 0 bytes' if size == 0 else 'is not there'}, but it held jobs: {', '.join(left)}"
        f" {'is' if len(left) == 1 else 'are'} left of them; nothing was changed{newest}; move"
        f" {os.path.basename(log)} aside and put a good backup in the database's place (those of upgrades are in"
        f" {paths.backups}), or set SCHEDQ_HOME to another folder for a new queue"
    )


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def _has_entries(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def configure(connection: sqlite3.Connection) -> None:
    """Set every pragma that durability rests on and read it back; StoreError if one does not hold."""
    for name, value in PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        got = connection.execute(f"PRAGMA {name}").fetchone()
        if got is None or got[0] != value:
            raise StoreError(
                f"the database does not keep {name} = {value} (it says {got and got[0]!r});"
                " move SCHEDQ_HOME to a local disk that allows it"
            )


def checkpoint(connection: sqlite3.Connection, paths: Paths) -> None:
    """Move a write-ahead log of more than 8 MiB into the database; after a commit, inside the turnstile."""
    try:
        size = os.stat(paths.database + "-wal").st_size
    except OSError:
        return
    if size > WAL_LIMIT:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def revision(connection: sqlite3.Connection, paths: Paths) -> str:
    """The schema revision of an open database, "" for an empty one. StoreError if it is no queue."""
    try:
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        rows = []
    if len(rows) == 1:
        return str(rows[0][0])
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        return ""
    raise StoreError(f"{paths.database} is an SQLite database, but not a queue's; it was left as it is")


def require_current(found: str, paths: Paths) -> None:
    """NewerSchema or OlderSchema unless `found` is the revision that this version reads and writes."""
    if found == REVISIONS[-1]:
        return
    if found in REVISIONS:
        raise OlderSchema(
            f"{paths.database} has schema {found}, this schedq needs {REVISIONS[-1]};"
            " run `schedq db upgrade`, it makes a backup first"
        )
    raise NewerSchema(
        f"{paths.database} has schema {found}, which a later schedq wrote; this one knows up to {REVISIONS[-1]}"
        " and left it as it is; use the later version"
    )


class told:  # noqa: N801
    """A context that turns errors of SQLite and of the disk into ours, with what to do next."""

    __slots__ = ("_paths",)

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            return
        found = error
        if not isinstance(found, (sqlite3.Error, OSError)):
            original = getattr(error, "orig", None)
            if not isinstance(original, sqlite3.Error):
                return
            found = original
        ours = translated(found, self._paths)
        if ours is not None:
            raise ours from error


def translated(error: sqlite3.Error | OSError, paths: Paths) -> SchedqError | None:
    """What an error of SQLite or of the disk means for the queue; None if it means a fault of ours."""
    if isinstance(error, OSError):
        import errno

        words = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return _full(words, paths)
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            return Temporary(
                f"{error.filename or paths.home} cannot be written ({words}); nothing was written;"
                f" make {paths.home} writable for you, or set SCHEDQ_HOME to another folder"
            )
        if error.errno == errno.EIO:
            return Temporary(f"the disk under {paths.home} reports an error ({words}); nothing was written; look at it")
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(
            f"{paths.database} is damaged ({error}); it was left as it is;"
            f" keep a copy of it and put a good backup in its place (those of upgrades are in {paths.backups})"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return Temporary(
            f"{paths.database} is locked by a program that is not schedq ({error}); nothing was written;"
            " close it and try again"
        )
    if code == sqlite3.SQLITE_CANTOPEN and not os.access(paths.home, os.W_OK):
        return Temporary(
            f"{paths.home} is read-only for you and {os.path.basename(paths.database)}-wal is in it: then even status"
            f" needs {os.path.basename(paths.database)}-shm there, which cannot be made ({error}); nothing was written;"
            " make the folder writable for you, or set SCHEDQ_HOME to a copy of it"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
        return Temporary(
            f"{paths.database} cannot be opened for this ({error}); nothing was written;"
            f" make {paths.home} and what is in it readable and writable for you"
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return _full(str(error), paths)
    return None


def _full(words: str, paths: Paths) -> Temporary:
    try:
        space = os.statvfs(paths.home)
        left = f"{space.f_bavail * space.f_frsize / (1 << 20):.1f} MiB are left"
    except OSError:
        left = "what is left cannot be read"
    return Temporary(
        f"the disk of {paths.home} took no more ({words}; {left}); nothing was written; free some space and try again"
    )
