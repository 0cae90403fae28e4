"""The verbs on the scheduler as a process: `up`, `down`, `restart`, and what the background one is started as."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from scheduler import catalog, wake
from scheduler.cli import asking, children, remaining, say, starting, stopping, takeover
from scheduler.cli.about import VERSION
from scheduler.cli.fast import Call
from scheduler.clock import now_s, seconds
from scheduler.config import Paths, settings
from scheduler.errors import OlderSchema, SchedqError, SchedulerDown, Temporary

NEEDED_BYTES = 1 << 20
"""What a scheduler writes before it answers, with room to spare: its log, its epoch, the database's log."""

JUST_NOW_S = 10.0
"""How long ago a scheduler may have ended and still be handing over."""


def up(call: Call) -> int:
    """Start the scheduler; it answers when this returns. One that is about to go is waited for first."""
    paths = Paths()
    _note_odd_folders()
    if call.flag("takeover"):
        starting.refuse_inside(paths)
    told = takeover.take_over(paths) if call.flag("takeover") else asking.heard(paths)
    if told is None or asking.leaves(told):
        starting.refuse_inside(paths)
    if told is not None and asking.leaves(told):
        runs = stopping.what_runs(paths) if asking.leaves(told) == "down" else ""
        say.note(
            f"scheduler {told.get('pid')} is about to go"
            + (f", after {runs}; schedq restart does not wait for them" if runs else "")
            + ": waiting for that, then starting another"
        )
    if call.flag("foreground"):
        if told is not None and asking.leaves(told):
            asking.outwait(paths, told)
        return _serve(paths, foreground=True, auto_down=False)
    if told is not None and not asking.leaves(told):
        say.note(f"already up: scheduler {told.get('pid')} serves {paths.home}")
        _note_older(paths)
    else:
        _say_up(paths, starting.succeed(paths, told))
    return 0


def _note_odd_folders() -> None:
    for odd in catalog.odd_folders():
        say.note(f"warning: {odd}; then schedq restart")


def serve(call: Call) -> int:
    """Be the background scheduler: the process that `start` or a service manager spawned; its faults go to the log
    whole.

    With --supervised a `restart` makes this process the next scheduler, in the program that is installed by then.
    """
    os.environ["SCHEDQ_DEBUG"] = "1"
    supervised = call.flag("supervised")
    status = _serve(
        Paths(), foreground=False, auto_down=call.flag("auto_down"), drain=call.flag("drain"), supervised=supervised
    )
    if status < 0:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return status


def _serve(paths: Paths, *, foreground: bool, auto_down: bool, drain: bool = False, supervised: bool = False) -> int:
    from scheduler import app

    set_up = settings()
    starting.refuse_inside(paths)
    starting.prepare(paths)
    app.log_to(paths, set_up, foreground=foreground)
    auto_down_s = set_up.seconds("auto_down") if auto_down else None
    return app.run(
        paths, set_up, version=VERSION, auto_down_s=auto_down_s, drain=drain, supervised=supervised,
        environ=children.environment(paths),
    )  # fmt: skip


def down(call: Call) -> int:
    """Stop the scheduler and every worker; waits for running jobs unless --now."""
    paths = Paths()
    now = call.flag("now")
    if not wake.scheduler_runs(paths):
        if not stopping.left_behind(paths):
            stopping.tidy(paths)
            say.note(f"no scheduler runs for {paths.home}")
            return 0
        say.note("the last scheduler left workers behind: starting one to bring them down")
        starting.start_draining(paths)
    if not now:
        runs = stopping.what_runs(paths)
        if runs:
            say.note(f"waiting for {runs}; schedq down --now would not")
    left = stopping.leave(paths, "down", now=now)
    stopping.require_down(paths, left)
    stopping.tidy(paths)
    leaked = remaining.leaked(paths)
    say.note(f"down; {leaked} stay charged: the next scheduler looks at that again" if leaked else "down")
    return 0


def restart(_call: Call) -> int:
    """Hand over to a new scheduler of the installed version."""
    paths = Paths()
    _note_odd_folders()
    told: asking.Told | None = None
    if wake.scheduler_runs(paths):
        _refuse_bad_start(paths)
        told = asking.answering(paths)
        if told is None or not told.get("supervised"):
            starting.refuse_inside(paths)
        stopping.leave(paths, "restart", now=False)
    elif not _ended_just_now(paths):
        raise SchedulerDown(f"no scheduler runs for {paths.home}; `schedq up` starts one")
    supervised = told is not None and told.get("supervised")
    then = {**told, "leaving": "restart"} if told is not None and supervised else asking.heard(paths)
    _say_up(paths, starting.succeed(paths, then))
    return 0


def _say_up(paths: Paths, told: asking.Told) -> None:
    say.note(f"up: scheduler {told.get('pid')} serves {paths.home}")
    if told.get("supervised") and told.get("version") != VERSION:
        say.note(
            f"its service starts schedq {told.get('version')}, and this is {VERSION}: schedq service install"
            " makes it start this one"
        )


def _note_older(paths: Paths) -> None:
    """Say that the scheduler which runs is one that no verb of this version but `restart` and `down` can work with."""
    from scheduler.store import peek

    try:
        peek.last_id(paths)
    except OlderSchema as error:
        say.note(str(error))
    except SchedqError:
        pass  # every verb says it


def _ended_just_now(paths: Paths) -> bool:
    """Whether the last scheduler may be one that hands over at this moment: to somebody else's restart, or to this."""
    from scheduler.store import peek

    last = peek.last_scheduler(paths)
    return last is not None and bool(last["ended_at"]) and now_s() - seconds(last["ended_at"]) < JUST_NOW_S


def _refuse_bad_start(paths: Paths) -> None:
    """Raise now what a new scheduler would end on at once, so that the one that runs goes on."""
    from scheduler.store import peek

    settings()
    _refuse_full(paths)
    with suppress(OlderSchema):
        peek.last_id(paths)


def _refuse_full(paths: Paths) -> None:
    """Temporary if the disk of the queue takes nothing more: the scheduler that runs waits that out, a new one cannot
    begin.
    """
    trial = os.path.join(paths.home, f"trial.{os.getpid()}.tmp")
    try:
        with open(trial, "xb") as file:
            file.write(bytes(NEEDED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Temporary(
            f"{paths.home} takes no {NEEDED_BYTES >> 20} MiB more ({error.strerror}), which another scheduler needs to"
            " begin; the one that runs stays; make room, then schedq restart again"
        ) from None
    finally:
        with suppress(OSError):
            os.unlink(trial)
