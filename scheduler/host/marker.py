"""What makes an environment that we built good: a marker, written last, that still holds.

The marker says what the environment was built for, by which interpreter, and what it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Callable
from typing import Any

from scheduler.crash import crashpoint
from scheduler.host import interpreters

Ask = Callable[[str], interpreters.Interpreter | str | None]

MARKER = "schedq-environment.json"
ASIDE = ".aside"


def folder_of(root: str, digest: str) -> str:
    """The folder below `root` that the environment of a hash lies in."""
    return os.path.join(root, digest.rpartition(":")[2][:32])


def python_in(path: str) -> str:
    """The interpreter of the environment in a folder."""
    return os.path.join(path, "bin", "python")


def read(path: str) -> dict[str, Any] | None:
    """The marker of the environment in a folder: hash, python, version, stat, packages; None if there is none."""
    try:
        with open(os.path.join(path, MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError):
        return None
    known = isinstance(marker, dict) and {"hash", "python", "version", "stat", "packages"} <= marker.keys()
    return marker if known and isinstance(marker["packages"], list) else None


def put_aside(path: str) -> None:
    """Nothing starts any more in the environment of a folder, whose lock is held; `put_back` undoes it."""
    made = os.path.join(path, MARKER)
    with contextlib.suppress(FileNotFoundError):
        os.rename(made, made + ASIDE)


def put_back(path: str) -> None:
    """What was put aside counts again: its removal did not come about, or was killed. Its folder's lock is held."""
    made = os.path.join(path, MARKER)
    with contextlib.suppress(FileNotFoundError):
        if not os.path.exists(made):
            os.rename(made + ASIDE, made)


def foreign(path: str) -> str:
    """The kind of machine that the environment in a folder was built on, if it is not this one's; "" if it is."""
    kind = str((read(path) or {}).get("machine") or os.uname().machine)
    return "" if kind == os.uname().machine else kind


def stat_of(path: str) -> list[int]:
    """What tells that an interpreter is another file than it was."""
    info = os.stat(path)
    return [info.st_size, info.st_mtime_ns]


def fault(path: str, digest: str, ask: Ask | None = None) -> str:
    """Why the folder is no good environment of this hash; empty if it is."""
    marker = read(path)
    if marker is None:
        return "its installation did not finish"
    if marker["hash"] != digest:
        return "it was built for another declaration"
    if foreign(path):
        return f"it was built on a machine of another kind, {foreign(path)}"
    python = python_in(path)
    if not os.access(python, os.X_OK):
        return f"its interpreter {marker['python']} is gone"
    if os.path.realpath(python) != marker["python"]:
        return f"its interpreter was {marker['python']} and is now {os.path.realpath(python)}"
    try:
        stands = stat_of(python) == marker["stat"]
    except OSError as error:
        return f"its interpreter {marker['python']} cannot be read: {error.strerror}"
    if not stands:
        now = (ask or interpreters.probe)(python)
        if isinstance(now, str):
            return f"its interpreter does not run: {now}"
        if now is not None and now.version.split(".")[:2] != marker["version"].split(".")[:2]:
            return f"its interpreter was Python {marker['version']} and is now {now.version}"
    return ""


def sync(fd: int) -> None:
    """All that was written to the filesystem of a descriptor reaches its disk. OSError if it does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def write(path: str, lock: int, marker: dict[str, Any]) -> None:
    """Everything that was installed reaches the disk, then the marker does: a marker never vouches for lost files."""
    sync(lock)
    aside = os.path.join(path, MARKER + ".tmp")
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(marker, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(aside, 0o644)
    crashpoint("environment marker aside")
    os.rename(aside, os.path.join(path, MARKER))
    os.fsync(lock)
