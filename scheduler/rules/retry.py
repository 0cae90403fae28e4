"""What becomes of a job when an attempt has ended: the outcome, the policy, and what was tried before.

The table, as it stands under the job's states: ok succeeds. error, refused, no_outputs, input_changed, quarantined
and no_accelerator fail (an accelerator that is absent also opens the breaker). crashed, no_reply and lost are tried
again while tries are left; the second worker killed by one job ends it as quarantined, so that a poisonous input
does not kill a worker a night. over_budget is tried once more, alone, behind
the others. timed_out is final unless the policy lists it. Exit 75
is tried later, with a count and a patience of its own. Undone claims (interrupted) count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.command import EXEC
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider

DEADLY = ("crashed", "no_reply")
POLICY_MAY_RETRY = ("crashed", "no_reply", "lost", "timed_out", "error", "no_outputs")
ON_LOST = ("requeue", "hold", "fail")
DEATHS = 2
LONGEST_BACKOFF_S = 3600.0
REPLIED = ("ok", "error", "refused", "no_outputs", "input_changed", "no_accelerator")


@dataclass(frozen=True)
class Decision:
    """The job's event, the outcome to record, and how long to wait before the next attempt (0 = not at all).

    `alone`: from now on it runs alone, behind everything else of its priority.
    """

    event: str
    outcome: Outcome
    backoff_s: float = 0.0
    alone: bool = False


def decide(
    outcome: Outcome,
    *,
    provider: Provider,
    tries: int,
    laters: int = 0,
    deaths: int = 0,
    max_attempts: int | None = None,
    waited_s: float = 0.0,
    on_lost: str = "requeue",
    retry_on: tuple[str, ...] | None = None,
    jitter: float = 0.5,
    cancel_asked: bool = False,
    alone: bool = False,
) -> Decision:
    """The event that this outcome is for its job: succeed, fail, retry, give_back, time_out, stop or park.

    `tries` and `deaths` (workers that died of this job) include this attempt. `waited_s` counts from the first time
    that it was told "later". `alone`: this attempt ran alone. `jitter` is a draw from [0, 1). `max_attempts` and
    `retry_on` (outcomes that are tried again) overrule the provider's.
    """
    kind = outcome.kind
    if outcome.later:
        if cancel_asked:
            return Decision(
                "stop", Outcome("cancelled", "cancelled while it waited for a later try", outcome.exit_code)
            )
        return _later(outcome, provider, laters, waited_s)
    if kind == "ok":
        return Decision("succeed", outcome)
    if kind == "cancelled" or (cancel_asked and kind not in REPLIED):
        stopped = outcome if kind == "cancelled" else Outcome("cancelled", outcome.text, outcome.exit_code)
        return Decision("stop", stopped)
    if kind == "interrupted":
        once = provider.slug == EXEC and on_lost != "requeue"
        if once and not outcome.unsent:  # it may have done half of its work: it is not run twice
            return Decision("park" if on_lost == "hold" else "fail", outcome)
        return Decision("give_back", outcome)
    if kind in DEADLY and deaths >= DEATHS:
        text = f"failed after {deaths} workers died of this job; the last: {outcome.text or kind}"
        return Decision("fail", Outcome("quarantined", text, outcome.exit_code))
    if kind == "lost" and on_lost in ("hold", "fail"):
        return Decision("park" if on_lost == "hold" else "fail", outcome)
    if kind == "over_budget" and not alone and provider.slug != EXEC:
        return Decision("retry", outcome, alone=True)
    most = provider.max_attempts if max_attempts is None else max_attempts
    listed = provider.retry_outcomes if retry_on is None else retry_on
    if kind in POLICY_MAY_RETRY and kind in listed and tries < most:
        return Decision("retry", outcome, backoff_s(provider.backoff_s, tries, jitter))
    return Decision("time_out" if kind == "timed_out" else "fail", outcome)


def backoff_s(first_s: float, tries: int, jitter: float) -> float:
    """Seconds before the next attempt: doubled with each try, spread over half to one and a half, an hour at most."""
    return min(LONGEST_BACKOFF_S, first_s * 2.0 ** min(30, max(0, tries - 1))) * (0.5 + jitter)


def _later(outcome: Outcome, provider: Provider, laters: int, waited_s: float) -> Decision:
    """Again after what the worker asked for, within its provider's patience; the last try is at the end of that."""
    left_s = provider.later_for_s - waited_s
    if left_s <= 0:
        often = "once" if laters == 0 else f"{laters + 1} times"
        text = (
            f"told `later` {often} in {waited_s:.0f} s, and later_for_s is {provider.later_for_s:.0f}; "
            f"the last: {outcome.text or 'no reason given'}"
        )
        return Decision("fail", Outcome("later_expired", text, outcome.exit_code))
    asked_s = outcome.retry_after_s if outcome.retry_after_s is not None else 0.0
    return Decision("retry", outcome, min(max(1.0, asked_s), max(1.0, left_s)))
