"""What would let a demand in: one example of each kind of change, then against every set there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from builders import claim, demand, holding, machine, pool, unified, worker
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.machine import GIB, Charge, Holding, Machine
from scheduler.model.plan import WorkerView
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim, Standing, decide
from scheduler.rules.remedy import KINDS, Change, remedy


def asked(
    what: Demand, here: Machine, claims: Sequence[Claim] = (), workers: Sequence[WorkerView] = ()
) -> tuple[Change, ...]:
    return remedy(decide(what, here, claims), here, claims, workers)


def idle(id: int, gib: float, *, pool_id: str = "unified", idle_s: float = 41.0, **over: object) -> WorkerView:
    return worker(id, gib=gib, charges={pool_id: gib}, idle_s=idle_s, **over)


def test_what_fits_needs_no_change() -> None:
    assert asked(demand(28.0), unified()) == ()


def test_one_large_idle_worker_is_less_than_two_small_ones() -> None:
    claims = [claim(1, unified=20.0), claim(2, unified=20.0), claim(3, unified=40.0)]
    (found,) = asked(demand(60.0, 0.0), unified(), claims, [idle(1, 20.0), idle(2, 20.0), idle(3, 40.0)])
    assert (found.what, found.worker_id, found.idle_s, dict(found.gib)) == ("retire", 3, 41.0, {"unified": 40.0})


def test_of_two_that_suffice_the_smaller_goes() -> None:
    claims = [claim(1, unified=50.0), claim(2, unified=40.0)]
    (found,) = asked(demand(60.0, 0.0), unified(), claims, [idle(1, 50.0), idle(2, 40.0)])
    assert found.worker_id == 2


def test_idle_ones_are_named_before_a_busy_one_however_many_they_are() -> None:
    claims = [claim(1, unified=20.0), claim(2, unified=20.0), claim(3, unified=40.0)]
    workers = [idle(1, 20.0), idle(2, 20.0), worker(3, state="busy", charges={"unified": 40.0}, job_id=9)]
    found = asked(demand(60.0, 0.0), unified(), claims, workers)
    assert [(each.what, each.worker_id) for each in found] == [("retire", 1), ("retire", 2)]


def test_a_busy_worker_is_waited_for_where_idle_ones_do_not_suffice() -> None:
    claims = [claim(1, unified=20.0), claim(3, unified=60.0)]
    workers = [idle(1, 20.0), worker(3, state="busy", charges={"unified": 60.0}, job_id=9)]
    (found,) = asked(demand(60.0, 0.0), unified(), claims, workers)
    assert (found.what, found.job_id) == ("wait", 9)


def test_memory_on_its_way_back_is_enough_where_it_suffices() -> None:
    claims = [claim(1, unified=60.0, gone=True), claim(2, unified=40.0)]
    (found,) = asked(demand(40.0, 0.0), unified(), claims, [idle(2, 40.0)])
    assert (found.what, found.worker_id) == ("return", 1)


def test_a_pinned_worker_and_a_leaked_charge_need_somebody() -> None:
    pinned = worker(1, charges={"unified": 100.0}, pinned=True)
    (found,) = asked(demand(60.0, 0.0), unified(), [claim(1, unified=100.0)], [pinned])
    assert found.what == "unpin"
    (found,) = asked(demand(60.0, 0.0), unified(), [replace(claim(1, unified=100.0, gone=True), stays=True)])
    assert found.what == "heal"


def test_a_process_of_others_is_named_last_and_one_of_unknown_budget_always() -> None:
    other = holding(Charge("unified", 100.0, 100.0, "device"), pid=77)
    (found,) = asked(demand(60.0, 0.0), unified(holdings=(other,)))
    assert (found.what, found.pid, found.known) == ("stop", 77, True)
    unknown = holding(Charge("unified", None, 1.0), pid=78)
    (found,) = asked(demand(60.0, 0.0), unified(holdings=(unknown,)))
    assert (found.pid, found.known) == (78, False)


def test_a_worker_on_two_devices_names_what_leaves_both() -> None:
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0))
    claims = [Claim(1, "w1", {"device:a": 60.0, "device:b": 60.0})]
    workers = [worker(1, charges={"device:a": 60.0, "device:b": 60.0}, idle_s=5.0)]
    (found,) = asked(demand(40.0, 0.0, count=2), here, claims, workers)
    assert dict(found.gib) == {"device:a": 60.0, "device:b": 60.0}
    apart = [Claim(1, "w1", {"device:a": 60.0}), Claim(2, "w2", {"device:b": 60.0})]
    two = [worker(1, charges={"device:a": 60.0}), worker(2, charges={"device:b": 60.0})]
    assert [each.worker_id for each in asked(demand(40.0, 0.0, count=2), here, apart, two)] == [1, 2]


def test_of_several_devices_the_one_with_the_gentlest_change_is_told() -> None:
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0))
    claims = [Claim(1, "w1", {"device:a": 60.0}, competes=True), Claim(2, "w2", {"device:b": 70.0})]
    workers = [worker(1, state="busy", charges={"device:a": 60.0}, job_id=4), worker(2, charges={"device:b": 70.0})]
    (found,) = asked(demand(40.0, 0.0), here, claims, workers)
    assert (found.what, found.worker_id) == ("retire", 2)


def test_memory_that_the_cache_would_give_back_counts_when_nobody_competes() -> None:
    here = unified(free=10.0, available=90.0)
    busy = replace(claim(1, unified=2.0), competes=True)
    (found,) = asked(demand(40.0, 0.0), here, [busy], [worker(1, state="busy", charges={"unified": 2.0}, job_id=3)])
    assert (found.what, found.job_id) == ("wait", 3)


def test_what_nobody_holds_has_to_become_free() -> None:
    (found,) = asked(demand(40.0, 0.0), unified(free=30.0, available=30.0))
    assert (found.what, dict(found.gib)) == ("free", {"unified": 14.0})


@pytest.mark.parametrize(
    ("gib", "nobody", "workers", "asks", "leave"), [(20.0, 20.0, 3, 68.0, 3), (15.0, 20.0, 4, 58.0, 3)]
)
def test_what_is_on_nobodys_name_goes_once_however_many_may_have_it(
    gib: float, nobody: float, workers: int, asks: float, leave: int
) -> None:
    there = Holding("unattributed", 0, "", (Charge("device:a", nobody, nobody, "device"),), competes=None)
    here = machine(pool("device:a", 80.0, reserve=0.0), pool("host"), holdings=(there,), competing=None)
    claims = [Claim(n, f"w{n}", {"device:a": gib}) for n in range(1, workers + 1)]
    views = [worker(n, charges={"device:a": gib}) for n in range(1, workers + 1)]
    found = asked(demand(asks, 0.0), here, claims, views)
    assert [each.what for each in found] == ["retire"] * leave


def test_a_device_that_is_too_small_for_good_has_nothing_to_become_free() -> None:
    small, large = pool("device:a", 24.0), pool("device:b", 80.0, free=10.0)
    for cards in ((small, large), (large, small)):
        assert asked(demand(30.0), machine(*cards)) == (Change("free", "device:b", {"device:b": 22.0}),)


def test_what_can_never_fit_is_told_the_most_that_could() -> None:
    (found,) = asked(demand(118.0, 0.0), unified())
    assert (found.what, dict(found.gib)) == ("budget", {"unified": 117.0})


def test_nothing_that_is_held_helps_against_a_missing_budget_device_or_reading() -> None:
    assert asked(demand(None), unified()) == ()
    assert asked(demand(28.0), machine(pool("host"))) == ()
    assert asked(demand(28.0), unified(free=None, available=None)) == ()


# Who is named, and with what


def test_a_worker_is_told_with_what_it_gives_to_the_pools_that_lack_and_no_others() -> None:
    here = machine(pool("device:a", 80.0), pool("host", 64.0))
    held = {"device:a": 60.0, "host": 6.0}
    # device:a: 60 + 18.5 + 2 - 80 = 0.5 too much; host: 6 + 55.5 + 2 - 64 = -0.5
    (found,) = asked(demand(18.5, 55.5), here, [Claim(1, "w1", held)], [worker(1, charges=held, idle_s=41.0)])
    assert found == Change("retire", "w1", {"device:a": 60.0}, 1, None, None, 41.0)
    (found,) = asked(demand(18.5, 57.5), here, [Claim(1, "w1", held)], [worker(1, charges=held)])
    assert dict(found.gib) == held


def test_memory_that_is_back_and_still_charged_lacks_by_the_charges_alone() -> None:
    here = machine(pool("device:a", 80.0, free=80.0), pool("host", 64.0))
    (found,) = asked(demand(40.0), here, [Claim(1, "w1", {"device:a": 60.0}, gone=True)])
    assert found == Change("return", "w1", {"device:a": 60.0}, 1)


def test_a_worker_is_waited_for_while_it_has_a_job_or_comes_up() -> None:
    for state, job_id in (("ready", 7), ("busy", 7), ("starting", None), ("parked", None)):
        own = worker(1, state=state, charges={"unified": 100.0}, job_id=job_id, idle_s=5.0)
        (found,) = asked(demand(60.0, 0.0), unified(), [claim(1, unified=100.0)], [own])
        assert found == Change("wait", "w1", {"unified": 100.0}, 1, None, job_id, None), state
        assert found.pid is None and found.idle_s is None


def test_a_process_of_others_is_told_with_the_more_of_what_it_is_charged_and_what_it_uses() -> None:
    for charge_gib, used_gib, gib in ((100.0, 40.0, 100.0), (100.0, 110.0, 110.0), (None, 7.0, 7.0), (None, 0.5, 0.5)):
        other = holding(Charge("unified", charge_gib, used_gib), pid=77)
        (found,) = asked(demand(60.0, 0.0), unified(holdings=(other,)))
        known = charge_gib is not None
        assert found == Change("stop", "esm (pid 77, bob)", {"unified": gib}, pid=77, known=known)
        assert found.worker_id is None and found.job_id is None and found.idle_s is None


def test_a_process_whose_budget_is_known_on_one_pool_only_is_of_unknown_budget() -> None:
    other = holding(Charge("device:a", None, 9.0, "device"), Charge("host", 4.0, 4.0, "host"), pid=77)
    (found,) = asked(demand(20.0), machine(pool("device:a", 80.0), pool("host"), holdings=(other,)))
    assert not found.known and dict(found.gib) == {"device:a": 9.0, "host": 4.0}


def test_one_of_unknown_budget_is_counted_once_and_another_is_named_where_that_is_not_enough() -> None:
    # 31 free, 30 come back from the first: 60 + 4 - 61 = 3 GiB are missing; charged are 10 of 121
    unknown, fat = holding(Charge("unified", None, 30.0), pid=1), holding(Charge("unified", 10.0, 60.0), pid=2)
    found = asked(demand(60.0, 0.0), unified(free=31.0, available=31.0, holdings=(unknown, fat)))
    assert [each.pid for each in found] == [1, 2]


def test_what_nobody_is_named_for_and_room_that_is_kept_for_a_start_have_to_become_free() -> None:
    nameless = holding(Charge("unified", 100.0, 0.0), pid=0)
    kept = Claim(0, "kept", {"unified": 100.0})
    for here, claims in ((unified(holdings=(nameless,)), []), (unified(), [kept])):
        (found,) = asked(demand(60.0, 0.0), here, claims)
        assert (found.what, found.name, dict(found.gib)) == ("free", "unified", {"unified": 43.0})
        assert (found.worker_id, found.pid, found.job_id, found.idle_s, found.known) == (None, None, None, None, True)


def test_room_that_is_kept_for_a_start_hides_nobody_who_could_leave() -> None:
    claims = [Claim(0, "kept", {"unified": 40.0}), claim(1, unified=40.0)]
    (found,) = asked(demand(60.0, 0.0), unified(), claims, [idle(1, 40.0)])
    assert (found.what, found.worker_id) == ("retire", 1)


def test_memory_on_nobodys_name_is_given_back_once_however_many_may_have_it() -> None:
    nobody = Holding("unattributed", 0, "", (Charge("device:a", 20.0, 20.0, "device"),), competes=None)
    here = machine(pool("device:a", 80.0, free=60.0), pool("host"), holdings=(nobody,))
    claims = [Claim(n, f"w{n}", {"device:a": 15.0}) for n in range(1, 5)]
    workers = [worker(n, charges={"device:a": 15.0}) for n in range(1, 5)]
    # 4 * 15 + 20 + 58 + 2 - 80 = 60 too much is charged: two workers would give 30 and 20, three 45 and 20
    found = asked(demand(58.0), here, claims, workers)
    assert len(found) >= 3 and all(each.what == "retire" for each in found)
    left = {each.worker_id for each in found}
    away = [each for each in claims if each.worker_id in left]
    assert Standing(here, claims, away=away).decide(demand(58.0)).admit


# Who competes


def test_of_others_those_who_compete_end_before_the_cache_counts_and_nobody_else() -> None:
    loads = replace(holding(Charge("unified", 2.0, 2.0), pid=77), competes=True)
    idles = holding(Charge("unified", 3.0, 3.0), pid=78)
    here = unified(free=10.0, available=90.0, holdings=(loads, idles), competing=1)
    assert [each.pid for each in asked(demand(40.0, 0.0), here)] == [77]


def test_one_who_competes_is_named_though_it_is_on_none_of_the_pools() -> None:
    loads = replace(holding(Charge("device:a", 10.0, 10.0), pid=77), competes=True)
    here = machine(pool("device:a", 80.0), pool("host", 64.0, free=5.0, available=60.0), holdings=(loads,), competing=1)
    assert asked(demand(0.0, 20.0), here) == (Change("stop", "esm (pid 77, bob)", {}, pid=77),)
    own = replace(Claim(1, "w1", {"device:a": 10.0}), competes=True)
    busy = worker(1, state="busy", charges={"device:a": 10.0}, job_id=3)
    quiet = replace(here, holdings=(), competing=0)
    assert asked(demand(0.0, 20.0), quiet, [own], [busy]) == (Change("wait", "w1", {}, 1, None, 3),)


def test_a_worker_of_ours_that_competes_is_named_once() -> None:
    seen = replace(holding(Charge("unified", 2.0, 2.0), pid=77, worker_id=1), competes=True)
    here = unified(free=10.0, available=90.0, holdings=(seen,))
    own = replace(claim(1, unified=2.0), competes=True)
    found = asked(demand(40.0, 0.0), here, [own], [worker(1, state="busy", charges={"unified": 2.0}, job_id=3)])
    assert [(each.what, each.worker_id) for each in found] == [("wait", 1)]


# What each gives


def test_what_is_given_exactly_is_enough_and_half_the_slack_is_kept() -> None:
    kibibyte_gib = 1024 / GIB
    for more_gib, worker_id in ((0.0, 1), (0.4 * kibibyte_gib, 1), (0.75 * kibibyte_gib, 2), (1.5 * kibibyte_gib, 2)):
        claims = [claim(1, unified=20.0), claim(2, unified=57.0 + more_gib)]
        workers = [idle(1, 20.0), worker(2, state="busy", charges={"unified": 57.0}, job_id=9)]
        # 20 + 57 + 60 + 4 - 121 = 20
        (found,) = asked(demand(60.0, 0.0), unified(), claims, workers)
        assert found.worker_id == worker_id, more_gib


def test_who_is_on_another_pool_gives_nothing_and_takes_nothing() -> None:
    here = machine(pool("device:a", 80.0), pool("host", 64.0))
    claims = [Claim(1, "w1", {"host": 6.0}), Claim(2, "w2", {"device:a": 60.0})]
    busy = worker(2, state="busy", charges={"device:a": 60.0}, job_id=9)
    # device:a: 60 + 18.5 + 2 - 80 = 0.5 too much; host: 6 + 55.5 + 2 - 64 = -0.5
    (found,) = asked(demand(18.5, 55.5), here, claims, [worker(1, gib=6.0), busy])
    assert (found.what, found.worker_id) == ("wait", 2)
    seen = holding(Charge("device:a", 60.0, 60.0, "device"), worker_id=2)
    used = machine(pool("device:a", 80.0, free=22.0), pool("host", 64.0), holdings=(seen,))
    (found,) = asked(demand(18.5, 55.5), used, claims, [worker(1, gib=6.0), busy])
    assert (found.what, found.worker_id) == ("wait", 2)
    on_host, on_card = holding(Charge("host", 6.0, 6.0), pid=77), holding(Charge("device:a", 60.0, 60.0), pid=78)
    charged = replace(here, holdings=(on_host, on_card))
    assert [each.pid for each in asked(demand(18.5, 55.5), charged)] == [78]
    # charged are 1 + 18.5 + 2 of 80; live: 18.5 + 2 - 20 = 0.5 too little; host: 55.5 + 2 - 58 = -0.5
    fat = replace(on_card, charges=(Charge("device:a", 1.0, 60.0),))
    live = machine(pool("device:a", 80.0, free=20.0), pool("host", 64.0, available=58.0), holdings=(on_host, fat))
    assert [each.pid for each in asked(demand(18.5, 55.5), live)] == [78]


def test_one_above_its_charge_gives_its_charge_to_the_sum_and_its_use_to_the_reading() -> None:
    fat, other = holding(Charge("unified", 10.0, 35.0), pid=1), holding(Charge("unified", 40.0, 42.0), pid=2)
    # 10 + 40 + 97 + 4 - 121 = 30 too much is charged
    assert [each.pid for each in asked(demand(97.0, 0.0), unified(holdings=(fat, other)))] == [2]
    # 60 + 4 - 24 = 40 too little is live
    live = unified(free=24.0, available=24.0, holdings=(fat, other))
    assert [each.pid for each in asked(demand(60.0, 0.0), live)] == [2]
    # 0 + 40 + 77.5 + 4 - 121 = 0.5 too much is charged
    none = replace(fat, charges=(Charge("unified", 0.0, 35.0),))
    assert [each.pid for each in asked(demand(77.5, 0.0), unified(holdings=(none, other)))] == [2]
    # 0 + 116.5 + 4 - 121 = -0.5 is charged; 116.5 + 4 - 86 = 34.5 too little is live
    (found,) = asked(demand(116.5, 0.0), unified(free=86.0, available=86.0, holdings=(none,)))
    assert (found.what, found.pid) == ("stop", 1)


# Of several places


def test_of_places_with_equal_changes_the_first_is_told() -> None:
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0))
    claims = [Claim(1, "w1", {"device:b": 60.0}), Claim(2, "w2", {"device:a": 60.0})]
    workers = [worker(1, charges={"device:b": 60.0}), worker(2, charges={"device:a": 60.0})]
    (found,) = asked(demand(40.0, 0.0), here, claims, workers)
    assert found.worker_id == 2


def test_a_place_that_cannot_be_read_is_not_emptied() -> None:
    here = machine(pool("device:a", 80.0, free=None), pool("device:b", 80.0))
    claims = [Claim(1, "w1", {"device:a": 60.0}), Claim(2, "w2", {"device:b": 60.0})]
    busy = worker(2, state="busy", charges={"device:b": 60.0}, job_id=9)
    (found,) = asked(demand(40.0, 0.0), here, claims, [worker(1, charges={"device:a": 60.0}), busy])
    assert (found.what, found.worker_id) == ("wait", 2)


def test_nothing_helps_beside_a_holder_of_unknown_budget_that_is_no_process() -> None:
    nameless = holding(Charge("unified", None, 1.0), pid=0)
    assert asked(demand(60.0, 0.0), unified(holdings=(nameless,)), [claim(1, unified=100.0)], [idle(1, 100.0)]) == ()


def test_a_missing_budget_is_told_nothing_even_where_nothing_is_free() -> None:
    assert asked(demand(None, 1.0), unified(free=1.0, available=1.0)) == ()


# What is missing when everybody has left


def test_what_has_to_become_free_is_what_is_missing_when_all_who_could_leave_have_left() -> None:
    seen, other = holding(Charge("unified", 5.0, 5.0), worker_id=1), holding(Charge("unified", 3.0, 3.0), pid=77)
    here = unified(free=10.0, available=10.0, holdings=(seen, other))
    # 40 + 4 - 10 - 5 - 3 = 26
    (found,) = asked(demand(40.0, 0.0), here, [claim(1, unified=5.0)], [idle(1, 5.0)])
    assert found == Change("free", "unified", {"unified": 26.0})


def test_only_the_pools_that_lack_have_to_become_free() -> None:
    for host_gib in (62.0, 61.5):  # 2 stay reserved of 64: exactly full, and half a GiB is left
        here = machine(pool("device:a", 80.0, free=20.0), pool("host", 64.0))
        assert asked(demand(18.5, host_gib), here) == (Change("free", "device:a", {"device:a": 0.5}),)
    both = machine(pool("device:a", 80.0, free=20.0), pool("host", 64.0, available=60.0))
    assert asked(demand(20.0, 61.0), both) == (
        Change("free", "device:a", {"device:a": 2.0}), Change("free", "host", {"host": 3.0}),
    )  # fmt: skip


def test_of_several_places_the_one_that_lacks_least_has_to_become_free_and_of_equal_ones_the_first() -> None:
    def told(*free_gib: float) -> str:
        cards = [pool(f"device:{n}", 80.0, free=gib) for n, gib in enumerate(free_gib)]
        (found,) = asked(demand(40.0, 0.0), machine(*cards))
        assert found.what == "free"
        return found.name

    assert told(20.0, 30.0) == "device:1" and told(30.0, 20.0) == "device:0"
    assert told(41.125, 41.5) == "device:1" and told(30.0, 30.0) == "device:0"


def test_a_place_that_lacks_nothing_and_is_closed_for_another_reason_is_not_told() -> None:
    nameless = holding(Charge("device:a", None, 1.0), pid=0)
    lacks = pool("device:b", 80.0, free=32.0)
    for cards in ((pool("device:a", 80.0), lacks), (lacks, pool("device:a", 80.0))):
        here = machine(*cards, holdings=(nameless,))
        assert asked(demand(40.0, 0.0), here) == (Change("free", "device:b", {"device:b": 10.0}),)


def test_the_most_that_could_ever_be_is_told_of_the_pools_that_are_too_small_alone() -> None:
    here = machine(pool("device:a", 80.0, free=50.0), pool("host", 64.0, available=10.0))
    assert asked(demand(118.0, 40.0), here) == (Change("budget", "device:a", {"device:a": 78.0}),)
    small = machine(pool("device:a", 80.0), pool("host", 0.0, reserve=0.0))
    assert asked(demand(118.0, 0.0), small) == (Change("budget", "device:a", {"device:a": 78.0}),)
    assert asked(demand(0.0, 0.5), small) == (Change("budget", "host", {"host": 0.0}),)
    kept = machine(pool("host", 4.0, reserve=6.0))
    assert asked(demand(0.0, 1.0), kept) == (Change("budget", "host", {"host": 0.0}),)


# Against every set there is


@st.composite
def situations(draw: st.DrawFn) -> tuple[Demand, Machine, list[Claim], list[WorkerView]]:
    gib = st.integers(0, 12).map(lambda n: n * 4.5)
    pools = ("device:a", "device:b", "host")
    claims, workers = [], []
    for id in range(1, draw(st.integers(0, 5)) + 1):
        charges = {p: draw(gib) for p in draw(st.sets(st.sampled_from(pools), min_size=1))}
        state = draw(st.sampled_from(["ready", "ready", "busy", "retiring", "gone"]))
        pinned = state == "ready" and draw(st.booleans())
        claims.append(Claim(id, f"w{id}", charges, competes=state == "busy", gone=state == "gone", stays=pinned))
        if state != "gone":
            workers.append(
                worker(id, state=state, charges=charges, pinned=pinned, job_id=3 if state == "busy" else None)
            )
    others = []
    for pid in range(500, 500 + draw(st.integers(0, 3))):
        charge = st.none() if draw(st.integers(0, 3)) == 0 else gib
        others.append(
            Holding("x", pid, "bob", (Charge(draw(st.sampled_from(pools)), draw(charge), draw(gib)),),
                    competes=draw(st.booleans()))
        )  # fmt: skip
    here = machine(
        pool("device:a", 80.0, free=draw(st.integers(0, 80).map(float))),
        pool("device:b", 40.0, free=draw(st.integers(0, 40).map(float))),
        pool("host", 64.0, free=draw(st.integers(0, 30).map(float)), available=draw(st.integers(30, 60).map(float))),
        holdings=tuple(others), competing=sum(bool(each.competes) for each in others),
    )  # fmt: skip
    return demand(draw(gib), draw(gib), count=draw(st.integers(1, 2)), policy="required"), here, claims, workers


def _worth(changes: Sequence[Change]) -> tuple[object, ...]:
    counts = [sum(each.what == kind for each in changes) for kind in reversed(KINDS)]
    return (*counts, round(sum(sum(each.gib.values()) for each in changes), 6))


@given(situations())
@settings(max_examples=150, deadline=None)
def test_the_change_admits_and_no_smaller_one_does(
    case: tuple[Demand, Machine, list[Claim], list[WorkerView]],
) -> None:
    what, here, claims, workers = case
    verdict = decide(what, here, claims)
    found = remedy(verdict, here, claims, workers)
    if verdict.ruling not in ("unknown_holding", "pool_full", "no_room_now"):
        assert all(each.what == "budget" for each in found)
        return

    def admits(changes: Sequence[Change]) -> bool:
        left = {each.worker_id for each in changes}
        pids = {each.pid for each in changes}
        away = [each for each in claims if each.worker_id in left]
        gone = [each for each in here.others if each.pid in pids]
        return Standing(here, claims, away=away, gone=gone).decide(what).admit

    everybody = {(each.what, each.worker_id, each.pid): each for each in _everybody(claims, workers, here)}
    sets = [list(some) for n in range(len(everybody) + 1) for some in combinations(everybody.values(), n)]
    counts = [
        tuple(sum(each.what == kind for each in some) for kind in reversed(KINDS)) for some in sets if admits(some)
    ]
    if not counts:
        assert found and all(each.what == "free" for each in found)
        return
    assert admits(found)
    assert _worth(found)[:-1] == min(counts)


def _everybody(claims: list[Claim], workers: list[WorkerView], here: Machine) -> list[Change]:
    by_id = {each.id: each for each in workers}
    found = []
    for each in claims:
        view = by_id.get(each.worker_id)
        if view is None:
            what = "heal" if each.stays else "return"
        else:
            what = {"retiring": "return", "busy": "wait"}.get(view.state, "unpin" if view.pinned else "retire")
        found.append(Change(what, worker_id=each.worker_id))
    return [*found, *(Change("stop", pid=each.pid) for each in here.others)]


def test_memory_on_nobodys_name_may_go_with_a_worker_of_ours_whom_the_driver_does_not_tell() -> None:
    nobody = Holding("unattributed", 0, "", (Charge("device:a", 45.0, 45.0, "device"),), competes=None)
    here = machine(pool("device:a", 79.5, free=34.5), pool("host"), holdings=(nobody,), competing=None)
    claims, workers = [Claim(1, "w1", {"device:a": 50.0})], [worker(1, charges={"device:a": 50.0}, idle_s=9.0)]
    (found,) = asked(demand(70.0), here, claims, workers)
    assert (found.what, found.worker_id) == ("retire", 1)
    told = replace(here, holdings=(nobody, holding(Charge("device:a", 50.0, 45.0, "device"), worker_id=1)))
    assert asked(demand(70.0), told, claims, workers)[0].what == "free", "its use is known: the rest is somebody else's"
