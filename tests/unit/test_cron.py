"""When a cron line is due: in zones that turn their clocks, and in one that does not; and what is no line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.errors import UsageError
from scheduler.rules import cron


def due(text: str, zone: str, since: str, count: int) -> list[str]:
    """The next times of a line after a wall time of its zone, as the clocks there show them."""
    line, at, found = cron.read(text), datetime.fromisoformat(since).replace(tzinfo=ZoneInfo(zone)), []
    for _ in range(count):
        after = cron.next_after(line, ZoneInfo(zone), at)
        assert after is not None
        found.append(after.strftime("%m-%d %H:%M %z"))
        at = after
    return found


def test_a_line_is_due_at_its_wall_time_on_any_day() -> None:
    assert due("0 22 * * *", "Europe/Berlin", "2026-11-30T12:00", 2) == ["11-30 22:00 +0100", "12-01 22:00 +0100"]
    assert due("0 22 * * *", "UTC", "2026-11-30T22:00", 1) == ["12-01 22:00 +0000"]


@pytest.mark.parametrize(
    ("zone", "since", "line", "times"),
    [
        ("Europe/Berlin", "2027-03-27T12:00", "30 2 * * *", ["03-28 03:00 +0200", "03-29 02:30 +0200"]),
        ("America/New_York", "2027-03-13T12:00", "30 2 * * *", ["03-14 03:00 -0400", "03-15 02:30 -0400"]),
        ("Australia/Lord_Howe", "2027-10-02T12:00", "15 2 * * *", ["10-03 02:30 +1100", "10-04 02:15 +1100"]),
        ("UTC", "2027-03-27T12:00", "30 2 * * *", ["03-28 02:30 +0000", "03-29 02:30 +0000"]),
    ],
)
def test_a_time_that_the_clock_skips_is_made_up_right_after(zone: str, since: str, line: str, times: list[str]) -> None:
    assert due(line, zone, since, 2) == times


def test_two_times_of_one_skipped_hour_are_made_up_once() -> None:
    found = due("0,30 2 * * *", "Europe/Berlin", "2027-03-27T12:00", 3)
    assert found == ["03-28 03:00 +0200", "03-29 02:00 +0200", "03-29 02:30 +0200"]


@pytest.mark.parametrize(
    ("zone", "since", "line", "times"),
    [
        ("Europe/Berlin", "2027-10-30T12:00", "30 2 * * *", ["10-31 02:30 +0200", "11-01 02:30 +0100"]),
        ("America/New_York", "2027-11-06T12:00", "30 1 * * *", ["11-07 01:30 -0400", "11-08 01:30 -0500"]),
        ("Australia/Lord_Howe", "2027-04-03T12:00", "45 1 * * *", ["04-04 01:45 +1100", "04-05 01:45 +1030"]),
        ("UTC", "2027-10-30T12:00", "30 2 * * *", ["10-31 02:30 +0000", "11-01 02:30 +0000"]),
    ],
)
def test_a_time_that_comes_twice_is_due_at_its_first(zone: str, since: str, line: str, times: list[str]) -> None:
    assert due(line, zone, since, 2) == times


def test_an_hourly_line_goes_by_the_hours_that_pass() -> None:
    found = due("0 * * * *", "Europe/Berlin", "2027-10-31T01:30", 3)
    assert found == ["10-31 02:00 +0200", "10-31 02:00 +0100", "10-31 03:00 +0100"]
    assert due("0 * * * *", "Europe/Berlin", "2027-03-28T01:30", 2) == ["03-28 03:00 +0200", "03-28 04:00 +0200"]


@pytest.mark.parametrize(
    ("line", "since", "times"),
    [
        ("30 * * * *", "2026-03-29T01:00", ["03-29 01:30 +0100", "03-29 03:30 +0200", "03-29 04:30 +0200"]),
        ("15,45 * * * *", "2026-03-29T01:30", ["03-29 01:45 +0100", "03-29 03:15 +0200", "03-29 03:45 +0200"]),
        ("30 * 29 3 *", "2026-03-29T01:45", ["03-29 03:30 +0200", "03-29 04:30 +0200"]),
    ],
)
def test_an_hourly_line_makes_nothing_up_of_an_hour_that_is_skipped(line: str, since: str, times: list[str]) -> None:
    assert due(line, "Europe/Berlin", since, len(times)) == times


def test_a_day_that_a_zone_left_out_is_made_up_on_the_next() -> None:
    assert due("0 12 30 12 *", "Pacific/Apia", "2011-12-01T12:00", 1) == ["12-31 00:00 +1400"]


def test_weekdays_are_those_of_cron_and_either_of_day_and_weekday_is_enough() -> None:
    assert due("0 0 * * 0", "UTC", "2026-11-30T12:00", 1) == due("0 0 * * sun", "UTC", "2026-11-30T12:00", 1)
    assert due("0 0 * * 7", "UTC", "2026-11-30T12:00", 1) == ["12-06 00:00 +0000"]
    assert due("0 0 13 * fri", "UTC", "2026-11-30T12:00", 3)[1:] == ["12-11 00:00 +0000", "12-13 00:00 +0000"]
    assert due("@weekly", "UTC", "2026-11-30T12:00", 1) == ["12-06 00:00 +0000"]


def test_the_29_february_is_waited_for() -> None:
    after = cron.next_after(cron.read("0 0 29 2 *"), UTC, datetime(2096, 3, 1, tzinfo=UTC))
    assert after == datetime(2104, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0 22 31 2 *", "is never due: its day of month is 31, and Feb has at most 29 days"),
        ("0 0 31 apr,jun *", "of Apr, Jun none has more than 30 days"),
        ("60 * * * *", "minute '60': 60 is not from 0 to 59"),
        ("0 24 * * *", "hour '24': 24 is not from 0 to 23"),
        ("0 0 0 * *", "day of month '0': 0 is not from 1 to 31"),
        ("0 0 * 13 *", "month '13'"),
        ("0 0 * * 8", "weekday '8': 8 is not from 0 to 7"),
        ("0 0 * * monday", "weekday 'monday': it takes 0 to 7, sun to sat"),
        ("*/0 * * * *", "minute '*/0'"),
        ("5/10 * * * *", "a step needs a range: 5-59/10"),
        ("0 22-2 * * *", "it goes backwards; write 22-23,0-2"),
        ("0 0 * * fri-mon", "it goes backwards; write fri-sat,sun-mon"),
        ("1,,2 * * * *", "minute ''"),
        ("0 0 L * *", "day of month 'L'"),
        ("0", "has 1 field and needs 5"),
        ("", "has 0 fields and needs 5"),
        ("0 22 * * * validate", "has 6 fields and needs 5"),
        ("@nightly", "it is none of @hourly"),
        ("٣ * * * *", "minute '٣'"),
    ],
)
def test_a_line_that_cannot_be_is_refused_by_its_field_and_why(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        cron.read(text)
    assert told in str(refused.value)


def test_a_line_in_a_skipped_hour_is_named_with_its_day() -> None:
    now, zone = datetime(2026, 11, 30, tzinfo=UTC), ZoneInfo("Europe/Berlin")
    gap = cron.skipped(cron.read("30 2 * * *"), zone, now)
    assert gap == datetime(2027, 3, 28, 2, 30)
    assert cron.made_up(gap, zone).strftime("%H:%M %z") == "03:00 +0200"
    assert cron.skipped(cron.read("30 3 * * *"), zone, now) is None
    assert cron.skipped(cron.read("30 * * * *"), zone, now) is None
    assert cron.skipped(cron.read("30 2 * * *"), ZoneInfo("UTC"), now) is None


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")


@settings(max_examples=40, deadline=None)
@given(
    zone=st.sampled_from(ZONES), hour=st.integers(0, 3), minute=st.integers(0, 59),
    day=st.integers(0, 364), seconds=st.integers(0, 86399),
)  # fmt: skip
def test_a_daily_line_is_due_once_on_each_day_whatever_the_clocks_do(
    zone: str, hour: int, minute: int, day: int, seconds: int
) -> None:
    line, at = (
        cron.read(f"{minute} {hour} * * *"),
        datetime(2027, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=seconds),
    )
    before = at.astimezone(ZoneInfo(zone))
    for _ in range(3):
        after = cron.next_after(line, ZoneInfo(zone), at)
        assert after is not None and after > at
        if before is not None and at != before:
            assert (after.date() - before.date()).days == 1
        shown = (after.hour, after.minute)
        assert shown == (hour, minute) or cron.skipped(line, ZoneInfo(zone), at - timedelta(days=1), timedelta(days=3))
        at = before = after
