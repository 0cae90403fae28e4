from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from mounts import mounted
from queues import child, ended

from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.locks import holder, is_stopped
from scheduler.store.folders import prepare
from scheduler.store.turnstile import Turnstile, stopped_scheduler

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


def test_a_holder_that_is_stopped_is_told_as_stopped_with_what_lets_it_go_on(paths: Paths) -> None:
    other = child(HOLD, paths.home)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    other.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(other.pid))
    with pytest.raises(Temporary) as caught, Turnstile(paths).section(0.05):
        pass
    other.send_signal(signal.SIGCONT)
    said = str(caught.value)
    assert f"process {other.pid}" in said and "stopped" in said and f"kill -CONT {other.pid}" in said
    assert "nothing was written" in said
    assert ended(other)[0] == 0


def test_a_stopped_scheduler_is_known_by_the_lock_that_it_holds(paths: Paths) -> None:
    other = child(
        "import fcntl, os; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX);"
        "print('in', flush=True); sys.stdin.readline()",
        paths.lock_scheduler,
    )
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    assert stopped_scheduler(paths) is None
    other.send_signal(signal.SIGSTOP)
    until(lambda: stopped_scheduler(paths) == other.pid)
    other.send_signal(signal.SIGCONT)
    assert ended(other)[0] == 0
    assert stopped_scheduler(paths) is None


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
    """In a process of its own: the kernel gives a signal to any thread that does not block it."""
    program = child(
        "import os, signal\n"
        "from scheduler.store.turnstile import Signals\n"
        "came = []\n"
        "signal.signal(signal.SIGTERM, lambda number, _: came.append(number))\n"
        "with Signals():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(came)\n"
        "print(came)\n"
    )
    assert ended(program) == (0, "[]\n[15]\n", "")


def test_who_holds_a_lock_is_told_by_device_and_inode(tmp_path: Path) -> None:
    found = os.stat(tmp_path)
    other = f"{os.major(found.st_dev):02x}:{(os.minor(found.st_dev) + 1) % 256:02x}:{found.st_ino}"
    ours = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE 111 {other} 0 EOF\n2: FLOCK  ADVISORY  WRITE 222 {ours} 0 EOF\n")
    assert holder(str(tmp_path), str(locks)) == 222


def test_where_the_kernel_writes_another_device_the_holder_is_known_by_its_locked_descriptor(
    paths: Paths, tmp_path: Path
) -> None:
    other = child(HOLD, paths.home)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    locks = tmp_path / "locks"
    locks.write_text(
        f"1: FLOCK  ADVISORY  WRITE {os.getpid()} 00:fe:{os.stat(paths.lock_owner).st_ino} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE {other.pid} 00:fe:77 0 EOF\n"
    )
    waits = os.open(paths.lock_owner, os.O_RDONLY)  # open, as by one that waits, but not locked
    try:
        assert holder(paths.lock_owner, str(locks)) == other.pid
    finally:
        os.close(waits)
    assert ended(other)[0] == 0
    assert holder(paths.lock_owner, str(locks)) is None


def test_of_two_locks_with_one_inode_number_only_the_held_one_has_a_holder(tmp_path: Path) -> None:
    with mounted(tmp_path / "one") as one, mounted(tmp_path / "two") as two:
        first, second = Paths(str(one / "queue")), Paths(str(two / "queue"))
        prepare(first)
        prepare(second)
        assert os.stat(first.lock_owner).st_ino == os.stat(second.lock_owner).st_ino
        with Turnstile(first).section():
            assert holder(first.lock_owner) == os.getpid()
            assert holder(second.lock_owner) is None


def test_the_holder_of_a_lock_on_an_overlay_is_told(tmp_path: Path) -> None:
    with mounted(tmp_path / "below") as below:
        for name in ("lower", "upper", "work"):
            (below / name).mkdir()
        layers = f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work"
        with mounted(tmp_path / "over", "overlay", layers) as over:
            paths = Paths(str(over / "queue"))
            prepare(paths)
            with Turnstile(paths).section():
                assert holder(paths.lock_owner) == os.getpid()
                assert holder(paths.lock_next) is None
