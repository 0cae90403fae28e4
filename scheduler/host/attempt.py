"""The folders of one attempt, before its request is sent and after its answer is there.

Before: fresh `out`, `in` with the input under its own name, the job's `work`. After, what the queue has by then is
taken away; how `out` becomes the job's destination stands in publishing.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import Any

from scheduler import request
from scheduler.config import Paths
from scheduler.host import moving
from scheduler.host.workers import regular
from scheduler.model.host import Task
from scheduler.model.outcome import Outcome

Spec = dict[str, Any]

TOLD = ("params.json", "request.json")
"""What a oneshot is told in files of the attempt's folder."""

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
    os.makedirs(paths.job(task.job_id), mode=0o700, exist_ok=True)
    for folder in (place.folder, os.path.dirname(place.input_path)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    if whole:
        os.makedirs(place.out_dir, mode=0o700, exist_ok=True)
        os.makedirs(place.work_dir, mode=0o700, exist_ok=True)
    with os.fdopen(regular.made(place.input_path), "wb") as file:
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


def takes_long(task: Task) -> bool:
    """Whether a pinned file has to be read whole: same size and another time, so that only its sha256 can tell."""
    return any(kept.get("pinned") and _stands(kept) is None for kept in task.files.values())


def _stands(kept: dict[str, Any]) -> bool | None:
    """Whether a pinned file is what it was, by what can be stat'ed; None = that does not tell."""
    try:
        stat = os.stat(kept["path"])
    except OSError:
        return False
    if stat.st_size != kept["bytes"]:
        return False
    return True if stat.st_mtime_ns == kept.get("mtime_ns") else None


def _changed(kept: dict[str, Any]) -> str:
    path = kept["path"]
    try:
        bytes_now = os.stat(path).st_size
        stands = _stands(kept)
        if stands:
            return ""
        if stands is False:
            return f"{path} has {bytes_now} bytes now, and had {kept['bytes']}"
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == kept["sha256"]:
                return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path} has other contents now"


def message(task: Task, place: Desk, files: dict[str, str], spent_s: float = 0.0) -> dict[str, Any]:
    """The `predict` line: the request and where to find and put things. `spent_s` of its time are over by now."""
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
        "deadline_s": None if task.deadline_s is None else max(0.0, task.deadline_s - spent_s),
        "charge_device_gib": task.device_gib,
    }


def _put(body: Any, pointer: str, value: str) -> None:
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.lstrip("/").split("/")]
    for part in parents:
        body = body[int(part)] if isinstance(body, list) else body[part]
    body[int(last) if isinstance(body, list) else last] = value


def lay_command(spec: Spec, python: str, task: Task, place: Desk, body: dict[str, Any]) -> list[str]:
    """Put what a oneshot is told beside its input, parameters and request; the argv that names them. OSError.

    `body` is the request as a worker gets it: the parameters laid over it, its files by absolute paths.
    """
    paths = [os.path.join(place.folder, name) for name in TOLD]
    words = argv(spec, python, place, task.name, *paths)
    for path, value in zip(paths, (task.params, body), strict=True):
        if any(path in word for word in words):
            regular.put(path, json.dumps(value).encode())
    return words


def argv(spec: Spec, python: str, place: Desk, name: str, params_path: str, request_path: str) -> list[str]:
    """A oneshot command as it is run: an argv with its placeholders filled, never a shell.

    A script is told of parameters and of files that its input names where its manifest declares that there are any.
    """
    if not spec.get("command"):
        script = os.path.join(spec["folder"], spec["script"])
        words = [*spec["wrap"], python, script, *spec["args"], "--input", place.input_path, "--output", place.out_dir]
        words += ["--params", params_path] if spec["input"]["params"] else []
        return [*words, *(["--request", request_path] if spec["input"]["files"] else [])]
    values = {
        "{python}": python, "{input}": place.input_path, "{out}": place.out_dir, "{params}": params_path,
        "{request}": request_path, "{work}": place.work_dir, "{name}": name,
    }  # fmt: skip
    pattern = re.compile("|".join(re.escape(mark) for mark in values))
    return [pattern.sub(lambda found: values[found[0]], word) for word in [*spec["wrap"], *spec["command"]]]


def told(error: OSError) -> str:
    """An error of the filesystem in words, also one that stands for many."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][0][2])
    named = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror}{named}" if error.strerror else str(error)


def keep_answer(place: Desk, revision: str) -> None:
    """Keep the reply of an attempt whose outputs could not be put in place, for the next one to go on from."""
    with contextlib.suppress(OSError):
        os.rename(place.reply_path, os.path.join(place.folder, _answer(revision)))


def take_answer(paths: Paths, task: Task, revision: str) -> bool:
    """Whether an earlier attempt has answered already, by what this revision is: its reply and outputs are this one's
    then, and nothing has to be computed again. OSError if they cannot be moved.
    """
    ours = desk(paths, task.job_id, task.attempt, task.input_name)
    for number in range(task.attempt - 1, 0, -1):
        theirs = desk(paths, task.job_id, number, task.input_name)
        answer = os.path.join(theirs.folder, _answer(revision))
        if not os.path.exists(answer):
            continue
        os.rename(answer, ours.reply_path)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(ours.out_dir)
        with contextlib.suppress(FileNotFoundError):
            os.rename(theirs.out_dir, ours.out_dir)
        return True
    return False


def _answer(revision: str) -> str:
    return f"answer-{revision[:16]}.json"


def outside(text: str) -> Outcome:
    """The outcome of an attempt that the filesystem stopped: nobody's fault, tried again later, up to `later_for_s`."""
    return Outcome("error", text, None, RETRY_DISK_S)


def clear(paths: Paths, job_id: int, attempt: int, mark: str) -> None:
    """Take away what the queue has by now: the stored reply, the laid-out input, parameters and request, what a move
    of its outputs left behind, folders that stayed empty.

    Last the mark that says that something was laid out.
    """
    place = desk(paths, job_id, attempt, "")
    for path in (place.reply_path, *(os.path.join(place.folder, name) for name in TOLD)):
        with contextlib.suppress(OSError):
            os.unlink(path)
    moving.forget(place.folder)
    shutil.rmtree(os.path.join(place.folder, "in"), ignore_errors=True)
    for folder in (place.out_dir, place.work_dir):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    with contextlib.suppress(OSError):
        os.unlink(mark)
