"""`schedq artifacts`: the files that a job left, those of its failed attempts too, and what became of them."""

from __future__ import annotations

import os
from collections import Counter

from scheduler import outputs
from scheduler.cli import ids, say, stamps
from scheduler.cli.fast import Call
from scheduler.client import ENDED, ending
from scheduler.config import Paths, absolute
from scheduler.errors import Refused, SchedqError, Temporary, UsageError
from scheduler.store import peek
from scheduler.store.absent import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Row = dict[str, Any]

CHUNK = 4 << 20
LOGS = ("log", "log.1")


def artifacts(call: Call) -> int:
    """Print the path of each file that jobs left, or copy their outputs; the exit code of the last that has none."""
    paths = Paths()
    jobs = peek.jobs(paths, chosen := ids.needed(call, paths))
    if gone := set(chosen) - {job["id"] for job in jobs}:
        raise missing(sorted(gone), paths)
    if not jobs:
        say.note("no job matches")
    target = call.text("output")
    if target is not None:
        return _all_copied(jobs, target, paths, overwrite=call.flag("overwrite"))
    if call.flag("json"):
        told_of = [_document(job, paths, sums=call.flag("sha256")) for job in jobs]
        one = len(jobs) == 1 and not call.text("batch")
        say.out(say.document({"schema_version": 1, **(told_of[0] if one else {"jobs": told_of})}))
        return 0
    for job in jobs:
        if len(jobs) > 1 and os.isatty(1):
            say.out(say.paint(say.cut(f"job {job['id']}  {job['slug']}  {job['name']}", say.page_width()), "bold"))
        _shown(job, paths, sums=call.flag("sha256"))
    return 0


def _shown(job: Row, paths: Paths, *, sums: bool) -> None:
    found, notes = _files(job, paths, sums=sums), told(job)
    lines = [line for row in found for line in _lines(row, sums=sums)]
    if lines:
        say.out("\n".join(lines))
    for note in notes if lines else notes or [f"job {job['id']} is {job['state']} and has left no file yet"]:
        say.note(note)


def _document(job: Row, paths: Paths, *, sums: bool) -> Row:
    keys = ("id", "state", "slug", "variant", "name", "out", "pruned_at", "logs_pruned_at")
    files, notes = _files(job, paths, sums=sums), told(job)
    about = {**{key: job[key] for key in keys}, "destination": destination(job), "input": _input(job)}
    return {**about, "files": files, "notes": notes}


def _files(job: Row, paths: Paths, *, sums: bool) -> list[Row]:
    found = list(files_of(job, paths))
    for row in found if sums else ():
        row["sha256"] = _sha256(row["path"]) if row["is"] == "file" else None
    return found


def destination(job: Row) -> str:
    """The folder of a job's outputs; "" if it has none."""
    return str((job.get("result") or {}).get("destination") or "")


def files_of(job: Row, paths: Paths) -> Iterator[Row]:
    """Each file that a job (as peek.job has it) left: {"kind", "attempt", "path", "bytes", "is"}, outputs first.

    `kind`: output, job.json, out (what a failed attempt wrote), log, input, file (that its input names), work. What
    lies in `work` is told as one folder.
    """
    folder = destination(job)
    if folder and not _overwritten(job):
        yield from _below(folder, "output")
    if job["input_bytes"] and job["input_sha256"] and os.path.exists(paths.content_of(job["input_sha256"])):
        yield _row("input", paths.content_of(job["input_sha256"]))
    for kept in (job.get("files") or {}).values():
        path = kept["path"] if kept.get("pinned") else paths.content_of(kept["sha256"])
        if os.path.exists(path):
            yield _row("file", path)
    for attempt in range(1, int(job["attempt"]) + 1):
        place = paths.attempt(job["id"], attempt)
        yield from _below(os.path.join(place, "out"), "out", attempt)
        yield from (_row("log", path, attempt) for log in LOGS if os.path.isfile(path := os.path.join(place, log)))
    work = os.path.join(paths.job(job["id"]), "work")
    if os.path.isdir(work):
        yield {**_row("work", work), "bytes": sum(each["bytes"] for each in _below(work, "work")), "is": "folder"}


def _below(folder: str, kind: str, attempt: int | None = None) -> Iterator[Row]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            record = name == "job.json" and root == folder
            yield _row(name if record else kind, os.path.join(root, name), attempt)


