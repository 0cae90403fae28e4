"""Which processes belong to a worker, and whether anything of it is alive: /proc read, nothing remembered.

A process is known by (boot id, pid, start), start being clock ticks since boot, never by pid alone.
Standard library only and light: keepers import it.
"""

from __future__ import annotations

import fcntl
import os
import time

from scheduler.host.workers import regular
from scheduler.host.workers.protocol import CLAIM, MARK, claim_of

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
        return _stat(pid)
    except (OSError, IndexError, ValueError):
        return None


def _stat(pid: int) -> Stat:
    with open(f"/proc/{pid}/stat", "rb") as file:
        rest = file.read().rpartition(b")")[2].split()
    return Stat(pid, rest[0].decode(), int(rest[1]), int(rest[3]), float(rest[19]))


def is_alive(pid: int | None, started: float | None) -> bool:
    """Whether that very process (not a later one of the same pid) runs; a zombie does not."""
    stat = stat_of(pid) if pid else None
    return stat is not None and stat.started == started and stat.state not in "ZX"


def lives(pid: int, started: float) -> bool:
    """The same for whom a wrong answer costs a job: OSError if it cannot be told, as where no descriptor is left."""
    try:
        stat = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.started == started and stat.state not in "ZX"


def argv_of(pid: int) -> list[str]:
    """A process's argument vector; empty while it is not readable."""
    return argv_in(f"/proc/{pid}")


def argv_in(folder: str) -> list[str]:
    """The argument vector of the process whose /proc folder this is; empty if it has none that we may read."""
    try:
        with open(f"{folder}/cmdline", "rb") as file:
            data = file.read()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.removesuffix(b"\0").split(b"\0")] if data else []


def everyone() -> dict[int, Stat]:
    """Every process that can be seen."""
    return {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := stat_of(int(name)))}


def below(top: int, *, apart: bool = False) -> list[Stat]:
    """Every living process under `top`, in whatever session. Below a subreaper, nobody can leave this list.

    `apart`: without keepers and what is under them, which is charged for itself.
    """
    seen = everyone()
    if apart:
        seen = {pid: stat for pid, stat in seen.items() if CLAIM not in argv_of(pid)}
    under = pids_below({pid: stat.parent for pid, stat in seen.items()}, top)
    return [seen[pid] for pid in under if seen[pid].state not in "ZX"]


def pids_below(parents: dict[int, int], top: int) -> list[int]:
    """Every pid under `top`, itself left out, of a table that names each one's parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    ring = children.get(top, [])
    while ring:
        found += ring
        ring = [child for pid in ring for child in children.get(pid, ())]
    return found


def members(queue_id: str, worker_id: int, session: int | None = None, since: float = 0.0) -> list[Stat]:
    """Living processes with the worker's mark in their environment, or of its leader's session.

    `session` is the leader's pid and `since` its start.
    Other users' environments cannot be read; a worker has none of theirs.
    """
    seen, mark = everyone(), f"{queue_id}:{worker_id}"
    session = _session(seen, session, since)
    living = (stat for stat in seen.values() if stat.state not in "ZX")
    return [stat for stat in living if (session and stat.session == session) or mark_of(stat.pid) == mark]


def _session(seen: dict[int, Stat], session: int | None, since: float) -> int | None:
    """A leader's session; None when it and all of its session are gone, and the number is somebody else's."""
    first = seen.get(session or 0)
    return None if first and first.started != since else session


def mark_of(pid: int) -> str:
    """The mark in a process's environment: `queue_id:worker_id`; "" if it has none, or it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return ""
    name = f"{MARK}=".encode()
    return next((os.fsdecode(word[len(name) :]) for word in words if word.startswith(name)), "")


class Living:
    """Which workers of a queue had anything alive at one moment: the process table, read once for all of them."""

    def __init__(self, queue_id: str) -> None:
        self.queue_id, self.seen = queue_id, everyone()
        living = [stat for stat in self.seen.values() if stat.state not in "ZX"]
        self.sessions = {stat.session for stat in living}
        self.marks = {mark_of(stat.pid) for stat in living}
        self.kept = {argv[-1] for argv in (argv_of(stat.pid) for stat in living) if CLAIM in argv}

    def has(self, folder: str, worker_id: int) -> bool:
        """Whether anything of a worker was alive: as `alive` says it of one."""
        session = _session(self.seen, *(leader_of(folder) or (None, 0.0)))
        marked = f"{self.queue_id}:{worker_id}" in self.marks
        return marked or folder in self.kept or (session is not None and session in self.sessions) or is_held(folder)


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


def hold(folder: str) -> int:
    """Take that lock for the rest of this process, by a descriptor; SystemExit if another keeper has it."""
    lock, until = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + 2.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
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
    """The living keeper whose claim names this folder, by whatever path; None if there is none."""
    ours = regular.inode(folder)
    for stat in everyone().values():
        argv = argv_of(stat.pid)
        if CLAIM not in argv or stat.state in "ZX":
            continue
        if argv[-1] == folder or (ours is not None and regular.inode(argv[-1]) == ours):
            return stat
    return None


def rooms_around(pid: int) -> list[dict[str, str]]:
    """The claims of the workers that a process is part of, the nearest first.

    It is below their keeper, or below a process that has room for itself, or is that process.
    """
    seen, above = everyone(), [pid]
    while (stat := seen.get(above[-1])) is not None and stat.parent not in above:
        above.append(stat.parent)
    claims = {stat.pid: claim for stat in seen.values() if (claim := claim_of(argv_of(stat.pid))) and "queue" in claim}
    holders = {seen[keeper].parent: claim for keeper, claim in claims.items() if claim.get("kind") == "l"}
    return [each for step in above for each in (holders.get(step), claims.get(step)) if each is not None]


def leader_of(folder: str) -> tuple[int, float] | None:
    """Pid and start of the worker's leader as its keeper noted them in this boot; None if it never did."""
    import json

    try:
        noted = json.loads(regular.content(os.path.join(folder, "leader.json"), 1 << 16))
        return (int(noted["pid"]), float(noted["started"])) if noted["boot_id"] == boot_id() else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
