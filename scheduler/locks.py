"""Kernel locks on folders: taken past those who only look, let go for every copy, and who holds one.

A flock is gone with its holder's last descriptor, so a killed holder leaves nothing. Imported by the fast paths:
standard library only.
"""

from __future__ import annotations

import fcntl
import os
import time

from scheduler.clock import monotonic_s

PROBED_S = 2.0
"""Who only looks whether a lock is held has it for an instant: that is waited out."""

TURN_S = 0.005


def take(folder: str, *, shared: bool = False, patience_s: float | None = None) -> int | None:
    """A descriptor that holds the folder's lock, alone or shared; None if others keep it for `patience_s` (PROBED_S).

    OSError if there is no such folder.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until_s = monotonic_s() + (PROBED_S if patience_s is None else patience_s)
    try:
        while True:
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if monotonic_s() >= until_s:
                    break
            time.sleep(TURN_S)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def let_go(fd: int) -> None:
    """Unlock, for every copy of the descriptor that a fork may have made too, and close it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass  # the closing frees it as well
    os.close(fd)


def is_held(folder: str) -> bool:
    """Whether somebody holds the folder's lock alone; not if there is no such folder. Looks for an instant."""
    try:
        fd = take(folder, shared=True, patience_s=0.0)
    except OSError:
        return False
    if fd is not None:
        let_go(fd)
    return fd is None


def holder(folder: str, locks: str = "/proc/locks") -> int | None:
    """The pid of who holds the flock on `folder`, from /proc/locks; None if nobody that we can see.

    Inodes repeat over filesystems: the device is compared too, as the kernel writes it (major:minor in hex). On
    btrfs and overlays stat() tells another device than the kernel writes there: then whoever holds some flock is
    asked for a descriptor of this very folder that has one.
    """
    others: list[int] = []
    try:
        found = os.stat(folder)
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with open(locks, encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[1] != "FLOCK":
                    continue
                if words[5] == place:
                    return int(words[4])
                others.append(int(words[4]))
    except (OSError, IndexError, ValueError):
        return None
    return next((pid for pid in dict.fromkeys(others) if _has_locked(pid, found)), None)


def _has_locked(pid: int, place: os.stat_result) -> bool:
    """Whether a process has this file open by a descriptor that holds a flock; one that only waits has none."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found = os.stat(f"/proc/{pid}/fd/{fd}")
                if (found.st_dev, found.st_ino) != (place.st_dev, place.st_ino):
                    continue
                with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as file:
                    if "FLOCK" in file.read():
                        return True
            except OSError:
                continue
    except OSError:
        pass
    return False


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or by a debugger: it does nothing until somebody lets it go on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def command(pid: int) -> str:
    """What a process was started as, for people: the first 120 characters of its command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(512).decode(errors="replace").split("\0")
    except OSError:
        return "ended meanwhile"
    return " ".join(words).strip()[:120] or "no command line"
