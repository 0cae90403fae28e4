"""The guard as people meet it: a whole scheduler in a control group of its own, so that its machine is small."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from driven import Queue, eventually, lives

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_MIB, RESERVE_MIB = 1100, 256

GROWING = """
import os, time
from schedq_worker import serve

def grow(mib, mib_a_s):
    held, began = [], time.monotonic()
    while len(held) * 4 < mib:
        held.append(bytearray(b"x" * (4 << 20)))
        time.sleep(max(0.0, began + len(held) * 4 / mib_a_s - time.monotonic()))
    return held

def load():
    return grow(float(os.environ.get("LOAD_MIB", "0")), 400.0)

def predict(model, request, job):
    held = grow(request.get("mib", 0), 400.0)
    time.sleep(request.get("s", 0))
    return {"grown": len(held)}

serve(load=load, predict=predict)
"""

MANIFEST = """
slug = "{slug}"
mode = "resident"
[gpu]
policy = "none"
[host]
ram_budget_gb = {ram}
[worker]
python = "{python}"
script = "worker.py"
env = {{ LOAD_MIB = "{load}" }}
stop_grace_s = 2
[retry]
backoff_s = 0.1
[input]
accept = [".json"]
"""


def add(queue: Queue, slug: str, ram: float, load_mib: int = 0) -> None:
    folder = queue.manifests / slug
    folder.mkdir()
    (folder / "provider.toml").write_text(MANIFEST.format(slug=slug, ram=ram, python=sys.executable, load=load_mib))
    (folder / "worker.py").write_text(GROWING)


def asked(queue: Queue, name: str, **body: object) -> str:
    path = queue.folder / f"{name}.json"
    path.write_text(json.dumps(body))
    return str(path)


@pytest.fixture
def small(queue: Queue) -> Iterator[Queue]:
    """A scheduler on a machine of 1.07 GiB, of which 0.25 stay reserved."""
    group = GROUPS / f"schedq-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_MIB << 20))
    except OSError as error:
        pytest.skip(f"no control group of one's own here: {error.strerror}")
    queue.env["SCHEDQ_RESERVE_HOST_GIB"] = str(RESERVE_MIB / 1024)
    line = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m scheduler up"
    subprocess.run(["sh", "-c", line], env=queue.env, check=True, cwd=queue.folder, capture_output=True)
    yield queue
    queue("down", "--now")
    eventually(lambda: not (group / "cgroup.procs").read_text().split(), what="an empty group")
    group.rmdir()


def test_a_busy_worker_that_takes_more_than_its_charge_ends_its_attempt_as_over_budget(small: Queue) -> None:
    add(small, "greedy", 0.15)
    job = small("submit", "greedy", asked(small, "much", mib=900)).out.strip()
    over = eventually(lambda: [a for a in small.show(job)["attempts"] if a["outcome"] == "over_budget"], within_s=100)
    assert isinstance(over, list)
    text = over[0]["outcome_text"]
    assert "GiB of host" in text and "charge" in text and "reserved" in text, text
    told = eventually(lambda: small.status()["guard"].get("acted"), within_s=20)
    assert isinstance(told, list) and "stopped busy worker" in told[0]["text"]
    page = " ".join(small("status").out.split())
    assert "guard, " in page and "of greedy: it held" in page
    page = " ".join(small("machine").out.split())
    assert "it must exceed rate x (period + exit)" in page and "the fastest growth seen is" in page, page


def test_a_start_that_takes_more_than_its_charge_is_tried_once_more_alone_and_then_given_up(small: Queue) -> None:
    add(small, "fat", 0.15, load_mib=900)
    job = small("submit", "fat", asked(small, "little")).out.strip()
    eventually(lambda: small.show(job)["state"] == "failed", within_s=100)
    shown = small.show(job)
    first, last = shown["attempts"][0], shown["attempts"][-1]
    assert first["outcome"] == "interrupted" and "charged 0.15" in first["outcome_text"], first
    assert shown["tries"] == 0 and shown["outcome"]["kind"] == last["outcome"] == "over_budget"
    assert "it ran out of memory alone as well, with all that its pool could give" in last["outcome_text"], last


def test_a_start_that_others_leave_no_room_for_goes_back_uncounted_and_is_tried_again(small: Queue) -> None:
    add(small, "late", 0.6, load_mib=560)
    job = small("submit", "late", asked(small, "little")).out.strip()
    eventually(lambda: small.show(job)["state"] == "admitted", within_s=60)
    group = GROUPS / f"schedq-test-{os.getpid()}"
    code = "b = bytearray(b'x' * (420 << 20)); print(flush=True); input()"
    line = f'echo $$ > {group}/cgroup.procs && exec {sys.executable} -c "{code}"'
    with subprocess.Popen(["sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline()
        given_back = eventually(lambda: [e for e in small.show(job)["story"] if e["event"] == "give_back"], within_s=60)
        assert isinstance(given_back, list) and "nobody is at fault" in given_back[0]["text"]
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    shown = small.show(job)
    assert shown["tries"] == 0 and small("providers", "list").code == 0
    eventually(lambda: small.show(job)["state"] == "succeeded", within_s=100, what="the second start")


def test_a_command_is_stopped_at_its_charge_and_told_why(small: Queue) -> None:
    code = "import time; b = [(bytearray(b'x' * (4 << 20)), time.sleep(0.01)) for _ in range(220)]; time.sleep(60)"
    group = GROUPS / f"schedq-test-{os.getpid()}"
    call = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *small.command("exec", "--ram", "0.15")]
    call += ["--", sys.executable, "-c", code]
    done = subprocess.run(call, env=small.env, capture_output=True, text=True, timeout=120, cwd=small.folder)
    assert done.returncode == 128 + 9, done
    assert "it held" in done.stderr and "it is charged 0.15 GiB there" in done.stderr, done


LEASED = """
import os, signal, sys, time
from scheduler.client import Client

