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

EXIT_REFUSED, EXIT_NO_ACCELERATOR, EXIT_LATER = 3, 5, 75

TERMINATED = (-15, 143)
"""Exit codes of a process that was told to terminate, by SIGTERM: where schedq did not, the machine or a person did."""

TOLD_WORDS = "its worker was told to terminate, and not by schedq"


@dataclass(frozen=True)
class Outcome:
    """How one attempt ended: the kind, a sentence for people, and the exit code where there was one.

    `retry_after_s` is set for `later` (exit 75) only; `later` is not a kind that ends a job. `unsent`: it is known that
    nothing of the attempt was begun.
    """

    kind: str
    text: str = ""
    exit_code: int | None = None
    retry_after_s: float | None = None
    unsent: bool = False

    @property
    def later(self) -> bool:
        """Whether the worker asked to be tried again, because of something outside."""
        return self.retry_after_s is not None


LATER_S, SOONEST_S, LATEST_S = 60.0, 1.0, 43_200.0
"""When a worker is tried again that leaves with exit 75 and names no time; how soon and how late, whatever it says."""


def later_s(said: str) -> float:
    """Seconds until a worker that left with exit 75 is tried again: what the kit says in its last line, else 60."""
    import re

    found = re.search(r"\(retry_after_s=([0-9.]+(?:e\+?[0-9]+)?)\)\s*$", said)
    try:
        return min(max(float(found[1]), SOONEST_S), LATEST_S) if found else LATER_S
    except ValueError:
        return LATER_S


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
    }.get(code, f"exit code {code}")
