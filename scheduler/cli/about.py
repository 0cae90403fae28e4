"""`schedq version`: what is running here, and where it lies."""

from __future__ import annotations

import os
import sys

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.config import Paths, config_files, manifest_folders
from scheduler.rules.health import wal_fault

VERSION = "0.1.0"


def version(call: Call) -> int:
    """Print versions and paths."""
    from scheduler.store import connection

    library = connection.library()
    number, bug = ".".join(map(str, library)), wal_fault(library)
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
