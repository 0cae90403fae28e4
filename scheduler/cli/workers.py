"""`schedq workers`: the resident workers of this queue."""

from __future__ import annotations

from scheduler.cli import pages, say
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.store import peek


def list_workers(call: Call) -> int:
    """Print every live worker."""
    whole = peek.status(Paths())
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "at": whole["at"], "workers": whole["workers"]}))
        return 0
    if not whole["workers"]:
        say.note("no workers; a job that needs one starts it")
        return 0
    say.out("\n".join(pages.workers(whole["workers"])))
    return 0
