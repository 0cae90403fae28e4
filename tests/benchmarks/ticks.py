"""What a tick costs beside a million queued and a million ended jobs, against one beside a thousand of each.

    .venv/bin/python tests/benchmarks/ticks.py [--rows 1000000] [--ticks 600] [--folder DIR]

The real loop, with reasons, forecasts and journal, on two real databases with FULL commits, before a simulated machine
whose 27 providers are those of seed 1 of overnight_trace.py. Both queues live through the same night; their ticks are
taken in turns, so that a noisy machine is noisy for both. A busy tick is one of that night, a quiet one is asked for at
once and finds nothing new. CPU is the loop's own thread: what is left when the disk's share is taken out. The target is
a ratio of 1.5 of the medians. Prints; asserts nothing. `--folder` is where the databases lie: on a disk, not in memory.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from overnight_trace import trace  # noqa: E402

from scheduler.config import Paths  # noqa: E402
from scheduler.journal import Journal  # noqa: E402
from scheduler.loop import Loop  # noqa: E402
from scheduler.model.provider import Provider  # noqa: E402
from scheduler.perform import Identity  # noqa: E402
from scheduler.simulate.clock import VirtualClock  # noqa: E402
from scheduler.simulate.host import BOOT_ID, SimHost  # noqa: E402
from scheduler.store import intake, schedulers, turnstile  # noqa: E402
from scheduler.store.connection import open_writer  # noqa: E402
from scheduler.store.engine import Store  # noqa: E402
from scheduler.store.row import DEFAULTS  # noqa: E402
from scheduler.view import Orders  # noqa: E402

TARGET = 1.5
FEW = 1000
AT_ONCE = 200_000
ENDED_AT = "2026-01-01T00:00:00.000000Z"
PROVIDERS = trace(1)["providers"]


def fill(paths: Paths, first: list[dict[str, Any]], *, ended: int, queued: int) -> None:
    """Submit `first`, and put so many copies of them behind: ended ones with their history, then queued ones.

    The copies go in by SQL, past the checks of a submission but through the table's triggers. With the two figures
    0 there is nothing but `first`.
    """
    ids = intake.submit(paths, first)
    with turnstile.Turnstile(paths).section():
        connection = open_writer(paths)
        connection.execute("PRAGMA cache_size = -262144")
        for rows, over in ((ended, True), (queued, False)):
            for done in range(0, rows, AT_ONCE):
                connection.execute("BEGIN IMMEDIATE")
                _copy(connection, ids, min(AT_ONCE, rows - done), ended=over)
                connection.execute("COMMIT")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()


def _copy(connection: sqlite3.Connection, ids: list[int], rows: int, *, ended: bool) -> None:
    """One transaction's share of `fill`."""
    columns = [name for name in DEFAULTS if name != "state"]
    last = connection.execute("SELECT max(id) FROM jobs").fetchone()[0]
    state, outcome, ended_at, tries = ("succeeded", "ok", ENDED_AT, 1) if ended else ("queued", None, None, 0)
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)"
        f" INSERT INTO jobs ({', '.join(columns)}, state, outcome, ended_at, attempt, tries)"
        f" SELECT {', '.join('j.' + name for name in columns)}, ?, ?, ?, ?, ?"
        " FROM n JOIN jobs AS j ON j.id = ? + i % ? ORDER BY i",
        (rows, state, outcome, ended_at, tries, tries, ids[0], len(ids)),
    )
    if not ended:
        return
    there = (ENDED_AT, last)
    connection.execute(
        "INSERT INTO attempts (job_id, attempt, epoch, admitted_at, sent_at, ended_at, outcome)"
        " SELECT id, 1, 1, ?1, ?1, ?1, 'ok' FROM jobs WHERE id > ?2",
        there,
    )
    connection.execute(
        "INSERT INTO results (job_id, attempt, bytes, reply) SELECT id, 1, 2, CAST('{}' AS BLOB) FROM jobs"
        " WHERE id > ?",
        (last,),
    )
    for event in ("admit", "send", "reply"):
        connection.execute(
            f"INSERT INTO events (at, job_id, attempt, event) SELECT ?1, id, 1, '{event}' FROM jobs WHERE id > ?2",
            there,
        )


