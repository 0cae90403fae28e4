"""The one comparison."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import GIB as BYTES
from scheduler.rules.room import SLACK_GIB, fits

GIB = st.floats(0.0, 1e4, allow_nan=False)


def test_an_exact_fit_fits_where_a_plain_sum_would_refuse_it() -> None:
    parts = [0.1] * 3
    assert sum(parts) > 0.3
    assert fits(parts, 0.3)


def test_more_than_a_kibibyte_too_much_does_not_fit() -> None:
    assert fits([56.0], 56.0)
    assert not fits([56.0 + 2 * SLACK_GIB], 56.0)


def test_the_slack_is_one_kibibyte_and_may_be_used_up() -> None:
    kibibyte_gib = 1024 / BYTES
    assert fits([56.0 + kibibyte_gib], 56.0)
    assert not fits([56.0 + 1.5 * kibibyte_gib], 56.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_never_fits(bad: float) -> None:
    assert not fits([1.0, bad], 10.0)
    assert not fits([1.0], bad)


@given(st.lists(GIB, max_size=20), GIB)
def test_what_fits_is_never_more_than_a_kibibyte_too_much_and_what_is_refused_never_fitted(
    parts: list[float], room: float
) -> None:
    total = math.fsum(parts)
    assert total - room < 2 * SLACK_GIB if fits(parts, room) else total > room
