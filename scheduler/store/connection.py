"""One way to open the queue's database: its pragmas set and read back, its errors in our words.

Writers open, write, checkpoint and close inside the turnstile only: SQLite before 3.51.3 can corrupt a WAL
database when two connections do so at once (E11). Nothing here ever open()s the database's files past SQLite;
closing such a descriptor would drop SQLite's own locks. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler.config import Paths
from scheduler.errors import Corrupt, DiskFull, NewerSchema, OlderSchema, SchedqError, StoreError, Temporary
from scheduler.store.folders import require_local
from scheduler.store.kept import is_made, is_marked, without_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
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

    It never makes the file, and changes nothing in one that is no queue's (StoreError, Corrupt). `shared`: it may be
    used from another thread than the one that opened it.
    """
    require_local(paths)
    is_made(paths)
    connection = sqlite3.connect(
        uri(paths.database, "rw"), uri=True, isolation_level=None, timeout=BUSY_MS / 1000, check_same_thread=not shared
    )
    try:
        revision(connection, paths)
        configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(paths: Paths, *, at_rest: bool = False) -> sqlite3.Connection:
    """A connection that cannot write and never checkpoints. Hold its snapshot for 5 s at most.

    In a folder that cannot be written and where no log is, nobody has the database open: it is read as it lies,
    without the shared memory that SQLite would make beside it. `at_rest`: so in any folder, to leave nothing behind.
    """
    require_local(paths)
    is_made(paths)
    as_it_lies = not os.path.exists(paths.database + "-wal") and (at_rest or not os.access(paths.home, os.W_OK))
    where = uri(paths.database, "ro") + ("&immutable=1" if as_it_lies else "")
    connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=BUSY_MS / 1000, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = 0")
    except BaseException:
        connection.close()
        raise
    return connection


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


def checkpoint(connection: sqlite3.Connection, paths: Paths) -> str:
    """Move a write-ahead log of more than 8 MiB into the database; what stood in the way of that, "" for nothing.

    After a commit, inside the turnstile. Never raises: what was committed stands, in the log as in the database.
    """
    size = 0
    try:
        size = os.stat(paths.database + "-wal").st_size
        if size > WAL_LIMIT:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    except FileNotFoundError:
        return ""
    except (sqlite3.Error, OSError) as error:
        return (
            f"the log of {paths.database} ({size / (1 << 20):.1f} MiB) stays as long as it is, nothing is lost by that:"
            f" it cannot be moved into the database ({error}); free some space on the disk of {paths.home}"
        )
    return ""


def revision(connection: sqlite3.Connection, paths: Paths) -> str:
    """The schema revision of an open database, "" for an empty one. StoreError if it is no queue.

    Corrupt if it is empty although a queue was made here: looked up before the snapshot, which may be older.
    """
    marked = is_marked(paths)
    try:
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.OperationalError as error:
        if not _lacks(error):
            raise
        rows = []
    if len(rows) == 1:
        return str(rows[0][0])
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        if marked:
            raise without_schema(paths)
        return ""
    raise StoreError(f"{paths.database} is an SQLite database, but not a queue's; it was left as it is")


def _lacks(error: sqlite3.Error) -> bool:
    """Whether a table or a column is not there that the schema has."""
    return str(error).startswith(("no such table", "no such column"))


def require_current(found: str, paths: Paths) -> None:
    """NewerSchema or OlderSchema unless `found` is the revision that this version reads and writes."""
    if found == REVISIONS[-1]:
        return
    if found in REVISIONS:
        from scheduler.wake import scheduler_runs

        raise OlderSchema(
            f"{paths.database} has schema {found}, this schedq needs {REVISIONS[-1]}"
            + (
                ", and an earlier version's scheduler runs: `schedq restart` has it hand over, its workers stay, and"
                " upgrades; it makes a backup first"
                if scheduler_runs(paths)
                else "; run `schedq db upgrade`, it makes a backup first"
            )
        )
    raise NewerSchema(
        f"{paths.database} has schema {found}, which a later schedq wrote; this one knows up to {REVISIONS[-1]}"
        " and left it as it is; use the later version"
    )


