"""When a provider is broken, and when it is tried again: one bad provider must not eat the night (P11).

It opens after 2 failed starts in a row, after 3 crashes or time-outs in a row on 3 different inputs, or at once
when a worker says that its accelerator is absent. What an input can cause, or a job's own --timeout, never counts,
neither for nor against. It is half-open after a minute, with one job; each failure then doubles the wait, up to 30
minutes. It closes by itself: by a start that came up if failed starts opened it, by an answer otherwise. A worker
that asks for another time before it is ready puts its provider off for that long: open as well, with no failure
counted, until a start comes up.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.model.plan import BreakerState

STARTS, INPUTS = 2, 3
FIRST_WAIT_S, LONGEST_WAIT_S = 60.0, 1800.0
START, ACCELERATOR = "(start)", "(accelerator)"
REMEMBERED = 16

OWN_TIME = "it took longer than the job's --timeout"
"""What a time-out says that a job set for itself: that says nothing of its provider."""

CRASHES = ("crashed", "timed_out", "no_reply", "quarantined")


def after(before: BreakerState | None, kind: str, text: str, input_sha256: str, now_s: float) -> BreakerState | None:
    """The breaker once this has happened; `before` itself where it does not count.

    `kind` is `started`, `failed_start`, `accelerator` or the kind of an attempt's outcome. `now_s` in seconds since the
    epoch. The clean state when nothing is left to remember.
    """
    state = before or BreakerState()
    if kind == "started":
        left = tuple(mark for mark in state.inputs if mark != START)
        if left == state.inputs and (state.next_try_s is None or _trips(left)):
            return before
        if _trips(left):
            return replace(state, inputs=left)
        return BreakerState(len(left), left, state.last_error if left else "")
    if kind == "ok":
        return before if before is None or before == BreakerState() else BreakerState()
    marks = {"failed_start": START, "accelerator": ACCELERATOR, "no_accelerator": ACCELERATOR}
    if (kind not in marks and kind not in CRASHES) or (kind == "timed_out" and text == OWN_TIME):
        return before
    inputs = (*state.inputs, marks.get(kind) or input_sha256)[-REMEMBERED:]
    counted = replace(state, failures=state.failures + 1, inputs=inputs, last_error=text)
    if state.next_try_s is not None and now_s < state.next_try_s:
        return counted
    if state.next_try_s is None and not _trips(inputs):
        return counted
    return replace(counted, opened_s=now_s, next_try_s=now_s + _wait_s(state))


def put_off(before: BreakerState | None, text: str, until_s: float, now_s: float) -> BreakerState:
    """The breaker of a provider that asked for another time: left alone until then. Seconds since the epoch."""
    state = before or BreakerState()
    failures = state.failures if _trips(state.inputs) else 0
    return replace(state, failures=failures, last_error=text, opened_s=now_s, next_try_s=until_s)


def _trips(inputs: tuple[str, ...]) -> bool:
    crashes = set(inputs) - {START, ACCELERATOR}
    return ACCELERATOR in inputs or inputs.count(START) >= STARTS or len(crashes) >= INPUTS


def _wait_s(state: BreakerState) -> float:
    if state.opened_s is None or state.next_try_s is None:
        return FIRST_WAIT_S
    return min(LONGEST_WAIT_S, max(FIRST_WAIT_S, 2 * (state.next_try_s - state.opened_s)))
