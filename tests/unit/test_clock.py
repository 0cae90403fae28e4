"""Stamps go out and come back as the same instant."""

from __future__ import annotations

import calendar
import random
import time

import pytest

from scheduler import clock


def test_a_stamp_comes_back_as_the_same_instant_on_any_day() -> None:
    dice = random.Random(7)
    instants = [0, 951_782_399, 951_782_400, 1_709_164_800, 4_102_444_800]
    instants += [dice.randrange(2**33) for _ in range(3000)]
    for at in instants:
        told = clock.stamp(float(at))
        assert clock.seconds(told) == at == calendar.timegm(time.strptime(told[:19], "%Y-%m-%dT%H:%M:%S"))


def test_microseconds_are_kept() -> None:
    assert clock.seconds("2026-11-29T21:04:05.123456Z") % 1 == pytest.approx(0.123456, abs=1e-6)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-29", "2026-13-01T00:00:00Z", "2026-11-29T25:00:00Z"])
def test_what_is_no_stamp_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        clock.seconds(text)
