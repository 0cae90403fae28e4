"""A night that was never run, written straight into a queue: jobs of many providers, their attempts, workers, pools."""

from __future__ import annotations

import json
import random
import sqlite3
from typing import Any

from queues import writing

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.store import identity, intake

BEGIN_S = 1_796_000_000.0
SLUGS = (
    "boltz", "boltzgen", "proteinmpnn", "esm_if1", "af3", "chai", "esm2", "esmfold", "rfdiffusion", "ligandmpnn",
    "anarcii", "flash_abb", "capiti", "pyrodigal", "propka", "diffdock", "omegafold", "immunefold", "igfold",
    "prottrans", "ankh", "saprot", "foldseek", "tmalign", "thermompnn", "carbonara", "bindcraft",
)  # fmt: skip
TEXTS = (
    ("over_budget", "out of memory: {n} GiB asked, 24.00 GiB given, 1.2 GiB free on the device"),
    ("crashed", "the worker died of signal 9 (SIGKILL) while it worked on {name}"),
    ("error", "ValueError: sequence {name} has {n} residues, at most 1024 are allowed"),
    ("timed_out", "no progress for {n} s, the provider allows 3600"),
    ("refused", "this sequence has no residues"),
    ("no_outputs", "no file matches **/*.cif"),
)
JOBS = (
    "INSERT INTO jobs (id, slug, variant, name, user, host_id, state, batch, submitted_at, started_at, ended_at,"
    " attempt, tries, outcome, outcome_text, worker_id) VALUES (?, ?, '', ?, 'ada', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
)
ATTEMPTS = (
    "INSERT INTO attempts (job_id, attempt, worker_id, epoch, admitted_at, sent_at, ended_at, outcome, outcome_text,"
    " warm, load_s) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?)"
)


