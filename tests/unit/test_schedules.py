"""Calls that are repeated, under a virtual clock: what is due is made once, what was missed once and late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import seconds, stamp
from scheduler.config import Paths
from scheduler.model.call import Due, Ended
from scheduler.schedules import Schedules
from scheduler.simulate.clock import VirtualClock
from scheduler.store import schedules as rows
from scheduler.store.engine import Store

MIDDAY = seconds("2026-11-30T12:00:00Z")


class Recorded:
    """Who makes calls, and makes none: what was asked is kept, what ends is told by the test."""

    def __init__(self) -> None:
        self.made: list[Due] = []
        self.attended: list[tuple[int, float]] = []
        self.ends: list[Ended] = []
        self.forgotten: list[int] = []

    def make(self, due: Due) -> None:
        self.made.append(due)

    def attend(self, run_id: int, left_s: float) -> None:
        self.attended.append((run_id, left_s))

    def forget(self, run_id: int) -> None:
        self.forgotten.append(run_id)

    def over(self) -> list[Ended]:
        told, self.ends = self.ends, []
        return told


class Evening:
    """A queue with schedules, and schedulers that come and go. Every turn is one transaction."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(MIDDAY)
        self.store = Store(Paths(str(folder / "home")))
        self.up()

    def up(self) -> None:
        self.caller = Recorded()
        self.schedules = Schedules(self.caller, self.clock, 3600.0)

    def add(self, cron: str = "0 22 * * *", *argv: str, zone: str = "UTC", next_at: str = "") -> int:
        with self.store.write() as tx:
            at = stamp(self.clock.now_s())
            return rows.add(
                tx, cron=cron, zone=zone, argv=[*(argv or ("validate", "--all"))], cwd="/", environment={"HOME": "/h"},
                user="ada", at=at, next_at=next_at or "2026-11-30T22:00:00.000000Z",
            )  # fmt: skip

    def turn(self, *, anew: bool = True, **more: bool) -> None:
        with self.store.write() as tx:
            deeds = self.schedules.turn(tx, anew=anew, **more)
        for deed in deeds:
            deed()

    def at(self, when: str) -> None:
        """The clock on the wall shows that, whether or not time has passed."""
        self.clock._start_s += seconds(when) - self.clock.now_s()

    def end(self, run_id: int, code: int | None = 0, text: str = "") -> None:
        self.caller.ends.append(Ended(run_id, code, text))
        self.turn(anew=False)

    def runs(self) -> list[Any]:
        with self.store.read() as tx:
            found = rows.with_runs(tx, 1, 100)
            return [] if found is None else found[1]

    def next_at(self) -> str | None:
        with self.store.read() as tx:
            return rows.soonest(tx).next_at


@pytest.fixture
def evening(tmp_path: Path) -> Iterator[Evening]:
    made = Evening(tmp_path)
    with closing(made.store):
        yield made


def test_a_call_is_made_when_it_is_due_and_not_before(evening: Evening) -> None:
    evening.add()
    evening.turn()
    assert evening.caller.made == [] and evening.schedules.any
    assert evening.schedules.due_in_s() == [10 * 3600.0]
    evening.at("2026-11-30T22:00:00.5Z")
    evening.turn(anew=False)
    (due,) = evening.caller.made
    assert due.argv == ("validate", "--all") and due.environment == {"HOME": "/h"} and due.left_s == 3600.0
    assert evening.next_at() == "2026-12-01T22:00:00.000000Z"
    evening.turn()
    assert len(evening.caller.made) == 1


def test_missed_times_make_one_late_run(evening: Evening) -> None:
    evening.add("0 * * * *", next_at="2026-11-30T13:00:00.000000Z")
    evening.at("2026-12-02T09:30:00Z")
    evening.turn()
    assert len(evening.caller.made) == 1
    evening.end(1)
    evening.turn()
    assert len(evening.caller.made) == 1
    (run,) = evening.runs()
    assert run.due_at == "2026-11-30T13:00:00.000000Z" and run.began_at == "2026-12-02T09:30:00.000000Z"
    assert evening.next_at() == "2026-12-02T10:00:00.000000Z"


