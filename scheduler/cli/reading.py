"""`status`, `show`, `result`, `log`, `wait`: what reads jobs and changes nothing."""

from __future__ import annotations

import errno
import os

from scheduler import outputs, wake
from scheduler.absence import Absence
from scheduler.cli import ids as names
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.client import ENDED, Client, at_pointer, ending
from scheduler.clock import seconds
from scheduler.config import Paths, absolute
from scheduler.errors import NoSuchJob, Refused, SchedqError, Temporary, UsageError
from scheduler.store import peek, turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLLOW_S, SHOWN = 0.3, 200
NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


def status(call: Call) -> int:
    """The whole queue, or the jobs that are named."""
    paths = Paths()
    chosen = names.chosen(call, paths)
    whole = peek.status(paths)
    left_out = 0
    if chosen is not None:
        if not call.flag("json"):
            left_out = max(0, len(chosen) - SHOWN)
        whole["jobs"] = _jobs(paths, chosen[left_out:], asked=bool(call.many("ids")))
    if call.flag("json"):
        say.out(say.document(whole))
    else:
        from scheduler.cli import pages

        _point_to_logs(paths, whole["jobs"])
        say.out("\n".join(pages.status(whole) if chosen is None else pages.jobs(whole["jobs"])))
    if left_out:
        say.note(f"the last {SHOWN} of {len(chosen or [])}; --json has all")
    if not whole["scheduler"]["running"]:
        say.note("no scheduler runs; start it: schedq up")
    elif (stopped := turnstile.stopped_scheduler(paths)) is not None:
        say.note(turnstile.about_stopped(stopped))
    else:
        from scheduler.cli import asking

        at, facts_at = whole["at"], whole["facts_at"]
        if trouble := asking.glance(paths, seconds(at) - seconds(facts_at) if facts_at else None):
            say.note(trouble)
    return 0


def _jobs(paths: Paths, chosen: list[int], *, asked: bool) -> list[dict[str, Any]]:
    found = []
    for job_id in chosen:
        try:
            found.append(peek.job(paths, job_id))
        except NoSuchJob:
            if asked:
                raise
    return found


def show(call: Call) -> int:
    """Everything of one job."""
    paths = Paths()
    job = peek.job(paths, names.one(call.text("id") or "", paths))
    if call.flag("json"):
        say.out(say.document(job))
    else:
        from scheduler.cli import pages

        _point_to_logs(paths, [job])
        say.out("\n".join(pages.job(job)))
    return 0


def _point_to_logs(paths: Paths, jobs: list[dict[str, Any]]) -> None:
    """Add to the reason of each job whose provider is broken where its worker's words are, if it left any."""
    for job in jobs:
        if (job.get("reason") or {}).get("ruling") == "breaker":
            whole = job if "attempts" in job else peek.job(paths, job["id"])
            job["reason"] = {**job["reason"], "text": why({**whole, "reason": job["reason"]}, paths)}


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
        _write(part, target, folder, job, client.paths.home, overwrite=call.flag("overwrite"))
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


