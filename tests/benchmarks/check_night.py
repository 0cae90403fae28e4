#!/usr/bin/env python3
# Shared benchmark data, not of this project: an independent checker, copied as it is. It imports nothing of schedq.
"""check_night.py TRACE OUTPUT [--overtake S] [--strict]: does a simulated night keep the rules? Imports nothing of the project.

OUTPUT is what `schedq simulate TRACE --json` printed:
  "jobs":    [{"id", "slug", "worker", "admitted_s", "start_s", "end_s"}]     start_s = request sent (after any load)
  "workers": [{"id", "slug", "from_s", "ready_s", "to_s"}]                    to_s null = still there at the end
Prints makespan, ratio to the lower bound, cold starts, worst waits, and every broken rule; exit 1 if there is one.
"""
import json, sys
E = 1e-6
def check(trace, out, overtake=900.0, strict=False):
    bad = []; P = trace["providers"]; J = {j["id"]: j for j in trace["jobs"]}; U = trace["capacity_gib"] - trace["reserve_gib"]
    got = {j["id"]: j for j in out["jobs"]}; W = {w["id"]: w for w in out["workers"]}
    for i in J.keys() - got.keys(): bad.append(f"job {i} never ran")
    for i in got.keys() - J.keys(): bad.append(f"job {i} is not in the trace")
    if bad: return bad, {}
    mk = max(g["end_s"] for g in got.values()); inf = mk + 1
    # 1 memory: every worker holds its budget from spawn to retirement
    ev = []
    for w in W.values():
        b = P[w["slug"]]["budget_gib"]; to = inf if w["to_s"] is None else w["to_s"]
        ev += [(w["from_s"], 1, b), (to, 0, -b)]
        if abs(w["ready_s"] - w["from_s"] - P[w["slug"]]["cold_s"]) > 1e-3: bad.append(f"worker {w['id']} loads in {w['ready_s']-w['from_s']:.3f} s, trace says {P[w['slug']]['cold_s']}")
    used = 0.0
    for t, k, b in sorted(ev):
        used += b
        if used > U + E: bad.append(f"{used:.3f} GiB held of {U} at {t:.3f} s")
    # 2 one request at a time, on a present and ready worker of its own provider; a busy worker is not retired
    by = {}
    for g in got.values():
        j = J[g["id"]]; w = W.get(g["worker"])
        if w is None or w["slug"] != j["slug"]: bad.append(f"job {g['id']} ran on {g['worker']}, not a worker of {j['slug']}"); continue
        if g["admitted_s"] < j["arrives_s"] - E: bad.append(f"job {g['id']} admitted before it arrived")
        if g["start_s"] < w["ready_s"] - E: bad.append(f"job {g['id']} sent before its worker was ready")
        if abs(g["end_s"] - g["start_s"] - j["run_s"]) > 1e-3: bad.append(f"job {g['id']} ran {g['end_s']-g['start_s']:.3f} s, trace says {j['run_s']}")
        if w["to_s"] is not None and g["end_s"] > w["to_s"] + E: bad.append(f"worker {w['id']} was evicted while job {g['id']} ran")
        by.setdefault(w["id"], []).append(g)
    for wid, gs in by.items():
        gs.sort(key=lambda g: g["admitted_s"])
        for a, b in zip(gs, gs[1:]):
            if b["admitted_s"] < a["end_s"] - E: bad.append(f"worker {wid}: jobs {a['id']} and {b['id']} overlap")
    for wid in W.keys() - by.keys(): bad.append(f"worker {wid} served nothing")
    sl = {}
    for w in sorted(W.values(), key=lambda w: w["from_s"]):
        p = sl.get(w["slug"])
        if p is not None and (p["to_s"] is None or w["from_s"] < p["to_s"] - E): bad.append(f"two workers of {w['slug']} at {w['from_s']:.3f} s (the trace has one a provider)")
        sl[w["slug"]] = w
    # 3 the head's bound: since when every earlier job was admitted and this one was not
    worst = over = 0.0; done = 0.0; heads = late = 0
    order = [got[i] for i in sorted(J)]
    for g in order:
        since = max(done, J[g["id"]]["arrives_s"]); done = max(done, g["admitted_s"])
        if strict and g["admitted_s"] < since - E: bad.append(f"strict order: job {g['id']} admitted before an earlier one")
        if g["admitted_s"] <= since + E: continue
        heads += 1; close = since + overtake
        free_at = max([o["end_s"] for o in order if (o["admitted_s"] <= since + E or o["admitted_s"] < close - E) and o["end_s"] > close and o is not g], default=close)
        limit = max(close, free_at) + g["start_s"] - g["admitted_s"]
        worst = max(worst, g["start_s"] - since); over = max(over, g["start_s"] - limit)
        if g["start_s"] > limit + 1e-3: late += 1; bad.append(f"job {g['id']} at the head since {since:.1f} s started at {g['start_s']:.1f} s, bound {limit:.1f} s")
    return bad, dict(makespan_s=mk, ratio=mk/trace["lower_bound_s"], cold_starts=len(W), evictions=sum(w["to_s"] is not None for w in W.values()), heads=heads,
        worst_head_wait_s=worst, worst_wait_s=max(g["start_s"]-J[g["id"]]["arrives_s"] for g in got.values()), mean_wait_s=sum(g["start_s"]-J[g["id"]]["arrives_s"] for g in got.values())/len(J))
if __name__ == "__main__":
    a = sys.argv[1:]; ov = float(a[a.index("--overtake")+1].rstrip("s")) if "--overtake" in a else 900.0
    bad, fig = check(json.load(open(a[0])), json.load(open(a[1])), ov, "--strict" in a)
    print(json.dumps(fig)); print("\n".join(bad[:20]), file=sys.stderr); sys.exit(bool(bad))
