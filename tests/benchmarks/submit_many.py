"""How fast `submit` takes in many jobs, against the same rows by a plain executemany in one transaction.

    python tests/benchmarks/submit_many.py [ROWS] [ROUNDS]

Prints both rates (best of the rounds, taken in turns) and their ratio; judges nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from scheduler.config import Paths  # noqa: E402
from scheduler.store import identity, intake  # noqa: E402
from scheduler.store.connection import open_writer  # noqa: E402
from scheduler.store.row import DEFAULTS, INSERT, completed, values  # noqa: E402
from scheduler.store.turnstile import Turnstile  # noqa: E402


def rows(count: int) -> list[dict[str, Any]]:
    """Jobs as the command line makes them: checked, hashed, with a small input each."""
    made = []
    for n in range(count):
        data = b'{"sequences": [{"protein": {"id": "A", "sequence": "%s"}}], "n": %d}' % (b"MKTAYIAK" * 8, n)
        made.append(
            {
                "slug": ("boltz", "proteinmpnn", "esm_if1")[n % 3],
                "name": f"design-{n}",
                "batch": "night",
                "params": '{"seed":1,"recycling_steps":3}',
                "data": data,
                "input_sha256": identity.digest(data),
                "input_name": f"design-{n}.json",
                "input_kind": ".json",
                "size": 64.0,
                "revision": "3f2a" * 16,
                "max_attempts": 2,
            }
        )
    return made


def submitted(folder: str, count: int) -> float:
    """Seconds of `submit`."""
    jobs, paths = rows(count), Paths(folder)
    intake.submit(paths, [])
    start = time.perf_counter()
    assert len(intake.submit(paths, jobs)) == count
    return time.perf_counter() - start


def inserted(folder: str, count: int) -> float:
    """Seconds of executemany and COMMIT, of tuples that are ready, with the same triggers and indexes."""
    jobs, paths = rows(count), Paths(folder)
    intake.submit(paths, [])
    who = {**DEFAULTS, "user": "ada", "host_id": "0" * 16, "submitted_at": "2026-01-01T00:00:00.000000Z"}
    ready = []
    for n, job in enumerate(jobs, 1):
        whole = completed(job, who)
        whole["input"], whole["input_bytes"] = whole["data"], len(whole["data"])
        ready.append((n, *values(whole)))
    with Turnstile(paths).section():
        connection = open_writer(paths)
        start = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, ready)
        connection.execute("COMMIT")
        took = time.perf_counter() - start
        connection.close()
    return took


def main(count: int = 100_000, rounds: int = 3) -> None:
    """Measure in turns, print the best of each."""
    ours, plain = [], []
    for _ in range(rounds):
        for times, measured in ((ours, submitted), (plain, inserted)):
            with tempfile.TemporaryDirectory(prefix="schedq-bench-") as folder:
                times.append(measured(folder, count))
    fast, bare = count / min(ours), count / min(plain)
    print(f"submit            {fast:10,.0f} rows/s   ({count} rows in {min(ours):.2f} s)")
    print(f"plain executemany {bare:10,.0f} rows/s   ({count} rows in {min(plain):.2f} s)")
    print(f"ratio             {fast / bare:10.2f}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
