"""How long whole processes of the everyday verbs take, against `python -c pass` in the same run.

    python tests/benchmarks/startup.py [--rounds 15] [--rows 1000000]

Prints medians in milliseconds and their ratios. The target is 3 x bare Python for `submit` and `status`, whether
the queue has none or a million rows. The runs are interleaved, so that a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from driven import Queue

from scheduler.config import Paths
from scheduler.store import intake, turnstile
from scheduler.store.connection import open_writer

TARGET = 3.0
FRONT = "import sys; sys.argv[0] = 'schedq'; from scheduler.__main__ import main; main()"


def fill(home: Path, rows: int) -> None:
    """Put so many ended jobs into a queue, beside one that waits."""
    paths = Paths(str(home))
    intake.submit(paths, [{"slug": "echo", "name": "first", "data": b"{}"}])
    at = "2026-01-01T00:00:00.000000Z"
    with turnstile.Turnstile(paths).section():
        connection = open_writer(paths)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO jobs (slug, name, user, host_id, state, params, input_sha256, input_name, input_kind,"
            " input_bytes, revision, submitted_at, ended_at, outcome)"
            " SELECT 'echo', 'j' || i, 'u', 'h', 'succeeded', '{}', '', 'a.json', '.json', 2, '', ?, ?, 'ok' FROM n",
            (rows, at, at),
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()


def once(words: list[str], env: dict[str, str], folder: Path) -> float:
    """Seconds of one whole process, which must succeed."""
    before = time.perf_counter()
    subprocess.run(words, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - before


def measure(queue: Queue, rounds: int) -> dict[str, float]:
    """Median seconds by name, of interleaved runs."""
    source = queue.input()
    front = [sys.executable, "-c", FRONT]
    env = {**queue.env, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    plans = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "submit": [*front, "submit", "echo", source],
        "status": [*front, "status"],
        "status --json": [*front, "status", "--json"],
    }
    took: dict[str, list[float]] = {name: [] for name in plans}
    for words in plans.values():
        once(words, env, queue.folder)
    for _ in range(rounds):
        for name, words in plans.items():
            took[name].append(once(words, env, queue.folder))
    return {name: statistics.median(times) for name, times in took.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=0, help="ended jobs in the queue beforehand")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        queue = Queue(Path(folder))
        queue.provider()
        if given.rows:
            fill(queue.home, given.rows)
        medians = measure(queue, given.rounds)
    bare = medians["python -c pass"]
    print(f"{given.rows} rows, {given.rounds} rounds, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for name, median in medians.items():
        print(f"  {name:16} {median * 1000:7.1f} ms  {median / bare:5.2f} x")
    print(json.dumps({"rows": given.rows, "ratios": {name: round(m / bare, 2) for name, m in medians.items()}}))
    return 0 if all(median / bare <= TARGET for median in medians.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
