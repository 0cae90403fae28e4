"""What workers hold and what is left, as the guard samples it: a made-up /proc, and devices whose drivers take time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import card, machine, pool, reading
from made_proc import device, integrated

from scheduler.host.machine.accelerators import Seen
from scheduler.host.machine.growth import Growth
from scheduler.host.machine.guard import Guard
from scheduler.host.machine.levels import FRESH_S, Asking, HostLevel, Left
from scheduler.model.host import Adopt, Answered, Forgotten, Gone, Overstepped, Park, Replied, Shown
from scheduler.model.machine import Device, Machine, Tenant, device_part
from scheduler.model.outcome import Outcome

PAGES_PER_MIB = (1 << 20) // os.sysconf("SC_PAGESIZE")


class Table:
    """A made-up /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "proc"
        self.folder.mkdir()
        self.run(1, 0)

    def run(self, pid: int, parent: int, anon_mib: int = 0, shmem_mib: int = 0, started: int = 7) -> None:
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        (place / "stat").write_text(f"{pid} (a) S {parent} 0 0 {' '.join(['0'] * 15)} {started} 0\n")
        self.hold(pid, anon_mib, shmem_mib)

    def hold(self, pid: int, anon_mib: int, shmem_mib: int = 0) -> None:
        pages = (anon_mib + shmem_mib) * PAGES_PER_MIB, shmem_mib * PAGES_PER_MIB
        place = self.folder / str(pid)
        (place / "statm").write_text(f"9999999 {pages[0]} {pages[1]} 1 0 2 0\n")
        (place / "status").write_text(
            f"Name:\ta\nRssAnon:\t{anon_mib * 1024} kB\nRssFile:\t7 kB\nRssShmem:\t{shmem_mib * 1024} kB\n"
        )

    def end(self, pid: int) -> None:
        for name in ("stat", "statm", "status"):
            (self.folder / str(pid) / name).unlink()
        (self.folder / str(pid)).rmdir()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def mib(gib: float | None) -> float:
    assert gib is not None
    return round(gib * 1024, 3)


def watched(table: Table, *pids: int) -> Growth:
    growth = Growth(str(table.folder))
    growth.watch(3, pids[0])
    growth.look(0.0)
    return growth


def test_what_is_below_a_keeper_is_its_workers_and_the_keeper_itself_is_not(table: Table) -> None:
    table.run(10, 1, 50)
    table.run(11, 10, 100)
    table.run(12, 11, 0)
    table.run(20, 1, 500)
    growth = watched(table, 10)
    assert sorted(growth.workers[3].processes) == [11, 12] and sorted(growth.nobodys()) == [1, 10, 20]
    assert mib(growth.measure(3, 0.0)) == 100
    table.run(13, 10, 7)  # its parent has ended: the keeper takes it
    table.end(12)
    growth.look(0.1)
    assert sorted(growth.workers[3].processes) == [11, 13]


def test_a_keeper_without_a_worker_holds_nothing_and_what_cannot_be_read_is_not_told(table: Table) -> None:
    table.run(10, 1, 50)
    growth = watched(table, 10)
    assert growth.measure(3, 0.0) == 0.0
    table.run(11, 10, 100)
    growth.look(0.1)
    (table.folder / "11/statm").unlink()
    assert growth.measure(3, 0.1) is None and growth.measure(99, 0.1) is None


def test_of_several_processes_the_largest_counts_and_what_each_other_gained(table: Table) -> None:
    table.run(10, 1)
    table.run(11, 10, 1000)
    table.run(12, 11, 1000)  # a fork: all of it is shared
    growth = watched(table, 10)
    assert mib(growth.measure(3, 0.0)) == 1000
    table.hold(12, 1100)
    assert mib(growth.measure(3, 0.1)) == 1100
    table.hold(12, 10)  # it runs another program
    assert mib(growth.measure(3, 0.2)) == 1000
    table.hold(12, 60)
    assert mib(growth.measure(3, 0.3)) == 1050


def test_shared_memory_counts_once_and_a_change_of_what_is_shared_is_seen_at_once(table: Table) -> None:
    table.run(10, 1)
    table.run(11, 10, 100, 200)
    table.run(12, 11, 0, 200)
    growth = watched(table, 10)
    assert mib(growth.measure(3, 0.0)) == 300
    table.hold(11, 100, 300)
    table.hold(12, 0, 300)
    assert mib(growth.measure(3, 0.1)) == 400


