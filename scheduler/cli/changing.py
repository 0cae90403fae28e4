"""What changes jobs that are there, the same way for every verb: which jobs, how many, sentences or JSON, exit code.

`cancel` stands here; what loads more than an everyday verb may stands in `control`.
"""

from __future__ import annotations

import os

from scheduler.cli import ids as names
from scheduler.cli import say, stamps
from scheduler.cli.fast import Call
from scheduler.cli.options import UNENDED
from scheduler.client import Client
from scheduler.store import intake, peek
from scheduler.store.absent import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ASK_ABOVE = 20

IS = {
    "queued": ("waits already", "wait already"), "held": ("is held already", "are held already"),
    "admitted": ("is being started", "are being started"), "running": ("runs already", "run already"),
    "succeeded": ("has succeeded", "have succeeded"), "failed": ("has failed", "have failed"),
    "cancelled": ("is cancelled already", "are cancelled already"), "timed_out": ("has timed out", "have timed out"),
    "refused": ("was refused", "were refused"),
}  # fmt: skip
"""What is said of one job, and of several, that a verb leaves as they are, by their state."""


class Told:
    """What became of one job, or would: its state before and after, and how it is said.

    `changed`: something was done. `code` is what the call ends with if it named the job and changed none: 2 or 3 where
    the operator is told that it cannot be done, 0 where it was so already. `kind` is what such jobs are counted as: one
    word for any number, or the verb for one and the verb for several.
    """

    __slots__ = ("before", "changed", "code", "id", "kind", "said", "state")

    def __init__(
        self,
        id: int,
        before: str,
        state: str,
        said: str,
        kind: tuple[str, ...],
        *,
        changed: bool = True,
        code: int = 0,
    ) -> None:
        self.id, self.before, self.state = id, before, state
        self.said, self.kind, self.changed, self.code = said, kind, changed, code

    @property
    def row(self) -> dict[str, Any]:
        """As `--json` prints it; `refused` says why nothing could be done, null where it could."""
        refused = self.said if self.code else None
        return {"id": self.id, "before": self.before, "state": self.state, "refused": refused}


def change(
    call: Call,
    client: Client,
    words: tuple[str, str],
    able: tuple[str, ...],
    act: Callable[[list[int], bool], list[Told]],
    *,
    beside: tuple[str, ...] = (),
    note: str = "",
) -> int:
    """Do to the jobs that a call names what `act` does, and say per job what became of it; the exit code.

    `words` are the verb and what is done then (cancel, cancelled). Filters choose among the states `able`, in which it
    does something, unless they name states themselves; the jobs that match and are in a state `beside` are counted.
    `act` is told whether it is only to say what it would do (--dry-run). `note` is said at the end if anything changed.
    """
    verb, done = words
    chosen, besides = _chosen(call, client, able, beside)
    dry, named = call.flag("dry_run"), bool(call.many("ids"))
    if len(chosen) > ASK_ABOVE and not dry and not call.flag("yes"):
        confirm(f"{verb} {say.counted(len(chosen), 'job')}?")
    told = act(chosen, dry) if chosen else []
    changed = [each for each in told if each.changed]
    code = max(each.code for each in told) if named and all(each.code for each in told) else 0
    kept = _sums([each.kind for each in told if not each.changed] + [IS[state] for state in besides])
    if call.flag("json"):
        document: dict[str, Any] = {"schema_version": 1, "jobs": [each.row for each in told]}
        say.out(say.document({**document, "dry_run": True} if dry else document))
        return code
    if dry:
        _would(client, verb, changed, kept)
    elif not told and not besides:
        say.note(f"no job matches{'' if call.text('state') else f' that can be {done}'}; nothing was {done}")
    elif not changed and not named and len(told) != 1:
        say.note(f"nothing was {done}: {kept}")
        return 0
    for each in [each for each in told if not (dry and each.changed)][:ASK_ABOVE] if named or not dry else ():
        say.note(stamps.locally(each.said))
    if dry:
        return code
    if len(told) > ASK_ABOVE:
        say.note(f"and {len(told) - ASK_ABOVE} more")
    if len(told) + len(besides) > 1:
        say.note(f"in all: {', '.join(filter(None, (_sums([each.kind for each in changed]), kept)))}")
    if changed and note:
        say.note(note)
    return code


def _chosen(call: Call, client: Client, able: tuple[str, ...], beside: tuple[str, ...]) -> tuple[list[int], list[str]]:
    """The jobs of a call, and the state of each that its filters match and that are only counted."""
    given = names.asked(call)
    if not given:
        return names.needed(call, client.paths), []
    if "state" in given:
        return names.found(given, client.paths), []
    chosen = names.found({**given, "state": list(able)}, client.paths)
    counted = [peek.ids(client.paths, {**given, "state": state}) for state in beside]
    return chosen, [state for state, found in zip(beside, counted, strict=True) for _ in found]


def _would(client: Client, verb: str, changed: list[Told], kept: str) -> None:
    """Print the jobs that a verb would change, a line each, and how many that are."""
    from scheduler.cli import joblines

    jobs = peek.briefly(client.paths, [each.id for each in changed])
    for each in changed:
        then = f" -> {each.state}" if each.state != each.before else ""
        say.out(f"{joblines.begin(jobs[each.id])} {each.before}{then}")
    count = say.counted(len(changed), "job") if changed else "no job"
    say.note(f"would {verb} {count}" + (f"; {kept}" if kept else ""))


def _sums(kinds: list[tuple[str, ...]]) -> str:
    """How many there are of each kind."""
    counts: dict[tuple[str, ...], int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{count} {kind[0] if count == 1 else kind[-1]}" for kind, count in counts.items())


def cancel(call: Call) -> int:
    """Cancel the jobs that a call names; says per job what became of it."""
    client = Client()

    def act(chosen: list[int], dry: bool) -> list[Told]:
        rows = _would_cancel(client, chosen) if dry else client.cancel(chosen)
        return [_cancelled(*row) for row in rows]

    return change(call, client, ("cancel", "cancelled"), UNENDED, act)


def _would_cancel(client: Client, chosen: list[int]) -> list[tuple[int, str, str]]:
    """What Client.cancel would answer. NoSuchJob, as there."""
    states = peek.states(client.paths, chosen)
    absent = [job_id for job_id in chosen if job_id not in states]
    if absent:
        raise missing(absent, client.paths)
    cells = [(job_id, states[job_id], intake.CANCEL[states[job_id]]) for job_id in chosen]
    return [(job_id, before, "cancelled" if cell == "cancelled" else before) for job_id, before, cell in cells]


def _cancelled(job_id: int, before: str, now: str) -> Told:
    if before != now:
        return Told(job_id, before, now, f"job {job_id}: {now}", ("cancelled",))
    if now == "running":
        said = f"job {job_id}: running, its worker is asked to stop"
        return Told(job_id, before, now, said, ("running and asked to stop",))
    said = f"job {job_id}: {now} already, nothing changed"
    return Told(job_id, before, now, said, IS[now], changed=False, code=0 if now == "cancelled" else 2)


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
