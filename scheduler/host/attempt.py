"""The folders of one attempt, before its request is sent and after its answer is there.

Before: fresh `out`, `in` with the input under its own name, the job's `work`. After: the reply is read, the
promised outputs are looked for, and `out` becomes the job's destination by one rename, so that a destination
that exists is whole.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import Any

from scheduler import request
from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.model.host import Task
from scheduler.model.outcome import Outcome

Spec = dict[str, Any]

RETRY_DISK_S = 60.0
"""How long an attempt waits that a full or failing filesystem stopped."""


@dataclass(frozen=True)
class Desk:
    """Where one attempt reads and writes. Absolute paths."""

    folder: str
    input_path: str
    out_dir: str
    work_dir: str
    log_path: str
    reply_path: str


def desk(paths: Paths, job_id: int, attempt: int, input_name: str) -> Desk:
    """The paths of an attempt; nothing is created."""
    folder = paths.attempt(job_id, attempt)
    return Desk(
        folder=folder,
        input_path=os.path.join(folder, "in", input_name),
        out_dir=os.path.join(folder, "out"),
        work_dir=os.path.join(paths.job(job_id), "work"),
        log_path=os.path.join(folder, "log"),
        reply_path=os.path.join(paths.job(job_id), f"{attempt}.json"),
    )


def lay_out(paths: Paths, task: Task, *, whole: bool) -> Desk:
    """Make an attempt's folders and put the input's own bytes under its own name.

    `whole` makes `out` and `work` too, for a command; a worker on the kit makes them when it first looks.
    Raises OSError (disk full, read-only) before anything was sent.
    """
    place = desk(paths, task.job_id, task.attempt, task.input_name)
    for folder in (paths.job(task.job_id), place.folder, os.path.dirname(place.input_path)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    if whole:
        os.makedirs(place.out_dir, mode=0o700, exist_ok=True)
        os.makedirs(place.work_dir, mode=0o700, exist_ok=True)
    with open(place.input_path, "wb") as file:
        file.write(task.input or b"")
    return place


def lay_files(paths: Paths, task: Task, place: Desk) -> tuple[dict[str, str], str]:
    """Put the files that the input names beside it: {pointer: absolute path}, and what is wrong with one, or "".

    A file that was kept by content is linked under its own name; one that was only pinned must be what it was.
    """
    found: dict[str, str] = {}
    for number, (pointer, kept) in enumerate(task.files.items()):
        if kept.get("pinned"):
            trouble = _changed(kept)
            if trouble:
                return {}, f"the file that the input names at {pointer} is not what was submitted: {trouble}"
            found[pointer] = kept["path"]
            continue
        folder = os.path.join(place.folder, "in", str(number))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found[pointer] = os.path.join(folder, os.path.basename(kept["path"]))
        with contextlib.suppress(FileExistsError):
            os.link(paths.content_of(kept["sha256"]), found[pointer])
    return found, ""


def _changed(kept: dict[str, Any]) -> str:
    path = kept["path"]
    try:
        stat = os.stat(path)
        if (stat.st_size, stat.st_mtime_ns) == (kept["bytes"], kept.get("mtime_ns")):
            return ""
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == kept["sha256"]:
                return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path} has other contents now"


def message(task: Task, place: Desk, files: dict[str, str]) -> dict[str, Any]:
    """The `predict` line: the request and where to find and put things."""
    body = request.merged(task.input_kind, task.input or b"", task.params)
    for pointer, path in files.items():
        _put(body, pointer, path)
    return {
        "op": "predict",
        "job": task.job_id,
        "attempt": task.attempt,
        "name": task.name,
        "request": body,
        "params": task.params,
        "input_path": place.input_path,
        "out_dir": place.out_dir,
        "work_dir": place.work_dir,
        "deadline_s": task.deadline_s,
    }


def _put(body: Any, pointer: str, value: str) -> None:
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.lstrip("/").split("/")]
    for part in parents:
        body = body[int(part)] if isinstance(body, list) else body[part]
    body[int(last) if isinstance(body, list) else last] = value


def argv(spec: Spec, python: str, place: Desk, params_path: str, name: str) -> list[str]:
    """A oneshot command as it is run: an argv with its placeholders filled, never a shell."""
    if not spec.get("command"):
        script = os.path.join(spec["folder"], spec["script"])
        return [python, script, *spec["args"], "--input", place.input_path, "--output", place.out_dir]
    values = {
        "{python}": python, "{input}": place.input_path, "{out}": place.out_dir, "{params}": params_path,
        "{work}": place.work_dir, "{name}": name,
    }  # fmt: skip
    pattern = re.compile("|".join(re.escape(mark) for mark in values))
    return [pattern.sub(lambda found: values[found[0]], word) for word in [*spec["wrap"], *spec["command"]]]


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
        if not any(os.path.isfile(p) for p in glob.iglob(os.path.join(glob.escape(out_dir), pattern), recursive=True))
    ]


def publish(paths: Paths, task: Task, place: Desk, records: dict[str, Any], umask: int) -> tuple[str, Outcome | None]:
    """Move an attempt's outputs to the job's destination, whole or not at all; the destination, "" if none.

    `records` (job.json, result.json) are put beside the outputs, where the worker did not write one itself. What was
    asked for with --out follows the asker's `umask`. A second value is the outcome when that was not possible: the
    outputs stay in the attempt's folder.
    """
    if not task.out and not has_outputs(place.out_dir):
        return _already(paths, task), None
    destination = task.out or os.path.join(paths.results, str(task.job_id))
    if _published_by(destination) == (task.job_id, task.attempt):
        return destination, None
    if os.path.lexists(destination):
        text = (
            f"{destination} is there by now and was not when the job was submitted; the outputs stay in {place.out_dir}"
        )
        return "", Outcome("error", text)
    os.makedirs(place.out_dir, mode=0o700, exist_ok=True)
    for name, record in records.items():
        path = os.path.join(place.out_dir, name)
        if record is not None and (name == "job.json" or not os.path.lexists(path)):
            _write_synced(path, json.dumps(record, indent=1, sort_keys=True).encode())
            os.chmod(path, 0o666 & ~(umask if task.out else 0o077))
    if task.out:
        os.chmod(place.out_dir, 0o777 & ~umask)
    os.makedirs(os.path.dirname(destination), mode=0o777 & ~(umask if task.out else 0o077), exist_ok=True)
    _sync_tree(place.out_dir)
    crashpoint("publish.synced")
    try:
        os.rename(place.out_dir, destination)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = f"{destination}.{task.job_id}-{task.attempt}.tmp"
        shutil.rmtree(beside, ignore_errors=True)
        try:
            shutil.copytree(place.out_dir, beside, symlinks=True)
            _sync_tree(beside)
            crashpoint("publish.copied")
            os.rename(beside, destination)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        shutil.rmtree(place.out_dir, ignore_errors=True)
    _sync(os.path.dirname(destination))
    crashpoint("publish.renamed")
    return destination, None


def told(error: OSError) -> str:
    """An error of the filesystem in words, also one that stands for many."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][0][2])
    return f"{error.strerror} ({error.filename})" if error.strerror else str(error)


def outside(text: str) -> Outcome:
    """The outcome of an attempt that the filesystem stopped: nobody's fault, tried again later, up to `later_for_s`."""
    return Outcome("error", text, None, RETRY_DISK_S)


def _already(paths: Paths, task: Task) -> str:
    default = os.path.join(paths.results, str(task.job_id))
    return default if _published_by(default) == (task.job_id, task.attempt) else ""


def _published_by(destination: str) -> tuple[int, int] | None:
    try:
        with open(os.path.join(destination, "job.json"), "rb") as file:
            facts = json.load(file)
        return int(facts["job"]), int(facts["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def clear(paths: Paths, job_id: int, attempt: int) -> None:
    """Take away what the queue has by now: the stored reply, the laid-out input, folders that stayed empty."""
    place = desk(paths, job_id, attempt, "")
    with contextlib.suppress(OSError):
        os.unlink(place.reply_path)
    shutil.rmtree(os.path.join(place.folder, "in"), ignore_errors=True)
    for folder in (place.out_dir, place.work_dir):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _write_synced(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_tree(folder: str) -> None:
    for root, _folders, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            if os.path.isfile(path) and not os.path.islink(path):
                _sync(path)
        _sync(root)
