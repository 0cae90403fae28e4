"""The files that workers leave: folders made safely, the record of an end, and what may be removed when."""

from __future__ import annotations

import json
import os
import shutil
import socket

from scheduler.clock import now_s
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host.workers import regular, tree

FOLDERS_KEPT_S = 86_400.0
RECORD_MAX = 1 << 16


def own_folder(folder: str) -> None:
    """Make the folder of sockets, 0700; SchedqError if it is somebody else's (it may lie in /tmp)."""
    os.makedirs(folder, 0o700, exist_ok=True)
    found = os.lstat(folder)
    if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
        raise SchedqError(
            f"{folder} must be a folder of uid {os.getuid()} with mode 0700, and is of uid {found.st_uid} with mode "
            f"{found.st_mode & 0o7777:04o}; move it away or correct it"
        )


def lay_mark(folder: str, job_id: int, attempt: int) -> str:
    """Note in a worker's folder that something is laid out for an attempt: the note's path, there or not."""
    path = os.path.join(folder, f"laid-{job_id}-{attempt}")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # without it, what a crash leaves of this attempt is there until it is pruned
    return path


def laid(paths: Paths) -> list[tuple[str, int, int]]:
    """Every such note: (its path, job id, attempt). Those of attempts that are over were left by a crash."""
    found = []
    for name in _listed(paths.workers):
        for note in _listed(os.path.join(paths.workers, name)):
            word, *numbers = note.split("-")
            if word == "laid" and len(numbers) == 2 and all(number.isdigit() for number in numbers):
                path = os.path.join(paths.workers, name, note)
                found.append((path, int(numbers[0]), int(numbers[1])))
    return found


def sweep(paths: Paths, queue_id: str = "", older_than_s: float = FOLDERS_KEPT_S) -> list[str]:
    """Remove what dead workers left: sockets and temp files at once, their folders after a day. What was removed.

    A socket is left alone while its worker's lock is held or somebody answers on it.
    """
    removed = dead_sockets(paths)
    for path in removed:
        os.unlink(path)
    living: tree.Living | None = None
    aged = set(old_folders(paths, older_than_s))
    for name in _listed(paths.workers):
        folder = os.path.join(paths.workers, name)
        if not name.isdigit() or tree.is_held(folder):
            continue
        old = folder in aged
        if old and queue_id:
            living = living or tree.Living(queue_id)
            old = not living.has(folder, int(name))
        if old:
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
            continue
        for left in _listed(folder):
            if left.endswith(".tmp"):
                os.unlink(os.path.join(folder, left))
                removed.append(os.path.join(folder, left))
    return removed


def dead_sockets(paths: Paths) -> list[str]:
    """The sockets in the queue's own folder of them that nobody serves: their worker's lock is free, none answers."""
    found = []
    for name in _listed(paths.run):
        worker, dot, kind = name.partition(".")
        path = os.path.join(paths.run, name)
        dead = worker.isdigit() and dot and kind[:1] in "kw" and not tree.is_held(paths.worker(int(worker)))
        if dead and not _answers(path):
            found.append(path)
    return found


def old_folders(paths: Paths, older_than_s: float) -> list[str]:
    """The folders of workers, living or not, in which nothing was changed for so long and whose lock is free."""
    found = []
    for name in _listed(paths.workers):
        folder = os.path.join(paths.workers, name)
        if name.isdigit() and not tree.is_held(folder) and now_s() - os.stat(folder).st_mtime > older_than_s:
            found.append(folder)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(1.0)
        try:
            sock.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


def recorded_exit(folder: str) -> tuple[int | None, str]:
    """The leader's exit status as its keeper noted it (None = nobody did), and why the worker was ended."""
    try:
        record = json.loads(regular.content(os.path.join(folder, "exit.json"), RECORD_MAX))
        return record["exit_code"], str(record.get("why") or "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, ""


def last_line(path: str) -> str:
    """The last line of a log that says something, at most 500 characters of it."""
    try:
        said = regular.tail(path, 8192).decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in said.splitlines() if line.strip()]
    return "".join(c for c in lines[-1].strip() if c.isprintable())[:500] if lines else ""


def worker_words(log: str) -> str:
    """The last thing that a worker said into a log that is rotated."""
    return last_line(log) or last_line(log + ".1")


def clear(folder: str, *sockets: str) -> None:
    """Take away a dead worker's sockets and its TMPDIR; its log and records stay."""
    for path in sockets:
        try:
            os.unlink(path)
        except OSError:
            pass
    shutil.rmtree(os.path.join(folder, "tmp"), ignore_errors=True)
