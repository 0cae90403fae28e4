"""What the scheduler of a queue says of itself, whether it is silent, and when it has gone. Every wait has an end."""

from __future__ import annotations

import os
import time

from scheduler import locks, wake
from scheduler.cli import say
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.store import turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_S, SILENT_S, HANDOVER_S = 2.0, 30.0, 60.0
"""How long one answer is waited for; what counts as silence; how long handing over may take."""

TURN_S, LOOK_S = 0.02, 0.5

TROUBLE_S, GLANCE_S, STALE_S = 3.0, 0.2, 15.0
"""After how long a wait says what its scheduler is in trouble with; how long a glance asks for that; from what age on
the machine's figures may be old for it."""

Told = dict[str, object]


class Found:
    """Who holds the queue's lock: its pid (0 = cannot be told), and what it says, None if it is stopped or silent."""

    __slots__ = ("pid", "stopped", "told")

    def __init__(self, pid: int, told: Told | None, *, stopped: bool = False) -> None:
        self.pid, self.told, self.stopped = pid, told, stopped


def answering(paths: Paths, timeout_s: float = ANSWER_S) -> Told | None:
    """What the scheduler says of itself, None if none answers, or if its loop has not turned for SILENT_S."""
    line = wake.Line(paths)
    try:
        told = line.ask(timeout_s, op="ping")
    finally:
        line.close()
    return None if told is not None and float(str(told.get("quiet_s", 0.0))) > SILENT_S else told


def leaves(told: Told) -> str:
    """Why a scheduler that answered is about to go: `down`, `restart` or `idle`; empty if it stays."""
    return str(told.get("leaving") or "")


def trouble(told: Told) -> str:
    """What keeps the loop of a scheduler that answered from its work, in its words; empty for nothing."""
    words = str(told.get("trouble") or "")
    return f"scheduler {told.get('pid')}: {words}" if words else ""


def glance(paths: Paths, age_s: float | None) -> str:
    """What the scheduler that runs is in trouble with, if the machine's figures (`age_s`; None: none) are so old.

    One question, waited for GLANCE_S at most; empty if it is not in trouble or does not answer.
    """
    if age_s is not None and age_s <= STALE_S:
        return ""
    return trouble(answering(paths, GLANCE_S) or {})


def lock_holder(paths: Paths) -> int:
    """The pid that holds the scheduler's lock, 0 if that cannot be told."""
    return locks.holder(paths.lock_scheduler) or 0


def look(paths: Paths) -> Found | None:
    """Who holds the lock, after an answer was waited for as long as SILENT_S; None if nobody does any more.

    Patience begins anew with each holder: what was silence of one is nothing against the next.
    """
    pid, since_s, noted = -1, 0.0, False
    while wake.scheduler_runs(paths):
        holder = lock_holder(paths)
        if holder != pid:
            pid, since_s = holder, monotonic_s()
        if pid and locks.is_stopped(pid):
            return Found(pid, None, stopped=True)
        told = answering(paths, 1.0)
        if told is not None:
            return Found(pid, told)
        silent_s = monotonic_s() - since_s
        if silent_s > SILENT_S:
            return Found(pid, None)
        if silent_s > min(ANSWER_S, SILENT_S / 2) and not noted:
            noted = True
            say.note(f"scheduler {pid or '(pid unknown)'} does not answer yet: waiting up to {SILENT_S:.0f} s for it")
        time.sleep(TURN_S)
    return None


def heard(paths: Paths) -> Told | None:
    """The answer of the scheduler that holds the lock, None if none does. Temporary if it is stopped or silent."""
    found = look(paths)
    if found is None:
        return None
    if found.told is not None:
        return found.told
    if found.stopped:
        raise Temporary(f"{turnstile.about_stopped(found.pid)} (running work goes on)")
    raise Temporary(
        f"scheduler {found.pid or '(pid unknown)'} holds the lock of {paths.home} and is silent; "
        "schedq up --takeover ends it and takes its place (running work goes on)"
    )


def outwait(
    paths: Paths, told: Told, *, within_s: float | None = None, look: Callable[[], None] = lambda: None
) -> None:
    """Wait until the scheduler that said so has let go of the queue, or another has it already.

    It may take as long as it answers, at most `within_s` where that is given. Temporary: it is silent or stopped, or
    is there after that time still. `look` is called in every turn; what it raises ends the wait. A trouble that the
    scheduler speaks of (a full disk) is said once.
    """
    pid = lock_holder(paths)
    strange = bool(pid) and pid != told.get("pid")
    if strange:
        within_s = min(within_s or HANDOVER_S, HANDOVER_S)
    since_s = heard_s = monotonic_s()
    noted = False
    ended = _pidfd(pid)
    try:
        while wake.scheduler_runs(paths) and lock_holder(paths) in (0, pid):
            _pause(ended)
            look()
            now = answering(paths, 1.0)
            if now is not None and now.get("epoch") != told.get("epoch"):
                return
            if now is not None:
                heard_s = monotonic_s()
                if not noted and trouble(now) and heard_s - since_s > TROUBLE_S:
                    noted = True
                    say.note(trouble(now))
            elif monotonic_s() - heard_s > SILENT_S:
                raise Temporary(_silent(paths, pid))
            if within_s is not None and monotonic_s() - since_s > within_s:
                raise Temporary(_stays(paths, told, pid, within_s, strange=strange))
    finally:
        if ended >= 0:
            os.close(ended)


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid) if pid else -1
    except OSError:
        return -1


def _pause(ended: int) -> None:
    """Until the process has ended, or for a while; a lock outlives its holder by an instant."""
    if ended < 0 or wake.heard([ended], LOOK_S):
        time.sleep(TURN_S)


def _silent(paths: Paths, pid: int) -> str:
    if pid and locks.is_stopped(pid):
        return f"it was told to go, but {turnstile.about_stopped(pid)}"
    return (
        f"scheduler {pid or '(pid unknown)'} was told to go and has not answered for {SILENT_S:.0f} s; "
        "schedq up --takeover ends it and takes its place (running work goes on)"
    )


def _stays(paths: Paths, told: Told, pid: int, within_s: float, *, strange: bool) -> str:
    if strange:
        return (
            f"process {told.get('pid')} answers for the queue at {paths.home}, but process {pid} has its lock: the"
            f" folder was taken away while the first one ran; kill {told.get('pid')}, then ask again"
        )
    return (
        f"scheduler {pid or told.get('pid')} was told to go {within_s:.0f} s ago and is still there;"
        f" {paths.scheduler_log} says what keeps it; kill -9 {pid or told.get('pid')} ends it, then schedq up"
        " (running work goes on)"
    )
