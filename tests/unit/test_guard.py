"""What the guard decides over one sample: who pays while memory runs out, and who never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import Held
from scheduler.rules.guard import (
    BACK_S,
    OVER_BUDGET,
    SHARE,
    Close,
    Level,
    Retire,
    Stop,
    Watched,
    guard,
    is_over,
    needed_gib,
)
from scheduler.rules.room import SLACK_GIB


def watched(
    id: int = 1, state: str = "busy", charge: float | None = 10.0, used: float | None = 5.0, **over: Any
) -> Any:
    return Watched(id, f"w{id}", state, charge, used, **over)


def level(left: float | None, *those: Watched, **over: Any) -> Level:
    return Level("host", left, over.pop("reserve", 4.0), watched=those, **over)


def ends(found: list[Any]) -> list[tuple[str, int, str]]:
    """(what, worker, outcome) of each action that ends a worker."""
    return [
        (type(each).__name__, each.worker_id, getattr(each, "outcome", ""))
        for each in found
        if isinstance(each, Retire | Stop)
    ]


def test_nothing_is_done_while_the_reserve_is_far() -> None:
    assert guard(level(8.0, watched(used=20.0), watched(2, "starting", gained_gib=3.9), watched(3, "idle"))) == []


def test_what_cannot_be_read_stops_nobody() -> None:
    assert guard(level(None, watched(used=20.0))) == []


def test_a_worker_above_its_charge_and_a_twentieth_is_stopped_below_two_reserves_starting_or_busy() -> None:
    for state in ("starting", "busy"):
        assert guard(level(7.99, watched(1, state, used=10.5))) == []
        assert ends(guard(level(7.99, watched(1, state, used=10.51)))) == [("Stop", 1, OVER_BUDGET)]


def test_one_that_is_charged_nearly_all_of_a_pool_is_stopped_before_the_reserve_is_gone() -> None:
    """5 % of 116.5 GiB are more than the 4 GiB that stay reserved of 121: without torch nothing else binds it."""
    for state in ("starting", "busy"):
        whole = watched(1, state, charge=116.5, used=120.9)
        assert ends(guard(level(0.1, whole))) == [("Stop", 1, OVER_BUDGET)]
        most = watched(1, state, charge=90.0, used=94.0)
        assert ends(guard(level(2.0, most))) == [("Stop", 1, OVER_BUDGET)]
        assert guard(level(4.1, most)) == [], "the reserve is whole: allocators keep a little"
    growing = watched(1, "busy", charge=116.5, used=116.6)
    assert ends(guard(level(4.4, growing, lost_gib=0.5))) == [("Stop", 1, OVER_BUDGET)], "a window later it is not"


def test_a_busy_worker_at_its_charge_is_left_alone_also_when_the_rest_of_the_reserve_is_others() -> None:
    for used in (116.5, 116.5 + SLACK_GIB):
        [close] = guard(level(0.5, watched(1, "busy", charge=116.5, used=used)))
        assert isinstance(close, Close) and "left alone" in close.text


def test_an_offender_by_a_hair_is_told_with_figures_that_differ() -> None:
    [stop] = [each for each in guard(level(1.0, watched(charge=116.5, used=116.5004))) if isinstance(each, Stop)]
    assert "it held 116.5004 GiB of host and it is charged 116.5 GiB there" in stop.text


def test_one_a_little_above_its_charge_is_spared_while_others_make_the_room() -> None:
    little, idle = watched(1, used=10.2), watched(2, "idle", used=3.0)
    assert ends(guard(level(4.5, little, idle, lost_gib=1.0))) == [("Retire", 2, "")]
    assert ends(guard(level(4.5, little, replace(idle, leaving_s=0.5), lost_gib=1.0))) == []
    assert ends(guard(level(3.9, little, idle))) == [("Retire", 2, ""), ("Stop", 1, OVER_BUDGET)]
    far = watched(3, used=14.0)
    assert ends(guard(level(3.0, little, far))) == [("Stop", 3, OVER_BUDGET)], "who is far above it gives what lacks"
    both = (little, watched(4, used=10.4))
    assert ends(guard(level(3.9, *both))) == [("Stop", 4, OVER_BUDGET)], "and no more of them than the reserve lacks"


def test_an_offender_is_told_what_it_held_what_it_is_charged_and_what_was_left() -> None:
    [stop] = [each for each in guard(level(6.0, watched(used=12.0))) if isinstance(each, Stop)]
    assert stop.text == (
        "it held 12 GiB of host and it is charged 10 GiB there, while 6 GiB were left and 4 stay reserved"
    )


def test_of_several_offenders_the_starting_one_pays_first_and_no_more_than_two_reserves_need() -> None:
    those = (watched(1, "busy", used=14.0), watched(2, "starting", used=11.0), watched(3, "busy", used=13.0))
    assert ends(guard(level(5.0, *those))) == [("Stop", 2, OVER_BUDGET)]
    small = [replace(each, used_gib=1.1, charge_gib=1.0) for each in those]
    assert [worker for _, worker, _ in ends(guard(level(5.0, *small)))] == [2, 1, 3]


def test_an_idle_worker_above_its_charge_is_retired_below_two_reserves() -> None:
    assert ends(guard(level(7.0, watched(1, "idle", used=11.0)))) == [("Retire", 1, "")]


def test_idle_workers_are_retired_as_the_reserve_comes_near_the_longest_idle_first_and_no_more_than_suffice() -> None:
    idle = (watched(1, "idle", used=3.0, idle_s=5.0), watched(2, "idle", used=3.0, idle_s=50.0))
    assert guard(level(4.5, *idle)) == []
    near = guard(level(4.5, *idle, watched(3, used=9.0), lost_gib=1.0))
    assert ends(near) == [("Retire", 2, "")]
    assert ends(guard(level(0.5, *idle))) == [("Retire", 2, ""), ("Retire", 1, "")]


def test_a_start_is_given_up_when_what_is_left_less_what_it_gained_is_below_the_reserve() -> None:
    assert guard(level(5.0, watched(1, "starting", gained_gib=1.0))) == []
    assert ends(guard(level(5.0, watched(1, "starting", gained_gib=1.01)))) == [("Stop", 1, "")]


def test_a_start_that_would_be_above_its_charge_a_moment_later_was_given_too_little() -> None:
    start = watched(1, "starting", charge=10.0, used=9.5, gained_gib=0.6)
    [stop] = [each for each in guard(level(4.5, start)) if isinstance(each, Stop)]
    assert stop.outcome == OVER_BUDGET and stop.text.endswith("it held 9.5 GiB, and is charged 10")
    assert ends(guard(level(4.5, replace(start, used_gib=9.4)))) == [("Stop", 1, "")]


def test_a_start_goes_on_while_idle_workers_make_the_room_and_the_reserve_is_whole() -> None:
    start, idle = watched(1, "starting", gained_gib=1.5), watched(2, "idle", used=3.0)
    assert ends(guard(level(5.0, start, idle, lost_gib=1.5))) == [("Retire", 2, "")]
    assert ends(guard(level(5.0, start, replace(idle, leaving_s=0.5), lost_gib=1.5))) == []
    assert ends(guard(level(5.0, start, replace(idle, leaving_s=BACK_S), lost_gib=1.5))) == [("Stop", 1, "")]
    assert ends(guard(level(3.9, start, idle, lost_gib=1.5))) == [("Retire", 2, ""), ("Stop", 1, "")]


def test_of_two_starts_the_one_that_gains_most_is_given_up_when_that_suffices() -> None:
    two = (watched(1, "starting", used=3.0, gained_gib=1.0), watched(2, "starting", used=5.0, gained_gib=2.0))
    assert ends(guard(level(6.5, *two))) == [("Stop", 2, "")]


def test_busy_workers_inside_their_charge_and_strangers_are_left_alone_and_it_is_said_whose_memory_it_is() -> None:
    here = level(
        3.0, watched(1, used=9.0), watched(2, used=None), others=(Held("train.py (pid 7, bob)", None, 30.0, 0.0),)
    )
    [close] = guard(here)
    assert isinstance(close, Close) and close.pool == "host"
    assert close.text == (
        "host has 3 GiB left and 4 stay reserved; it is held by train.py (pid 7, bob) 30 GiB, w1 (worker 1, busy) 9 "
        "GiB of 10 charged, w2 (worker 2, busy) its use is not told: workers inside their charge and processes that "
        "schedq did not start are left alone, and nothing more is admitted there until it is given back"
    )


def test_a_worker_of_which_nobody_said_what_it_costs_is_judged_by_the_reserve_itself() -> None:
    for charge in (None, 0.0):
        free = watched(charge=charge, used=4.5)
        assert not is_over(free, level(4.5, free)) and is_over(free, level(3.9, free))
        assert not is_over(replace(free, used_gib=3.5), level(3.9))


def test_a_worker_that_was_told_to_stop_is_not_told_again() -> None:
    assert ends(guard(level(1.0, watched(used=20.0, leaving_s=0.1)))) == []


def test_a_reserve_has_to_exceed_the_rate_times_the_period_and_the_exit() -> None:
    assert needed_gib(2.0, 0.1, 0.4) == 1.0


GIBS = st.floats(0.0, 64.0)
ANY = st.builds(
    Watched,
    st.integers(1, 9), st.just("w"), st.sampled_from(["starting", "busy", "idle"]), st.none() | GIBS,
    st.none() | GIBS, st.floats(-4.0, 8.0), st.floats(0.0, 900.0), st.none() | st.floats(0.0, 5.0),
)  # fmt: skip
AROUND = st.builds(
    lambda worker, share: replace(worker, used_gib=(worker.charge_gib or 1.0) * share), ANY, st.floats(0.95, 1.1)
)
WORKERS = st.lists(ANY | AROUND, max_size=6, unique_by=lambda worker: worker.worker_id)
LEVELS = st.builds(
    Level, st.just("host"), st.none() | GIBS | st.floats(0.0, 8.0), st.floats(0.0, 8.0), st.floats(0.0, 8.0),
    WORKERS.map(tuple),
    st.lists(st.builds(Held, st.just("stranger"), st.none(), GIBS, st.just(0.0)), max_size=3).map(tuple),
)  # fmt: skip


def _plainly_over(worker: Watched) -> bool:
    return bool(worker.charge_gib) and (worker.used_gib or 0.0) > (worker.charge_gib or 0.0) * (1 + SHARE)


@given(LEVELS)
def test_nobody_is_stopped_whom_the_rules_protect(here: Level) -> None:
    found, by_id = guard(here), {worker.worker_id: worker for worker in here.watched}
    ended = [each for each in found if isinstance(each, Retire | Stop)]
    assert len({each.worker_id for each in ended}) == len(ended)
    for each in ended:
        worker = by_id[each.worker_id]
        assert worker.leaving_s is None and here.left_gib is not None
        if isinstance(each, Retire):
            assert worker.state == "idle"
        else:
            assert worker.state in ("starting", "busy")
        if worker.state == "busy":
            assert worker.used_gib and here.left_gib < 2 * here.reserve_gib
            assert not worker.charge_gib or worker.holds_gib > worker.charge_gib
            assert not worker.charge_gib or _plainly_over(worker) or here.near
            assert isinstance(each, Stop) and each.outcome == OVER_BUDGET


@given(LEVELS)
def test_an_offender_pays_whenever_less_than_two_reserves_are_left(here: Level) -> None:
    offenders = {w.worker_id for w in here.watched if _plainly_over(w) and w.leaving_s is None}
    ended = {each.worker_id for each in guard(here) if isinstance(each, Retire | Stop)}
    if here.left_gib is not None and here.left_gib < 2 * here.reserve_gib and offenders:
        assert ended & offenders


@given(LEVELS)
def test_below_the_reserve_nobody_above_its_charge_goes_on_without_room_to_come(here: Level) -> None:
    found = guard(here)
    if here.left_gib is None or here.left_gib >= here.reserve_gib:
        return
    ended = {each.worker_id for each in found if isinstance(each, Retire | Stop)}
    leaving = {w.worker_id for w in here.watched if w.leaving_s is not None and w.leaving_s < BACK_S}
    back_gib = sum(w.holds_gib for w in here.watched if w.worker_id in ended | leaving)
    for w in here.watched:
        above = bool(w.charge_gib) and w.holds_gib > (w.charge_gib or 0.0) + SLACK_GIB
        if above and w.leaving_s is None and w.worker_id not in ended:
            assert here.left_gib - max(0.0, here.lost_gib) + back_gib >= here.reserve_gib - 1e-9


@given(LEVELS)
def test_with_the_reserve_touched_nothing_is_admitted_and_no_start_goes_on_without_room_to_come(
    here: Level,
) -> None:
    found = guard(here)
    if here.left_gib is None or here.left_gib >= here.reserve_gib:
        return
    assert any(isinstance(each, Close) for each in found)
    ended = {each.worker_id for each in found if isinstance(each, Retire | Stop)}
    going_on = [w for w in here.watched if w.state == "starting" and w.leaving_s is None and w.worker_id not in ended]
    if going_on:
        leaving = {w.worker_id for w in here.watched if w.leaving_s is not None and w.leaving_s < BACK_S}
        back = sum(w.holds_gib for w in here.watched if w.worker_id in ended | leaving)
        assert back > 0


@given(LEVELS, st.floats(0.0, 4.0))
def test_less_left_never_spares_an_offender(here: Level, less: float) -> None:
    if here.left_gib is None or here.left_gib < less:
        return
    lower = replace(here, left_gib=here.left_gib - less)
    assert all(is_over(w, lower) for w in here.watched if is_over(w, here))
