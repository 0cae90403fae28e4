"""When a queue should be done: groups beside one another where memory lets them, after one another where not."""

from __future__ import annotations

from typing import Any

from scheduler.rules.finish import Group, ends_s

A, B, C = ("a", ""), ("b", ""), ("c", "")


def group(key: tuple[str, str] = A, jobs: int = 10, run_s: float | None = 6.0, **over: Any) -> Group:
    return Group(key, jobs, run_s, **over)


def test_a_group_loads_once_and_runs_its_jobs_one_after_another_on_each_worker() -> None:
    assert ends_s([group(load_s=30.0)], {}) == {A: 90.0}
    assert ends_s([group(load_s=30.0, workers=3)], {}) == {A: 30.0 + 4 * 6.0}
    few = group(jobs=2, workers=8, gib={"device": 10.0})
    assert ends_s([few, group(B, gib={"device": 10.0})], {"device": 30.0}) == {A: 6.0, B: 60.0}


def test_groups_run_side_by_side_where_both_fit_and_in_turn_where_not() -> None:
    both = [group(gib={"unified": 28.0}), group(B, gib={"unified": 40.0})]
    assert ends_s(both, {"unified": 70.0}) == {A: 60.0, B: 60.0}
    assert ends_s(both, {"unified": 60.0}) == {A: 60.0, B: 120.0}
    assert ends_s(both, {"host": 1.0}) == {A: 60.0, B: 60.0}


def test_a_later_one_that_fits_goes_beside_an_earlier_one_that_does_not() -> None:
    three = [group(gib={"host": 8.0}), group(B, gib={"host": 8.0}), group(C, gib={"host": 2.0})]
    assert ends_s(three, {"host": 10.0}) == {A: 60.0, B: 120.0, C: 60.0}


def test_whose_room_is_free_first_goes_on_first() -> None:
    three = [group(gib={"host": 6.0}, jobs=20), group(B, gib={"host": 4.0}), group(C, gib={"host": 4.0})]
    assert ends_s(three, {"host": 10.0}) == {A: 120.0, B: 60.0, C: 120.0}


def test_one_that_needs_more_than_there_is_runs_alone() -> None:
    assert ends_s([group(gib={"host": 8.0}), group(B, gib={"host": 99.0})], {"host": 10.0}) == {A: 60.0, B: 120.0}


def test_higher_priority_goes_first_and_a_begin_is_waited_for() -> None:
    both = [group(gib={"host": 8.0}), group(B, gib={"host": 8.0}, priority=1)]
    assert ends_s(both, {"host": 10.0}) == {B: 60.0, A: 120.0}
    assert ends_s([group(begin_s=1000.0)], {}) == {A: 1060.0}
    assert ends_s([group(), group(begin_s=1000.0)], {}) == {A: 1060.0}


def test_of_what_nobody_saw_run_or_load_nothing_is_said() -> None:
    assert ends_s([group(run_s=None), group(B), group(C, jobs=0)], {}) == {B: 60.0}
    assert ends_s([group(load_s=None), group(B)], {}) == {B: 60.0}


def test_nor_of_what_has_to_wait_for_the_room_of_such_a_one() -> None:
    for unseen in (group(run_s=None, gib={"host": 8.0}), group(load_s=None, gib={"host": 8.0})):
        three = [unseen, group(B, gib={"host": 8.0}), group(C, gib={"host": 2.0})]
        assert ends_s(three, {"host": 10.0}) == {C: 60.0}
        later = [unseen, group(B), group(B, gib={"host": 8.0}, begin_s=5.0)]
        assert ends_s(later, {"host": 10.0}) == {}, "some of its jobs end, and the last of them nobody knows when"
    assert ends_s([], {}) == {}
