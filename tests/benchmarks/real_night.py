"""A night of real models in a pool that does not hold them all: loads, evictions and losses, beside strict order.

    .venv/bin/python tests/benchmarks/real_night.py [--jobs 60] [--seed 1] [--rounds 1] [--folder DIR]

The three bundled providers with their real environments (from $SCHEDQ_TEST_ENVS, or built once), jobs mixed by a seed,
all queued before the scheduler comes up, in a queue of its own for each order. The site's configuration declares so
large budgets that this machine's memory less the reserve holds two of the three, never all; the models themselves
are as small as they are. Twice the same night: order with a bound of 15 minutes, and `strict = true`.

A load is a start of a resident model, capiti or pyrodigal. propka is a command: a process for each job in any order,
counted apart, and it takes room from the others. The target is at most half the loads of strict order, and nothing
lost. Prints a table; exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from driven import Queue  # noqa: E402
from providers import ENVS, MANIFESTS, SLUGS, installed, spec_of  # noqa: E402

from scheduler.client import Client  # noqa: E402
from scheduler.model.machine import GIB  # noqa: E402

INPUTS = {
    "capiti": MANIFESTS / "capiti" / "validation" / "proteins.faa",
    "propka": MANIFESTS / "propka" / "validation" / "1ubi.pdb",
    "pyrodigal": MANIFESTS / "pyrodigal" / "validation" / "pBAD30.fna",
}
SLACK_GIB = 1.5
"""How much free memory may shrink during a night (page cache, other programs) with room for two left."""

LEAST_RESERVE_GIB = 0.25
STARTED = "SELECT slug, mode, count(*) FROM workers WHERE leader_pid IS NOT NULL GROUP BY slug, mode"
EVICTED = "SELECT count(*) FROM workers WHERE why LIKE 'its room is needed%'"
STATES = "SELECT state, outcome, count(*) FROM jobs GROUP BY state, outcome"
LOST = "SELECT count(*) FROM attempts WHERE outcome IS NOT 'ok'"


def sized() -> tuple[float, float]:
    """(budget, reserve) in GiB with which two of three fit for as long as SLACK_GIB holds, and a third never does.

    Two fit what is free, since page cache does not count while a worker is busy; three must exceed all memory.
    """
    memory = psutil.virtual_memory()
    capacity, free = memory.total / GIB, memory.free / GIB
    budget = math.ceil(10.0 * (capacity - free + 2.0 * SLACK_GIB)) / 10.0
    reserve = free - SLACK_GIB - 2.0 * budget
    if reserve < LEAST_RESERVE_GIB:
        raise SystemExit(f"{free:.1f} GiB of {capacity:.1f} are free: too little for two budgets of {budget:.1f} GiB")
    return budget, reserve


class Night:
    """One night: its queue, and what became of it."""

    def __init__(self, folder: Path, jobs: list[str], *, strict: bool, sizes: tuple[float, float]) -> None:
        folder.mkdir()
        budget, reserve = sizes
        self.jobs, self.queue = jobs, Queue(folder)
        settings = folder / "config" / "schedq"
        settings.mkdir(parents=True)
        sections = (f"[providers.{slug}.host]\nram_budget_gb = {budget}\n" for slug in SLUGS)
        (settings / "config.toml").write_text(f"strict = {str(strict).lower()}\n" + "\n".join(sections))
        self.queue.env |= {
            "XDG_CONFIG_HOME": str(folder / "config"), "SCHEDQ_ENVS": ENVS, "SCHEDQ_RESERVE_HOST_GIB": f"{reserve:.2f}"
        }  # fmt: skip

    def run(self, within_s: float) -> dict[str, float]:
        """Let it pass; its figures."""
        os.environ.update(self.queue.env)
        try:
            with Client(str(self.queue.home)) as client:
                ids = [client.submit(slug, str(INPUTS[slug])) for slug in self.jobs]
                began = time.monotonic()
                up = self.queue("up")
                assert up.code == 0, up
                client.wait(ids, timeout_s=within_s)
                took_s = time.monotonic() - began
            return {"seconds": took_s, **self._figures()}
        finally:
            self.queue("down", "--now")

    def _figures(self) -> dict[str, float]:
        connection = sqlite3.connect(f"file:{self.queue.home}/queue.db?mode=ro", uri=True)
        try:
            started = Counter[str]()
            for slug, mode, count in connection.execute(STARTED):
                started["loads" if mode == "resident" else "commands"] += count
                started[slug] += count
            states = {(state, outcome): count for state, outcome, count in connection.execute(STATES)}
            return {
                **started,
                "evictions": connection.execute(EVICTED).fetchone()[0],
                "not well": len(self.jobs) - states.get(("succeeded", "ok"), 0),
                "attempts not well": connection.execute(LOST).fetchone()[0],
            }
        finally:
            connection.close()


def main() -> int:
    """Run both nights as often as asked, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--within", type=float, default=600.0, help="seconds that one night may take")
    parser.add_argument("--folder", default=None)
    asked = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        for slug in SLUGS:
            installed(spec_of(slug, Path(name) / "home"))
        columns = ("seconds", "loads", "capiti", "pyrodigal", "commands", "evictions", "not well", "attempts not well")
        for n in range(asked.rounds):
            jobs = [SLUGS[each % len(SLUGS)] for each in range(asked.jobs)]
            random.Random(asked.seed + n).shuffle(jobs)
            sizes = sized()
            print(f"seed {asked.seed + n}: {len(jobs)} jobs, budgets {sizes[0]:.1f} GiB, reserve {sizes[1]:.1f} GiB")
            print(f"{'order':8}" + "".join(f"{each:>{len(each) + 3}}" for each in columns))
            loads = {}
            for strict in (False, True):
                order = "strict" if strict else "bounded"
                night = Night(Path(name) / f"{order}{n}", jobs, strict=strict, sizes=sizes)
                found = night.run(asked.within)
                loads[strict] = found.get("loads", 0)
                print(
                    f"{order:8}" + "".join(f"{found.get(each, 0):>{len(each) + 3}.0f}" for each in columns), flush=True
                )
                missed += int(found["not well"])
            missed += loads[False] * 2 > loads[True]
            print(f"loads: {loads[False] / max(1, loads[True]):.2f} of strict order's (target 0.50)")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
