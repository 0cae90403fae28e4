"""What the guard sees of a process that has room for itself: its keeper is its child, and it was there before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import machine, pool
from test_growth import Fixed, Table, mib

from scheduler.host.machine.growth import Growth
from scheduler.host.machine.guard import Guard
from scheduler.host.machine.wards import LEASED_S
from scheduler.model.host import Adopt, Answered, Overstepped, Park, Shown

LEASE, COMMAND = "v0r0.1n0t1-la", "v0r0.1n0t1-fa"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A program (10) with something that it started (11), and the keeper of its lease (20)."""
    made = Table(tmp_path)
    made.run(10, 1, 300)
    made.run(11, 10, 100)
    made.run(20, 10, 5)
    return made


def leased(table: Table, *keepers: int) -> Growth:
    growth = Growth(str(table.folder))
    for at, keeper in enumerate(keepers or (20,), 3):
        growth.watch(at, keeper, leased=True)
    growth.look(0.0)
    return growth


def test_the_process_above_its_keeper_is_counted_with_all_that_it_started(table: Table) -> None:
    growth = leased(table)
    assert sorted(growth.workers[3].processes) == [10, 11] and sorted(growth.nobodys()) == [1, 20]
    assert mib(growth.measure(3, 0.0)) == 300
    table.hold(11, 150)
    assert mib(growth.measure(3, 0.1)) == 350
    table.run(12, 11, 0)
    growth.look(0.2)
    assert sorted(growth.workers[3].processes) == [10, 11, 12]


def test_a_keeper_that_lost_its_parent_has_nobody_above_it(table: Table) -> None:
    table.run(20, 1)
    growth = leased(table)
    assert growth.workers[3].holder is None and growth.workers[3].processes == {}


def test_another_process_that_has_the_pid_by_now_is_not_the_one_that_has_the_room(table: Table) -> None:
    growth = leased(table)
    table.run(10, 1, 900, started=99)
    growth.look(40.0)
    assert growth.workers[3].processes == {}


def test_what_runs_below_another_keeper_is_that_ones(table: Table) -> None:
    table.run(30, 11)
    table.run(31, 30, 700)
    growth = leased(table)
    growth.watch(4, 30)
    growth.look(1.0)
    assert sorted(growth.workers[3].processes) == [10, 11] and sorted(growth.workers[4].processes) == [31]
    table.run(1, 0)
    table.run(5, 1)  # and so is one that takes its lease inside of a command
    table.run(10, 5, 300)
    growth.watch(4, 5)
    growth.look(2.0)
    assert sorted(growth.workers[3].processes) == [10, 11, 30, 31] and growth.workers[4].processes == {}


def test_its_processes_are_not_the_guards_to_signal() -> None:
    growth = Growth()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as keeper:
        growth.watch(3, keeper.pid, leased=True)
        growth.look(0.0)
        assert os.getpid() in growth.workers[3].processes and growth.living(3) == []
        growth.forget(3)
        keeper.communicate(b"\n")


def test_two_leases_of_one_process_have_the_same_processes_and_the_last_of_them_alone_when_the_first_ends(
    table: Table,
) -> None:
    table.run(21, 10)
    growth = leased(table, 20, 21)
    assert growth.measure(3, 0.0) == growth.measure(4, 0.0)
    growth.forget(3)
    table.end(20)
    growth.look(0.1)
    assert sorted(growth.workers[4].processes) == [10, 11] and mib(growth.measure(4, 0.1)) == 300


class Watching:
    """A guard on a machine that is near its reserve, stepped by hand; room of 0.1 GiB for each lease."""

    def __init__(self, table: Table) -> None:
        self.events: list[Any] = []
        self.stops: list[tuple[int, float, str]] = []
        self.level = Fixed()
        self.level.gib = 3.0
        here = machine(pool("host", 64.0, reserve=2.0))
        self.guard = Guard(
            lambda *stop: self.stops.append(stop), self.events.append, lambda: here, level=self.level,
            proc=str(table.folder),
        )  # fmt: skip

    def have(self, worker_id: int, keeper: int, gib: float = 0.1, variant: str = LEASE, sent: bool = True) -> None:
        self.guard.parked(Park(worker_id, "exec", variant, "r", "oneshot", {"host": gib}, {}))
        self.guard.heard(Shown(worker_id, keeper, 7.0, "boot"))
        self.guard.let_go(worker_id)
        if sent:
            self.guard.heard(Answered(worker_id, 0, 0.0))
            assert self.guard.sent(worker_id, {}) == ""

    def step(self) -> list[int]:
        """Whom it stops now."""
        self.guard.step()
        found = [each.worker_id for each in self.events if isinstance(each, Overstepped)]
        self.events.clear()
        return found


def test_a_leased_process_above_its_charge_is_told_to_end_with_a_grace_and_its_peak_is_known(table: Table) -> None:
    watching = Watching(table)
    watching.have(3, 20)
    assert watching.step() == [3]
    [(_, grace_s, why)] = watching.stops
    assert grace_s == LEASED_S and why.startswith("over_budget: it held 0.29 GiB of host")
    assert watching.guard.peaks(3, anew=True)["host"] == pytest.approx(300 / 1024)
    assert sorted(watching.guard.pids([3])) == [10, 11]


def test_what_calls_a_command_is_no_part_of_it(table: Table) -> None:
    watching = Watching(table)
    watching.have(3, 20, variant=COMMAND)
    assert watching.step() == [] and watching.guard.peaks(3, anew=True)["host"] == 0.0


def test_a_process_that_was_not_given_its_room_yet_is_not_judged_by_it(table: Table) -> None:
    watching = Watching(table)
    watching.have(3, 20, sent=False)
    assert watching.step() == []


def test_a_lease_that_was_taken_over_is_watched_as_before(table: Table) -> None:
    watching = Watching(table)
    row = Adopt(3, "exec", LEASE, "r", "oneshot", "busy", "boot", 20, 7.0, None, None, charges={"host": 0.1})
    watching.guard.adopted(row)
    assert watching.step() == [3]


@pytest.mark.parametrize(("second_gib", "stopped"), [(0.25, []), (0.15, [4])])
def test_a_process_with_several_leases_may_use_their_sum(table: Table, second_gib: float, stopped: list[int]) -> None:
    table.run(21, 10)
    watching = Watching(table)
    watching.have(3, 20)
    watching.have(4, 21, second_gib)
    assert watching.step() == stopped
    assert watching.guard.peaks(3, anew=True)["host"] == pytest.approx(0.1)
    assert watching.guard.peaks(4, anew=True)["host"] == pytest.approx(300 / 1024 - 0.1)


def test_a_lease_that_is_only_asked_for_takes_nothing_of_what_another_one_is_judged_by(table: Table) -> None:
    table.run(21, 10)
    watching = Watching(table)
    watching.have(3, 20)
    watching.have(4, 21, 64.0, sent=False)
    assert watching.step() == [3]