def made(
    paths: Paths, jobs: int, *, batch: str = "night", providers: int = 27, begin_s: float = BEGIN_S,
    failing: float = 0.1, cases: bool = False, open_jobs: int = 0, hours: float = 9.0, seed: int = 1,
    slower: float = 1.0, texts: Any = TEXTS, names: Any = None,
) -> None:  # fmt: skip
    """Write a night of so many jobs: a share of them `failing`, the last `open_jobs` waiting still.

    `cases`: they are validation cases. `names`: what jobs are called, by number. `slower`: how many times as long.
    """
    draw = random.Random(seed)
    intake.submit(paths, [])
    slugs, host = SLUGS[:providers], identity.host_id()
    free_s = {slug: begin_s + draw.uniform(0, 600) for slug in slugs}
    pace_s = {slug: hours * 3600.0 * providers / max(1, jobs) * draw.uniform(0.5, 0.9) for slug in slugs}
    with writing(paths) as db:
        first = db.execute("SELECT coalesce(max(id), 0) + 1 FROM jobs").fetchone()[0]
        worker = db.execute("SELECT coalesce(max(id), 0) FROM workers").fetchone()[0]
        db.execute("BEGIN IMMEDIATE")
        serving: dict[str, int] = {}
        rows: dict[str, list[Any]] = {"jobs": [], "attempts": [], "checks": [], "results": []}
        for n in range(jobs):
            job_id, slug = first + n, slugs[n % providers]
            name = names(n) if names else f"design-{n:06d}"
            if n >= jobs - open_jobs:
                at = stamp(begin_s + n * 0.001)
                rows["jobs"].append((job_id, slug, name, host, "queued", batch, at, None, None, 0, 0, None, None))
                continue
            load_s = None
            if slug not in serving or draw.random() < 0.002:
                worker += 1
                load_s = draw.uniform(5, 110)
                _worker(db, worker, slug, host, free_s[slug], load_s)
                serving[slug], free_s[slug] = worker, free_s[slug] + load_s
            sent_s = free_s[slug]
            ended_s = sent_s + pace_s[slug] * draw.uniform(0.3, 1.4) * slower
            free_s[slug] = ended_s + pace_s[slug] * 0.05
            bad = draw.random() < failing
            kind, text = texts[(n // providers) % len(texts)] if bad else ("ok", None)
            text = None if text is None else text.format(n=draw.randrange(25, 90), name=name)
            state = "succeeded" if not bad else "timed_out" if kind == "timed_out" else "failed"
            tried = 2 if bad and kind in ("over_budget", "crashed") else 1
            at, sent, ended = stamp(begin_s + n * 0.001), stamp(sent_s), stamp(ended_s)
            rows["jobs"].append((job_id, slug, name, host, state, batch, at, sent, ended, tried, tried, kind, text))
            for attempt in range(1, tried + 1):
                rows["attempts"].append(
                    (job_id, attempt, serving[slug], sent, sent, ended, kind, text, int(load_s is None), load_s)
                )
            if cases:
                check_fails = not bad and draw.random() < failing
                verdict = "failed" if bad or check_fails else "passed"
                found = f"0.{draw.randrange(10, 49)}"
                faults = [{"place": "/confidence/iptm", "expected": ">= 0.5", "found": found}] if check_fails else []
                case = f"case-{(n // providers) % 3}"
                rows["checks"].append((job_id, slug, case, "{}", verdict, json.dumps(faults), ended))
            if not bad:
                reply = {"confidence": {"iptm": round(draw.random(), 4), "plddt": round(draw.uniform(40, 95), 2)}}
                rows["results"].append((job_id, 1, 60, json.dumps(reply).encode(), f"/results/{job_id}"))
        db.executemany(JOBS, rows["jobs"])
        db.executemany(ATTEMPTS, rows["attempts"])
        db.executemany(
            'INSERT INTO checks (job_id, slug, "case", expect, verdict, faults, at) VALUES (?, ?, ?, ?, ?, ?, ?)',
            rows["checks"],
        )
        db.executemany(
            "INSERT INTO results (job_id, attempt, bytes, reply, destination) VALUES (?, ?, ?, ?, ?)", rows["results"]
        )
        _pools(db, host, begin_s, max(free_s.values()), draw)
        for slug, device_gib in zip(slugs, (30.1, 9.0, 2.0), strict=False):
            for _ in range(3):
                db.execute(
                    "INSERT INTO peaks (slug, variant, host_id, bucket, device_gib, host_gib, at, job_id, outcome)"
                    " VALUES (?, '', ?, 4, ?, 1.5, ?, ?, 'ok')",
                    (slug, host, device_gib, stamp(begin_s + 3600), first),
                )
        if failing:
            db.execute(
                "INSERT INTO incidents (at, kind, slug, text) VALUES (?, 'breaker_opened', ?, ?)",
                (stamp(begin_s + 7200), slugs[0], "3 crashes in a row on 3 different inputs"),
            )
        db.execute("COMMIT")


def _worker(db: sqlite3.Connection, worker: int, slug: str, host: str, at_s: float, load_s: float) -> None:
    db.execute(
        "INSERT INTO workers (id, slug, host_id, epoch, state, created_at, ready_at, gone_at)"
        " VALUES (?, ?, ?, 1, 'gone', ?, ?, ?)",
        (worker, slug, host, stamp(at_s), stamp(at_s + load_s), stamp(at_s + load_s + 600)),
    )
    db.execute(
        "INSERT INTO leases (worker_id, slug, pool, charge_gib, state, host_id, reserved_at, released_at)"
        " VALUES (?, ?, 'unified', 4.0, 'released', ?, ?, ?)",
        (worker, slug, host, stamp(at_s), stamp(at_s + load_s + 600)),
    )


def _pools(db: sqlite3.Connection, host: str, begin_s: float, end_s: float, draw: random.Random) -> None:
    charged_gib, at_s = 0.0, begin_s
    while at_s <= end_s:
        charged_gib = min(115.0, max(0.0, charged_gib + draw.choice((-28.0, -12.0, 0.0, 0.0, 0.0, 12.0, 12.0, 28.0))))
        used_gib = charged_gib * draw.uniform(0.55, 0.95)
        db.execute(
            "INSERT OR REPLACE INTO samples VALUES (?, ?, 'unified', 119.7, 4.0, ?, ?, ?)",
            (stamp(at_s), host, charged_gib, used_gib, 119.7 - used_gib - 6.0),
        )
        at_s += 60.0