def test_two_that_are_due_at_once_run_one_after_the_other(evening: Evening) -> None:
    evening.add("0 22 * * *", "validate"), evening.add("0 22 * * *", "report")
    evening.at("2026-11-30T22:00:01Z")
    evening.turn(), evening.turn()
    assert [due.argv for due in evening.caller.made] == [("validate",)]
    evening.end(1, 1, "2 failed")
    assert [due.argv for due in evening.caller.made] == [("validate",), ("report",)]
    assert (evening.runs()[0].exit_code, evening.runs()[0].text) == (1, "2 failed")


def test_a_call_that_takes_longer_than_its_interval_is_made_up_once(evening: Evening) -> None:
    evening.add("* * * * *", next_at="2026-11-30T12:01:00.000000Z")
    evening.at("2026-11-30T12:01:00Z")
    evening.turn()
    evening.at("2026-11-30T12:31:30Z")
    evening.turn()
    assert len(evening.caller.made) == 1 and evening.schedules.due_in_s() == []
    evening.end(1)
    assert len(evening.caller.made) == 2
    assert evening.next_at() == "2026-11-30T12:32:00.000000Z"


def test_a_clock_that_is_turned_back_makes_nothing_due_twice(evening: Evening) -> None:
    evening.add()
    evening.at("2026-11-30T22:00:01Z")
    evening.turn(), evening.end(1)
    evening.at("2026-11-30T20:00:00Z")
    evening.turn()
    for hour in (21, 22, 23):
        evening.at(f"2026-11-30T{hour}:30:00Z")
        evening.turn()
    assert len(evening.caller.made) == 1
    assert evening.next_at() == "2026-12-01T22:00:00.000000Z"


def test_a_clock_that_leapt_ahead_and_came_back_leaves_no_evening_out(evening: Evening) -> None:
    evening.add()
    evening.turn()
    evening.at("2031-01-01T00:00:00Z")
    evening.turn(), evening.end(1)
    assert evening.next_at() == "2031-01-01T22:00:00.000000Z"
    evening.at("2026-11-30T12:05:00Z")
    evening.turn()
    assert evening.next_at() == "2026-12-01T22:00:00.000000Z", "that of this evening was made, early"


def test_an_evening_that_a_clock_a_year_ahead_made_binds_nobody_once_the_clock_is_right(evening: Evening) -> None:
    evening.at("2027-12-01T21:59:50Z")
    evening.add()
    evening.at("2027-12-01T22:00:01Z")
    evening.turn(), evening.end(1)
    evening.at("2026-12-01T22:05:00Z")
    evening.turn()
    assert evening.next_at() == "2026-12-02T22:00:00.000000Z"


def test_a_crash_between_mark_and_start_runs_nothing_twice(evening: Evening) -> None:
    evening.add()
    evening.at("2026-11-30T22:00:01Z")
    with evening.store.write() as tx:
        evening.schedules.turn(tx, anew=True)  # committed, and then the scheduler is gone
    evening.up()
    evening.at("2026-11-30T22:10:01Z")
    evening.turn()
    assert evening.caller.made == [] and evening.caller.attended == [(1, 3000.0)]
    evening.turn()
    assert len(evening.caller.attended) == 1
    evening.end(1, None, "cut off: its process was gone")
    assert evening.caller.made == [] and evening.runs()[0].text == "cut off: its process was gone"


def not_started(evening: Evening, run_id: int) -> None:
    evening.caller.ends.append(Ended(run_id, None, "it was not started: the folder /share: gone", started=False))
    evening.turn(anew=False)


def test_a_call_that_was_never_started_is_made_up_a_little_later_and_once(evening: Evening) -> None:
    evening.add()
    evening.at("2026-11-30T22:00:00Z")
    evening.turn(), not_started(evening, 1)
    assert len(evening.caller.made) == 1 and evening.caller.forgotten == [1]
    assert evening.next_at() == "2026-11-30T22:01:00.000000Z"
    evening.at("2026-11-30T22:01:00Z")
    evening.turn(anew=False), not_started(evening, 2)
    assert len(evening.caller.made) == 2 and evening.next_at() == "2026-11-30T22:03:00.000000Z"
    evening.at("2026-11-30T22:03:00Z")
    evening.turn(anew=False), evening.end(3)
    assert [due.run_id for due in evening.caller.made] == [1, 2, 3]
    assert evening.next_at() == "2026-12-01T22:00:00.000000Z" and evening.runs()[0].exit_code == 0


