"""`cancel`: what changes jobs that are there."""

from __future__ import annotations

import os

from scheduler.cli import ids as names
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.client import Client
from scheduler.errors import UsageError

ASK_ABOVE = 20


def cancel(call: Call) -> int:
    """Cancel the jobs that a call names; says per job what became of it."""
    client = Client()
    chosen = names.needed(call, client.paths)
    if call.flag("dry_run"):
        say.note(f"would cancel {say.counted(len(chosen), 'job')}")
        for job_id in chosen:
            say.out(str(job_id))
        return 0
    if not chosen:
        say.note("no job matches; nothing was cancelled")
        return 0
    if len(chosen) > ASK_ABOVE and not call.flag("yes"):
        confirm(f"cancel {say.counted(len(chosen), 'job')}?")
    done = client.cancel(chosen)
    if call.flag("json"):
        rows = [{"id": job_id, "before": before, "state": now} for job_id, before, now in done]
        say.out(say.document({"schema_version": 1, "jobs": rows}))
        return 0
    changed = [row for row in done if row[1] != row[2]]
    asked = [row for row in done if row[1] == row[2] == "running"]
    if not changed and not asked and not call.many("ids"):
        say.note(f"{_jobs(len(done))} ended already; there is nothing to cancel")
        return 0
    for job_id, before, now in done[:ASK_ABOVE]:
        if before != now:
            say.note(f"job {job_id}: {now}")
        elif now == "running":
            say.note(f"job {job_id}: running, its worker is asked to stop")
        else:
            say.note(f"job {job_id}: {now} already, nothing changed")
    if len(done) > ASK_ABOVE:
        rest = len(done) - len(changed) - len(asked)
        say.note(f"and {len(done) - ASK_ABOVE} more")
        sums = ((len(changed), "cancelled"), (len(asked), "running and asked to stop"), (rest, "had ended already"))
        say.note("in all: " + ", ".join(f"{count} {what}" for count, what in sums if count))
    if not call.many("ids"):
        return 0
    return 2 if not changed and not asked and all(before != "cancelled" for _id, before, _now in done) else 0


def _jobs(count: int) -> str:
    return "the one job that matches has" if count == 1 else f"all {count} jobs that match have"


def confirm(question: str) -> None:
    """Ask on a terminal; UsageError where there is none to ask or the answer is no."""
    if not os.isatty(0) or not os.isatty(2):
        raise UsageError(
            f"{question} There is no terminal here to answer on, so nothing was done: --yes does it without asking, "
            "--dry-run lists them"
        )
    os.write(2, f"{question} [y/N] ".encode())
    if os.read(0, 64).strip().lower() not in (b"y", b"yes"):
        raise UsageError("nothing was done")
