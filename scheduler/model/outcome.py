"""How an attempt ends: the closed lists of words, and which event each outcome is for the job.

A new word here is a new schema_version of the JSON output.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "ok", "error", "refused", "no_outputs", "no_accelerator", "quarantined", "interrupted", "over_budget",
    "crashed", "timed_out", "no_reply", "lost", "cancelled", "input_changed", "later_expired", "parent_failed",
)  # fmt: skip

RULINGS = (
    "admit", "undeclared", "no_device", "unreadable", "too_big", "unknown_holding", "pool_full", "no_room_now",
    "busy", "starting", "reserved", "cores", "backoff", "breaker", "paused", "held", "begin", "after",
    "revision", "not_installed", "disk", "scheduler_down", "lock",
)  # fmt: skip

INPUT_CAN_CAUSE = ("error", "refused", "no_outputs", "over_budget", "cancelled", "input_changed", "later_expired")
"""Outcomes that never count for a provider's breaker: three long sequences must not stop a night."""

EXIT_REFUSED, EXIT_NO_ACCELERATOR, EXIT_LATER = 3, 5, 75


@dataclass(frozen=True)
class Outcome:
    """How one attempt ended: the kind, a sentence for people, and the exit code where there was one.

    `retry_after_s` is set for `later` (exit 75) only; `later` is not a kind that ends a job.
    """

    kind: str
    text: str = ""
    exit_code: int | None = None
    retry_after_s: float | None = None

    @property
    def later(self) -> bool:
        """Whether the worker asked to be tried again, because of something outside."""
        return self.retry_after_s is not None


def exit_words(code: int | None) -> str:
    """What an exit code of a worker means, in words; empty for codes without a name."""
    import signal

    if code is None:
        return "exit status not recorded"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return {
        0: "exit 0",
        EXIT_REFUSED: "exit 3: refused; the last line of its log says what and why",
        EXIT_NO_ACCELERATOR: "exit 5: the accelerator that it expects is absent",
        EXIT_LATER: "exit 75: later, because of something outside",
    }.get(code, f"exit {code}")
