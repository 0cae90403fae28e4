"""Which processes belong to a worker, and whether anything of it is alive: /proc read, nothing remembered.

A process is known by (boot id, pid, start), start being clock ticks since boot, never by pid alone.
Standard library only and light: keepers import it.
"""

from __future__ import annotations

import fcntl
import os
import time

from scheduler.host.workers.protocol import CLAIM, MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable
else:
    import _signal as signal


def boot_id() -> str:
    """The kernel's name for the time since it started."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class Stat:
    """One process as /proc shows it: state letter, parent, session, start in clock ticks since boot."""

    __slots__ = ("parent", "pid", "session", "started", "state")

    def __init__(self, pid: int, state: str, parent: int, session: int, started: float) -> None:
        self.pid, self.state, self.parent, self.session, self.started = pid, state, parent, session, started


def stat_of(pid: int) -> Stat | None:
    """That process, zombies included; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            rest = file.read().rpartition(b")")[2].split()
        return Stat(pid, rest[0].decode(), int(rest[1]), int(rest[3]), float(rest[19]))
    except (OSError, IndexError, ValueError):
        return None


def is_alive(pid: int | None, started: float | None) -> bool:
    """Whether that very process (not a later one of the same pid) runs; a zombie does not."""
    stat = stat_of(pid) if pid else None
    return stat is not None and stat.started == started and stat.state not in "ZX"


def argv_of(pid: int) -> list[str]:
    """A process's argument vector; empty while it is not readable."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def everyone() -> dict[int, Stat]:
    """Every process that can be seen."""
    return {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := stat_of(int(name)))}


def below(top: int) -> list[Stat]:
    """Every living process under `top`, in whatever session. Below a subreaper, nobody can leave this list."""
    seen = everyone()
    children: dict[int, list[Stat]] = {}
    for stat in seen.values():
        children.setdefault(stat.parent, []).append(stat)
    found, ring = [], [top]
    while ring:
        ring_of = [stat for pid in ring for stat in children.get(pid, ())]
        found += [stat for stat in ring_of if stat.state not in "ZX"]
        ring = [stat.pid for stat in ring_of]
    return found


def members(queue_id: str, worker_id: int, session: int | None = None, since: float = 0.0) -> list[Stat]:
    """Living processes with the worker's mark in their environment, or of its leader's session.

    `session` is the leader's pid and `since` its start.
    Other users' environments cannot be read; a worker has none of theirs.
    """
    mark, seen = f"{MARK}={queue_id}:{worker_id}".encode(), everyone()
    first = seen.get(session or 0)
    if first and first.started != since:
        session = None  # the leader and all of its session are gone, and the number is somebody else's
    found = []
    for stat in seen.values():
        if stat.state in "ZX":
            continue
        if session and stat.session == session:
            found.append(stat)
            continue
        try:
            with open(f"/proc/{stat.pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(stat)
        except OSError:
            continue
    return found


def signal_all(processes: Iterable[Stat], *numbers: int) -> None:
    """Signal these processes; a pid that changed hands since it was read is left alone."""
    for old in processes:
        try:
            fd = os.pidfd_open(old.pid)
        except OSError:
            continue
        try:
            now = stat_of(old.pid)
            if now and now.started == old.started:
                for number in numbers:
                    signal.pidfd_send_signal(fd, number)
        except OSError:
            pass
        finally:
            os.close(fd)


def is_held(folder: str) -> bool:
    """Whether a keeper holds the lock of this worker's folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def hold(folder: str) -> None:
    """Take that lock for the rest of this process; SystemExit if another keeper has it."""
    lock, until = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + 2.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:  # probes hold it shared for an instant
            if time.monotonic() > until:
                raise SystemExit(f"schedq keeper: {folder} is held by another keeper") from None
            time.sleep(0.005)


def alive(folder: str, queue_id: str, worker_id: int) -> bool:
    """Whether anything of a worker lives: its keeper, a process of its leader's session, or one with its mark.

    A keeper holds the lock some milliseconds after its claim can be read; in between, the claim itself counts.
    """
    if is_held(folder):
        return True
    leader = leader_of(folder)
    if members(queue_id, worker_id, *(leader or (None, 0.0))):
        return True
    return keeper_of(folder) is not None


def keeper_of(folder: str) -> Stat | None:
    """The living keeper whose claim names this folder; None if there is none."""
    for stat in everyone().values():
        argv = argv_of(stat.pid)
        if CLAIM in argv and argv[-1] == folder and stat.state not in "ZX":
            return stat
    return None


def leader_of(folder: str) -> tuple[int, float] | None:
    """Pid and start of the worker's leader as its keeper noted them in this boot; None if it never did."""
    import json

    try:
        with open(os.path.join(folder, "leader.json"), "rb") as file:
            noted = json.loads(file.read())
        return (int(noted["pid"]), float(noted["started"])) if noted["boot_id"] == boot_id() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
