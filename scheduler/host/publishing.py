"""How an attempt's outputs become its job's: by one rename, so that a destination that exists is whole.

What the disk cannot do now may be done later and is raised; what the destination will never take is an outcome.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from typing import Any

from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.host import moving
from scheduler.host.attempt import Desk, Spec, told
from scheduler.host.workers import regular
from scheduler.model.host import Task
from scheduler.model.outcome import Outcome

log = logging.getLogger("schedq")

OF_THE_DISK = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
        errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN,
        errno.EREMOTEIO,
    }
)  # fmt: skip
"""What may pass: the same outputs may go to the same place later. Everything else is the destination's own fault."""


def has_outputs(out_dir: str) -> bool:
    """Whether the attempt wrote anything."""
    try:
        with os.scandir(out_dir) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


def missing_outputs(spec: Spec, out_dir: str) -> list[str]:
    """The promised patterns that no file matches."""
    return [
        pattern
        for pattern in spec["outputs"]
        if not any(os.path.isfile(place) for place in _matching(out_dir, pattern))
    ]


def _matching(out_dir: str, pattern: str) -> Iterator[str]:
    """What a pattern of a manifest finds; also a name that begins with a dot, as an input's may."""
    return glob.iglob(os.path.join(glob.escape(out_dir), pattern), recursive=True, include_hidden=True)


def publish(paths: Paths, task: Task, place: Desk, records: dict[str, Any], umask: int) -> tuple[str, Outcome | None]:
    """Move an attempt's outputs to the job's destination, whole or not at all; the destination, "" if none.

    `records` (job.json, result.json) are put beside the outputs, where the worker did not write one itself. What was
    asked for with --out follows the asker's `umask`. What is no file, folder or link is not published, and logged. A
    second value is the outcome when the destination will not take them, now or later, or the worker left something
    else in their place: the outputs stay in the attempt's folder. Raises OSError for what is the disk's (full,
    failing).
    """
    unfit = _unfit(place.out_dir)
    if unfit:
        return "", _kept(task, place, records, unfit)
    if not task.out and not has_outputs(place.out_dir):
        return "", None
    destination = _destination(paths, task)
    try:
        return _moved(task, place, destination, records, umask)
    finally:
        moving.drop_copies(destination, records["job.json"])


def _moved(
    task: Task, place: Desk, destination: str, records: dict[str, Any], umask: int
) -> tuple[str, Outcome | None]:
    if os.path.lexists(destination):
        why = f"{destination} is there by now and was not when the job was submitted"
        return "", _kept(task, place, records, why)
    os.makedirs(place.out_dir, mode=0o700, exist_ok=True)
    for name, record in records.items():
        path = os.path.join(place.out_dir, name)
        if record is not None and (name == "job.json" or not os.path.lexists(path)):
            mode = 0o666 & ~(umask if task.out else 0o077)
            regular.put(path, json.dumps(record, indent=1, sort_keys=True).encode(), mode=mode, sync=True)
    if task.out:
        os.chmod(place.out_dir, 0o777 & ~umask)
    for name in _sync_tree(place.out_dir):
        log.warning("job %d: %r is no file, folder or link and was not kept among its outputs", task.job_id, name)
    crashpoint("publish.synced")
    moving.note(place.folder, destination, records["job.json"])
    try:
        _make_folders(os.path.dirname(destination), 0o777 & ~(umask if task.out else 0o077))
        _put_in_place(place.out_dir, destination, moving.beside(destination, records["job.json"], task.attempt))
    except (OSError, RecursionError) as error:
        if isinstance(error, OSError) and _number_of(error) in OF_THE_DISK:
            raise
        why = told(error) if isinstance(error, OSError) else "they are nested too deep to be copied"
        return "", _kept(task, place, records, f"the outputs cannot be put at {_cut(destination)}: {_cut(why)}")
    crashpoint("publish.renamed")
    return destination, None


def _unfit(out_dir: str) -> str:
    """What a worker put where its folder of outputs, or our record in it, has to be; "" if nothing is in the way."""
    try:
        if not stat.S_ISDIR(os.lstat(out_dir).st_mode):
            return f"{out_dir} is not the folder that the outputs belong into: the worker put something else there"
        if stat.S_ISDIR(os.lstat(os.path.join(out_dir, "job.json")).st_mode):
            return "the worker made a folder job.json among its outputs, where schedq puts a file of that name"
    except FileNotFoundError:
        pass
    return ""


def _kept(task: Task, place: Desk, records: dict[str, Any], why: str) -> Outcome:
    """The outcome where outputs found no place; who tries a worker says himself where they are then."""
    stay = f"; the outputs stay in {place.out_dir}, and schedq result {task.job_id} has the reply"
    return Outcome("error", why if records["job.json"].get("tried") else why + stay)


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _put_in_place(out_dir: str, destination: str, beside: str) -> None:
    """One rename; on another filesystem a copy beside, synced, and then the rename."""
    try:
        os.rename(out_dir, destination)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(out_dir, beside, symlinks=True)
        _sync_tree(beside)
        crashpoint("publish.copied")
        os.rename(beside, destination)
        moving.drop(out_dir)
    with contextlib.suppress(PermissionError):  # a folder that takes names and shows none cannot be synced
        moving.sync(os.path.dirname(destination))


def _number_of(error: OSError) -> int | None:
    """The errno of an error, also of one that stands for many; None where there is none (a pipe cannot be copied)."""
    if error.errno is not None:
        return error.errno
    found = re.search(r"\[Errno (\d+)\]", told(error))
    return int(found[1]) if found else None


def published(paths: Paths, task: Task, place: Desk) -> tuple[str, Outcome | None]:
    """Where this attempt's outputs lie if they were put in place before, by a scheduler that ended then; else "".

    A second value is the outcome when they were put there and are there no more: then nothing is left to publish.
    Told by the note that was made before the move, so that no other queue's job at that place is taken for this one.
    """
    facts = moving.noted(place.folder)
    if facts is None:
        return "", None
    destination = _destination(paths, task)
    if moving.arrived(destination, facts):
        moving.drop(place.out_dir)
        moving.drop_copies(destination, facts)
        return destination, None
    if os.path.lexists(place.out_dir):
        return "", None
    text = (
        f"the outputs were put at {_cut(destination)} by a scheduler that ended then, and are not there any more: they"
        f" were moved, removed or replaced; schedq result {task.job_id} has the reply"
    )
    return "", Outcome("error", text)


def _destination(paths: Paths, task: Task) -> str:
    return task.out or os.path.join(paths.results, str(task.job_id))


def _make_folders(folder: str, mode: int) -> None:
    """Make a folder and those above it with this mode, whatever this process's own umask is."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)
            os.chmod(each, mode)


def _sync_tree(folder: str) -> list[str]:
    """Sync every file and folder of a tree; what is neither, and no link, is taken out and named: nobody could read it.

    Names are relative to the tree's own.
    """
    dropped = []
    for root, _folders, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                moving.synced(regular.opened(path))
            elif not stat.S_ISLNK(mode):
                os.unlink(path)
                dropped.append(os.path.relpath(path, folder))
        moving.sync(root)
    return dropped