def grow():
    held = [(bytearray(b"x" * (4 << 20)), time.sleep(0.01)) for _ in range(220)]
    time.sleep(60)

with Client().lease(ram_gib=0.15, name="mine"):
    if sys.argv[1] == "saves":
        signal.signal(signal.SIGTERM, lambda *_: print("saved", flush=True) or os._exit(7))
    if sys.argv[1] == "child" and (child := os.fork()):
        print(child, flush=True)
        time.sleep(600)
    grow()
"""


@pytest.fixture
def leased(small: Queue) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a process in the scheduler's group that takes a lease of 0.15 GiB and grows above it."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str) -> subprocess.Popen[str]:
        group = GROUPS / f"schedq-test-{os.getpid()}"
        line = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", sys.executable, "-c", LEASED, how]
        started.append(subprocess.Popen(line, env=small.env, stdout=subprocess.PIPE, text=True, cwd=small.folder))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_that_has_a_lease_is_stopped_at_its_charge_and_may_save_what_it_has(
    small: Queue, leased: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = leased("saves")
    out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("saved\n", 7)
    job = eventually(lambda: (found := small.show(1))["outcome"] and found, what="its end")
    assert isinstance(job, dict) and (job["state"], job["outcome"]["kind"]) == ("failed", "over_budget"), job
    assert "it held" in job["outcome"]["text"] and "it is charged 0.15 GiB there" in job["outcome"]["text"], job
    assert "stopped busy worker" in small.status()["guard"]["acted"][0]["text"]


def test_what_a_process_with_a_lease_started_is_guarded_with_it_and_ends_with_it(
    leased: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = leased("child")
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM
    eventually(lambda: not lives(child), what="the child's end")


def test_with_the_guard_off_nobody_is_stopped(queue: Queue) -> None:
    add(queue, "greedy", 0.05)
    queue.env["SCHEDQ_GUARD"] = "off"
    queue("up")
    job = queue("submit", "greedy", asked(queue, "some", mib=120)).out.strip()
    assert queue("wait", job).code == 0
    assert queue.status()["guard"]["on"] is False
    assert "guard: off" in queue("machine").out
    assert queue("config", "show", SCHEDQ_GUARD="maybe").code == 2