class told:  # noqa: N801
    """A context that turns errors of SQLite and of the disk into ours, with what to do next.

    `reading`: nothing would have been written, so that is not said.
    """

    __slots__ = ("_paths", "_reading")

    def __init__(self, paths: Paths, *, reading: bool = False) -> None:
        self._paths, self._reading = paths, reading

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
        ours = translated(found, self._paths, reading=self._reading)
        if ours is not None:
            raise ours from error


def translated(error: sqlite3.Error | OSError, paths: Paths, *, reading: bool = False) -> SchedqError | None:
    """What an error of SQLite or of the disk means for the queue; None if it means a fault of ours."""
    undone = "" if reading else " nothing was written;"
    if isinstance(error, OSError):
        return _of_disk(error, paths, undone)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = os.path.basename(paths.database)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or (code == sqlite3.SQLITE_ERROR and _lacks(error)):
        return Corrupt(
            f"{paths.database} is damaged ({error}); it was left as it is;"
            f" keep a copy of it and put a good backup in its place (those of upgrades are in {paths.backups})"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return Temporary(
            f"{paths.database} is locked by a program that is not schedq ({error});{undone} close it and try again"
        )
    closed = not os.access(paths.database, os.R_OK)
    if code == sqlite3.SQLITE_CANTOPEN and not closed and not os.access(paths.home, os.W_OK):
        if not os.path.exists(f"{paths.database}-wal"):
            return Temporary(
                f"{paths.home} is read-only for you, and to write in the queue {name}-wal must be made there ({error});"
                f"{undone} make the folder writable for you, or set SCHEDQ_HOME to another folder"
            )
        return Temporary(
            f"{paths.home} is read-only for you and {name}-wal is in it: then even status needs {name}-shm there, which"
            f" cannot be made ({error});{undone} make the folder writable for you, or set SCHEDQ_HOME to a copy of it"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
        return Temporary(
            f"{paths.database} cannot be opened for this ({error});{undone}"
            f" make {paths.home} and what is in it readable{'' if reading else ' and writable'} for you"
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return _full(str(error), paths, undone)
    return None


def _of_disk(error: OSError, paths: Paths, undone: str) -> Temporary | None:
    import errno

    words, where = error.strerror or str(error), str(error.filename or paths.home)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return _full(words, paths, undone)
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        cannot, able = ("cannot be read", "readable") if undone == "" else ("cannot be written", "writable")
        return Temporary(
            f"{where} {cannot} ({words});{undone} make {paths.home} {able} for you,"
            " or set SCHEDQ_HOME to another folder"
        )
    if error.errno == errno.EIO:
        return Temporary(f"the disk under {paths.home} reports an error ({words});{undone} look at it")
    in_the_way = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENOENT, errno.ENAMETOOLONG)
    if error.errno in in_the_way and (where.startswith(paths.home) or paths.home.startswith(where)):
        return Temporary(
            f"{where} cannot be used ({words});{undone} {paths.home} must be a folder of yours and what is in it as"
            " schedq made it: move away what is in the way, or set SCHEDQ_HOME to another folder"
        )
    return None


def room_left(paths: Paths) -> str:
    """What the disk of the queue has left, in words with the figure in MiB."""
    at = paths.home
    while not os.path.exists(at):
        at = os.path.dirname(at)
    try:
        space = os.statvfs(at)
    except OSError:
        return "what is left cannot be read"
    return f"{space.f_bavail * space.f_frsize / (1 << 20):.1f} MiB are left"


def _full(words: str, paths: Paths, undone: str) -> DiskFull:
    return DiskFull(
        f"the disk of {paths.home} took no more ({words}; {room_left(paths)});{undone} free some space and try again"
    )
