"""`schedq version`: what is running here, and where it lies."""

from __future__ import annotations

import os
import sys

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.config import Paths, config_files, manifest_folders

VERSION = "0.1.0"
_REPAIRED = ((3, 44, 6, 3, 45, 0), (3, 50, 7, 3, 51, 0))


def wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Whether SQLite of this version can damage a WAL database that two connections write (E11)."""
    if version >= (3, 51, 3) or version < (3, 7, 0):
        return False
    return not any(each[:3] <= version < each[3:] for each in _REPAIRED)


def version(call: Call) -> int:
    """Print versions and paths."""
    from scheduler.store import connection

    library = connection.library()
    number, bug = ".".join(map(str, library)), wal_reset_bug(library)
    about = {
        "schema_version": 1,
        "schedq": VERSION,
        "python": sys.version.split()[0],
        "python_path": sys.executable,
        "sqlite": number,
        "sqlite_path": _library(),
        "sqlite_wal_reset_bug": bug,
        "package": os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        "home": Paths().home,
        "manifests": manifest_folders(),
        "config": [path for path in config_files() if os.path.exists(path)],
    }
    if call.flag("json"):
        say.out(say.document(about))
        return 0
    say.out(f"schedq  {VERSION:8} {say.plain(str(about['package']))}")
    say.out(f"python  {about['python']:8} {say.plain(sys.executable)}")
    say.out(f"sqlite  {number:8} {say.plain(str(about['sqlite_path']))}")
    if bug:
        say.out(" " * 17 + "safe here: schedq lets in one writer at a time")
    say.out(f"queue            {say.plain(str(about['home']))}")
    return 0


def _library() -> str:
    try:
        with open("/proc/self/maps") as maps:
            found = [line.rstrip().partition("/")[2] for line in maps if "sqlite3" in line]
    except OSError:
        return ""
    return "/" + next((path for path in found if "libsqlite3" in path), found[0]) if found else ""
