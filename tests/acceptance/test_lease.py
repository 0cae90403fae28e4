"""`client.lease`: a Python process has the room itself, for the length of a block, and goes on as before after it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from driven import Queue, eventually, lives

HEAD = """
import os, subprocess, sys, psutil
from scheduler import attached
from scheduler.client import Client

def lease(**more):
    return Client().lease(ram_gib=0.1, name="mine", **more)

def zombies():
    return sum(child.status() == psutil.STATUS_ZOMBIE for child in psutil.Process().children())
"""


@pytest.fixture
def up(queue: Queue) -> Queue:
    assert queue("up").code == 0
    return queue


def started(queue: Queue, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code], env=queue.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=queue.folder,
    )  # fmt: skip


def answer(queue: Queue, code: str) -> str:
    process = started(queue, code)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, (out, err)
    return out.strip()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def watches(scheduler: psutil.Process, pid: int) -> bool:
    """Whether the scheduler has a pidfd of that process."""
    told = [open_file.read_text() for open_file in Path(f"/proc/{scheduler.pid}/fdinfo").iterdir()]
    return any(f"Pid:\t{pid}\n" in text for text in told)


def test_what_a_process_starts_after_the_block_or_left_from_within_it_goes_on(up: Queue) -> None:
    code = """
with lease() as held:
    os.environ.update(held.env)
    server = subprocess.Popen(["sleep", "60"])
later = subprocess.Popen(["sleep", "60"])
print("over", flush=True)
sys.stdin.readline()
print(server.poll(), later.poll(), flush=True)
server.kill()
later.kill()
"""
    process = started(up, code)
    assert line(process) == "over"
    eventually(lambda: not up.status()["workers"], what="the lease back")
    out, err = process.communicate("\n", timeout=30)
    assert out == "None None\n", err


def test_a_process_that_takes_leases_all_day_costs_the_scheduler_and_itself_no_more_than_one(up: Queue) -> None:
    scheduler = psutil.Process(up.scheduler_pid())
    code = """
for _ in range(3):
    with lease():
        pass
sys.stdin.readline()
print(zombies(), len(os.listdir("/proc/self/fd")), flush=True)
for _ in range(5):
    with lease():
        pass
print(zombies(), len(os.listdir("/proc/self/fd")), flush=True)
sys.stdin.readline()
"""
    process = started(up, code)
    eventually(lambda: [j["state"] for j in up.status()["jobs"]] == ["succeeded"] * 3, what="three leases")
    time.sleep(0.5)
    before = scheduler.num_fds()
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    first, second = line(process).split(), line(process).split()
    assert first[0] == second[0] == "0" and first == second
    eventually(lambda: scheduler.num_fds() <= before, what=f"at most {before} descriptors, not {scheduler.num_fds()}")
    eventually(lambda: not watches(scheduler, process.pid), what="nobody to be watched any more")
    process.communicate("\n", timeout=30)


def test_a_keeper_that_was_started_in_vain_is_buried_too(up: Queue) -> None:
    code = """
begin = attached.Attached._start
def twice(self, claim, queue_id):
    begin(self, claim, queue_id)
    begin(self, claim, queue_id)
attached.Attached._start = twice
with lease():
    pass
print(zombies(), flush=True)
"""
    assert answer(up, code) == "0"


def test_a_program_with_more_than_a_thousand_descriptors_can_have_a_lease_and_wait_for_a_job(up: Queue) -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
with lease() as mine:
    print(mine.id)
print(Client().wait(mine.id, 30)[mine.id])
"""
    assert answer(up, code) == "1\nsucceeded"


@pytest.mark.parametrize("moment", ["_look", "step", "__init__"])
def test_a_lease_that_was_broken_off_while_it_waited_leaves_nothing_though_its_process_lives(
    up: Queue, moment: str
) -> None:
    code = f"""
whole = attached.Attached.{moment}
def broken(self, *given):
    whole(self, *given)
    raise KeyboardInterrupt
attached.Attached.{moment} = broken
try:
    with lease():
        print("held")
except KeyboardInterrupt:
    print("broken off", flush=True)
sys.stdin.readline()
"""
    assert up("queue", "pause").code == 0
    process = started(up, code)
    assert line(process) == "broken off"
    assert [job["state"] for job in up.status()["jobs"]] in ([], ["cancelled"])
    process.communicate("\n", timeout=30)


def test_a_job_that_cannot_be_taken_out_of_the_queue_is_named_with_what_broke_the_lease_off(up: Queue) -> None:
    code = """
import traceback
def full(self, ids):
    raise OSError(24, "Too many open files")
Client.cancel = full
try:
    with lease(timeout_s=0.2):
        pass
except Exception as error:
    print(type(error).__name__, error.__notes__)
"""
    assert up("queue", "pause").code == 0
    told = answer(up, code)
    assert told.startswith("WaitTimedOut ") and "job 1 is still in the queue" in told and "schedq cancel 1" in told


def test_two_leases_of_one_process_are_two_charges(up: Queue) -> None:
    code = """
with lease(), lease():
    print("both", flush=True)
    sys.stdin.readline()
print("over", flush=True)
"""
    process = started(up, code)
    assert line(process) == "both"
    charged = [charge["charge_gib"] for worker in up.status()["workers"] for charge in worker["charges"]]
    assert charged == [0.1, 0.1]
    out, err = process.communicate("\n", timeout=30)
    assert out == "over\n", err
    eventually(lambda: not up.status()["workers"], what="both back")


def test_what_a_cancelled_process_started_ends_with_it(up: Queue) -> None:
    code = """
with lease() as held:
    child = subprocess.Popen(["sleep", "600"])
    print(child.pid, flush=True)
    sys.stdin.readline()
"""
    process = started(up, code)
    child = psutil.Process(int(line(process)))
    assert up("cancel", "1").code == 0
    process.wait(30)
    process.communicate(timeout=30)
    assert process.returncode == -15
    eventually(lambda: not lives(child), what="the child's end")