def test_what_never_starts_is_tried_for_a_day_and_then_at_its_times_alone(evening: Evening) -> None:
    evening.add()
    evening.at("2026-11-30T22:00:00Z")
    evening.turn()
    tries = 0
    while evening.clock.now_s() < seconds("2026-12-05T22:30:00Z"):
        tries += 1
        not_started(evening, tries)
        at = evening.next_at()
        assert at is not None
        evening.at(at)
        evening.turn(anew=False)
    assert 30 <= tries <= 40


def test_a_call_that_takes_the_next_time_is_not_made_up_beyond_it(evening: Evening) -> None:
    evening.add("* * * * *", next_at="2026-11-30T12:01:00.000000Z")
    evening.at("2026-11-30T12:01:30Z")
    evening.turn(), not_started(evening, 1)
    assert evening.next_at() == "2026-11-30T12:02:00.000000Z"


def test_a_removed_schedule_that_was_not_started_is_not_made_up(evening: Evening) -> None:
    evening.add()
    evening.at("2026-11-30T22:00:00Z")
    evening.turn()
    with evening.store.write() as tx:
        rows.remove(tx, 1, stamp(evening.clock.now_s()))
    not_started(evening, 1)
    evening.at("2026-11-30T23:00:00Z")
    evening.turn()
    assert len(evening.caller.made) == 1 and evening.next_at() is None


def test_a_turn_that_is_rolled_back_loses_no_end(evening: Evening) -> None:
    class Full(Exception):
        pass

    @contextmanager
    def full() -> Iterator[Any]:
        with pytest.raises(Full), evening.store.write() as tx:
            yield tx
            raise Full

    evening.add()
    evening.at("2026-11-30T22:00:01Z")
    with full() as tx:
        evening.schedules.turn(tx, anew=True)
    evening.schedules.doubt()
    evening.turn()
    assert len(evening.caller.made) == 1
    evening.caller.ends.append(Ended(1, 0, ""))
    with full() as tx:
        evening.schedules.turn(tx, anew=False)
    evening.schedules.doubt()
    evening.turn()
    assert evening.runs()[0].exit_code == 0 and evening.caller.attended == []


def test_a_scheduler_that_is_about_to_go_begins_nothing(evening: Evening) -> None:
    evening.add()
    evening.at("2026-11-30T22:00:01Z")
    evening.turn(starts=False)
    assert evening.caller.made == [] and evening.runs() == []


def test_a_zone_that_is_gone_stops_its_schedule_and_no_other(
    evening: Evening, caplog: pytest.LogCaptureFixture
) -> None:
    evening.add("0 22 * * *", "validate", zone="Mars/Olympus"), evening.add("0 22 * * *", "report")
    evening.at("2026-11-30T22:00:01Z")
    evening.turn(), evening.end(1)
    assert [due.argv for due in evening.caller.made] == [("validate",), ("report",)]
    assert "schedule 1 is not due any more" in caplog.text


def test_without_schedules_nothing_is_loaded_and_nobody_stays(evening: Evening) -> None:
    import sys

    loaded = set(sys.modules)
    evening.turn()
    assert not evening.schedules.any and evening.schedules.due_in_s() == []
    assert not {name for name in set(sys.modules) - loaded if name.startswith("apscheduler")}


def test_a_removed_schedule_is_due_no_more_and_one_that_is_hastened_at_once(evening: Evening) -> None:
    evening.add(), evening.add("0 23 * * *", "report")
    with evening.store.write() as tx:
        assert rows.remove(tx, 1, stamp(evening.clock.now_s())) and not rows.remove(tx, 1, stamp(0.0))
        assert rows.hasten(tx, 2, stamp(evening.clock.now_s())) and not rows.hasten(tx, 1, stamp(0.0))
    evening.turn()
    assert [due.argv for due in evening.caller.made] == [("report",)]
    assert evening.next_at() == "2026-11-30T23:00:00.000000Z"


def test_so_many_runs_are_remembered_and_no_more(evening: Evening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KEPT_RUNS", 3)
    evening.add()
    with evening.store.write() as tx:
        for day in range(1, 8):
            run_id = rows.begin(tx, 1, f"2026-11-0{day}T22:00:00.000000Z", stamp(0.0))
            assert run_id is not None
            rows.end(tx, run_id, stamp(0.0), 0, "")
        assert rows.begin(tx, 1, "2026-11-07T22:00:00.000000Z", stamp(0.0)) is None
    assert [run.due_at[8:10] for run in evening.runs()] == ["07", "06", "05"]
