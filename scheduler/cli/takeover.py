"""Ending a scheduler that is stopped or silent, so that another can take its place: by pidfd, after checking who it is.

Many may do so at once: what one has ended or replaced meanwhile is looked at again, and no other is taken for it.
"""

from __future__ import annotations

import os
import time

from scheduler import locks, wake
from scheduler.cli import asking, say
from scheduler.config import Paths
from scheduler.errors import Temporary

KILLED_S = 60.0


def take_over(paths: Paths) -> asking.Told | None:
    """End the scheduler that holds the lock, if it is stopped or silent; None once nobody holds it.

    What the one says that answers instead: this one is left alone. Temporary if it cannot be known or ended.
    """
    while (found := asking.look(paths)) is not None:
        if found.told is not None:
            return found.told
        if found.pid:
            _end(paths, found)
        elif wake.scheduler_runs(paths):
            raise Temporary(f"who holds the lock of {paths.home} is not in /proc/locks; end that process by hand")
    return None


def _end(paths: Paths, found: asking.Found) -> None:
    """Kill this very holder of the lock; nothing if it is gone, or holds it no more."""
    pid = found.pid
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not _holds(paths, pid, ended):
            return
        if not _is_scheduler_of(paths, pid):
            time.sleep(asking.TURN_S)
            if not _holds(paths, pid, ended):
                return
            raise Temporary(
                f"process {pid} ({say.plain(locks.command(pid))}) holds the lock of {paths.home} and is not the"
                " scheduler that the queue knows; nothing was ended: look at it, and end it by hand"
            )
        import signal

        signal.pidfd_send_signal(ended, signal.SIGKILL)
        if not wake.heard([ended], KILLED_S):
            raise Temporary(
                f"scheduler {pid} was killed and is still there after {KILLED_S:.0f} s: the kernel cannot end it yet"
                " (a disk that does not answer?); try again when it has gone"
            )
        why = "is stopped" if found.stopped else f"has not answered for {asking.SILENT_S:.0f} s"
        say.note(f"scheduler {pid} {why} and was ended; its workers go on and are adopted")
    except ProcessLookupError:
        return
    except PermissionError:
        raise Temporary(f"scheduler {pid} belongs to another user and cannot be ended from here") from None
    finally:
        os.close(ended)


def _holds(paths: Paths, pid: int, ended: int) -> bool:
    return not wake.heard([ended], 0.0) and asking.lock_holder(paths) == pid


def _is_scheduler_of(paths: Paths, pid: int) -> bool:
    """Whether a process is the queue's newest scheduler: by boot, pid and start time, never by pid alone."""
    from scheduler.host.workers import tree
    from scheduler.store import schedulers
    from scheduler.store.engine import Store

    with Store(paths).read() as tx:
        known = schedulers.latest(tx)
    return known is not None and known == (pid, known[1], tree.boot_id()) and tree.is_alive(pid, known[1])