def _row(kind: str, path: str, attempt: int | None = None) -> Row:
    is_link = os.path.islink(path)
    try:
        count = os.lstat(path).st_size
    except OSError:
        count = 0
    return {"kind": kind, "attempt": attempt, "path": path, "bytes": count, "is": "link" if is_link else "file"}


def _sha256(path: str) -> str | None:
    """None where it cannot be read."""
    from hashlib import sha256

    seen = sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(CHUNK):
                seen.update(block)
    except OSError:
        return None
    return seen.hexdigest()


def _input(job: Row) -> Row:
    keys = ("input_name", "input_kind", "input_bytes", "input_sha256")
    return {key.removeprefix("input_"): job[key] for key in keys}


def _overwritten(job: Row) -> int | None:
    """The job whose outputs lie at this one's destination by now; None if they are its own."""
    by = outputs.maker(destination(job))
    return by if by not in (None, job["id"]) else None


def told(job: Row) -> list[str]:
    """What is to be said of a job's files beside their paths: failed, pruned, overwritten, gone."""
    notes, folder = [], destination(job)
    if job["pruned_at"]:
        stays = f"; its outputs stay at {folder}" if folder and os.path.isdir(folder) else ""
        notes.append(f"job {job['id']} was pruned {_when(job['pruned_at'])}: its input, reply and logs are gone{stays}")
    elif job["logs_pruned_at"]:
        notes.append(f"the logs of job {job['id']} were pruned {_when(job['logs_pruned_at'])}")
    if job["state"] in ENDED and job["state"] != "succeeded":
        notes.append(f"job {job['id']} {ending(job)}" + "; what its attempts left is listed" * (not job["pruned_at"]))
    if folder and (by := _overwritten(job)):
        notes.append(f"{folder} was overwritten by job {by}: the outputs of job {job['id']} are no longer there")
    elif folder and not os.path.isdir(folder):
        notes.append(f"{folder} is not there any more: the outputs of job {job['id']} were moved or removed")
    elif job["state"] == "succeeded" and not folder and not job["pruned_at"]:
        notes.append(f"job {job['id']} wrote no files; schedq result {job['id']} has its reply")
    return notes


def _when(at: str) -> str:
    return f"on {stamps.local(at)}"


def _lines(row: Row, *, sums: bool) -> list[str]:
    path = row["path"]
    if sums:
        return [f"{row['sha256']}  {path}"] if row.get("sha256") else []
    if not os.isatty(1):
        return [path]
    from scheduler.cli.sizes import size

    kind = row["kind"] + (f" {row['attempt']}" if row["attempt"] else "")
    return [f"{size(row['bytes']):>10}  {say.fill(kind, 9)} {say.plain(path)}"]


def _all_copied(jobs: list[Row], target: str, paths: Paths, *, overwrite: bool) -> int:
    """Copy the outputs of each; of several, one that has none is told and the others are copied."""
    if len(jobs) == 1:
        return _copied(jobs[0], _entry(jobs[0]), target, paths, overwrite=overwrite)
    named, code = Counter(map(_entry, jobs)), 0
    for job in jobs:
        entry = _entry(job)
        entry = entry if named[entry] == 1 else f"{entry}-{job['id']}"
        try:
            _copied(job, entry, target, paths, overwrite=overwrite)
        except SchedqError as error:
            say.note(f"schedq: {error}")
            code = error.exit_code
    return code


def _entry(job: Row) -> str:
    """What the folder of a job's copied outputs is called."""
    return outputs.entry(str(job["name"])) or str(job["id"])


def _copied(job: Row, entry: str, target: str, paths: Paths, *, overwrite: bool) -> int:
    """Copy the outputs into a folder, as `entry`; Refused where there are none."""
    from scheduler.cli import copying

    folder = destination(job)
    if not folder:
        if job["state"] not in ENDED:
            raise Temporary(f"job {job['id']} is {job['state']} and has no outputs yet; schedq wait {job['id']}")
        why = "; ".join(told(job)).replace("; what its attempts left is listed", "")
        left = f"; schedq artifacts {job['id']} lists what its attempts left" * (not job["pruned_at"])
        raise Refused(f"there are no outputs to copy: {why}{left}")
    above = absolute(target, "--output")
    place = os.path.join(above, entry)
    outputs.refuse_kept(place, paths.home)
    copying.refuse_taken(place, job, overwrite)
    try:
        os.makedirs(above, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{above[:200]} cannot be made: {error.strerror}; name another folder") from None
    copying.copy(folder, place, job)
    say.out(place)
    return 0
