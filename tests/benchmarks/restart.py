"""How long a scheduler that was killed takes to its first dispatch: a million queued rows against an empty queue.

    .venv/bin/python tests/benchmarks/restart.py [--rows 1000000] [--rounds 7] [--folder DIR]

Real processes. A warm worker of an echo provider is idle, its scheduler is killed (SIGKILL), one job or a million of
them wait; then `schedq up`. Measured from before `up` is started until the next request has arrived in the adopted
worker. The two queues take turns. The target is at most 0.5 s more than the empty one's median. Beside the queued rows
stand as many that have ended, with their history. Prints; asserts nothing. `--folder` is where the databases lie.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from driven import Queue, eventually  # noqa: E402
from ticks import fill  # noqa: E402
from warm import WORKER  # noqa: E402

from scheduler.client import Client  # noqa: E402
from scheduler.config import Paths  # noqa: E402

TARGET_S = 0.5
FIRST = (
    "SELECT id FROM jobs WHERE slug = 'echo' AND variant = '' AND state = 'queued' AND blocked IS NULL"
    " ORDER BY priority DESC, id LIMIT 1"
)


class Restarted:
    """One queue whose scheduler is killed and started again, its one worker warm all the while."""

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir()
        self.rows, self.queue = rows, Queue(folder)
        (self.queue.provider() / "echo_worker.py").write_text(WORKER)
        self.took: list[float] = []
        first = self._client().checked("echo", [{"say": "first"}])
        fill(Paths(str(self.queue.home)), first, ended=rows, queued=rows)
        self.queue("up")
        self._stop(1)

    def _client(self) -> Client:
        os.environ.update({key: value for key, value in self.queue.env.items() if key.startswith("SCHEDQ_")})
        return Client(str(self.queue.home))

    def _stop(self, job: int) -> None:
        """Once this job has ended, let the worker become idle, and kill the scheduler."""
        with self._client() as client:
            client.wait([job], timeout_s=120)
        self.queue("queue", "pause")
        eventually(lambda: not self._running(), what="nothing runs")
        os.kill(self.queue.scheduler_pid(), signal.SIGKILL)

    def _running(self) -> bool:
        return any(worker["state"] != "ready" for worker in self.queue.status()["workers"])

    def _first(self) -> int:
        connection = sqlite3.connect(f"file:{self.queue.home}/queue.db?mode=ro", uri=True)
        try:
            return int(connection.execute(FIRST).fetchone()[0])
        finally:
            connection.close()

    def once(self) -> None:
        """Start it, and keep the seconds until the first request is there."""
        resumed = self.queue("queue", "resume")
        assert resumed.code == 0, resumed
        with self._client() as client:
            job = self._first() if self.rows else client.submit("echo", {"say": "next"})
            began = time.monotonic()
            up = self.queue("up")
            assert up.code == 0, up
            client.wait([job], timeout_s=120)
            self.took.append(client.result(job)["arrived"] - began)
        self._stop(job)

    def close(self) -> None:
        """Leave nothing behind."""
        self.queue("up")
        self.queue("down", "--now")


def main() -> int:
    """Fill, kill and start in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default=None)
    asked = parser.parse_args()
    both: list[Restarted] = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        try:
            both += [Restarted(Path(name) / "empty", 0), Restarted(Path(name) / "many", asked.rows)]
            for turn in range(asked.rounds):
                for each in both if turn % 2 else both[::-1]:
                    each.once()
        finally:
            for each in both:
                each.close()
    empty, many = (statistics.median(each.took) for each in both)
    for each in both:
        times = sorted(each.took)
        print(f"{each.rows:>8} rows: median {statistics.median(times):.3f} s, {times[0]:.3f} to {times[-1]:.3f} s")
    print(f"{many - empty:+.3f} s, target {TARGET_S} s; ratio {many / empty:.2f}")
    return int(many - empty > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
