"""When a job may begin: times of day, durations, dates, and what a clock that is put forward or back makes of them."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from scheduler import given
from scheduler.begin import begins_at
from scheduler.clock import stamp
from scheduler.errors import UsageError


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(year: int, month: int, day: int, hour: int = 12, minute: int = 0) -> float:
    """A moment in UTC."""
    return float(calendar.timegm((year, month, day, hour, minute, 0)))


NOON = at(2026, 11, 29)


@pytest.mark.parametrize(
    ("word", "begins"),
    [
        ("22:00", "2026-11-29T21:00"),
        ("7:30", "2026-11-30T06:30"),
        ("13:00", "2026-11-30T12:00"),
        ("2h", "2026-11-29T14:00"),
        ("1h30m", "2026-11-29T13:30"),
        ("2026-12-24T20:00", "2026-12-24T19:00"),
        ("2026-12-24 20:00", "2026-12-24T19:00"),
        ("2026-12-24", "2026-12-23T23:00"),
        ("2026-12-24T20:00Z", "2026-12-24T20:00"),
        ("2026-12-24T20:00-05:00", "2026-12-25T01:00"),
    ],
)
def test_a_moment_is_the_next_one_that_people_mean(word: str, begins: str) -> None:
    assert begins_at(word, at_s=NOON) == f"{begins}:00.000000Z"


def test_now_is_at_once() -> None:
    assert begins_at("now", at_s=NOON) is None
    assert begins_at("0s", at_s=NOON) is None


@pytest.mark.parametrize("word", ["", "x", "25:00", "22", "22:00:99", "tonight", "90", "2026-13-01", "22:00+01:00"])
def test_what_is_no_moment_is_refused_with_what_is(word: str) -> None:
    with pytest.raises(UsageError, match=r"is no moment; it takes a time of day like 22:00"):
        begins_at(word, at_s=NOON)


def test_a_moment_that_is_past_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--begin '2026-11-29T12:59' is past"):
        begins_at("2026-11-29T12:59", at_s=NOON)
    with pytest.raises(UsageError, match="out of bounds"):
        begins_at("2200-01-01", at_s=NOON)


def test_an_hour_that_the_clock_skips_is_refused_and_the_one_that_it_shows_is_named() -> None:
    with pytest.raises(UsageError, match=r"02:30 does not exist on 2027-03-28 here.*write 03:30"):
        begins_at("2027-03-28T02:30", at_s=NOON)
    with pytest.raises(UsageError, match="02:30 does not exist on 2027-03-28"):
        begins_at("02:30", at_s=at(2027, 3, 27))
    assert begins_at("02:30", at_s=at(2027, 3, 26)) == "2027-03-27T01:30:00.000000Z"
    assert begins_at("2027-03-28T02:30Z", at_s=NOON) == "2027-03-28T02:30:00.000000Z"


def test_of_an_hour_that_comes_twice_the_first_to_come_counts() -> None:
    assert begins_at("2027-10-31T02:30", at_s=NOON) == "2027-10-31T00:30:00.000000Z"
    between = at(2027, 10, 31, 1, 0)
    assert begins_at("02:30", at_s=between) == "2027-10-31T01:30:00.000000Z"
    assert begins_at("2027-10-31T02:30", at_s=between) == "2027-10-31T01:30:00.000000Z"


def test_a_program_gives_a_moment_with_its_zone() -> None:
    soon = datetime.now(timezone(timedelta(hours=5))) + timedelta(hours=1)
    assert given.begin(soon) == stamp(soon.timestamp())
    assert given.begin(None) is None
    for wrong in (soon.replace(tzinfo=None), 5, soon.date()):
        with pytest.raises(UsageError, match="a datetime with its zone"):
            given.begin(wrong)
