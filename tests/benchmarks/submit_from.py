"""How long `schedq submit --from` takes for many jobs, against `Client.submit_many` of the same inputs alone.

    python tests/benchmarks/submit_from.py [ROWS] [ROUNDS]

The target: at most 3 times as long, with the start of the process and the reading of the file. Prints the best of the
rounds, taken in turns, of a plain file (each row names provider and input) and of one whose rows say all they can; and
the ratios. Judges nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from driven import Queue  # noqa: E402

CHILD = """
import os, sys, time
sys.path[:0] = [{root!r}]
from scheduler.client import Client
inputs = [{{"say": "hello " * 8, "n": n}} for n in range({count})]
queue = Client()
start = time.perf_counter()
assert len(queue.submit_many("echo", inputs, batch="night")) == {count}
print(time.perf_counter() - start)
"""


def queue_in(folder: str) -> Queue:
    """A queue with one provider that checks its inputs by a schema, and nothing in it."""
    made = Queue(Path(folder))
    made.provider()
    made.input()
    assert made("submit", "echo", "a.json").code == 0
    return made


def alone(folder: str, count: int) -> float:
    """Seconds of `submit_many` in a process of its own, its start left out."""
    queue = queue_in(folder)
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(root=str(ROOT), count=count)],
        env=queue.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def from_file(folder: str, count: int, full: bool) -> float:
    """Seconds of the whole command."""
    queue = queue_in(folder)
    path = queue.folder / "jobs.jsonl"
    with path.open("w") as file:
        for n in range(count):
            row: dict[str, object] = {"provider": "echo", "input": {"say": "hello " * 8, "n": n}, "batch": "night"}
            if full:
                row |= {"name": f"design-{n}", "key": f"night-{n}", "labels": [f"target=t{n % 100}", "night"]}
                row |= {"priority": n % 5, "params": {"loud": n % 2 == 0}, "timeout": "2h"}
            file.write(json.dumps(row) + "\n")
    start = time.perf_counter()
    done = queue("submit", "--from", "jobs.jsonl", timeout=600)
    took = time.perf_counter() - start
    assert done.code == 0 and len(done.out.split()) == count, done.err[-2000:]
    return took


def main(count: int = 100_000, rounds: int = 3) -> None:
    """Measure in turns, print the best of each."""
    times: dict[str, list[float]] = {"submit_many": [], "--from, plain": [], "--from, full": []}
    for _ in range(rounds):
        for name, measured in (
            ("submit_many", lambda folder: alone(folder, count)),
            ("--from, plain", lambda folder: from_file(folder, count, False)),
            ("--from, full", lambda folder: from_file(folder, count, True)),
        ):
            with tempfile.TemporaryDirectory(prefix="schedq-bench-") as folder:
                times[name].append(measured(folder))
    base = min(times["submit_many"])
    for name, took in times.items():
        print(f"{name:14} {min(took):7.2f} s for {count} jobs, {min(took) / base:5.2f} x")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
