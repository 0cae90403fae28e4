"""`schedq queue ...`: what an operator says of the whole queue, kept in it: paused, drained, or neither."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from scheduler import wake
from scheduler.absence import GRACE_S
from scheduler.cli import say, stopping
from scheduler.cli.fast import Call
from scheduler.cli.remaining import Remaining, Stays
from scheduler.clock import monotonic_s, now_at, now_s, seconds
from scheduler.config import Paths
from scheduler.errors import Interrupted, SchedulerDown, Temporary, WaitTimedOut
from scheduler.store import events, identity, peek, queue
from scheduler.store.engine import Store

LOOK_S = 0.5
ENDS = "schedq queue resume ends that"


def status(call: Call) -> int:
    """Whether the queue is open, paused, or drained, since when, and how many jobs there are."""
    return _shown(Paths(), call, always=True)


def pause(call: Call) -> int:
    """Let nothing new be sent or started; what runs goes on, idle workers stay."""
    paths = Paths()
    before, drained = peek.stopped(paths)
    _write(paths, "pause")
    if drained:
        say.note(f"the queue is drained, for {say.span(now_s() - seconds(drained))}: nothing starts as it is; {ENDS}")
    elif before:
        say.note(f"paused already, for {say.span(now_s() - seconds(before))}; {ENDS}")
    else:
        runs = stopping.what_runs(paths)
        say.note(f"paused: nothing new is sent or started; {ENDS}" + (f"; {runs}" if runs else ""))
    if not wake.scheduler_runs(paths):
        say.note("no scheduler runs; the next one starts with the queue paused")
    return _shown(paths, call)


def resume(call: Call) -> int:
    """End a pause or a drain."""
    paths = Paths()
    before = peek.stopped(paths)
    _write(paths, "resume")
    queued = peek.status(paths)["counts"].get("queued", 0)
    if not any(before):
        say.note("the queue was neither paused nor drained; nothing changed")
    else:
        say.note(f"resumed: {say.counted(queued, 'job')} may go on")
    if not wake.scheduler_runs(paths):
        say.note("no scheduler runs, so nothing starts yet; start it: schedq up")
    return _shown(paths, call)


def drain(call: Call) -> int:
    """Take nothing new, and wait until what runs has ended and its workers are gone. WaitTimedOut."""
    paths, timeout_s = Paths(), call.duration_s("timeout")
    _write(paths, "drain")
    if wake.scheduler_runs(paths):
        try:
            _wait(paths, timeout_s)
        except KeyboardInterrupt:
            raise Interrupted(f"the queue is drained all the same, and nothing waits for it any more; {ENDS}") from None
        say.note(f"drained: nothing runs, no worker is left, and nothing new starts; {ENDS}")
    else:
        left = stopping.what_runs(paths)
        if not left and stopping.left_behind(paths):
            left = f"{say.counted(len(peek.workers(paths)), 'worker')} left"
        if left:
            raise SchedulerDown(
                f"not drained: no scheduler runs that could wait for it ({left}); nothing new starts all the same:"
                f" schedq up, then schedq queue drain waits; {ENDS}"
            )
        say.note(f"drained: nothing runs, and no scheduler; the next one starts nothing new; {ENDS}")
    return _shown(paths, call)


def _write(paths: Paths, what: str) -> None:
    """Say it of the queue, and who did; one that nobody made yet is made."""
    with closing(Store(paths)) as store, store.write() as tx:
        at = now_at()
        if what == "pause":
            queue.pause(tx, at)
        elif what == "drain":
            queue.drain(tx, at)
        else:
            queue.resume(tx)
        events.record(tx, at, event=what, text=f"by {identity.user()}")
    wake.nudge(paths)


def _wait(paths: Paths, timeout_s: float | None) -> None:
    since_s = heard_s = monotonic_s()
    remaining, said = Remaining(paths, now=False), ""
    while True:
        runs, at_s = stopping.what_runs(paths), monotonic_s()
        if not runs and not peek.workers(paths) and not peek.unreturned(paths):
            return
        if runs and runs != said:
            said = runs
            say.note(f"waiting for {runs}")
        if peek.stopped(paths)[1] is None:
            raise Temporary("somebody resumed the queue before it was drained; schedq queue drain begins anew")
        if timeout_s is not None and at_s - since_s >= timeout_s:
            left = runs or f"{say.counted(len(peek.workers(paths)), 'worker')} left"
            raise WaitTimedOut(
                f"not drained after {timeout_s:g} s: {left}; nothing new starts all the same: schedq queue drain waits"
                f" again, {ENDS}"
            )
        if wake.scheduler_runs(paths):
            heard_s = at_s
        elif at_s - heard_s > GRACE_S:
            raise SchedulerDown("no scheduler runs any more; the queue stays drained, and schedq up goes on with that")
        try:
            remaining.look()
        except Stays as stays:
            raise Temporary(f"nothing runs, and yet not everything is gone: {stays}; that stays charged") from None
        time.sleep(LOOK_S if timeout_s is None else min(LOOK_S, max(0.01, timeout_s - (at_s - since_s))))


def _shown(paths: Paths, call: Call, *, always: bool = False) -> int:
    """The queue as JSON where that was asked for, and, if `always`, as lines for people."""
    if not (always or call.flag("json")):
        return 0
    whole = peek.status(paths)
    answer = _answer(whole)
    if call.flag("json"):
        say.out(say.document(answer))
        return 0
    at = answer["drained_at"] or answer["paused_at"]
    since = f" for {say.span(seconds(whole['at']) - seconds(at))}: nothing new starts; {ENDS}" if at else ""
    say.out(f"{answer['state']}{since}")
    counts = answer["counts"]
    say.out(", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items()) or "no jobs")
    if not whole["scheduler"]["running"]:
        say.note("no scheduler runs; start it: schedq up")
    return 0


def _answer(whole: dict[str, Any]) -> dict[str, Any]:
    """What `queue status --json` says; draining = what runs has not ended, or its workers are there still."""
    live = [job["id"] for job in whole["jobs"] if job["state"] in ("admitted", "running")]
    state = "paused" if whole["paused_at"] else "open"
    if whole["drained_at"]:
        state = "draining" if live or whole["workers"] else "drained"
    keys = ("schema_version", "at", "scheduler", "counts", "paused_at", "drained_at")
    return {**{key: whole[key] for key in keys}, "state": state, "running": live, "workers": len(whole["workers"])}
