"""`result` and `log`: what came out of jobs, and what their workers wrote."""

from __future__ import annotations

import os

from scheduler import outputs
from scheduler.cli import ids as names
from scheduler.cli import say, stamps
from scheduler.cli.fast import Call
from scheduler.client import ENDED, Client, at_pointer, ending
from scheduler.config import Paths
from scheduler.errors import Pruned, SchedqError, Temporary, UsageError
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO


def why(job: dict[str, Any], paths: Paths) -> str:
    """Why a job (as peek.job has it) waits; of a broken provider also the verb that shows what its worker wrote."""
    reason = job.get("reason") or {}
    text = str(reason.get("text") or "")
    if reason.get("ruling") == "breaker" and (_logs(paths, job) or start_of(paths, job)):
        return f"{text}; schedq log {job['id']} shows what its worker wrote"
    return text


def result(call: Call) -> int:
    """A job's reply, whole or in part, on stdout or in a file."""
    client = Client()
    reply, folder, job = client.reply(names.one(call.text("id") or "", client.paths))
    pointer, target = call.text("pointer"), call.text("output")
    if target == "-":
        target = None
    part = reply
    if pointer is not None:
        import json

        value = at_pointer(json.loads(reply), pointer)
        raw = isinstance(value, str) and not call.flag("json")
        text = value if raw else say.document(value, indent=False if target or call.flag("json") else None)
        part = text.encode("utf-8", "surrogatepass" if raw else "strict")
        if not target:
            say.data(part if raw and text.endswith("\n") else part + b"\n")
            _note_failed(job)
            return 0
    if target:
        from scheduler.cli.copying import write

        write(part, target, folder, job, client.paths.home, overwrite=call.flag("overwrite"))
        _note_failed(job)
        return 0
    from scheduler.cli.requests import print_reply

    print_reply(reply, one_line=call.flag("json"))
    _note_failed(job)
    if folder:
        by = outputs.maker(folder)
        say.note(f"outputs: {folder}" + (f" was overwritten by job {by}" if by not in (None, job["id"]) else ""))
    return 0


def _note_failed(job: dict[str, Any]) -> None:
    """Of a job that failed and has a reply all the same: that its outputs are not where they were to go."""
    if job["state"] != "succeeded":
        say.note(f"job {job['id']} {ending(job)}")


def log(call: Call) -> int:
    """What an attempt's worker wrote, to the end or, followed, until the job ends."""
    paths = Paths()
    job_id = names.one(call.text("id") or "", paths)
    job = peek.job(paths, job_id)
    wanted, follow = call.whole("attempt"), call.flag("follow")
    attempt = wanted or int(job["attempt"])
    if wanted is not None and not 1 <= wanted <= int(job["attempt"]):
        raise UsageError(f"job {job_id} has {say.counted(int(job['attempt']), 'attempt')} and no attempt {wanted}")
    if not follow or job["state"] in ENDED:
        logs = _logs(paths, job)
        if not logs and (gone := job["pruned_at"] or job["logs_pruned_at"]):
            raise Pruned(f"the logs of job {job_id} were pruned on {stamps.local(gone)}")
        if attempt not in logs and (wanted or not logs) and pour_start(paths, job, wanted):
            return 0
        if not logs:
            if job["state"] not in ENDED:
                raise Temporary(f"job {job_id} is {job['state']} and has no log yet" + _why(job))
            raise SchedqError(f"job {job_id} {job['state']} without a log: no worker wrote for it")
        if wanted is None and attempt not in logs:
            say.note(f"attempt {attempt} has no log yet; this is that of attempt {logs[-1]}")
            attempt = logs[-1]
        elif attempt not in logs:
            raise Temporary(f"attempt {attempt} of job {job_id} has no log; attempt {logs[-1]} has one")
        if not pour(os.path.join(paths.attempt(job_id, attempt), "log")):
            say.note(f"attempt {attempt} of job {job_id} wrote nothing")
        return 0
    from scheduler.cli import following

    return following.follow(paths, job_id, wanted)


def _logs(paths: Paths, job: dict[str, Any]) -> list[int]:
    """The attempts of a job that have a log of their own."""
    tried = range(1, int(job["attempt"]) + 1)
    return [n for n in tried if os.path.exists(os.path.join(paths.attempt(job["id"], n), "log"))]


def start_of(paths: Paths, job: dict[str, Any], attempt: int | None = None) -> tuple[int, str] | None:
    """(worker, its log) of the last worker that was started for a job (as peek.job has it) and wrote something.

    None if none did, or if what it wrote is not there any more. Of one attempt only, where that is given.
    """
    for each in reversed(job["attempts"]):
        path = os.path.join(paths.worker(each["worker_id"] or 0), "log")
        if not each["warm"] and attempt in (None, each["attempt"]) and os.path.exists(path) and os.path.getsize(path):
            return each["worker_id"], path
    return None


def pour_start(paths: Paths, job: dict[str, Any], attempt: int | None) -> bool:
    """Print what the worker wrote that was started for a job and never got its request; whether there was any."""
    found = start_of(paths, job, attempt)
    if found is None:
        return False
    whose = f"job {job['id']}" if attempt is None else f"attempt {attempt} of job {job['id']}"
    say.note(f"{whose} has no log of its own; this is the start of worker {found[0]}, which was started for it")
    pour(found[1])
    return True


def _why(job: dict[str, Any]) -> str:
    reason = job.get("reason") or {}
    return f": {reason['text']}" if reason.get("text") else ""


class Log:
    """A log as far as it was printed. When it is full it becomes `log.1`, and the next one begins: both are read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def pour(self) -> int:
        """Print what was written since; how many bytes that were."""
        if self._file is None:
            self._file = _opened(self._path + ".1") or _opened(self._path)
        printed = 0
        while self._file is not None:
            printed += self._rest()
            following = self._following()
            if following is None:
                break
            printed += self._rest()  # it may have grown before it was turned over
            self._file.close()
            self._file = following
        return printed

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rest(self) -> int:
        printed = 0
        while self._file is not None and (block := self._file.read(1 << 16)):
            say.data(block)
            printed += len(block)
        return printed

    def _following(self) -> BinaryIO | None:
        """What was begun after the file that is read; None if that is the last one."""
        last = _opened(self._path)
        if self._file is None or last is None:
            return None
        if _same(last, self._file):
            last.close()
            return None
        older = _opened(self._path + ".1")
        if older is not None and not _same(older, self._file):
            last.close()
            say.note("lines are missing here: the log was turned over twice before they could be read (log_max_mib)")
            return older
        if older is not None:
            older.close()
        return last


def _opened(path: str) -> BinaryIO | None:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return None


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))


def pour(path: str) -> int:
    """Print a log, its older half first; how many bytes that were."""
    log = Log(path)
    try:
        return log.pour()
    finally:
        log.close()
