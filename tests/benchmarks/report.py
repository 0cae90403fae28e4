"""How long `report` takes over a night of many jobs, against the mere reading of its rows.

    python tests/benchmarks/report.py [JOBS] [ROUNDS]

Prints seconds of the facts, of each form, and of the rows alone (best of the rounds), and the ratio; judges nothing.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from made_nights import made  # noqa: E402

from scheduler.cli import report_page  # noqa: E402
from scheduler.config import Paths  # noqa: E402
from scheduler.night import gathering  # noqa: E402
from scheduler.night.html import html  # noqa: E402
from scheduler.night.junit import junit  # noqa: E402
from scheduler.night.stepping import with_steps  # noqa: E402
from scheduler.store import reports  # noqa: E402
from scheduler.store.connection import open_reader  # noqa: E402


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The best time of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main(jobs: int = 100_000, rounds: int = 3) -> None:
    """Make the night, measure, print."""
    with tempfile.TemporaryDirectory(prefix="schedq-bench-") as folder:
        paths = Paths(folder)
        made(paths, jobs)
        with closing(open_reader(paths)) as connection:
            connection.row_factory = sqlite3.Row
            rows = seconds(lambda: sum(1 for _ in reports.jobs(connection, "night", "")), rounds)
        facts = seconds(lambda: gathering.gathered(paths, "night"), rounds)
        since = seconds(lambda: gathering.gathered(paths, None, 1.0), rounds)
        found = with_steps(gathering.gathered(paths, "night"))
        forms = {
            "page": seconds(lambda: report_page.page(found), rounds),
            "html": seconds(lambda: sum(map(len, html(found))), rounds),
            "junit": seconds(lambda: sum(map(len, junit(found))), rounds),
        }
    print(f"rows alone        {rows:8.2f} s   ({jobs} jobs)")
    print(f"facts of a batch  {facts:8.2f} s   ({facts / rows:.1f} x the rows alone)")
    print(f"facts since       {since:8.2f} s")
    for name, took in forms.items():
        print(f"{name:18}{took:8.2f} s")
    print(f"report, page      {facts + forms['page']:8.2f} s   (target 5 s)")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
