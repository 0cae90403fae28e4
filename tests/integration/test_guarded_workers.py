"""The guard over real workers below real keepers: the pool is made small, what they touch is real."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import machine, pool, reading
from keepers import Yard, until

from scheduler.host.machine.growth import own_gib
from scheduler.host.machine.guard import Guard
from scheduler.host.machine.levels import HostLevel, Left
from scheduler.host.workers import tree
from scheduler.host.workers.orders import Stored
from scheduler.model.host import Answered, Gone, Overstepped, Park, Replied
from scheduler.model.machine import Machine
from scheduler.model.outcome import Outcome

POOL_GIB, RESERVE_GIB = 1.0, 0.25


class Bounded(HostLevel):
    """A machine that has so little: what is left of it is what the workers have not touched."""

    def __init__(self) -> None:
        super().__init__()
        self.guard: Guard | None = None
        self.strangers_gib = 0.0

    def left_gib(self) -> float:
        assert self.guard is not None
        pids = [pid for grown in list(self.guard.wards.growth.workers.values()) for pid in list(grown.processes)]
        used = [sum(found) for pid in pids if (found := own_gib("/proc", pid)) is not None]
        return POOL_GIB - self.strangers_gib - sum(used)

    def read(self) -> Left:
        left = reading(self.left_gib())
        return left, left


class Lowest:
    """What was left at the least, and for how long it was below the reserve: looked at every few milliseconds."""

    def __init__(self, level: Bounded) -> None:
        self.level, self.least_gib, self.below_s, self.fastest_gib_s = level, POOL_GIB, 0.0, 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        at, past = time.monotonic(), list[tuple[float, float]]()
        while not self._end.wait(0.005):
            now, left = time.monotonic(), self.level.left_gib()
            self.least_gib = min(self.least_gib, left)
            self.below_s += now - at if left < RESERVE_GIB else 0.0
            past = [(t, gib) for t, gib in [*past, (now, left)] if now - t <= 0.1]
            if now - past[0][0] > 0.05:
                self.fastest_gib_s = max(self.fastest_gib_s, (past[0][1] - left) / (now - past[0][0]))
            at = now

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def holds(self) -> None:
        """The promise: below the reserve by no more than rate x 0.3 s, and for no more than 0.5 s."""
        self.close()
        told = f"least {self.least_gib:.3f} GiB, below for {self.below_s:.3f} s, {self.fastest_gib_s:.2f} GiB/s"
        assert self.least_gib >= RESERVE_GIB - self.fastest_gib_s * 0.3, told
        assert self.below_s <= 0.5, told


class Host:
    """A yard of real keepers, watched as a scheduler's host watches them."""

    def __init__(self, folder: Path, acts: bool = True) -> None:
        self.yard, self.level, self.told = Yard(folder), Bounded(), []
        self.guard = self.level.guard = Guard(
            self.yard.roster.stop, self.told.append, self.machine, acts=acts, level=self.level
        )
        self.guard.open()
        self.lowest = Lowest(self.level)

    def machine(self) -> Machine:
        return machine(pool("host", POOL_GIB, reserve=RESERVE_GIB))

    def park(self, worker_id: int = 1, gib: float = 0.1) -> None:
        self.guard.parked(Park(worker_id, "fake", "", "r1", "resident", {"host": gib}, {"host": 1}))
        self.guard.heard(self.yard.park(worker_id, charges={"host": gib}))

    def go(self, *knobs: str, worker_id: int = 1, gib: float = 0.1) -> None:
        self.park(worker_id, gib)
        self.guard.let_go(worker_id)
        self.yard.roster.go(worker_id, self.yard.launch(*knobs))

    def ready(self, *knobs: str, worker_id: int = 1, gib: float = 0.1) -> None:
        self.go(*knobs, worker_id=worker_id, gib=gib)
        self.guard.heard(self.yard.ear.wait(Answered, worker_id))

    def send(self, request: dict[str, Any], worker_id: int = 1, **charges: float) -> None:
        assert self.guard.sent(worker_id, charges) == ""
        self.yard.send(request, worker_id=worker_id)

    def gone(self, worker_id: int = 1) -> Gone:
        event = self.yard.ear.wait(Gone, worker_id)
        self.guard.heard(event)
        return event

    def overstepped(self) -> Overstepped:
        return until(lambda: next((each for each in self.told if isinstance(each, Overstepped)), None), "the guard")

    def close(self) -> None:
        self.lowest.close()
        self.guard.close()
        self.yard.end()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def test_a_start_that_takes_more_than_its_charge_is_stopped_in_time(host: Host) -> None:
    host.go("--grow", "700:1500")
    event = host.overstepped()
    assert (event.worker_id, event.outcome, event.wait_s) == (1, "over_budget", 0.0)
    assert "charged 0.1" in event.text
    gone = host.gone()
    assert gone.exit_code == -signal.SIGKILL and gone.why == f"over_budget: {event.text}"
    host.lowest.holds()
    facts = host.guard.facts()
    assert facts["fastest_gib_s"]["host"] > 0.1 and 0 < facts["exit_s"] < 2.0
    assert facts["needs_gib"]["host"] == pytest.approx(facts["fastest_gib_s"]["host"] * (0.1 + facts["exit_s"]))


def test_a_busy_worker_that_takes_more_than_its_charge_is_stopped_in_time_and_its_peak_is_known(host: Host) -> None:
    host.ready()
    host.send({"do": "grow", "mib": 700, "mib_a_s": 1500})
    assert host.overstepped().outcome == "over_budget"
    host.gone()
    host.lowest.holds()
    assert host.guard.peaks(1, anew=True)["host"] > 0.105
    assert host.guard.peaks(1, anew=False)["host"] >= host.guard.peaks(1, anew=True)["host"]


