"""`--since`: a time ago, a time of day, or a date, as people write them; one parser, one refusal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scheduler.cli import moments
from scheduler.clock import seconds
from scheduler.errors import UsageError

NOW = "2026-11-30T12:25:00.000000Z"
NOW_S = seconds(NOW)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Tests that set a zone of this machine's leave none behind."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def at_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


@pytest.mark.parametrize(
    ("word", "moment"),
    [
        ("12h", "2026-11-30T00:25:00"),
        ("1h30m", "2026-11-30T10:55:00"),
        ("20:00", "2026-11-29T20:00:00"),
        ("9:05", "2026-11-30T09:05:00"),
        ("12:25", "2026-11-30T12:25:00"),
        ("12:25:01", "2026-11-29T12:25:01"),
        ("00:00", "2026-11-30T00:00:00"),
        ("2026-11-29", "2026-11-29T00:00:00"),
        ("2026-11-29T20:00", "2026-11-29T20:00:00"),
        ("2026-11-29 20:00:30", "2026-11-29T20:00:30"),
        ("2026-11-29T20:00z", "2026-11-29T20:00:00"),
        ("2026-11-29T20:00+02:00", "2026-11-29T18:00:00"),
        ("1969-07-20", "1970-01-01T00:00:00"),
    ],
)
def test_a_moment_is_a_time_ago_a_time_of_day_or_a_date(word: str, moment: str, zone: pytest.MonkeyPatch) -> None:
    at_zone(zone, "UTC")
    assert moments.since(word, at_s=NOW_S) == f"{moment}.000000Z"


def test_a_time_of_day_is_this_machines_own(zone: pytest.MonkeyPatch) -> None:
    at_zone(zone, "America/New_York")
    assert moments.since("20:00", at_s=NOW_S) == "2026-11-30T01:00:00.000000Z"
    assert moments.since("2026-11-29T20:00", at_s=NOW_S) == "2026-11-30T01:00:00.000000Z"
    assert moments.since("2026-11-29T20:00Z", at_s=NOW_S) == "2026-11-29T20:00:00.000000Z"


def test_the_last_evening_is_found_across_the_end_of_summer_time(zone: pytest.MonkeyPatch) -> None:
    at_zone(zone, "Europe/Berlin")
    morning_s = seconds("2026-10-25T07:00:00Z")
    assert moments.since("20:00", at_s=morning_s) == "2026-10-24T18:00:00.000000Z"


@pytest.mark.parametrize(
    ("at", "moment"),
    [
        ("2026-10-25T01:45:00Z", "2026-10-25T01:30:00"),
        ("2026-10-25T01:15:00Z", "2026-10-25T00:30:00"),
        ("2026-10-25T00:45:00Z", "2026-10-25T00:30:00"),
        ("2026-10-25T00:15:00Z", "2026-10-24T00:30:00"),
    ],
)
def test_of_a_time_that_comes_twice_the_last_one_is_meant(zone: pytest.MonkeyPatch, at: str, moment: str) -> None:
    at_zone(zone, "Europe/Berlin")
    assert moments.since("02:30", at_s=seconds(at)) == f"{moment}.000000Z"


@pytest.mark.parametrize(
    "word", ["abc", "", " ", "20", "20.5", "25:00", "1h 5", "20:00Z", "tomorrow", "2026-13-01", "0001-01-01", "x" * 90]
)
def test_what_is_no_moment_is_refused_with_what_is_one(word: str) -> None:
    with pytest.raises(UsageError, match=r"--since .* is no moment; it takes a duration like 12h .* 20:00") as refused:
        moments.since(word, at_s=NOW_S)
    assert len(str(refused.value)) < 250


def test_what_lies_ahead_or_out_of_bounds_is_refused() -> None:
    with pytest.raises(UsageError, match="--since '2027-01-01' lies ahead"):
        moments.since("2027-01-01", at_s=NOW_S)
    with pytest.raises(UsageError, match="out of bounds"):
        moments.since("99999999d", at_s=NOW_S)
    assert moments.since("2026-11-30T12:25:00Z", at_s=NOW_S) == NOW
