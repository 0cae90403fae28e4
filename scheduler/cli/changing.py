"""What changes jobs that are there, the same way for every verb: which jobs, how many, sentences or JSON, exit code.

`cancel` stands here; what loads more than an everyday verb may stands in `control`.
"""

from __future__ import annotations

import os

from scheduler.cli import ids as names
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.client import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ASK_ABOVE = 20


class Told:
    """What became of one job: its state before and after, and how it is said.

    `changed`: something was done. `code` is what the call ends with if it named the job and changed none: 2 or 3 where
    the operator is told that it cannot be done, 0 where it was so already. `kind` is what such jobs are counted as.
    """

    __slots__ = ("before", "changed", "code", "id", "kind", "said", "state")

    def __init__(
        self, id: int, before: str, state: str, said: str, kind: str, *, changed: bool = True, code: int = 0
    ) -> None:
        self.id, self.before, self.state = id, before, state
        self.said, self.kind, self.changed, self.code = said, kind, changed, code

    @property
    def row(self) -> dict[str, Any]:
        """As `--json` prints it; `refused` says why nothing could be done, null where it could."""
        refused = self.said if self.code else None
        return {"id": self.id, "before": self.before, "state": self.state, "refused": refused}


def change(
    call: Call, client: Client, verb: str, done: str, act: Callable[[list[int]], list[Told]], *, note: str = ""
) -> int:
    """Do to the jobs that a call names what `act` does, and say per job what became of it; the exit code.

    `verb` and `done` are the words for it (cancel, cancelled); `note` is said at the end if anything changed.
    """
    chosen = names.needed(call, client.paths)
    if call.flag("dry_run"):
        say.note(f"would {verb} {say.counted(len(chosen), 'job')}")
        for job_id in chosen:
            say.out(str(job_id))
        return 0
    if not chosen:
        say.note(f"no job matches; nothing was {done}")
        return 0
    if len(chosen) > ASK_ABOVE and not call.flag("yes"):
        confirm(f"{verb} {say.counted(len(chosen), 'job')}?")
    told = act(chosen)
    named, changed = bool(call.many("ids")), any(each.changed for each in told)
    code = max(each.code for each in told) if named and all(each.code for each in told) else 0
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "jobs": [each.row for each in told]}))
        return code
    if not changed and not named and len(told) > 1:
        say.note(f"nothing was {done}: of all {len(told)} jobs that match, {_sums(told)}")
        return 0
    for each in told[:ASK_ABOVE]:
        say.note(each.said)
    if len(told) > ASK_ABOVE:
        say.note(f"and {len(told) - ASK_ABOVE} more")
        say.note(f"in all: {_sums(told)}")
    if changed and note:
        say.note(note)
    return code


def _sums(told: list[Told]) -> str:
    """How many of each kind, what changed first."""
    counts: dict[str, int] = {}
    for each in sorted(told, key=lambda each: not each.changed):
        counts[each.kind] = counts.get(each.kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def cancel(call: Call) -> int:
    """Cancel the jobs that a call names; says per job what became of it."""
    client = Client()
    return change(
        call, client, "cancel", "cancelled", lambda chosen: [_cancelled(*row) for row in client.cancel(chosen)]
    )


def _cancelled(job_id: int, before: str, now: str) -> Told:
    if before != now:
        return Told(job_id, before, now, f"job {job_id}: {now}", "cancelled")
    if now == "running":
        said = f"job {job_id}: running, its worker is asked to stop"
        return Told(job_id, before, now, said, "running and asked to stop")
    said = f"job {job_id}: {now} already, nothing changed"
    return Told(job_id, before, now, said, "had ended already", changed=False, code=0 if now == "cancelled" else 2)


def confirm(question: str) -> None:
    """Ask on a terminal; UsageError where there is none to ask or the answer is no."""
    from scheduler.errors import UsageError

    if not os.isatty(0) or not os.isatty(2):
        raise UsageError(
            f"{question} There is no terminal here to answer on, so nothing was done: --yes does it without asking, "
            "--dry-run lists them"
        )
    os.write(2, f"{question} [y/N] ".encode())
    if os.read(0, 64).strip().lower() not in (b"y", b"yes"):
        raise UsageError("nothing was done")
