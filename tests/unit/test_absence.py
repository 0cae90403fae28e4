"""Waiting without a scheduler: said at once where none is to be expected, patient while one is being replaced."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from queues import submitted, writing

from scheduler import absence
from scheduler.absence import GRACE_S, Absence
from scheduler.client import Client
from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.errors import SchedulerDown, WaitTimedOut


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "home"))
    submitted(made)
    return made


class Time:
    """Both clocks of the module, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s, started_s = 0.0, now_s()
        monkeypatch.setattr(absence, "monotonic_s", lambda: 1000.0 + self.passed_s)
        monkeypatch.setattr(absence, "now_s", lambda: started_s + self.passed_s)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def left(paths: Paths, ago_s: float | None) -> None:
    """The queue's last scheduler ended that long ago; None: it was killed."""
    ended_at = None if ago_s is None else stamp(now_s() - ago_s)
    with writing(paths) as connection:
        connection.execute(
            "INSERT INTO schedulers (pid, started, boot_id, host_id, version, started_at, ended_at)"
            " VALUES (1, 1.0, 'b', 'h', '1', ?, ?)",
            (stamp(now_s() - 3600), ended_at),
        )


@contextmanager
def running(paths: Paths) -> Iterator[None]:
    os.makedirs(paths.lock_scheduler, exist_ok=True)
    fd = os.open(paths.lock_scheduler, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


@pytest.mark.parametrize("ago_s", ["never", 3600.0, GRACE_S + 1])
def test_where_no_scheduler_is_to_be_expected_it_is_said_at_once(paths: Paths, ago_s: float | str) -> None:
    if isinstance(ago_s, float):
        left(paths, ago_s)
    with pytest.raises(SchedulerDown, match=r"job 1 cannot end; it stays in the queue.*`schedq up`") as caught:
        Absence(paths).check([1])
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("ago_s", [0.0, None])
def test_one_that_ended_just_now_or_was_killed_may_be_followed_by_the_next(
    paths: Paths, time: Time, ago_s: float | None
) -> None:
    left(paths, ago_s)
    waits = Absence(paths)
    waits.check([1])
    time.passed_s = GRACE_S - 0.5
    waits.check([1])
    time.passed_s = GRACE_S + 0.5
    with pytest.raises(SchedulerDown):
        waits.check([1])


def test_patience_begins_anew_when_a_scheduler_was_there_meanwhile(paths: Paths, time: Time) -> None:
    left(paths, None)
    waits = Absence(paths)
    waits.check([1])
    with running(paths):
        time.passed_s = GRACE_S * 5
        waits.check([1])
    waits.check([1])
    time.passed_s = GRACE_S * 6 - 0.5
    waits.check([1], heard=True)
    time.passed_s = GRACE_S * 7 - 1
    waits.check([1])


def test_a_client_that_looks_again_and_again_does_not_wait_for_ever(paths: Paths, time: Time) -> None:
    left(paths, None)
    with Client(paths.home) as client:
        with pytest.raises(WaitTimedOut):
            client.wait([1], timeout_s=0.0)
        time.passed_s = GRACE_S + 1
        with pytest.raises(SchedulerDown):
            client.wait([1], timeout_s=0.0)


def test_a_job_that_has_ended_needs_no_scheduler(paths: Paths) -> None:
    with Client(paths.home) as client:
        client.cancel([1])
        assert client.wait([1]) == {1: "cancelled"}


def test_many_jobs_are_named_in_short(paths: Paths) -> None:
    with pytest.raises(SchedulerDown, match=r"jobs 1, 2, 3, 4, 5, 6, 7, 8 and 12 more cannot end; they stay"):
        Absence(paths).check(list(range(1, 21)))