def test_a_pid_that_another_process_has_by_now_is_another(table: Table) -> None:
    table.run(10, 1)
    table.run(11, 10, 100)
    growth = watched(table, 10)
    first = growth.workers[3].processes[11]
    growth.measure(3, 0.0)
    assert len(first.files) == 2
    table.run(11, 1, 700, started=99)
    growth.look(40.0)
    assert growth.workers[3].processes == {} and first.files == ()


def test_what_is_left_is_bounded_by_the_control_group_also_when_it_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    group = tmp_path / "cg/job"
    group.mkdir(parents=True)
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 4194304 kB\nMemAvailable: 8388608 kB\n")
    (tmp_path / "self/cgroup").write_text("0::/job\n")
    (tmp_path / "self/mountinfo").write_text(f"30 20 0:26 / {tmp_path}/cg rw - cgroup2 cgroup2 rw\n")
    (group / "memory.stat").write_text("inactive_file 0\nactive_file 0\n")
    level = HostLevel(str(tmp_path))
    for used, left in ((1, 2.0), (2, 1.0), (0, 3.0)):
        (group / "memory.max").write_text(str(3 << 30))
        (group / "memory.current").write_text(str(used << 30))
        assert [each.value for each in level.read()] == [left, left]
    (group / "memory.max").write_text("max")
    assert [each.value for each in level.read()] == [4.0, 8.0]
    (tmp_path / "meminfo").write_text("MemFree: x\n")
    assert level.read()[1].failed


def asking(read: Callable[[], tuple[Device, ...]]) -> Asking:
    return Asking(lambda: Seen(read(), reading(1.0)), 0.01)


