"""What workers hold of host memory, ten times a second: their trees from the process table, their use from `status`.

Cheap enough for that: of the table only pids are listed again, and of a process only what has just come is read; its
use is a few numbers that the kernel has ready (E26: 7 us), whatever its size. Never PSS, which stalls who is asked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from scheduler.host.machine.processes import content
from scheduler.host.workers import tree
from scheduler.model.machine import GIB

STATUS = 1 << 12
PAGE = os.sysconf("SC_PAGESIZE")
STATUS_S, SHIFT = 1.0, 1024
"""How long `status` stands for what is shared memory of what a process maps, and by how many pages that may change."""

ANEW_S = 30.0
"""How often the whole table is read anew: a pid may have been given to another process meanwhile."""


@dataclass
class Process:
    """One process of a worker: what it held at least since it is known, which it may share with its parent. GiB."""

    started: float
    files: tuple[int, ...] = ()
    """Its `statm` and `status`, open: read again without being looked up, and never another's of the same pid."""
    shared: int = 0
    read_at_s: float = 0.0
    least_gib: float | None = None
    anon_gib: float = 0.0
    shmem_gib: float = 0.0

    def close(self) -> None:
        """It is gone, or of no interest any more."""
        for fd in self.files:
            os.close(fd)
        self.files = ()


@dataclass
class Grown:
    """A worker's processes by pid, below its keeper, and what they hold together. None = nothing could be read.

    `holder` is (pid, start) of the process that has the room for itself: its keeper is its child, and what is counted
    is that process and all below it. None = a worker as usual.
    """

    keeper: int = 0
    holder: tuple[int, float] | None = None
    processes: dict[int, Process] = field(default_factory=dict)
    used_gib: float | None = None


