"""What the end of a worker says: of its provider, and of an attempt that it left no reply to."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.exhaustion import ran_out
from scheduler.model.host import Failed, Gone
from scheduler.model.outcome import (
    EXIT_LATER,
    EXIT_NO_ACCELERATOR,
    EXIT_REFUSED,
    TERMINATED,
    TOLD_WORDS,
    Outcome,
    exit_words,
    later_s,
)


@dataclass(frozen=True)
class End:
    """How a worker ended.

    `stopped`: what the host ended it for, by itself, "" = it ended on its own. `spawned`: a keeper of it was there.
    `full`: there was no room on the disk for one. `outside`: its keeper was told to terminate, and not by schedq.
    """

    exit_code: int | None
    text: str
    stopped: str = ""
    spawned: bool = True
    full: bool = False
    outside: bool = False

    @property
    def said(self) -> str:
        """Its last words and its exit status, in words."""
        words = exit_words(self.exit_code)
        return f"{self.text} ({words})" if self.text and self.spawned else self.text or words


def end_of(event: Gone | Failed, state: str, full: str = "") -> End:
    """What an event says of the end of a worker that was in this state. `full`: that a disk is full, "" = none is."""
    if isinstance(event, Failed):
        return End(None, event.text, event.text if event.disk else "", state != "parked", event.disk)
    return End(event.exit_code, event.text or event.why, event.why or full, full=bool(full), outside=event.outside)


def asks_for_later(end: End, state: str) -> bool:
    """Whether it left before its first request because of something outside: exit 75."""
    return end.exit_code == EXIT_LATER and state in ("starting", "ready") and not end.stopped


def failed_start(end: End, state: str, *, ready: bool, why: str, bound: bool) -> tuple[str, str] | None:
    """(text, kind) of what counts against its provider; None if nothing does.

    `why` is what the queue ended it for; `bound`: a job was admitted to it, which was sent nothing.
    """
    kind = "accelerator" if end.exit_code == EXIT_NO_ACCELERATOR else "failed_start"
    if not ready and why.startswith("timed_out: "):
        return why.partition(": ")[2], kind
    if end.outside or end.stopped:
        return None
    if state == "parked":
        return f"its keeper ended before it was let go: {end.said}" if end.spawned else end.said, kind
    if state == "starting":
        return end.said, kind
    if state == "ready" and bound:
        return f"it answered and ended: {end.said}", "crashed"
    return None


def ran_out_unsent(end: End, state: str, *, alone: bool) -> bool:
    """Whether memory ran out before a request was sent: while it loaded, or while one that runs jobs alone idled."""
    return not end.stopped and (state == "starting" or (alone and state == "ready")) and ran_out(end.text)


def death(why: str, exit_code: int | None, text: str, *, told: bool) -> Outcome:
    """The outcome of an attempt whose worker's whole tree is gone and that left no reply.

    `why`: what the queue ended it for, as `outcome: words`. `text`: what the worker wrote last. `told`: its keeper was
    told to terminate, by somebody outside of schedq; that is no death of the job's.
    """
    aborted, _, said = why.partition(": ")
    if aborted in ("timed_out", "cancelled", "interrupted", "over_budget"):
        return Outcome(aborted, said or text, exit_code)
    if told or exit_code in TERMINATED:
        return Outcome("lost", f"{TOLD_WORDS}, and left no answer", exit_code)
    if exit_code is None:
        return Outcome("lost", "the worker vanished and nobody recorded its exit status", None)
    if exit_code == EXIT_REFUSED:
        return Outcome("refused", text or exit_words(exit_code), exit_code)
    if exit_code == EXIT_NO_ACCELERATOR:
        return Outcome("no_accelerator", text or exit_words(exit_code), exit_code)
    if exit_code == EXIT_LATER:
        return Outcome("error", text or exit_words(exit_code), exit_code, later_s(text))
    if exit_code == 0:
        return Outcome("no_reply", "the worker left (exit 0) without an answer", 0)
    how = f"was {exit_words(exit_code)}" if exit_code < 0 else f"ended with {exit_words(exit_code)}"
    kind = "over_budget" if ran_out(text) else "crashed"
    return Outcome(kind, f"the worker {how}" + (f": {text}" if text else ""), exit_code)
