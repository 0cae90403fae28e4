"""The pools over time: a row a minute while something goes on, at larger changes sooner, and no row for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import asked, submitted

from scheduler.config import Paths
from scheduler.rules.sampling import EVERY_S, KEPT_S, SOONEST_S, figures_of, is_due
from scheduler.sampled import Sampled
from scheduler.store.engine import Store

NOW_S = 1_796_000_000.0


def facts(charged_gib: float = 0.0, **more: Any) -> dict[str, Any]:
    pool = {"id": "unified", "capacity_gib": 100.0, "reserve_gib": 4.0, "charged_gib": charged_gib, "live_gib": 90.0}
    return {"pools": [{**pool, **more}], "used_gib": {}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    found = Store(paths)
    yield found
    found.close()


def kept(store: Store) -> list[tuple[Any, ...]]:
    return asked(store.paths, "SELECT charged_gib FROM samples ORDER BY at")


def keep(store: Store, sampled: Sampled, at_s: float, charged_gib: float, *, busy: bool = True) -> None:
    with store.write() as tx:
        sampled.keep(tx, "h", facts(charged_gib), at_s, busy=busy)


def test_what_workers_use_is_summed_by_pool_and_what_nobody_could_read_is_not_zero() -> None:
    two = {"1": {"unified": 3.0}, "2": {"unified": 4.5, "host": 1.0}}
    assert figures_of({**facts(28.0), "used_gib": two})[0]["used_gib"] == 7.5
    assert figures_of({**facts(28.0), "used_gib": {"1": {}}})[0]["used_gib"] is None
    assert figures_of(facts())[0]["used_gib"] == 0


def test_a_pool_that_could_not_be_read_has_no_row() -> None:
    assert figures_of(facts(capacity_gib=None)) == []


@pytest.mark.parametrize(
    ("charged_gib", "since_s", "due"),
    [
        (0.0, EVERY_S, True),
        (0.0, EVERY_S - 1, False),
        (28.0, SOONEST_S, True),
        (28.0, SOONEST_S - 1, False),
        (0.01, EVERY_S - 1, False),
        (0.1, EVERY_S - 1, True),
    ],
)
def test_a_row_is_due_each_minute_and_at_a_larger_change_sooner(charged_gib: float, since_s: float, due: bool) -> None:
    assert is_due(figures_of(facts()), figures_of(facts(charged_gib)), since_s) is due


def test_a_pool_that_comes_or_a_figure_that_goes_is_a_change() -> None:
    assert is_due([], figures_of(facts()), SOONEST_S)
    assert is_due(figures_of(facts()), figures_of(facts(live_gib=None)), SOONEST_S)


def test_nothing_is_kept_of_an_idle_queue_but_the_row_that_ends_a_night(store: Store) -> None:
    sampled = Sampled()
    keep(store, sampled, NOW_S, 0.0, busy=False)
    assert kept(store) == []
    keep(store, sampled, NOW_S + 5, 28.0)
    assert sampled.ends(False)
    keep(store, sampled, NOW_S + 6, 0.0, busy=False)
    assert not sampled.ends(False)
    keep(store, sampled, NOW_S + 600, 0.0, busy=False)
    assert kept(store) == [(28.0,), (0.0,)]


def test_what_is_left_may_flicker_without_a_row() -> None:
    assert not is_due(figures_of(facts()), figures_of(facts(live_gib=88.5)), EVERY_S - 1)
    assert is_due(figures_of(facts()), figures_of(facts(live_gib=87.5)), EVERY_S - 1)


def test_a_night_of_constant_change_is_bounded_to_a_row_every_five_seconds(store: Store) -> None:
    sampled = Sampled()
    for second in range(120):
        keep(store, sampled, NOW_S + second, 28.0 * (second % 2))
    assert len(kept(store)) <= 24


def test_rows_older_than_thirty_days_go(store: Store) -> None:
    keep(store, Sampled(), NOW_S, 1.0)
    keep(store, Sampled(), NOW_S + KEPT_S + 1, 2.0)
    assert kept(store) == [(2.0,)]


def test_after_a_transaction_that_may_be_undone_the_row_is_written_again(store: Store) -> None:
    sampled = Sampled()
    keep(store, sampled, NOW_S, 28.0)
    sampled.doubt()
    keep(store, sampled, NOW_S + 1, 28.0)
    assert len(kept(store)) == 2


def test_a_clock_that_was_set_back_stops_no_record(store: Store) -> None:
    sampled = Sampled()
    keep(store, sampled, NOW_S, 28.0)
    keep(store, sampled, NOW_S - 7200, 28.0)
    assert len(kept(store)) == 2
