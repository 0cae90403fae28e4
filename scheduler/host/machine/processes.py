"""The process table as the kernel has it: argv word for word, who is whose parent, what memory cannot be given back.

Read from /proc directly: command lines that went through blanks and quotes cannot be told apart again, and of other
users' processes little else can be read.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from scheduler.host.workers.tree import argv_in, pids_below
from scheduler.model.machine import GIB


@dataclass(frozen=True)
class Process:
    """One living process. `started` in clock ticks since boot; `argv` empty for kernel threads and hidden ones."""

    pid: int
    parent: int
    started: float
    argv: tuple[str, ...]
    uid: int


def table(proc: str = "/proc") -> dict[int, Process]:
    """Every process that can be seen and is no zombie, by pid. OSError if the table itself cannot be read."""
    found = {}
    for name in os.listdir(proc):
        if name.isdigit():
            process = _process(f"{proc}/{name}", int(name))
            if process is not None:
                found[process.pid] = process
    return found


def _process(folder: str, pid: int) -> Process | None:
    try:
        with open(f"{folder}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        uid = os.stat(folder).st_uid
        if fields[0] in (b"Z", b"X"):
            return None
        parent, started = int(fields[1]), float(fields[19])
    except (OSError, IndexError, ValueError):
        return None
    return Process(pid, parent, started, tuple(argv_in(folder)), uid)


def user_name(uid: int) -> str:
    """The name of a user id; the number as text if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def below(processes: dict[int, Process], top: int) -> list[int]:
    """The pids of every process under `top`, itself left out."""
    return pids_below({pid: process.parent for pid, process in processes.items()}, top)


def since_s(process: Process, proc: str = "/proc") -> float | None:
    """When a process started, seconds since the epoch; None if the kernel does not say when it booted."""
    try:
        with open(f"{proc}/stat") as file:
            booted = next(float(line.split()[1]) for line in file if line.startswith("btime"))
    except (OSError, StopIteration, ValueError):
        return None
    return booted + process.started / os.sysconf("SC_CLK_TCK")


def hidden(proc: str = "/proc") -> str:
    """How /proc hides other users' processes from us, as a sentence; empty if it does not, or not from us."""
    try:
        with open("/proc/self/mountinfo" if proc == "/proc" else f"{proc}/self/mountinfo") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 6 or fields[4] != "/proc" or not kind or kind[0] != "proc":
            continue
        options = f"{fields[5]},{kind[-1]}".split(",")
        modes = [word.removeprefix("hidepid=") for word in options if word.startswith("hidepid=")]
        if modes and modes[-1] not in ("0", "off") and os.geteuid() != 0:
            return (
                f"/proc is mounted with hidepid={modes[-1]}: workers of other users cannot be seen, only what the "
                "readings of the pools show of them"
            )
    return ""


class HostUse:
    """What processes hold of host memory and cannot give back: anonymous and shared pages, never file pages.

    Of one process RssAnon + RssShmem. Of several the sum of Pss_Anon + Pss_Shmem, which counts what they share once; it
    stalls a process some 5 ms a GiB (E26), so it is read at most every `every_s` and never trusted above what Rss sums
    to. Where Pss may not be read (another user's), the largest single process stands for all: too little, so that more
    is still owed.
    """

    def __init__(self, proc: str = "/proc", every_s: float = 5.0) -> None:
        self.proc = proc
        self.every_s = every_s
        self._pss: dict[tuple[tuple[int, float], ...], tuple[float, float | None]] = {}

    def gib(self, processes: list[Process], now_s: float) -> float | None:
        """GiB that these hold together; None if nothing of them could be read. `now_s` is monotonic."""
        rss = [value for value in (self._rss_gib(process.pid) for process in processes) if value is not None]
        if not rss:
            return None
        if len(processes) == 1:
            return rss[0]
        pss = self._shared_gib(processes, now_s)
        return max(rss) if pss is None else min(pss, sum(rss))

    def forget(self, now_s: float) -> None:
        """Drop what was read of trees that have not been asked for in a while."""
        self._pss = {key: kept for key, kept in self._pss.items() if now_s - kept[0] < 10 * self.every_s}

    def _rss_gib(self, pid: int) -> float | None:
        return _sum_gib(f"{self.proc}/{pid}/status", ("RssAnon:", "RssShmem:"))

    def _shared_gib(self, processes: list[Process], now_s: float) -> float | None:
        key = tuple(sorted((process.pid, process.started) for process in processes))
        kept = self._pss.get(key)
        if kept is not None and now_s - kept[0] < self.every_s:
            return kept[1]
        parts = [_sum_gib(f"{self.proc}/{p.pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")) for p in processes]
        total = None if any(part is None for part in parts) else sum(part or 0.0 for part in parts)
        self._pss[key] = (now_s, total)
        return total


def _sum_gib(path: str, names: tuple[str, ...]) -> float | None:
    try:
        with open(path) as file:
            kib = [int(line.split()[1]) for line in file if line.startswith(names)]
    except (OSError, ValueError, IndexError):
        return None
    return sum(kib) * 1024 / GIB if len(kib) == len(names) else None
