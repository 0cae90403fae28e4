"""What processes hold of host memory: sampled for a worker's whole tree, and rarely where that is dear."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.host.machine.processes import Process, content
from scheduler.model.machine import GIB

PAGE = 1 << 12


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

    def gib(self, processes: Sequence[Process], now_s: float) -> float | None:
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
        return _sum_gib(f"{self.proc}/{pid}/status", (b"RssAnon:", b"RssShmem:"))

    def _shared_gib(self, processes: Sequence[Process], now_s: float) -> float | None:
        key = tuple(sorted((process.pid, process.started) for process in processes))
        kept = self._pss.get(key)
        if kept is not None and now_s - kept[0] < self.every_s:
            return kept[1]
        parts = [_sum_gib(f"{self.proc}/{p.pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for p in processes]
        total = None if any(part is None for part in parts) else sum(part or 0.0 for part in parts)
        self._pss[key] = (now_s, total)
        return total


def _sum_gib(path: str, names: tuple[bytes, ...]) -> float | None:
    try:
        lines = content(path, PAGE).split(b"\n")
        kib = [int(line.split()[1]) for line in lines if line.startswith(names)]
    except (OSError, ValueError, IndexError):
        return None
    return sum(kib) * 1024 / GIB if len(kib) == len(names) else None
