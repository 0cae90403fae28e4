"""What the queue costs a warm model, and what it costs when nothing happens. Prints ratios; asserts nothing.

    .venv/bin/python tests/benchmarks/warm.py [--jobs 300] [--idle 20]

Gap: from the reply of one request (its `predict` returned) to the arrival of the next in the same worker, all
queued beforehand. It is compared with 3 ms + 1.2 x the median FULL commit of SQLite on the same disk, same run.
Idle: RSS and CPU of a scheduler with one idle worker, PSS of its keeper.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driven import Queue

WORKER = """
import time
from schedq_worker import serve

def predict(model, request, job):
    arrived = time.monotonic()
    return {"arrived": arrived, "left": time.monotonic()}

serve(load=dict, predict=predict)
"""


def full_commit_s(folder: Path, times: int = 200) -> float:
    """The median of one FULL commit of one small row in WAL mode."""
    db = sqlite3.connect(folder / "baseline.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE t (a)")
    took = []
    for n in range(times):
        began = time.perf_counter()
        db.execute("INSERT INTO t VALUES (?)", (n,))
        took.append(time.perf_counter() - began)
    db.close()
    return statistics.median(took)


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--idle", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queue = Queue(folder)
        (queue.provider() / "echo_worker.py").write_text(WORKER)
        os.environ.update({k: v for k, v in queue.env.items() if k.startswith("SCHEDQ_")})
        from scheduler.client import Client

        client = Client()
        ids = client.submit_many("echo", [{"say": str(n)} for n in range(asked.jobs)])
        queue("up")
        try:
            client.wait(ids, timeout_s=300)
            times = [client.result(job) for job in ids]
            gaps = [b["arrived"] - a["left"] for a, b in itertools.pairwise(times)]
            commit_s = full_commit_s(folder)
            p50, p99 = statistics.median(gaps), sorted(gaps)[int(len(gaps) * 0.99)]
            allowed = 0.003 + 1.2 * commit_s
            print(f"gap between warm jobs: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms over {len(gaps)}")
            print(f"allowed, 3 ms + 1.2 FULL commits of {commit_s * 1e3:.2f} ms: {allowed * 1e3:.2f} ms")
            print(f"ratio {p50 / allowed:.2f}")
            idle(queue, asked.idle)
        finally:
            client.close()
            queue("down", "--now")


def idle(queue: Queue, for_s: float) -> None:
    """What the scheduler and a keeper take while nothing happens."""
    status = queue.status()
    scheduler = psutil.Process(status["scheduler"]["pid"])
    before = sum(scheduler.cpu_times()[:2])
    began = time.monotonic()
    time.sleep(for_s)
    share = (sum(scheduler.cpu_times()[:2]) - before) / (time.monotonic() - began)
    print(f"idle scheduler: RSS {scheduler.memory_info().rss / 1e6:.1f} MB, CPU {share * 100:.2f} %")
    for process in queue.processes():
        if "--schedq-keeper" in process.cmdline():
            print(f"keeper: PSS {process.memory_full_info().pss / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
