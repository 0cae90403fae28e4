"""The process table as the kernel has it: who is whose parent, since when, with which argument vector.

State, parent, start and argv of every process are read here from two files each: psutil's public way to a parent
reads `stat` three times and costs some 55 ms for 400 processes, where a whole snapshot has 30, and its `cmdline()`
takes an argument with blanks apart where it is the only one, or where no NUL ends the last. psutil lists the table
and tells what only holders are asked for (see `asked`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of a process's flags: it has no argument vector."""

STAT, WORDS = 1 << 10, 1 << 12
"""Bytes read at once of `stat`, which is shorter, and of an argument vector."""

_PLACE = threading.Lock()


@dataclass(frozen=True, slots=True)
class Process:
    """One living process. `started` in clock ticks since boot; `argv` empty for kernel threads and hidden ones."""

    pid: int
    parent: int
    started: float
    argv: tuple[str, ...]


@contextmanager
def psutil_at(proc: str) -> Iterator[None]:
    """psutil looks for the kernel's files in `proc` inside this block.

    The place is one variable of psutil for all threads: one block at a time. An object of psutil's keeps the place that
    it was made with.
    """
    with _PLACE:
        before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, proc
        try:
            yield
        finally:
            psutil.PROCFS_PATH = before


def table(proc: str = "/proc") -> dict[int, Process]:
    """Every process that can be seen and is no zombie, by pid. OSError if the table itself cannot be read.

    One that ends while it is read is left out; one that hides its argument vector has none. A table that lists nobody,
    not even the reader, is none.
    """
    with psutil_at(proc):
        try:
            pids = psutil.pids()
        except IndexError:
            raise OSError(f"{proc} lists no process: it is no process table") from None
    found = {}
    for pid in pids:
        process = _process(f"{proc}/{pid}", pid)
        if process is not None:
            found[pid] = process
    return found


def _process(folder: str, pid: int) -> Process | None:
    try:
        fields = content(f"{folder}/stat", STAT).rpartition(b")")[2].split(None, 20)
        if fields[0] in (b"Z", b"X"):
            return None
        parent, flags, started = int(fields[1]), int(fields[6]), float(fields[19])
    except (OSError, IndexError, ValueError):
        return None
    return Process(pid, parent, started, () if flags & KERNEL_THREAD else _argv(folder))


def _argv(folder: str) -> tuple[str, ...]:
    try:
        data = content(f"{folder}/cmdline", WORDS)
    except OSError:
        return ()
    return tuple(os.fsdecode(data.removesuffix(b"\0")).split("\0")) if data else ()


def content(path: str, size: int) -> bytes:
    """A file of the kernel's, whole, `size` bytes at a time: a read that is not full was the last. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(fd, size)
        while len(part) == size:
            part = os.read(fd, size)
            data += part
    finally:
        os.close(fd)
    return data


def children_of(processes: dict[int, Process]) -> dict[int, list[int]]:
    """The pids of each process's children."""
    found: dict[int, list[int]] = {}
    for pid, process in processes.items():
        found.setdefault(process.parent, []).append(pid)
    return found


def below(children: dict[int, list[int]], top: int, but: frozenset[int] = frozenset()) -> list[int]:
    """The pids of every process under `top`, itself left out, and without `but` and what is under those."""
    found: list[int] = []
    seen = {top}
    ring = children.get(top, [])
    while ring:
        ring = [pid for pid in ring if pid not in but and pid not in seen]
        seen.update(ring)
        found += ring
        ring = [child for pid in ring for child in children.get(pid, ())]
    return found


def ancestors(processes: dict[int, Process], pid: int) -> set[int]:
    """The pids above a process, as far as they can be seen."""
    found: set[int] = set()
    parent = processes[pid].parent
    while parent in processes and parent not in found and parent != pid:
        found.add(parent)
        parent = processes[parent].parent
    return found


def hidden(proc: str = "/proc") -> str:
    """How /proc hides other users' processes from us, as a sentence; empty if it does not, or not from us."""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
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
