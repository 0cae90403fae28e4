"""The life of a job, a worker and a lease: literal tables, and the one function that reads them.

A cell is the new state, or SAME (recorded only), SAYS (the operator is told, nothing changes),
LATE (a stale reply: kept beside, changes nothing). A cell that is not there is illegal and raises.

A claim is given back when its worker ended before the request was sent, and given up when it ran out of memory although
it was alone: what comes after that would be the same again.

What a crash leaves behind: `admitted` before a send is given back by the next scheduler; `running` is
answered by the worker's keeper (attach); a lease stays charged until its whole process tree is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduler.errors import IllegalTransition

SAME, SAYS, LATE = "same", "says", "late"

Table = Mapping[str, Mapping[str, str]]

JOB: Table = {
    "(insert)": {"hold": "held", "release": "queued", "requeue": "refused"},
    "queued": {
        "admit": "admitted", "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE,
        "cancel": "cancelled", "park": "held", "hold": "held", "release": SAYS, "requeue": SAYS,
        "parent_failed": "failed",
    },
    "held": {
        "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE, "cancel": "cancelled",
        "park": SAME, "hold": SAME, "release": "queued", "requeue": SAYS, "parent_failed": "failed",
    },
    "admitted": {
        "send": "running", "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE,
        "give_back": "queued", "give_up": "failed", "cancel": "cancelled", "hold": "held", "release": SAYS,
        "requeue": SAYS,
    },
    "running": {
        "succeed": "succeeded", "fail": "failed", "time_out": "timed_out", "retry": "queued",
        "give_back": "queued", "cancel": SAME, "stop": "cancelled", "park": "held", "hold": SAYS,
        "release": SAYS, "requeue": SAYS,
    },
    "succeeded": {
        "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE, "cancel": SAYS, "stop": LATE,
        "hold": SAYS, "release": SAYS, "requeue": SAYS,
    },
    "failed": {
        "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE, "cancel": SAYS, "stop": LATE,
        "hold": SAYS, "release": SAYS, "requeue": "queued", "parent_failed": SAME,
    },
    "cancelled": {
        "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE, "cancel": SAME, "stop": SAME,
        "hold": SAYS, "release": SAYS, "requeue": "queued", "parent_failed": SAME,
    },
    "timed_out": {
        "succeed": LATE, "fail": LATE, "time_out": LATE, "retry": LATE, "cancel": SAYS, "stop": LATE,
        "hold": SAYS, "release": SAYS, "requeue": "queued", "parent_failed": SAME,
    },
    "refused": {"cancel": SAYS, "hold": SAYS, "release": SAYS, "requeue": "queued", "parent_failed": SAME},
}  # fmt: skip

WORKER: Table = {
    "parked": {"shown": SAME, "go": "starting", "abort": "retiring", "exit": "gone"},
    "starting": {"shown": SAME, "answer": "ready", "abort": "retiring", "exit": "gone"},
    "ready": {
        "shown": SAME, "answer": SAME, "send": "busy", "reply": LATE, "retire": "retiring",
        "abort": "retiring", "exit": "gone",
    },
    "busy": {
        "shown": SAME, "answer": SAME, "reply": "ready", "retire": SAME, "abort": "retiring", "exit": "gone",
    },
    "retiring": {
        "shown": SAME, "answer": SAME, "reply": "retiring", "retire": SAME, "abort": SAME, "exit": "gone",
    },
    "gone": {"shown": SAME, "reply": LATE, "retire": SAME, "abort": SAME, "exit": SAME},
}  # fmt: skip

LEASE: Table = {
    "reserved": {"go": "held", "unspawned": "released", "resize": SAME, "exit": "returning"},
    "held": {"resize": SAME, "exit": "returning"},
    "returning": {"exit": SAME, "back": "released", "overdue": "leaked"},
    "leaked": {"exit": SAME, "back": "released", "overdue": SAME, "write_off": "released"},
    "released": {"exit": SAME, "back": SAME, "overdue": SAME, "write_off": SAME},
}

JOB_ENDED = ("succeeded", "failed", "cancelled", "timed_out", "refused")


def advance(table: Table, state: str, event: str, story: Callable[[], str] = str) -> str:
    """The cell for `event` in `state`: a new state, or one of SAME, SAYS, LATE.

    Raises IllegalTransition, with the subject's whole story, when the table has no such edge.
    """
    cell = table.get(state, {}).get(event)
    if cell is None:
        told = story()
        raise IllegalTransition(f"no event {event!r} in state {state!r}" + (f"; so far: {told}" if told else ""))
    return cell
