"""How well simulated nights end, against the least that is possible and against strict order. Prints a table.

    .venv/bin/python tests/benchmarks/nights.py [--seeds 20] [--jobs 400] [--processes 2] [--unlearned]

Seeds 1 to N of four kinds of night (overnight_trace.py), each simulated at overtake = 900 s and strictly. A night
counts only if check_night.py finds no broken rule. All figures are means over nights; `/ strict` is a night's mean wait
over that of the same night in strict order. CPU is without the interpreter's start. Exits 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import json

from check_night import check
from overnight_trace import trace as generated

from scheduler.simulate import trace
from scheduler.simulate.night import simulate

KINDS = [("batch", "uniform"), ("batch", "skewed"), ("poisson", "uniform"), ("poisson", "skewed")]
OVERTAKE_S = 900.0


def one(seed: int, arrivals: str, mix: str, jobs: int, strict: bool, learned: bool) -> dict[str, Any]:
    """One night's figures, and the rules that it broke."""
    raw = generated(seed, jobs=jobs, arrivals=arrivals, mix=mix)
    night = trace.read(json.dumps(raw), f"seed {seed}")
    begun = time.process_time()
    found = simulate(night, overtake_s=OVERTAKE_S, strict=strict, learned=learned)
    cpu_s = time.process_time() - begun
    broken, figures = check(raw, found, OVERTAKE_S, strict)
    return {**figures, "broken": broken, "cpu_s": cpu_s}


def main() -> int:
    """Run all nights and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--unlearned", action="store_true")
    asked = parser.parse_args()
    seeds = range(1, asked.seeds + 1)
    print(
        f"{'night':18}{'end/bound':>10}{'wait s':>8}{'/ strict':>9}{'cold':>7}{'worst head s':>14}{'cpu s':>7}"
        f"{'strict: end/bound':>19}{'cold':>7}{'cpu s':>7}{'broken':>8}"
    )
    worst = 0
    with ProcessPoolExecutor(asked.processes) as pool:
        for arrivals, mix in KINDS:
            calls = [
                (seed, arrivals, mix, asked.jobs, strict, not asked.unlearned)
                for strict in (False, True)
                for seed in seeds
            ]
            found = list(pool.map(one, *zip(*calls, strict=True)))
            ours, strictly = found[: len(seeds)], found[len(seeds) :]
            broken = sum(bool(night["broken"]) for night in found)
            worst += broken
            wait_s = mean(night["mean_wait_s"] for night in ours)
            share = mean(n["mean_wait_s"] / m["mean_wait_s"] for n, m in zip(ours, strictly, strict=True))
            print(
                f"{arrivals + ' ' + mix:18}{mean(n['ratio'] for n in ours):>10.4f}{wait_s:>8.0f}"
                f"{share:>9.3f}{mean(n['cold_starts'] for n in ours):>7.1f}"
                f"{max(n['worst_head_wait_s'] for n in ours):>14.0f}{mean(n['cpu_s'] for n in ours):>7.2f}"
                f"{mean(n['ratio'] for n in strictly):>19.3f}{mean(n['cold_starts'] for n in strictly):>7.1f}"
                f"{mean(n['cpu_s'] for n in strictly):>7.2f}{broken:>8}",
                flush=True,
            )
            for night in found:
                for line in night["broken"][:3]:
                    print("  broken:", line)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