def test_a_start_inside_its_charge_is_given_up_as_nobodys_fault_and_cools_down_longer_each_time(host: Host) -> None:
    host.go("--grow", "900:1500", gib=0.95)
    event = host.overstepped()
    assert (event.outcome, event.wait_s) == ("", 10.0) and "nobody is at fault" in event.text
    assert host.gone().why == event.text
    host.lowest.holds()
    host.told.clear()
    host.go("--grow", "900:1500", worker_id=2, gib=0.95)
    assert host.overstepped().wait_s == 20.0
    host.gone(2)


def test_a_busy_worker_inside_its_charge_is_left_alone_and_whose_memory_it_is_is_said(host: Host) -> None:
    host.ready(gib=0.95)
    host.send({"do": "grow", "mib": 820, "mib_a_s": 4000, "then_s": 1.0})
    [closed] = until(lambda: host.guard.closed(), "a pool that is closed")
    assert closed.pool == "host" and "fake (worker 1, busy)" in closed.why
    assert "workers inside their charge and processes that schedq did not start are left alone" in closed.why
    assert any(note.startswith("guard: host has") for note in host.guard.notes())
    stored = host.yard.ear.wait(Stored)
    assert not stored.no_reply and host.told == []


def test_a_stranger_is_named_and_not_touched(host: Host, tmp_path: Path) -> None:
    code = "b = bytearray(b'x' * (160 << 20)); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline()
        host.ready(gib=0.4)
        host.level.strangers_gib = 0.8
        host.send({"do": "sleep", "s": 1.0})
        name = f"-c (pid {stranger.pid}"
        until(lambda: any(f"(pid {stranger.pid}" in each.why for each in host.guard.closed()), name)
        assert not host.yard.ear.wait(Stored).no_reply and host.told == []
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_an_idle_worker_goes_before_a_busy_one_and_is_sent_nothing_more(host: Host) -> None:
    host.ready("--allocate-mib", "300", worker_id=1, gib=0.4)
    host.ready(worker_id=2, gib=0.6)
    host.send({"do": "grow", "mib": 520, "mib_a_s": 500, "then_s": 1.0}, worker_id=2)
    event = host.overstepped()
    assert (event.worker_id, event.outcome, event.wait_s) == (1, "", 0.0) and "does nothing" in event.text
    assert host.guard.sent(1, {}) == "its worker is being stopped, since memory runs out"
    host.gone(1)
    assert not host.yard.ear.wait(Stored, 2).no_reply and len(host.told) == 1


def test_a_worker_is_killed_though_its_keeper_hangs(host: Host) -> None:
    host.ready()
    keeper = host.guard.wards.growth.workers[1].keeper
    [leader] = tree.below(keeper)
    host.send({"do": "grow", "mib": 700, "mib_a_s": 300})
    until(lambda: (own_gib("/proc", leader.pid) or (0.0, 0.0))[0] > 0.1, "some growth")
    os.kill(keeper, signal.SIGSTOP)
    try:
        until(lambda: not tree.is_alive(leader.pid, leader.started), "its end", deadline_s=8.0)
    finally:
        os.kill(keeper, signal.SIGCONT)
    host.gone()


def test_what_a_fork_shares_with_its_parent_is_counted_once(host: Host) -> None:
    host.level.strangers_gib = -2.0  # the sum of all is more than they hold
    host.ready("--allocate-mib", "300", "--fork", "3", gib=0.35)
    host.send({"do": "sleep", "s": 0.5})
    host.yard.ear.wait(Stored)
    assert len(host.guard.wards.growth.workers[1].processes) == 4
    assert host.guard.peaks(1, anew=False)["host"] < 0.35 and host.told == []


def test_it_sleeps_while_nothing_starts_or_runs_and_samples_only_where_it_is_switched_off(tmp_path: Path) -> None:
    host = Host(tmp_path, acts=False)
    try:
        host.ready()
        taken: list[float] = []
        step = host.guard.step
        host.guard.step = lambda: (taken.append(time.monotonic()), step())[1]  # type: ignore[method-assign]
        host.send({"do": "grow", "mib": 800, "mib_a_s": 4000, "then_s": 0.3})
        host.yard.ear.wait(Stored)
        host.guard.heard(Replied(1, 7, 1, Outcome("ok")))
        assert host.guard.peaks(1, anew=True)["host"] > 0.7 and host.told == [] and host.guard.closed() == ()
        until(lambda: time.monotonic() - taken[-1] > 0.3, "a guard that sleeps")
        assert max(b - a for a, b in itertools.pairwise(taken)) < 0.4
    finally:
        host.close()


def test_peaks_are_counted_anew_from_each_send_and_known_after_the_end(host: Host) -> None:
    host.ready("--allocate-mib", "80", gib=0.6)
    host.send({"do": "grow", "mib": 200, "mib_a_s": 2000, "then_s": 1.0})
    host.yard.ear.wait(Stored)
    host.guard.heard(Replied(1, 7, 1, Outcome("ok")))
    large = host.guard.peaks(1, anew=True)["host"]
    assert large > 0.25
    host.send({"do": "sleep", "s": 1.0}, worker_id=1)
    host.yard.ear.wait(Stored)
    assert host.guard.peaks(1, anew=True)["host"] < 0.2 and host.guard.peaks(1, anew=False)["host"] == large
    host.yard.roster.stop(1, 0.0, "")
    host.gone()
    assert host.guard.peaks(1, anew=False)["host"] == large
    assert host.guard.peaks(99, anew=True) == {}
