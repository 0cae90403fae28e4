"""`submit` and `run`: requests go in; for `run` the reply comes out."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module `signal` costs an import of enum
import os

from scheduler import wake
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.client import Client, failure, not_ended
from scheduler.clock import monotonic_s
from scheduler.config import envs, manifest_folders
from scheduler.errors import SchedqError, UsageError, WaitTimedOut
from scheduler.store import turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths

SILENT_S, ANSWER_S = 5.0, 0.5
MARKER = "schedq-environment.json"
"""Written last by an installation (host.environments): an environment without it is not whole."""

ASKED_TO_STOP = (_signal.SIGINT, _signal.SIGTERM)


class Stopped(BaseException):
    """SIGINT or SIGTERM came while a job was waited for."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def submit(call: Call) -> int:
    """Queue one job for each input and print the ids, one a line; nothing else goes to stdout."""
    client = Client()
    timeout_s = call.duration_s("timeout")
    spec, sources = _asked(client, call, call.many("input"))
    rows = _rows(client, call, spec, sources, timeout_s=timeout_s)
    client.enqueue(rows, lambda ids: _print_ids(call, ids))
    _notes(client, spec)
    return 0


def _print_ids(call: Call, ids: list[int]) -> None:
    if call.flag("json"):
        text = say.document({"schema_version": 1, "ids": ids, "batch": call.text("batch")})
    else:
        text = "\n".join(map(str, ids))
    try:
        say.out(text)
    except (SchedqError, say.Quiet):
        say.note(f"schedq: queued as {_ids(ids)}, which stdout did not take")
        raise


def _ids(ids: list[int]) -> str:
    if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1:
        return f"{ids[0]}-{ids[-1]}"
    return ",".join(map(str, ids))


def _notes(client: Client, spec: dict[str, Any]) -> None:
    missing = not_installed(spec)
    if missing:
        say.note(f"note: {missing}; the job waits until then")
    if not wake.scheduler_runs(client.paths):
        say.note("note: no scheduler runs, so nothing starts yet; start it: schedq up")
    elif (stopped := turnstile.stopped_scheduler(client.paths)) is not None:
        say.note(f"note: {turnstile.about_stopped(stopped)}")
    elif not _compare_folders(client.paths):
        say.note("note: the scheduler does not answer just now; if that stays so: schedq up --takeover")


def _compare_folders(paths: Paths) -> bool:
    """Say which folders of manifests a running scheduler does not know and this call does; False if none answers."""
    line = wake.Line(paths)
    try:
        told = line.ask(ANSWER_S, op="ping")
    finally:
        line.close()
    if told is None:
        return False
    known = told.get("manifests")
    for folder in map(os.path.abspath, manifest_folders()):
        if isinstance(known, list) and folder not in known:
            say.note(f"note: the running scheduler does not look into {folder}; `schedq restart` makes it")
    return True