def _write(part: bytes, target: str, folder: str, job: dict[str, Any], home: str, *, overwrite: bool) -> None:
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
            _refuse_taken(each, job, overwrite)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except (OSError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else "it has too many levels"
            raise UsageError(f"{os.path.dirname(path)[:200]} cannot be made: {why}; name another folder") from None
        if folder:
            _copy(folder, beside_it, job)
    device = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    if not device:
        outputs.refuse_kept(path, home)
        _refuse_taken(path, job, overwrite)
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


def _refuse_taken(path: str, job: dict[str, Any], overwrite: bool) -> None:
    if not overwrite and os.path.lexists(path):
        raise Refused(
            f"{path} exists; the result of job {job['id']} would go there, choose another name or --overwrite it"
        )


def _copy(folder: str, target: str, job: dict[str, Any]) -> None:
    import shutil

    by = outputs.maker(folder)
    if by not in (None, job["id"]):
        raise Refused(f"{folder} was overwritten by job {by}; the outputs of job {job['id']} are no longer there")
    beside = f"{target}.{os.getpid()}.tmp"
    try:
        shutil.copytree(folder, beside, symlinks=True)
        outputs.set_aside(target)
        os.rename(beside, target)
    except (OSError, Refused) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise Temporary(f"{folder} cannot be copied to {target}: {error}") from None
    say.note(f"copied the outputs to {target}")


def log(call: Call) -> int:
    """What an attempt's worker wrote, to the end or, followed, until the job ends."""
    paths = Paths()
    job_id = names.one(call.text("id") or "", paths)
    job = peek.job(paths, job_id)
    wanted, follow = call.whole("attempt"), call.flag("follow")
    attempt = wanted or int(job["attempt"])
    if wanted is not None and not 1 <= wanted <= int(job["attempt"]):
        raise UsageError(f"job {job_id} has {say.counted(int(job['attempt']), 'attempt')} and no attempt {wanted}")
    if not follow:
        logs = _logs(paths, job)
        if attempt not in logs and (wanted or not logs) and _pour_start(paths, job, wanted):
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
        if not _pour(os.path.join(paths.attempt(job_id, attempt), "log"), 0):
            say.note(f"attempt {attempt} of job {job_id} wrote nothing")
        return 0
    return _follow(paths, job_id, wanted)


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


def _pour_start(paths: Paths, job: dict[str, Any], attempt: int | None) -> bool:
    """Print what the worker wrote that was started for a job and never got its request; whether there was any."""
    found = start_of(paths, job, attempt)
    if found is None:
        return False
    whose = f"job {job['id']}" if attempt is None else f"attempt {attempt} of job {job['id']}"
    say.note(f"{whose} has no log of its own; this is the start of worker {found[0]}, which was started for it")
    _pour(found[1], 0)
    return True


def _why(job: dict[str, Any]) -> str:
    reason = job.get("reason") or {}
    return f": {reason['text']}" if reason.get("text") else ""


def _pour(path: str, at: int) -> int:
    """Print a log from a byte on; the byte after its end."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            while block := file.read(1 << 16):
                say.data(block)
                at += len(block)
    except FileNotFoundError:
        pass
    return at


def _follow(paths: Paths, job_id: int, wanted: int | None) -> int:
    line, absence = wake.Line(paths), Absence(paths, "follow its log again")
    attempt, at, began = 0, 0, 0
    try:
        line.say(op="watch", jobs=[job_id])
        while True:
            job = peek.job(paths, job_id)
            newest = wanted or int(job["attempt"])
            path = os.path.join(paths.attempt(job_id, newest), "log")
            if newest != attempt:
                if attempt:
                    _pour(os.path.join(paths.attempt(job_id, attempt), "log"), at)
                    say.note(f"-- attempt {newest}")
                attempt, at = newest, 0
            over = job["state"] in ENDED
            for _ in range(1 if over else 4):
                at = _pour(path, at)
                if over or (line.hear(FOLLOW_S) or {}).get("state") in ENDED:
                    break
            if not os.path.exists(path) and began != newest and job["state"] not in ("admitted", "running"):
                began = newest
                _pour_start(paths, job, newest)
            if over:
                return 0
            absence.check([job_id])
    finally:
        line.close()


def wait(call: Call) -> int:
    """Wait until all have ended: 0 if all succeeded, 1 if one did not.

    124 when the time is over, 6 when no scheduler runs that could end them.
    """
    client = Client()
    timeout_s = call.duration_s("timeout")
    chosen = names.needed(call, client.paths)
    if not chosen:
        say.note("no job matches; there is nothing to wait for")
    states: dict[int, str] = {}
    for job_id, state in client.ended(chosen, timeout_s):
        states[job_id] = state
        if state != "succeeded" and not call.flag("json"):
            say.note(f"job {job_id} {ending(client.status(job_id))}; schedq show {job_id}")
    if call.flag("json"):
        rows = [{"id": job_id, "state": states[job_id]} for job_id in chosen]
        say.out(say.document({"schema_version": 1, "jobs": rows}))
    return 0 if all(state == "succeeded" for state in states.values()) else 1
