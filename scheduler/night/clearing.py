"""Files and folders taken off the disk so that a half of one is never taken for the whole: renamed first, then removed.

What is a link, or lies where a link leads, is not ours and stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from scheduler.config import Paths
from scheduler.host import removal
from scheduler.host.workers import tree
from scheduler.store import schedulers
from scheduler.store.engine import Store

AWAY = ".pruned-"
LOGS = ("log", "log.1")


def entries(folder: str) -> list[str]:
    """The names in a folder; none where there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def bytes_of(path: str) -> int:
    """What a folder or a file takes of its disk, in bytes; a link, or what is not there, takes nothing."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    if os.path.islink(path):
        return 0
    return removal.bytes_of(path) + found.st_blocks * 512 * (found.st_nlink == 1 or os.path.isdir(path))


def dropped(path: str) -> tuple[int, str]:
    """Take a file or a folder away: the bytes that this frees, and why it could not be, "" if it was.

    0 bytes where nothing is there.
    """
    if not os.path.lexists(path):
        return 0, ""
    if os.path.islink(path):
        return 0, "it is a link, and what it leads to is not the queue's"
    freed = bytes_of(path)
    try:
        if not os.path.isdir(path):
            os.unlink(path)
            return freed, ""
        away = path if os.path.basename(path).startswith(AWAY) else put_away(path, os.path.dirname(path))
        why = _removed(away)
    except OSError as error:
        return 0, error.strerror or str(error)
    return (freed - bytes_of(away) if why else freed), why


def put_away(path: str, folder: str) -> str:
    """Rename what is to go to a name in this folder that says so; that name, "" if it is not there any more."""
    away = os.path.join(folder, AWAY + os.path.basename(path))
    if os.path.lexists(away):
        _removed(away)
    try:
        os.rename(path, away)
    except FileNotFoundError:
        return ""
    return away


def _removed(path: str) -> str:
    """Remove a tree, folders that its owner may not write in too; what kept that from it, "" for nothing."""
    if not os.path.isdir(path):
        os.unlink(path)
        return ""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        for root, _, _ in os.walk(path):
            try:
                os.chmod(root, 0o700)
            except OSError:
                pass
        shutil.rmtree(path, ignore_errors=True)
    return f"not all of it could be removed: {_first(path)}" if os.path.lexists(path) else ""


def _first(path: str) -> str:
    """The first thing in a tree that stayed."""
    for root, folders, files in os.walk(path):
        if files or not folders:
            return os.path.join(root, *files[:1])
    return path


def logs_of(job_folder: str) -> list[str]:
    """The logs of a job's attempts, with their predecessors."""
    return [
        path
        for name in entries(job_folder)
        if name.isascii() and name.isdecimal()
        for log in LOGS
        if os.path.isfile(path := os.path.join(job_folder, name, log))
    ]


def log_bytes(job_folder: str) -> int:
    """What those take."""
    return sum(map(bytes_of, logs_of(job_folder)))


def not_living(paths: Paths, store: Store, worker_ids: Sequence[int]) -> list[str]:
    """The folders of those workers of which no process is alive, by name."""
    if not worker_ids:
        return []
    with store.read() as tx:
        living = tree.Living(schedulers.queue_id(tx))
    return [str(each) for each in worker_ids if not living.has(paths.worker(each), each)]


def old_backups(paths: Paths, keep: int) -> list[str]:
    """The backups but the newest, and those that were never finished by a process that has ended, by name."""
    names = [name for name in entries(paths.backups) if name.startswith("queue-")]
    whole = [name for name in names if name.endswith(".db")]
    whole.sort(key=lambda name: os.lstat(os.path.join(paths.backups, name)).st_mtime, reverse=True)
    parts = [name for name in names if ".part-" in name]
    dead = [name for name in parts if not os.path.exists(f"/proc/{name.rpartition('-')[2]}")]
    return [*whole[keep:], *dead]