class Growth:
    """Watches the trees of some workers. `proc` is where the kernel's files are looked for."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc
        self.workers: dict[int, Grown] = {}
        self._table: dict[int, int] = {}
        """The worker that each process that was seen belongs to; 0 = none."""
        self._anew_at_s = 0.0

    def watch(self, worker_id: int, keeper: int, *, leased: bool = False) -> None:
        """From now on what is below this keeper is that worker's. `leased`: its parent, and what is below that."""
        self.forget(worker_id)
        above = self.parent(keeper) if leased else 0
        found = self._stat(above) if above > 1 else None
        self.workers[worker_id] = Grown(keeper, (above, found[1]) if found is not None else None)

    def forget(self, worker_id: int) -> None:
        """That worker is gone."""
        grown = self.workers.pop(worker_id, None)
        for process in grown.processes.values() if grown is not None else ():
            process.close()
        self._anew_at_s = 0.0

    def look(self, now_s: float) -> None:
        """Find the processes that came and went since the last look. `now_s` is monotonic."""
        pids = [int(name) for name in os.listdir(self.proc) if name.isdigit()]
        if now_s >= self._anew_at_s:
            self._table, self._anew_at_s = {}, now_s + ANEW_S
        come = [pid for pid in pids if pid not in self._table]
        parents = {pid: found for pid in come if (found := self._stat(pid)) is not None}
        keepers, holders = {grown.keeper: worker_id for worker_id, grown in self.workers.items()}, self._holders()
        for pid in parents:
            self._table[pid] = self._whose(pid, parents, keepers, holders)
        here = set(pids)
        self._table = {pid: whose for pid, whose in self._table.items() if pid in here}
        shared = []
        for worker_id, grown in self.workers.items():
            if grown.holder is not None and holders.get(grown.holder[0], worker_id) != worker_id:
                shared.append((grown, holders[grown.holder[0]]))
                continue
            kept = {pid: p for pid, p in grown.processes.items() if self._table.get(pid) == worker_id}
            for pid, (_, started) in parents.items():
                if self._table.get(pid) == worker_id and (pid not in kept or kept[pid].started != started):
                    kept[pid] = Process(started)
            for pid, process in grown.processes.items():
                if kept.get(pid) is not process:
                    process.close()
            grown.processes = kept
        for grown, first in shared:
            grown.processes = self.workers[first].processes

    def _holders(self) -> dict[int, int]:
        """Of each process that has room for itself the worker; the first of them, where it has several."""
        found: dict[int, int] = {}
        for worker_id, grown in sorted(self.workers.items()):
            if grown.holder is not None:
                stat = self._stat(grown.holder[0])
                if stat is not None and stat[1] == grown.holder[1]:
                    found.setdefault(grown.holder[0], worker_id)
        return found

    def _whose(
        self, pid: int, parents: dict[int, tuple[int, float]], keepers: dict[int, int], holders: dict[int, int]
    ) -> int:
        """The worker that a process is of, by the nearest keeper or holder above it; a keeper itself is nobody's."""
        if pid in keepers:
            return 0
        seen, at = set(), pid
        while at not in seen:
            seen.add(at)
            if at in holders:
                return holders[at]
            above = parents[at][0] if at in parents else 0
            if above in keepers:
                return keepers[above]
            if above in self._table:
                return self._table[above]
            at = above
        return 0

    def measure(self, worker_id: int, now_s: float) -> float | None:
        """What a worker holds now of host memory that it cannot give back, GiB; None if nothing could be read.

        Of one process RssAnon + RssShmem. Of several the largest one's, what each other one gained since it was least,
        and shared memory once: never too much, since what a fork shares with its parent stands in both.
        """
        grown = self.workers.get(worker_id)
        if grown is None:
            return None
        read = [process for pid, process in grown.processes.items() if self._read(pid, process, now_s)]
        if not read:
            grown.used_gib = None if grown.processes else 0.0
            return grown.used_gib
        most = max(read, key=lambda process: process.anon_gib)
        gained = sum(p.anon_gib - (p.least_gib or 0.0) for p in read if p is not most)
        grown.used_gib = most.anon_gib + gained + max(process.shmem_gib for process in read)
        return grown.used_gib

    def living(self, worker_id: int) -> list[tree.Stat]:
        """The processes of a worker that are there and no zombies, to be signalled.

        None of a process that has the room for itself: its keeper tells that to end, and gives it a grace.
        """
        grown = self.workers.get(worker_id)
        if grown is None or grown.holder is not None:
            return []
        found = [(tree.stat_of(pid), process.started) for pid, process in grown.processes.items()]
        return [stat for stat, started in found if stat and stat.started == started and stat.state not in "ZX"]

    def nobodys(self) -> list[int]:
        """The pids of all processes that are no worker's of ours, as they were at the last look."""
        return [pid for pid, whose in self._table.items() if not whose]

    def parent(self, pid: int) -> int:
        """The pid of a process's parent; 0 if it is gone."""
        found = self._stat(pid)
        return found[0] if found is not None else 0

    def _read(self, pid: int, process: Process, now_s: float) -> bool:
        """From `statm`, a fifth as dear (E34), while what it maps stays about the same; `status` tells that apart."""
        try:
            if not process.files:
                names = (f"{self.proc}/{pid}/{name}" for name in ("statm", "status"))
                process.files = tuple(os.open(name, os.O_RDONLY | os.O_CLOEXEC) for name in names)
            _, resident, shared, *_ = os.pread(process.files[0], STATUS, 0).split()
            process.anon_gib = (int(resident) - int(shared)) * PAGE / GIB
            if now_s - process.read_at_s >= STATUS_S or abs(int(shared) - process.shared) > SHIFT:
                process.anon_gib, process.shmem_gib = _parsed(os.pread(process.files[1], STATUS, 0))
                process.shared, process.read_at_s = int(shared), now_s
        except (OSError, ValueError, IndexError):
            return False
        least = process.least_gib
        process.least_gib = process.anon_gib if least is None else min(least, process.anon_gib)
        return True

    def _stat(self, pid: int) -> tuple[int, float] | None:
        """(parent, start) of a process; None if it is gone."""
        try:
            fields = content(f"{self.proc}/{pid}/stat", 1 << 10).rpartition(b")")[2].split(None, 20)
            return int(fields[1]), float(fields[19])
        except (OSError, ValueError, IndexError):
            return None


def own_gib(proc: str, pid: int) -> tuple[float, float] | None:
    """(RssAnon, RssShmem) of a process in GiB: what it cannot give back; None if that cannot be read."""
    try:
        return _parsed(content(f"{proc}/{pid}/status", STATUS))
    except (OSError, ValueError, IndexError):
        return None


def _parsed(text: bytes) -> tuple[float, float]:
    anon, shmem = text.index(b"RssAnon:") + 8, text.index(b"RssShmem:") + 9
    kib = int(text[anon : text.index(b"kB", anon)]), int(text[shmem : text.index(b"kB", shmem)])
    return kib[0] * 1024 / GIB, kib[1] * 1024 / GIB