def _asked(client: Client, call: Call, sources: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The provider and the inputs, expanded; the provider's example where it was asked for."""
    slug = call.text("slug") or ""
    spec = client.spec(slug)
    if call.flag("example"):
        if sources:
            raise UsageError(f"--example is the input, and {sources[0]} was given too; leave out one of them")
        if not spec["example"]:
            raise UsageError(f"{slug} comes without an example; give it an INPUT (schedq providers show {slug})")
        return spec, [spec["example"]]
    if not sources:
        raise UsageError(f"{call.verb} {slug} needs an INPUT: a file, - for stdin, or --example")
    from scheduler import request

    return spec, request.expand(sources)


def _rows(client: Client, call: Call, spec: dict[str, Any], sources: list[str], **more: Any) -> list[dict[str, Any]]:
    return client.checked(
        call.text("slug") or "",
        sources,
        spec=spec,
        params=call.many("param"),
        name=call.text("name") or "",
        priority=call.whole("priority") or 0,
        key=call.text("key") or "",
        batch=call.text("batch") or "",
        out=call.text("out") or "",
        overwrite=call.flag("overwrite"),
        **more,
    )


def not_installed(spec: dict[str, Any]) -> str:
    """Why a provider cannot start yet and what installs it; empty if it can."""
    if spec["python"]:
        if not spec["files"] and os.access(os.path.expanduser(spec["python"]), os.X_OK):
            return ""
    elif spec["environment"]:
        folder = spec["environment"]["hash"].rpartition(":")[2][:32]
        if not spec["files"] and any(
            os.path.exists(os.path.join(root, folder, MARKER))
            and os.access(os.path.join(root, folder, "bin", "python"), os.X_OK)
            for root in envs()
        ):
            return ""
    from scheduler.host import environments

    return environments.missing(spec)


def run(call: Call) -> int:
    """Submit one request, see it through and print the reply. Signals cancel it; a hang-up and --timeout leave it."""
    client = Client()
    timeout_s = call.duration_s("timeout")
    given = call.text("input")
    spec, sources = _asked(client, call, [] if given is None else [given])
    if len(sources) != 1:
        raise UsageError(f"run takes one input and {given!r} names {len(sources)}; schedq submit queues them all")
    rows = _rows(client, call, spec, sources)
    missing = not_installed(spec)
    if missing:
        from scheduler.cli import lifecycle

        if not spec["environment"] or spec["python"]:
            raise SchedqError(f"{missing}; nothing was queued")
        lifecycle.install_first(call.text("slug") or "")
    if not _compare_folders(client.paths):
        from scheduler.cli import lifecycle

        lifecycle.ensure(client.paths)
    ids: list[int] = []
    try:
        client.enqueue(rows, lambda given: _own(ids, given))
        job_id = ids[0]
        state = _seen_through(client, job_id, timeout_s)
    except Stopped as stopped:
        return _cancelled(client, ids[0], stopped.signum)
    except WaitTimedOut as error:
        raise WaitTimedOut(f"{error}; schedq wait {job_id}, or the same call with --key, finds it again") from None
    for signum in ASKED_TO_STOP:
        _signal.signal(signum, _signal.SIG_DFL)
    if state != "succeeded":
        raise failure(client.status(job_id), client.paths)
    reply, folder, _job = client.reply(job_id)
    print_reply(reply, one_line=call.flag("json"))
    if folder:
        say.note(f"outputs: {folder}")
    return 0


def _seen_through(client: Client, job_id: int, timeout_s: float | None) -> str:
    """The state in which a job ended; while it waits, its reason goes to stderr as often as the ruling changes."""
    until = None if timeout_s is None else monotonic_s() + timeout_s
    said = None
    while True:
        left = SILENT_S if until is None else min(SILENT_S, max(0.0, until - monotonic_s()))
        try:
            return client.wait([job_id], left)[job_id]
        except WaitTimedOut:
            if until is not None and monotonic_s() >= until:
                raise WaitTimedOut(not_ended([job_id], timeout_s)) from None
        reason = client.status(job_id).get("reason") or {}
        if reason and reason["ruling"] != said:
            say.note(f"job {job_id} waits: {reason['text'] or reason['ruling']}")
        said = reason.get("ruling")


def print_reply(reply: bytes, *, one_line: bool) -> None:
    """The worker's reply as it is; on a terminal indented, unless one line was asked for."""
    if os.isatty(1) and not one_line:
        import json

        say.out(say.document(json.loads(reply), indent=True))
    else:
        say.data(reply + b"\n")


def _own(ids: list[int], given: list[int]) -> None:
    """The job is ours from here on: its id is out, and a signal that came meanwhile cancels it."""
    ids.extend(given)
    say.note(f"job {ids[0]}")
    for signum in ASKED_TO_STOP:
        _signal.signal(signum, _stop)


def _stop(signum: int, _frame: object) -> None:
    raise Stopped(signum)


def _cancelled(client: Client, job_id: int, signum: int) -> int:
    for each in ASKED_TO_STOP:
        _signal.signal(each, _impatient)
    say.note(f"cancelling job {job_id}")
    client.cancel([job_id])
    state = client.wait([job_id])[job_id]
    say.note(f"job {job_id} {state}")
    return 128 + signum


def _impatient(_signum: int, _frame: object) -> None:
    say.note("still waiting for its worker to stop; a hang-up or SIGKILL leaves it to the scheduler")
