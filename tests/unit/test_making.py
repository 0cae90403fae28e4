"""Inputs made beside the loop: what hangs keeps no other, and no more is made ahead than is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler import making, pinning
from scheduler.config import Paths
from scheduler.making import Making
from scheduler.simulate.clock import VirtualClock


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.002)
    raise AssertionError("not in 4 s")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(making.wake, "nudge", lambda _paths: None)
    return Paths(str(tmp_path / "queue"))


def test_an_input_that_hangs_keeps_no_other(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def made(_paths: Paths, job_id: int) -> pinning.Made:
        if job_id == 1:
            hangs.wait(10.0)
        return pinning.Made(job_id)

    monkeypatch.setattr(pinning, "made", made)
    clock = VirtualClock()
    work = Making(clock, inline=False)
    work.ask(paths, [1])
    until(lambda: 1 in [job_id for job_id, _ in work._at.values()])
    work.ask(paths, [2, 3])
    assert work.slow_at_s() == [clock.monotonic_s() + making.SLOW_S] and not work.done
    clock.sleep(making.SLOW_S)
    work.ask(paths, [1])
    until(lambda: len(work.done) == 2)
    assert [each.job_id for each in work.taken(9)] == [2, 3] and work.busy and work.slow() == {1}
    hangs.set()
    until(lambda: [each.job_id for each in work.done] == [1, 1])
    work.taken(9)
    until(lambda: not work.busy)


def test_no_more_is_made_ahead_than_the_loop_may_have_to_keep(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    work, ahead = Making(VirtualClock(), inline=False), list[int]()
    monkeypatch.setattr(making, "AHEAD", 3)

    def made(_paths: Paths, job_id: int) -> pinning.Made:
        ahead.append(len(work.done))
        return pinning.Made(job_id)

    monkeypatch.setattr(pinning, "made", made)
    work.ask(paths, list(range(1, 11)))
    until(lambda: len(work.done) >= 3)
    taken: list[int] = []
    while len(taken) < 10:
        taken += [each.job_id for each in work.taken(2)]
    assert taken == list(range(1, 11)) and max(ahead) < 3
