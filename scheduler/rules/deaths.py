"""What an attempt came to whose worker ended and left no reply."""

from __future__ import annotations

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
    return Outcome("crashed", f"the worker {how}" + (f": {text}" if text else ""), exit_code)
