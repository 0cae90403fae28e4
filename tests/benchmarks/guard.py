"""What guard and snapshots cost while ten workers run, and whether that grows with what they hold.

    python tests/benchmarks/guard.py [SECONDS [LARGE_MIB]]

Ten real workers of 8 MiB below real keepers, then ten of 64 MiB. Shown is the processor time of the guard's thread,
and of whole snapshots, as often as the scheduler takes them when nobody asks, as a share of one core, and the ratio
between the two sizes. Target: together < 1 % of a core, ratio near 1. Of a worker a few numbers are read that the
kernel has ready whatever its size, so the ratio of 64 to 8 MiB stands for 1 GiB too. LARGE_MIB 1024, measured three
times on two cores that others wanted too: guard 0.50 to 0.54 % of a core, snapshots 0.40 %, together 0.90 to 0.94 %; of
8 MiB right before, 0.90 to 1.23 %: that is the machine's noise, and nothing grows. Not measured here: a worker of
several processes, whose shared pages a snapshot sums at most every 5 s, in a time that grows with them (E26); and a
driver's answers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent), str(Path(__file__).resolve().parent.parent)]

from keepers import QUEUE, Yard

from scheduler.config import settings
from scheduler.host.machine.guard import Guard
from scheduler.host.machine.meminfo import meminfo
from scheduler.host.machine.sampler import pause_after
from scheduler.host.machine.snapshot import MachineIdentity, Snapshots
from scheduler.model.host import Park

WORKERS, SMALL_MIB, LARGE_MIB = 10, 8, 64
SPARE_GIB = 5.0
"""What the largest workers leave of the machine."""


def cost(folder: Path, mib: int, for_s: float) -> tuple[float, float, float]:
    """Share of a core that the guard takes, and the snapshots; and how many processes the machine had."""
    yard = Yard(folder)
    snapshots = Snapshots(
        yard.paths.home, settings(), MachineIdentity("boot", "here"), queue_id=QUEUE, budget_of=lambda slug: None
    )
    seen = snapshots.take()
    guard = Guard(yard.roster.stop, lambda event: None, lambda: seen)
    try:
        for worker_id in range(1, WORKERS + 1):
            guard.parked(Park(worker_id, "fake", "", "r1", "resident", {"host": 2.0}, {"host": 1}))
            guard.heard(yard.park(worker_id, charges={"host": 2.0}))
            yard.roster.go(worker_id, yard.launch("--allocate-mib", str(mib)))
            guard.let_go(worker_id)
        for worker_id in range(1, WORKERS + 1):
            guard.heard(yard.ear.wait(_answered(), worker_id, deadline_s=60.0))
            guard.sent(worker_id, {})
        guard.open()
        time.sleep(1.5)
        assert guard._thread.ident is not None
        clock = time.pthread_getcpuclockid(guard._thread.ident)
        began, before = time.monotonic(), time.clock_gettime(clock)
        time.sleep(for_s)
        guarded = (time.clock_gettime(clock) - before) / (time.monotonic() - began)
        took = []
        for _ in range(5):
            start = time.process_time()
            seen = snapshots.take()
            took.append(time.process_time() - start)
        held = guard.peaks(1, anew=False)["host"]
        assert held * 1024 > mib, f"worker 1 holds {held:.3f} GiB"
        return (
            guarded,
            sorted(took)[2] / pause_after(sorted(took)[2]),
            float(sum(name.isdigit() for name in os.listdir("/proc"))),
        )
    finally:
        guard.close()
        snapshots.close()
        yard.end()


def _answered() -> type:
    from scheduler.model.host import Answered

    return Answered


def main(words: list[str]) -> int:
    """Measure both sizes and say what came of it."""
    for_s = float(words[0]) if words else 5.0
    large_mib = int(words[1]) if len(words) > 1 else LARGE_MIB
    spare_gib = (meminfo()["MemAvailable"].value or 0.0) - WORKERS * large_mib / 1024
    if spare_gib < SPARE_GIB:
        print(f"{WORKERS} workers of {large_mib} MiB would leave {spare_gib:.1f} GiB: nothing was measured")
        return 1
    found = {}
    for mib in (SMALL_MIB, large_mib):
        with tempfile.TemporaryDirectory() as folder:
            found[mib] = cost(Path(folder), mib, for_s)
        guarded, snapped, processes = found[mib]
        print(
            f"{WORKERS} workers of {mib:4d} MiB, {processes:.0f} processes: guard {guarded:.2%} of a core, "
            f"snapshots {snapped:.2%}, together {guarded + snapped:.2%}"
        )
    small, large = found[SMALL_MIB], found[large_mib]
    print(
        f"{large_mib} MiB against {SMALL_MIB}: guard x {large[0] / small[0]:.2f}, snapshots x {large[1] / small[1]:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
