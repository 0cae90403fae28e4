"""What a decision and a look at the machine cost, against asking other programs for the same figures.

    python tests/benchmarks/admission.py [--rounds 30] [--processes 400] [--cards 8]

`decide` is put to a machine with 30 holdings. A snapshot reads so many real processes (sleeping children of this
one), and so many cards whose driver is the tests' stand-in; beside it, in the same run, `ps` and a program that asks
the same stand-in for the same figures and prints them are spawned, as a script would. Medians, in the order printed;
the targets are 50 us for a decision and 30 ms for a snapshot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders import claim, demand, holding, unified
from nvml import Card, Stub

from scheduler.config import DEFAULTS, Settings
from scheduler.host.machine.accelerators import Accelerators
from scheduler.host.machine.nvidia import Nvidia
from scheduler.host.machine.snapshot import MachineIdentity, Snapshots
from scheduler.model.machine import Charge, Machine
from scheduler.rules.admission import decide

DECIDE_US, SNAPSHOT_MS = 50.0, 30.0
ASKER = r"""
#include <stdio.h>
typedef void *dev; typedef struct {unsigned long long total, free, used;} mem;
int nvmlInit_v2(void); int nvmlDeviceGetCount_v2(unsigned *); int nvmlDeviceGetHandleByIndex_v2(unsigned, dev *);
int nvmlDeviceGetMemoryInfo(dev, mem *); int nvmlDeviceGetUUID(dev, char *, unsigned);
int main(void) {
  unsigned n = 0; char uuid[96]; mem m; dev d;
  if (nvmlInit_v2() || nvmlDeviceGetCount_v2(&n)) return 1;
  for (unsigned i = 0; i < n; i++)
    if (!nvmlDeviceGetHandleByIndex_v2(i, &d) && !nvmlDeviceGetUUID(d, uuid, 96) && !nvmlDeviceGetMemoryInfo(d, &m))
      printf("%s, %llu, %llu, %llu\n", uuid, m.total >> 20, m.free >> 20, m.used >> 20);
  return 0;
}
"""


def median(act: Callable[[], object], rounds: int) -> float:
    """Seconds that it takes, in the middle of so many."""
    took = []
    for _ in range(rounds):
        before = time.perf_counter()
        act()
        took.append(time.perf_counter() - before)
    return statistics.median(took)


def decisions_us(rounds: int) -> tuple[float, float]:
    """A decision with 15 workers of ours and 15 of others, each with two parts; and the first on a new snapshot."""
    parts = Charge("unified", 1.0, 0.5, "host"), Charge("unified", 2.0, 0.5, "device")
    claims = [claim(worker_id, unified=3.0, host_gib=1.0) for worker_id in range(1, 16)]
    asked = demand(10.0, 2.0)

    def machine() -> Machine:
        return unified(holdings=tuple(holding(*parts, pid=n, worker_id=n if n <= 15 else None) for n in range(1, 31)))

    there, fresh = machine(), iter([machine() for _ in range(rounds * 20)])
    again = median(lambda: decide(asked, there, claims), rounds * 100)
    return again * 1e6, median(lambda: decide(asked, next(fresh), claims), rounds * 20) * 1e6


def asker(folder: Path, stub: Stub) -> list[str] | None:
    """A program that asks the stand-in as nvidia-smi asks its driver; None without a compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return None
    source, program = folder / "asker.c", folder / "asker"
    source.write_text(ASKER)
    subprocess.run([compiler, "-O1", "-o", program, source, stub.library], check=True)
    return [str(program)]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--processes", type=int, default=400)
    parser.add_argument("--cards", type=int, default=8)
    options = parser.parse_args()
    again, first = decisions_us(options.rounds)
    print(f"decide, 30 holdings: {again:.1f} us (target {DECIDE_US:.0f}); the first on a new snapshot {first:.1f} us")
    with tempfile.TemporaryDirectory() as name:
        return snapshots(options, Path(name))


def snapshots(options: argparse.Namespace, folder: Path) -> int:
    """The snapshot's figures."""
    stub = Stub(folder).cards([Card(n, used_gib=20.0, compute=[(os.getpid(), 20.0)]) for n in range(options.cards)])
    env = stub.write().env()
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(options.processes)]
    seen = Accelerators(nvidia=lambda: Nvidia(env=env))
    os.environ.update(env)
    settings = Settings(dict(DEFAULTS), dict.fromkeys(DEFAULTS, "default"), {})
    taken = Snapshots(
        str(folder), settings, MachineIdentity("boot", "here"), queue_id="Q", budget_of=lambda slug: None,
        accelerators=seen,
    )  # fmt: skip
    try:
        machine = taken.take()
        assert len(machine.devices) == options.cards, (machine.accelerators, machine.notes)
        whole = median(taken.take, options.rounds)
        ps = median(lambda: subprocess.run(["ps", "-eo", "pid,ppid,args"], stdout=subprocess.PIPE), options.rounds)
        print(f"snapshot, {options.processes} processes, {options.cards} cards: {whole * 1e3:.1f} ms"
              f" (target {SNAPSHOT_MS:.0f})")  # fmt: skip
        program = asker(folder, stub)
        if program is not None:
            smi = median(
                lambda: subprocess.run(program, env={**os.environ, **env}, stdout=subprocess.PIPE), options.rounds
            )
            print(f"  spawning ps: {ps * 1e3:.1f} ms, the driver's asker: {smi * 1e3:.1f} ms;"
                  f" ratio {whole / (ps + smi):.2f}")  # fmt: skip
        return 0
    finally:
        taken.close()
        for process in started:
            process.kill()
        for process in started:
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