class Night:
    """One queue, its simulated machine, and the loop on both."""

    def __init__(self, folder: Path, rows: int) -> None:
        """`rows` are ended already, and as many wait."""
        self.rows = rows
        self.paths = Paths(str(folder))
        fill(self.paths, [_row(slug) for slug in PROVIDERS], ended=rows, queued=rows - len(PROVIDERS))
        self.clock = VirtualClock()
        self.host = SimHost(
            self.clock, {(slug, ""): _provider(slug) for slug in PROVIDERS}, capacity_gib=121.0, reserve_gib=4.0,
            load_s=lambda slug: float(PROVIDERS[slug]["cold_s"]),
            run_s=lambda task: float(PROVIDERS[task.slug]["warm_s"]) * (1.0 + task.job_id % 7 / 10.0),
        )  # fmt: skip
        self.store = Store(self.paths, self.clock)
        with self.store.write() as tx:
            epoch = schedulers.begin(
                tx, pid=1, started=None, boot_id=BOOT_ID, host_id=BOOT_ID, version="benchmark", at=ENDED_AT
            )
        self.journal = Journal(self.paths.home, 32.0, self.clock, epoch, "benchmark")
        self.loop = Loop(
            self.store, self.host, self.clock, Identity(epoch, BOOT_ID, BOOT_ID), Orders(), lambda: 0.5,
            journal=self.journal,
        )  # fmt: skip
        self.took: dict[str, list[float]] = {"busy": [], "quiet": [], "busy, CPU": [], "quiet, CPU": []}
        began = time.perf_counter()
        self.loop.recover()
        self.recover_s = time.perf_counter() - began

    def tick(self, kind: str) -> None:
        """One turn, timed; a quiet one does not wait for anything to happen."""
        wall, cpu = time.perf_counter(), time.thread_time()
        self.loop.tick(0.0 if kind == "quiet" else None)
        self.took[f"{kind}, CPU"].append(time.thread_time() - cpu)
        self.took[kind].append(time.perf_counter() - wall)

    def close(self) -> None:
        """Let go of the queue."""
        self.journal.close()
        self.store.close()


def _provider(slug: str) -> Provider:
    return Provider(
        slug, revision="r", policy="required", vram_gib=float(PROVIDERS[slug]["budget_gib"]), start_timeout_s=0.0,
        request_timeout_s=0.0,
    )  # fmt: skip


def _row(slug: str) -> dict[str, Any]:
    return {"slug": slug, "name": slug, "revision": "r", "data": b"{}", "input_name": "a.json", "input_kind": ".json"}


def p95(values: list[float]) -> float:
    """The value that one in twenty is above."""
    return sorted(values)[int(len(values) * 0.95)]


def report(few: Night, many: Night) -> float:
    """Print the figures; the worse of the two ratios that have a target."""
    print(f"{'tick':14}{'rows':>10}{'median ms':>11}{'p95 ms':>9}{'ratio':>8}{'p95 ratio':>11}")
    worst = 0.0
    for kind, small in few.took.items():
        large = many.took[kind]
        ratio = statistics.median(large) / statistics.median(small)
        worst = max(worst, 0.0 if "CPU" in kind else ratio)
        for night, values in ((few, small), (many, large)):
            print(f"{kind:14}{night.rows:>10}{statistics.median(values) * 1e3:>11.2f}{p95(values) * 1e3:>9.2f}", end="")
            print(f"{ratio:>8.2f}{p95(large) / p95(small):>11.2f}" if night is many else "")
    print(f"recover: {few.recover_s * 1e3:.1f} ms and {many.recover_s * 1e3:.1f} ms")
    print(f"jobs that ended meanwhile: {len(few.host.ended)} and {len(many.host.ended)}")
    print(f"worst ratio {worst:.2f}, target {TARGET}")
    return worst


def main() -> int:
    """Fill both queues, let their nights go on in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ticks", type=int, default=600)
    parser.add_argument("--folder", default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        began = time.monotonic()
        few, many = Night(Path(name) / "few", FEW), Night(Path(name) / "many", asked.rows)
        print(f"filled in {time.monotonic() - began:.0f} s, {many.paths.database}")
        for kind, count in (("busy", asked.ticks), ("quiet", asked.ticks // 2)):
            for turn in range(count):
                for night in (few, many) if turn % 2 else (many, few):
                    night.tick(kind)
        worst = report(few, many)
        few.close()
        many.close()
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
