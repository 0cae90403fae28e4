#!/usr/bin/env python3
# Shared benchmark data, not of this project: the generator of nights, copied as it is. It imports nothing of schedq.
"""Overnight traces: what a night of mixed jobs looks like, as numbers only.

    overnight_trace.py SEED [--jobs 400] [--providers 27] [--capacity 121] [--reserve 4] [--arrivals batch|poisson] [--mix skewed|uniform]

prints one JSON object:

    {"capacity_gib", "reserve_gib",
     "providers": {slug: {"budget_gib", "cold_s", "warm_s"}},     cold_s = load time before the first answer
     "jobs": [{"id", "slug", "arrives_s", "run_s"}],              in order of submission
     "lower_bound_s": no schedule can end earlier}

Model: one request at a time per worker, one worker per provider, workers of different providers run
side by side, a worker holds its budget from spawn to retirement, loading takes cold_s.

The lower bound is the larger of
  area   : sum(budget x run time) + each used provider's budget x cold_s once, over (capacity - reserve)
  chain  : for one provider, cold_s + all of its run times (they are serial), after its first arrival
  arrival: the last arrival + its run time
On poisson nights the arrival term often binds: there look at mean waits too. It is not always reachable; compare policies on the same trace, and as a ratio to it.
"""

import argparse
import json
import random

BUDGETS_GIB = (2, 3, 4, 6, 8, 12, 16, 20, 28, 28, 40, 56)


def trace(seed, jobs=400, providers=27, capacity=121.0, reserve=4.0, arrivals="batch", mix="skewed"):
    rng = random.Random(seed)
    catalog = {}
    for n in range(providers):
        budget = rng.choice(BUDGETS_GIB)
        cold = rng.uniform(15, 110)
        warm = rng.uniform(3, 50)
        catalog[f"p{n:02d}"] = {"budget_gib": float(budget), "cold_s": round(cold, 3), "warm_s": round(warm, 3)}
    slugs = list(catalog)
    weights = [rng.paretovariate(1.2) if mix == "skewed" else 1.0 for _ in slugs]
    rows, t = [], 0.0
    for n in range(jobs):
        slug = rng.choices(slugs, weights)[0]
        if arrivals == "poisson":
            t += rng.expovariate(1 / 8.0)
        run = catalog[slug]["warm_s"] * rng.lognormvariate(0, 0.35)
        rows.append({"id": n + 1, "slug": slug, "arrives_s": round(t, 3), "run_s": round(run, 3)})
    out = {"seed": seed, "capacity_gib": capacity, "reserve_gib": reserve, "providers": catalog, "jobs": rows}
    out["lower_bound_s"] = round(lower_bound(out), 3)
    return out


def lower_bound(t):
    usable = t["capacity_gib"] - t["reserve_gib"]
    too_big = [s for s, p in t["providers"].items() if p["budget_gib"] > usable]
    if too_big:
        raise SystemExit(f"{', '.join(too_big)} can never fit in {usable} GiB: this night cannot end")
    p = t["providers"]
    area = sum(p[j["slug"]]["budget_gib"] * j["run_s"] for j in t["jobs"])
    used = {j["slug"] for j in t["jobs"]}
    area += sum(p[s]["budget_gib"] * p[s]["cold_s"] for s in used)
    chain = 0.0
    for s in used:
        mine = [j for j in t["jobs"] if j["slug"] == s]
        chain = max(chain, min(j["arrives_s"] for j in mine) + p[s]["cold_s"] + sum(j["run_s"] for j in mine))
    last = max(j["arrives_s"] + j["run_s"] for j in t["jobs"])
    return max(area / usable, chain, last)


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("seed", type=int)
    a.add_argument("--jobs", type=int, default=400)
    a.add_argument("--providers", type=int, default=27)
    a.add_argument("--capacity", type=float, default=121.0)
    a.add_argument("--reserve", type=float, default=4.0)
    a.add_argument("--arrivals", choices=["batch", "poisson"], default="batch")
    a.add_argument("--mix", choices=["skewed", "uniform"], default="skewed")
    print(json.dumps(trace(**vars(a.parse_args()))))
