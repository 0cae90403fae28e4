"""What `schedq status --watch` costs: its processor time over wall time, against `schedq status` once a second.

    .venv/bin/python tests/benchmarks/watch.py [--providers 10] [--jobs 100] [--seconds 30]

A real queue: ten echo workers, as many busy as the machine has cores, each with a job of 20 s and more that tells of
its progress every 0.5 s; the rest of the jobs wait. On it, one after the other: `status --watch` on a terminal of
80 x 24 (a pseudo-terminal that is read), and a shell loop of `schedq status; sleep 1`, which is what `watch schedq
status` does. The target is at most 2 % of a core. Prints both, and their ratio; asserts nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from driven import Queue, eventually  # noqa: E402

TARGET = 0.02
WORKER = """
import time
from schedq_worker import serve

def predict(model, request, job):
    for n in range(request["steps"]):
        job.progress(n, request["steps"], "step %d" % n)
        time.sleep(0.5)
    return {}

serve(load=dict, predict=predict)
"""


def filled(folder: Path, providers: int, jobs: int) -> Queue:
    """A queue that has come to work: every worker is there, and as many as may are busy."""
    queue = Queue(folder)
    short = queue.input("short.json", steps=0)
    sources = [queue.input(f"{n}.json", steps=40 + n) for n in range(max(1, jobs // providers))]
    for n in range(providers):
        (queue.provider(f"echo{n}", ram=0.02) / "echo_worker.py").write_text(WORKER)
    up = queue("up")
    assert up.code == 0, up
    for n in range(providers):
        assert queue("run", f"echo{n}", short).code == 0
    for n in range(providers):
        submitted = queue("submit", f"echo{n}", *sources)
        assert submitted.code == 0, submitted
    busy = min(providers, len(os.sched_getaffinity(0)))
    eventually(lambda: sum(each["state"] == "running" for each in queue.status()["jobs"]) >= busy)
    print(f"{len(queue.status()['workers'])} workers, {busy} of them busy, {jobs} jobs")
    return queue


def spent_s() -> float:
    """Processor time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watched(queue: Queue, for_s: float) -> tuple[float, int]:
    """Processor time of one `status --watch`, and how many bytes it wrote."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before, written = spent_s(), 0
    child = subprocess.Popen(
        queue.command("status", "--watch"), env={**queue.env, "TERM": "xterm"}, stdin=theirs, stdout=theirs,
        cwd=queue.folder, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    until = time.monotonic() + for_s
    while (left := until - time.monotonic()) > 0:
        if select.select([ours], [], [], left)[0]:
            written += len(os.read(ours, 1 << 16))
    os.write(ours, b"q")
    child.wait(10)
    os.close(ours)
    return spent_s() - before, written


def asked(queue: Queue, for_s: float) -> float:
    """Processor time of `schedq status` once a second, by a shell."""
    before = spent_s()
    words = " ".join(queue.command("status"))
    child = subprocess.Popen(
        ["sh", "-c", f"trap 'exit 0' TERM; while :; do {words}; sleep 1; done"], env=queue.env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=queue.folder, start_new_session=True,
    )  # fmt: skip
    time.sleep(for_s)
    os.killpg(child.pid, signal.SIGTERM)
    child.wait(10)
    return spent_s() - before


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--providers", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        queue = filled(Path(folder), given.providers, given.jobs)
        try:
            cpu_s, written = watched(queue, given.seconds)
            loop_s = asked(queue, given.seconds)
        finally:
            queue("down", "--now")
    share, loop = cpu_s / given.seconds, loop_s / given.seconds
    print(f"status --watch: {share:.2%} of a core (target {TARGET:.0%}), {written / given.seconds:.0f} bytes/s")
    print(f"schedq status once a second: {loop:.2%} of a core; ratio {share / loop:.3f}")


if __name__ == "__main__":
    main()