def until(true: Callable[[], Any]) -> Any:
    end = time.monotonic() + 10.0
    while not (found := true()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def test_a_driver_that_answers_in_time_is_heard_and_one_that_does_not_holds_nobody_up() -> None:
    hangs, wait = threading.Event(), threading.Event()

    def read() -> tuple[Device, ...]:
        if hangs.is_set():
            wait.wait(20.0)
        return (device("a"),)

    ask = asking(read)
    assert ask.fresh() is None
    ask.want(True)
    assert until(ask.fresh)[0].id == "a"
    hangs.set()
    until(lambda: ask.fresh() is None)
    hangs.clear()
    wait.set()
    until(ask.fresh)
    ask.want(False)
    until(lambda: ask.fresh() is None)
    ask.close()


def test_a_driver_that_errs_is_one_that_did_not_answer() -> None:
    def read() -> tuple[Device, ...]:
        raise OSError("the driver is gone")

    ask = asking(read)
    ask.want(True)
    began = time.monotonic()
    while time.monotonic() - began < FRESH_S / 2:
        assert ask.fresh() is None
        time.sleep(0.01)
    ask.close()


class Fixed(HostLevel):
    """So much is left."""

    gib = 100.0

    def read(self) -> Left:
        return reading(self.gib), reading(self.gib)


class Told(Asking):
    """What a driver says, at once; None = not in time."""

    devices: tuple[Device, ...] | None = ()

    def __init__(self) -> None:
        super().__init__(lambda: Seen((), reading(0.0)), 1.0)

    def want(self, wanted: bool) -> None:
        pass

    def fresh(self) -> tuple[Device, ...] | None:
        return self.devices


class Small:
    """A guard over one worker of a made-up machine, stepped by hand."""

    def __init__(
        self, table: Table, here: Machine, charges: dict[str, float], state: str = "busy", device: str = ""
    ) -> None:
        self.events: list[Any] = []
        self.stops: list[tuple[int, float, str]] = []
        self.level, self.told, self.tended = Fixed(), Told(), list[tuple[list[int], float, float]]()
        self.guard = Guard(
            lambda *stop: self.stops.append(stop), self.events.append, lambda: here, level=self.level,
            asking=self.told, proc=str(table.folder), tend=lambda *tend: self.tended.append(tend),
        )  # fmt: skip
        table.run(10, 1)
        table.run(11, 10, 100)
        self.guard.parked(Park(3, "boltz", "", "r", "resident", charges, {}, device))
        self.guard.heard(Shown(3, 10, 7.0, "boot"))
        self.guard.let_go(3)
        if state != "starting":
            self.guard.heard(Answered(3, 11, 7.0))
        if state == "busy":
            assert self.guard.sent(3, {}) == ""

    def step(self, *devices: Device) -> None:
        self.told.devices = devices or None
        self.guard.step()


GPU = "device:GPU-1"


def test_device_memory_is_judged_by_what_the_driver_says_of_each_process(table: Table) -> None:
    gpu = device("GPU-1", Tenant(11, 30.0), total=80.0, used=79.5)
    here = machine(card("GPU-1", 80.0, reserve=0.5), devices=(gpu,))
    small = Small(table, here, {GPU: 28.0, "host": 6.0})
    small.step(gpu)
    [event] = small.events
    assert isinstance(event, Overstepped) and event.outcome == "over_budget"
    assert event.text.startswith(
        "it held 30 GiB of device:GPU-1 and it is charged 28 GiB there, while 0.5 GiB were left"
    )
    assert small.stops == [(3, 0.0, f"over_budget: {event.text}")]
    assert small.guard.peaks(3, anew=True) == {GPU: 30.0, "host": pytest.approx(100 / 1024)}


def test_a_driver_that_did_not_answer_in_time_stops_nobody(table: Table) -> None:
    gpu = device("GPU-1", Tenant(11, 30.0), total=80.0, used=79.9)
    small = Small(table, machine(card("GPU-1", 80.0), devices=(gpu,)), {GPU: 28.0})
    small.step()
    assert small.events == [] and GPU not in small.guard.peaks(3, anew=False)


def test_on_unified_memory_what_the_process_and_what_the_driver_hold_are_one_sum(table: Table) -> None:
    gb10 = integrated(Tenant(11, 33.9))
    here = machine(pool("unified", 121.0, reserve=4.0), devices=(gb10,))
    small = Small(table, here, {"unified": 32.0})
    small.level.gib = 7.0
    table.hold(11, 1024)
    small.step(gb10)
    peaks = {"unified": pytest.approx(34.9), device_part("unified"): pytest.approx(33.9)}
    assert small.guard.peaks(3, anew=False) == peaks
    assert "it held 34.9 GiB of unified" in small.events[0].text


HIDDEN = {
    "no answer in time": (),
    "nobody listed": (integrated(),),
    "others alone, as in a container": (integrated(Tenant(4711, 30.0)),),
    "no figure": (integrated(Tenant(11, None)),),
    "an error": (replace(integrated(Tenant(11, 30.0)), tenants_missing="it errs"),),
}


@pytest.mark.parametrize("told", HIDDEN.values(), ids=HIDDEN)
def test_on_unified_memory_what_was_seen_without_its_device_part_is_no_peak(
    table: Table, told: tuple[Device, ...]
) -> None:
    here = machine(pool("unified", 121.0, reserve=4.0), devices=(integrated(),))
    small = Small(table, here, {"unified": 42.0}, device="unified")
    table.hold(11, 3072)
    small.step(*told)
    assert small.guard.wards.by_id[3].used["unified"] == pytest.approx(3.0), "the guard goes by what it sees"
    assert small.guard.peaks(3, anew=True) == {} and small.guard.peaks(3, anew=False) == {}


@pytest.mark.parametrize("told", HIDDEN.values(), ids=HIDDEN)
def test_a_device_on_which_nobody_ever_showed_a_worker_has_no_peak_of_it(
    table: Table, told: tuple[Device, ...]
) -> None:
    gpu = tuple(replace(each, id="GPU-1", integrated=False, name="H100") for each in told)
    here = machine(card("GPU-1", 80.0), devices=(device("GPU-1", total=80.0),))
    small = Small(table, here, {GPU: 28.0, "host": 6.0}, device=GPU)
    small.step(*gpu)
    assert small.guard.peaks(3, anew=True) == {"host": pytest.approx(100 / 1024)}


def test_once_a_driver_shows_a_worker_what_it_held_beside_its_device_before_counts_too(table: Table) -> None:
    here = machine(pool("unified", 121.0, reserve=4.0), devices=(integrated(),))
    small = Small(table, here, {"unified": 60.0}, device="unified")
    table.hold(11, 40 * 1024)
    small.step(integrated())
    table.hold(11, 2 * 1024)
    small.step(integrated(Tenant(11, 30.0)))
    table.hold(11, 50 * 1024)
    small.step()
    peaks = {"unified": pytest.approx(40.0), device_part("unified"): pytest.approx(30.0)}
    assert small.guard.peaks(3, anew=False) == peaks, "read as weights are: host first"
    small.guard.heard(Gone(3, 0))
    assert small.guard.peaks(3, anew=True) == peaks


def test_a_worker_without_device_is_measured_whatever_a_driver_says(table: Table) -> None:
    here = machine(pool("unified", 121.0, reserve=4.0), devices=(integrated(),))
    small = Small(table, here, {"unified": 6.0})
    table.hold(11, 3072)
    small.step(integrated())
    assert small.guard.peaks(3, anew=False) == {"unified": pytest.approx(3.0)}


def test_of_a_worker_that_was_taken_over_in_an_attempt_that_attempts_peak_is_not_known(table: Table) -> None:
    small = Small(table, machine(pool("host", 64.0, reserve=2.0)), {"host": 1.0}, state="ready")
    small.guard.heard(Gone(3, 0))
    row = Adopt(4, "esm", "t33", "r", "resident", "busy", "boot", 10, 7.0, 11, 7.0, charges={"host": 1.0})
    small.guard.adopted(row)
    small.step()
    assert small.guard.peaks(4, anew=True) == {} and small.guard.peaks(4, anew=False) == {}
    small.guard.heard(Replied(4, 1, 1, Outcome("ok")))
    assert small.guard.peaks(4, anew=True) == {}, "also when its reply has come"
    assert small.guard.sent(4, {}) == ""
    small.step()
    assert small.guard.peaks(4, anew=True) == {"host": pytest.approx(100 / 1024)}
    assert small.guard.peaks(4, anew=False) == {}, "what its load took was not seen"
    small.guard.heard(Gone(4, 0))
    assert small.guard.peaks(4, anew=True) and small.guard.peaks(4, anew=False) == {}


def test_what_a_start_gains_unseen_is_what_its_pool_has_lost(table: Table) -> None:
    """E7: on such machines no process shows what it has on its device; the driver may, and is late here."""
    here = machine(pool("unified", 121.0, reserve=4.0), devices=(integrated(),))
    small = Small(table, here, {"unified": 32.0}, state="starting")
    small.level.gib = 9.0
    small.step()
    small.level.gib = 6.4
    small.step()
    [event] = small.events
    assert event.outcome == "" and "gained 2.6 GiB" in event.text


def test_while_a_worker_loads_and_less_than_the_reserve_is_free_its_cache_is_tended(table: Table) -> None:
    here = machine(pool("host", 64.0, reserve=2.0))
    small = Small(table, here, {"host": 10.0}, state="starting")
    small.step()
    assert small.tended == []
    free = [1.5]
    small.level.read = lambda: (reading(free[0]), reading(40.0))  # type: ignore[method-assign]
    small.step()
    assert small.tended == [([3], 1.5, 2.0)]
    small.guard.heard(Answered(3, 11, 7.0))
    small.guard.sent(3, {})
    small.step()
    assert len(small.tended) == 1


def test_what_cannot_be_read_stops_nobody_and_is_said(table: Table) -> None:
    small = Small(table, machine(pool("host", 64.0)), {"host": 0.05})
    small.level.read = lambda: (reading(None), reading(None))  # type: ignore[method-assign]
    small.step()
    assert small.events == []
    assert small.guard.notes() == ("guard: what is left of host cannot be seen: it did not answer",)
    assert small.guard.facts()["blind"] == "what is left of host cannot be seen: it did not answer"


def test_a_charge_that_was_raised_with_a_send_is_what_it_is_judged_by(table: Table) -> None:
    small = Small(table, machine(pool("host", 64.0, reserve=2.0)), {"host": 0.05}, state="ready")
    small.level.gib = 3.0
    assert small.guard.sent(3, {"host": 0.2}) == ""
    small.step()
    assert small.events == []
    small.guard.heard(Replied(3, 1, 1, Outcome("ok")))
    assert small.guard.sent(3, {"host": 0.05}) == ""
    small.step()
    assert small.events[0].outcome == "over_budget"
    assert "is being stopped" in small.guard.sent(3, {})


def test_a_worker_that_was_taken_over_is_what_its_row_says(table: Table) -> None:
    small = Small(table, machine(pool("host", 64.0, reserve=2.0)), {"host": 1.0}, state="ready")
    small.guard.heard(Gone(3, 0))
    assert small.guard.quiet()
    small.guard.adopted(
        Adopt(4, "esm", "t33", "r", "resident", "busy", "boot", 10, 7.0, 11, 7.0, charges={"host": 0.05})
    )
    assert not small.guard.quiet()
    small.level.gib = 3.0
    small.step()
    assert small.guard.pids([4]) == [11] and small.guard.pids(None) == [11] and small.guard.pids([3]) == []
    assert [event.worker_id for event in small.events] == [4]
    small.guard.heard(Forgotten(4, 1, 1))
    assert small.guard.quiet()
    small.guard.adopted(Adopt(5, "esm", "", "r", "resident", "retiring", "boot", None, None, None, None))
    assert small.guard.quiet()
