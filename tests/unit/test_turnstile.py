from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from queues import child, ended

from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.store.folders import prepare
from scheduler.store.turnstile import Turnstile, holder, signals_blocked

HOLD = """
from scheduler.config import Paths
from scheduler.store.turnstile import Turnstile
with Turnstile(Paths(sys.argv[1])).section():
    print("in", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "queue"))
    prepare(made)
    return made


def waiting(folder: str) -> int:
    """How many wait in the kernel's line for the lock on this folder."""
    inode = str(os.stat(folder).st_ino)
    lines = Path("/proc/locks").read_text().splitlines()
    return sum(1 for line in lines if "->" in line and f":{inode} " in line)


def until(condition, deadline_s: float = 20.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def test_two_threads_of_one_process_exclude_each_other(paths: Paths) -> None:
    inside, most, mutex = 0, 0, threading.Lock()

    def visit() -> None:
        nonlocal inside, most
        for _ in range(20):
            with Turnstile(paths).section():
                with mutex:
                    inside += 1
                    most = max(most, inside)
                os.sched_yield()
                with mutex:
                    inside -= 1

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert most == 1


def test_who_waits_too_long_is_told_which_process_is_inside(paths: Paths) -> None:
    other = child(HOLD, paths.home)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    with pytest.raises(Temporary) as caught, Turnstile(paths).section(0.05):
        pass
    assert f"process {other.pid}" in str(caught.value)
    assert "0.05 s" in str(caught.value) and "nothing was written" in str(caught.value)
    assert caught.value.exit_code == 75
    assert ended(other)[0] == 0


def test_the_holder_is_read_from_the_kernel(paths: Paths) -> None:
    assert holder(paths.lock_owner) is None
    with Turnstile(paths).section():
        assert holder(paths.lock_owner) == os.getpid()
        assert holder(paths.lock_next) is None


def test_a_waiter_that_gave_up_lets_go_as_soon_as_it_gets_the_lock(paths: Paths) -> None:
    with Turnstile(paths).section():
        with pytest.raises(Temporary), Turnstile(paths).section(0.01):
            pass
        assert waiting(paths.lock_owner) == 1
    until(lambda: not any(t.name == "turnstile" for t in threading.enumerate()))
    with Turnstile(paths).section(0.0):
        pass


def test_a_killed_holder_leaves_the_way_free(paths: Paths) -> None:
    other = child(HOLD, paths.home)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    other.send_signal(signal.SIGKILL)
    with Turnstile(paths).section(20.0):
        pass
    ended(other)


def test_nobody_barges_past_a_waiter(paths: Paths) -> None:
    """Whoever leaves and comes straight back finds each waiter served after at most two more of its own turns."""
    turns: list[str] = []
    go_on = threading.Event()

    def greedy() -> None:
        while not go_on.is_set():
            with Turnstile(paths).section():
                turns.append("greedy")

    def patient() -> None:
        for _ in range(10):
            with Turnstile(paths).section():
                turns.append("patient")
        go_on.set()

    section = Turnstile(paths).section()
    with section:
        first = threading.Thread(target=patient)
        first.start()
        until(lambda: waiting(paths.lock_owner) == 1)
        second = threading.Thread(target=greedy)
        second.start()
        until(lambda: waiting(paths.lock_next) == 1)
    first.join(60)
    second.join(60)
    assert turns.count("patient") == 10
    assert turns[0] == "patient"
    line = "".join(word[0] for word in turns)
    waits = [len(run) for run in line.split("p")]
    assert sorted(waits)[len(waits) // 2] <= 2, line


def test_a_section_leaves_no_descriptor_behind(paths: Paths) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with Turnstile(paths).section():
            pass
        with Turnstile(paths).section(), pytest.raises(Temporary), Turnstile(paths).section(0.0):
            pass
    until(lambda: not any(t.name == "turnstile" for t in threading.enumerate()))
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_locks_do_not_reach_a_program_that_is_started_inside(paths: Paths) -> None:
    with Turnstile(paths).section():
        links = child("import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')[:-1]])")
        assert "lock/" not in ended(links)[1]


def test_signals_wait_until_the_block_ends() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with signals_blocked():
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_who_holds_a_lock_is_told_by_device_and_inode(tmp_path: Path) -> None:
    found = os.stat(tmp_path)
    other = f"{os.major(found.st_dev):02x}:{(os.minor(found.st_dev) + 1) % 256:02x}:{found.st_ino}"
    ours = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE 111 {other} 0 EOF\n2: FLOCK  ADVISORY  WRITE 222 {ours} 0 EOF\n")
    assert holder(str(tmp_path), str(locks)) == 222
