"""The end of a scheduler: told to go and waited for, and what it leaves behind taken away."""

from __future__ import annotations

import time
from contextlib import suppress

from scheduler import locks, wake
from scheduler.cli import asking, say
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import Corrupt, OlderSchema, SchedqError, Temporary
from scheduler.store import turnstile

UNSEEN_S = 600.0
"""How long `down --now` may take where it cannot be seen what is left."""


def leave(paths: Paths, op: str, *, now: bool) -> str:
    """Tell the scheduler to go (`down` or `restart`), wait until it has; what it went for in the end, "" = unknown.

    Temporary: stopped, silent, or it stays. Temporary too if it cannot bring everything down: then it goes all the
    same, and what is left is named.
    """
    line = wake.Line(paths)
    try:
        told = _told(paths, line, op, now=now)
        if told is not None:
            _outwait(paths, told, op, now=now)
        while (heard := line.hear(0.0)) is not None:
            if "left" in heard:
                return str(heard["left"] or "")
    finally:
        line.close()
    return ""


def _outwait(paths: Paths, told: asking.Told, op: str, *, now: bool) -> None:
    if op == "restart":
        asking.outwait(paths, told, within_s=asking.HANDOVER_S)
        return
    from scheduler.cli.remaining import Remaining, Stays

    try:
        asking.outwait(paths, told, look=Remaining(paths, now=now).look)
    except Stays as left:
        leave(paths, "restart", now=False)
        raise Temporary(
            f"the scheduler has ended, but not everything came down: {left}; what is left stays charged in the queue,"
            " and the next schedq up looks after it; then schedq down again"
        ) from None
    except Corrupt:  # the one that runs has its database open still, and goes all the same
        asking.outwait(paths, told, within_s=asking.HANDOVER_S)
    except OlderSchema:
        say.note(
            "the scheduler is an earlier version's: which jobs and workers it waits for cannot be seen"
            + ("" if now else "; schedq down --now would not wait for jobs")
        )
        asking.outwait(paths, told, within_s=UNSEEN_S if now else None)


def _told(paths: Paths, line: wake.Line, op: str, *, now: bool) -> asking.Told | None:
    """What the scheduler answered to the order; None if there is none (any more) that it could concern."""
    first, until = asking.lock_holder(paths), monotonic_s() + asking.SILENT_S
    while wake.scheduler_runs(paths):
        pid = asking.lock_holder(paths)
        if op == "restart" and pid not in (0, first):
            return None  # somebody else's restart was faster
        if pid and locks.is_stopped(pid):
            raise Temporary(f"{turnstile.about_stopped(pid)}, then schedq {op} again")
        told = line.ask(asking.ANSWER_S, op=op, now=now)
        if told is not None and "left" not in told:
            return told
        if monotonic_s() > until:
            raise Temporary(
                f"scheduler {pid or '(unknown pid)'} does not answer; "
                f"schedq up --takeover ends it and takes its place, then schedq {op} again"
            )
        time.sleep(asking.TURN_S)
    return None


def require_down(paths: Paths, left: str = "") -> None:
    """Temporary if a scheduler runs all the same: one that was started meanwhile. One that goes too is waited for.

    `left` is what the last one went for: after `restart` another is about to come.
    """
    until = monotonic_s() + asking.ANSWER_S
    while wake.scheduler_runs(paths):
        told = asking.answering(paths, asking.LOOK_S)
        if told is not None and asking.leaves(told) == "down":
            asking.outwait(paths, told)
        elif monotonic_s() > until:
            raise Temporary(
                f"not down: the scheduler that was told to go has gone, but scheduler {asking.lock_holder(paths) or ''}"
                " was started meanwhile and runs (by restart, up or run); schedq down again ends that one"
            )
        time.sleep(asking.TURN_S)
    if left == "restart":
        raise Temporary(
            "not down: the scheduler handed over instead (schedq restart was asked for meanwhile), and its workers stay"
            " for the next one; schedq down again brings all of it down"
        )


def left_behind(paths: Paths) -> bool:
    """Whether workers of the queue are there that only a scheduler can bring down."""
    from scheduler.store import peek

    return bool(peek.workers(paths))


def tidy(paths: Paths) -> None:
    """Take away what a scheduler that was killed left: its address, dead workers' sockets, the database's log."""
    from scheduler.host.workers.records import sweep
    from scheduler.store import content, folders, schedulers
    from scheduler.store.connection import open_writer, told
    from scheduler.store.engine import Store

    try:
        place = wake.keep_vacant(paths)
    except OSError:
        return
    if place is None:
        return
    try:
        with suppress(SchedqError, OSError):
            wake.remove_address(paths)
            with Store(paths).read() as tx:
                queue_id = schedulers.queue_id(tx)
            sweep(paths, queue_id)
        folders.leave(paths)
    finally:
        locks.let_go(place)
    with suppress(SchedqError, OSError), told(paths), turnstile.Turnstile(paths).section():
        content.tidy(paths)
        open_writer(paths).close()  # the last one to close empties the log and removes it


def what_runs(paths: Paths) -> str:
    """The jobs that run, by id, for a sentence; empty if none does, or if the database is lost or an earlier one."""
    from scheduler.store import peek

    try:
        jobs = [job for job in peek.status(paths)["jobs"] if job["state"] == "running"]
    except (Corrupt, OlderSchema):
        return ""
    named = ", ".join(f"{job['id']} ({job['slug']}, {say.plain(str(job['name']))})" for job in jobs[:8])
    more = f" and {len(jobs) - 8} more" if len(jobs) > 8 else ""
    return f"{len(jobs)} running: {named}{more}" if jobs else ""
