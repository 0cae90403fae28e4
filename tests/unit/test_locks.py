"""Locks on folders: who only looks never keeps anybody from taking one, nor is one who tidies taken for a holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import child, ended

from scheduler import locks, wake
from scheduler.app import SchedulerLock
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.store.folders import prepare


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "queue"))
    prepare(made)
    return made


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while somebody waits for his next turn at a lock, in order."""
    steps: list[Callable[[], None]] = []
    monkeypatch.setattr(locks.time, "sleep", lambda _s: steps.pop(0)() if steps else None)
    return steps


def looked_at(folder: str) -> int:
    """A descriptor that has the lock as `status`, `submit` and `wait` have it when they look."""
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return fd


def test_a_scheduler_starts_although_somebody_looks_whether_one_runs(
    paths: Paths, turn: list[Callable[[], None]]
) -> None:
    fd = looked_at(paths.lock_scheduler)
    turn += [lambda: None, lambda: os.close(fd)]
    SchedulerLock(paths).release()
    assert turn == []


def test_a_second_scheduler_is_told_that_one_runs(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PROBED_S", 0.0)
    first = SchedulerLock(paths)
    with pytest.raises(Temporary, match="a scheduler already runs"):
        SchedulerLock(paths)
    first.release()
    SchedulerLock(paths).release()


def test_who_keeps_looking_is_named_and_not_taken_for_a_scheduler(
    paths: Paths, turn: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticking = iter(range(100))
    monkeypatch.setattr(locks, "monotonic_s", lambda: float(next(ticking)))
    fd = looked_at(paths.lock_scheduler)
    try:
        with pytest.raises(Temporary, match=rf"process {os.getpid()} \(.*\) kept .* for 2 s; nothing was started"):
            SchedulerLock(paths)
    finally:
        os.close(fd)


def test_a_place_is_kept_vacant_although_somebody_looks_and_who_looks_finds_no_scheduler(paths: Paths) -> None:
    fd = looked_at(paths.lock_scheduler)
    vacant = wake.keep_vacant(paths)
    assert vacant is not None
    os.close(fd)
    assert not wake.scheduler_runs(paths)
    assert locks.take(paths.lock_scheduler, patience_s=0.0) is None, "no scheduler starts meanwhile"
    locks.let_go(vacant)
    lock = SchedulerLock(paths)
    assert wake.scheduler_runs(paths) and wake.keep_vacant(paths) is None
    lock.release()
    assert not wake.scheduler_runs(paths)


def test_a_lock_is_let_go_for_the_copies_that_a_fork_made_too(paths: Paths) -> None:
    lock = SchedulerLock(paths)
    copy = os.dup(lock._fd)
    lock.release()
    assert not wake.scheduler_runs(paths)
    os.close(copy)


def test_nobody_holds_the_lock_of_a_queue_that_is_not_there(tmp_path: Path) -> None:
    assert not wake.scheduler_runs(Paths(str(tmp_path / "none")))


def test_a_nudge_and_a_question_without_a_socket_to_be_had_are_no_fault_of_ours(paths: Paths) -> None:
    code = """
import os, resource
from scheduler import wake
from scheduler.config import Paths
from scheduler.errors import Temporary
paths = Paths(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
told = [wake.nudge(paths)]
try:
    wake.Line(paths)
except Temporary as error:
    told.append("no socket" in str(error))
os.write(1, repr(told).encode())
"""
    assert ended(child(code, paths.home)) == (0, "[False, True]", "")
