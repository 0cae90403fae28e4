"""What a job left, copied where it is wanted: the reply into a file, the outputs beside it, whole or not at all.

Standard library only: part of `result`, an everyday verb.
"""

from __future__ import annotations

import errno
import os

from scheduler import outputs
from scheduler.cli import say
from scheduler.config import absolute
from scheduler.errors import Refused, SchedqError, Temporary, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


def write(part: bytes, target: str, folder: str, job: dict[str, Any], home: str, *, overwrite: bool) -> None:
    """Into a file by temp and rename; into a folder as `<name>.result.json`, the outputs beside it as `<name>`.

    Refused where something is there already, unless it may be overwritten, and in the folder of the queue itself,
    `home`; a device or a pipe is written into.
    """
    path = absolute(target, "--output")
    if os.path.isdir(path) or target.endswith("/"):
        name = outputs.entry(str(job["name"])) or str(job["id"])
        beside_it, path = os.path.join(path, name), os.path.join(path, name + ".result.json")
        for each in (path, beside_it) if folder else (path,):
            outputs.refuse_kept(each, home)
            refuse_taken(each, job, overwrite)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except (OSError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else "it has too many levels"
            raise UsageError(f"{os.path.dirname(path)[:200]} cannot be made: {why}; name another folder") from None
        if folder:
            copy(folder, beside_it, job)
    device = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    if not device:
        outputs.refuse_kept(path, home)
        refuse_taken(path, job, overwrite)
    beside = path if device else f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(part)
        if device:
            return
        os.rename(beside, path)
    except OSError as error:
        if not device and os.path.lexists(beside):
            os.unlink(beside)
        kind: type[SchedqError] = UsageError if error.errno in NO_PLACE else Temporary
        raise kind(f"{path} cannot be written: {error.strerror}; the result is still in the queue") from None
    say.note(f"wrote {path}")


def refuse_taken(path: str, job: dict[str, Any], overwrite: bool) -> None:
    """Refused if something is at a path that a job's result or outputs are to go to, unless it may be overwritten."""
    if not overwrite and os.path.lexists(path):
        raise Refused(
            f"{path} exists; the result of job {job['id']} would go there, choose another name or --overwrite it"
        )


def copy(folder: str, target: str, job: dict[str, Any]) -> None:
    """Copy a job's outputs to `target`, whole or not at all; what is there is moved aside.

    Refused if the outputs are another job's by now; Temporary if they cannot be copied.
    """
    import shutil

    by = outputs.maker(folder)
    if by not in (None, job["id"]):
        raise Refused(f"{folder} was overwritten by job {by}; the outputs of job {job['id']} are no longer there")
    if not os.path.isdir(folder):
        raise Refused(f"{folder} is not there any more: the outputs of job {job['id']} were moved or removed")
    beside = f"{target}.{os.getpid()}.tmp"
    try:
        shutil.copytree(folder, beside, symlinks=True)
        outputs.set_aside(target)
        os.rename(beside, target)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError | Refused):
            raise Temporary(f"{folder} cannot be copied to {target}: {error}") from None
        raise
    say.note(f"copied the outputs to {target}")
