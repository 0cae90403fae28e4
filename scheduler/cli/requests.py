"""`run`: a request goes in and its reply comes out; and what `submit` asks for in the same way."""

from __future__ import annotations

import os

from scheduler import given, wake
from scheduler.cli import say, sight
from scheduler.cli.fast import Call
from scheduler.client import Client, failure, not_ended
from scheduler.clock import monotonic_s
from scheduler.config import envs
from scheduler.errors import SchedqError, Temporary, UsageError, WaitTimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths

SILENT_S, TICK_S = 5.0, 1.0
"""How often a job that is waited for is looked at: for a file or a pipe, and for somebody at a terminal."""


def asked(
    client: Client, call: Call, sources: list[str], left_out: list[str] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The provider and the inputs, expanded (see `expand`); the provider's example where it was asked for."""
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

    return spec, request.expand(sources, spec["input"]["accept"], left_out)


def options_of(call: Call) -> dict[str, Any]:
    """The options of a job that a call says, as a Client takes them."""
    policy = given.policy(call.text("on_lost"), call.whole("max_attempts"), call.text("retry_on"), typed=True)
    retry_on = policy.pop("retry_on", None)
    return {
        "params": call.many("param"), "name": call.text("name") or "", "priority": call.whole("priority") or 0,
        "key": call.text("key") or "", "batch": call.text("batch") or "", "out": call.text("out") or "",
        "overwrite": call.flag("overwrite"), "retry_on": None if retry_on is None else retry_on or "none", **policy,
    }  # fmt: skip


def note_moved(client: Client) -> None:
    """Say where what was at a destination lies by now."""
    for out, aside in client.moved:
        say.note(f"note: what was at {out} lies at {aside} now, and stays there however the job ends")


def not_installed(spec: dict[str, Any]) -> str:
    """Why a provider cannot start yet and what installs it; empty if it can."""
    if spec["python"]:
        if not spec["files"] and os.access(os.path.expanduser(spec["python"]), os.X_OK):
            return ""
    elif spec["environment"] and not spec["files"] and sight.has_environment(spec["environment"]["hash"], envs()):
        return ""
    from scheduler.host import environments

    return environments.missing(spec)


def run(call: Call) -> int:
    """Submit one request, see it through and print the reply. Signals cancel it; a hang-up and --timeout leave it."""
    from scheduler.cli import owning

    client = Client()
    timeout_s = call.duration_s("timeout")
    word = call.text("input")
    spec, sources = asked(client, call, [] if word is None else [word])
    if len(sources) != 1:
        raise UsageError(f"run takes one input and {word!r} names {len(sources)}; schedq submit queues them all")
    rows = client.checked(call.text("slug") or "", sources, spec=spec, **options_of(call))
    missing = not_installed(spec)
    if missing:
        if not spec["environment"] or spec["python"]:
            raise SchedqError(f"{missing}; nothing was queued")
        from scheduler.cli import children
        from scheduler.host import named_files

        lacks = named_files.fault(spec)
        if lacks:
            raise SchedqError(f"{lacks}; nothing was queued")
        _refuse_mismatch(sight.told(client.paths), spec, installs=envs())
        children.install(call.text("slug") or "")
        missing = not_installed(spec)
        if missing:
            raise SchedqError(f"the installation ended well, and yet {missing}; nothing was queued")
    refuse_unseen(client, spec)
    ids: list[int] = []

    def own(made: list[int]) -> None:
        """The job is ours from here on: its id is out, and a signal that came meanwhile cancels it."""
        ids.extend(made)
        say.note(f"job {ids[0]}")
        owning.own()

    try:
        try:
            client.enqueue(rows, own)
            note_moved(client)
            job_id = ids[0]
            state = seen_through(client, job_id, timeout_s)
        finally:
            owning.disown()
    except owning.Stopped as stopped:
        return owning.cancel(client, ids[0], stopped.signum)
    except WaitTimedOut as error:
        same = ", or the same call," if call.text("key") else ""
        raise WaitTimedOut(f"{error}; schedq wait {job_id}{same} finds it again") from None
    if state != "succeeded":
        raise failure(client.status(job_id), client.paths)
    reply, folder, _job = client.reply(job_id)
    print_reply(reply, one_line=call.flag("json"))
    if folder:
        say.note(f"outputs: {folder}")
    return 0


def refuse_unseen(client: Client, spec: dict[str, Any]) -> None:
    """A scheduler runs when this returns, started if need be. Temporary if it would never run this provider.

    One that is about to go is left to that: what this job needs is the next one's (`_succeeded`).
    """
    about = sight.told(client.paths)
    if about is None:
        from scheduler.cli import starting

        starting.ensure(client.paths)
        about = sight.told(client.paths)
    if about is not None and _refuse_mismatch(about, spec):
        sight.note_unknown(about)


def _refuse_mismatch(about: dict[str, Any] | None, spec: dict[str, Any], *, installs: list[str] | None = None) -> bool:
    """Whether a scheduler is there that stays and would run this provider. Temporary if it stays and never would."""
    if about is None or about.get("leaving"):
        return False
    unseen = sight.mismatch(about, spec, installs=installs)
    if unseen:
        raise Temporary(f"{unseen}; nothing was queued")
    return True


def seen_through(client: Client, job_id: int, timeout_s: float | None) -> str:
    """The state in which a job ended. While it waits, its reason goes to stderr as often as the ruling changes; to a
    terminal also how far it is."""
    began_s = monotonic_s()
    until = None if timeout_s is None else began_s + timeout_s
    from scheduler.cli.ticker import Ticker

    said, ticker = None, Ticker()
    goes = _goes(client.paths)  # asked once the job is queued: who goes from now on does so in spite of it
    if goes == "down":
        say.note("the scheduler is going down: when it has gone, this starts another")
    try:
        while True:
            step_s = TICK_S if ticker.on or goes else SILENT_S
            left = step_s if until is None else min(step_s, max(0.0, until - monotonic_s()))
            try:
                return client.wait([job_id], left)[job_id]
            except WaitTimedOut:
                if until is not None and monotonic_s() >= until:
                    raise WaitTimedOut(not_ended([job_id], timeout_s)) from None
            goes = goes and _succeeded(client.paths)
            job = client.status(job_id)
            reason = job.get("reason") or {}
            if monotonic_s() - began_s >= SILENT_S and not (goes and reason.get("ruling") == "scheduler_down"):
                if reason and reason["ruling"] != said:
                    ticker.clear()
                    from scheduler.cli import reading

                    say.note(f"job {job_id} waits: {reading.why(job, client.paths) or reason['ruling']}")
                said = reason.get("ruling")
            if ticker.on:
                from scheduler.cli import joblines

                ticker.show(joblines.at_a_glance(job))
    finally:
        ticker.clear()


def _goes(paths: Paths) -> str:
    """Why the scheduler that was there goes: what it says, `silent` if it says nothing; empty if it stays."""
    about = sight.told(paths)
    return "silent" if about is None else str(about.get("leaving") or "")


def _succeeded(paths: Paths) -> str:
    """The same, with another one started as soon as it has gone."""
    if not wake.scheduler_runs(paths):
        from scheduler.cli import starting

        starting.ensure(paths)
    return _goes(paths)


def print_reply(reply: bytes, *, one_line: bool) -> None:
    """The worker's reply as it is; on a terminal indented, unless one line was asked for."""
    if os.isatty(1) and not one_line:
        import json

        say.out(say.document(json.loads(reply), indent=True))
    else:
        say.data(reply + b"\n")
