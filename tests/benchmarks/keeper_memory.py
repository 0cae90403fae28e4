"""What a keeper costs: memory (PSS), time to its hello, and how it keeps up with a worker that prints.

python tests/benchmarks/keeper_memory.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from keepers import Yard  # noqa: E402

from scheduler.host.workers.orders import Stored  # noqa: E402


def kib(pid: int, key: str = "Pss") -> int:
    """That line of smaps_rollup, KiB."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def main() -> None:
    """Print one line per figure."""
    with tempfile.TemporaryDirectory() as home:
        yard = Yard(Path(home))
        starts = []
        for worker_id in range(1, 11):
            before = time.perf_counter()
            shown = yard.park(worker_id)
            while f"{worker_id}.k" not in yard.sockets():
                time.sleep(0.0005)
            starts.append((time.perf_counter() - before) * 1000)
            if worker_id == 1:
                time.sleep(0.1)
                print(f"one parked keeper: {kib(shown.keeper_pid) / 1024:.1f} MiB PSS")
        print(f"ten: {kib(shown.keeper_pid) / 1024:.1f} MiB PSS each, {statistics.median(starts):.0f} ms to its socket")
        for worker_id in range(2, 11):
            yard.stop(0.0, worker_id)
        yard.roster.go(1, yard.launch())
        from scheduler.model.host import Answered

        yard.ear.wait(Answered)
        took = []
        for job in range(200):
            before = time.perf_counter()
            yard.send({"do": "echo"}, job=job)
            yard.ear.wait(Stored)
            took.append((time.perf_counter() - before) * 1000)
        print(f"send to Stored: median {statistics.median(took):.2f} ms, worst of 200 {max(took):.1f} ms")
        before = time.perf_counter()
        yard.send({"do": "print_mib", "mib": 500}, job=1000)
        yard.ear.wait(Stored, deadline_s=120)
        rate = 500 / (time.perf_counter() - before)
        pid = next(s.pid for s in yard.processes() if yard._keeps(s.pid))
        print(f"log: {rate:.0f} MiB/s, afterwards {kib(pid) / 1024:.1f} MiB PSS")
        yard.stop()
        yard.end()


if __name__ == "__main__":
    main()
