"""Whether one more worker may be started: each gate by an example, then what must hold whatever the numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import claim, demand, holding, lease, machine, pool, provider, reading, snapshot, unified, worker
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.host.machine.facts import facts
from scheduler.model.machine import Charge, Machine, Pool
from scheduler.model.verdict import Demand, PoolEvidence, Verdict
from scheduler.rules import never
from scheduler.rules.admission import (
    Claim,
    beyond_gib,
    claims_of,
    confirm,
    decide,
    leavers,
    over_gib,
    rule,
    short_gib,
)
from scheduler.rules.room import SLACK_GIB

# The gates, in their order


def test_an_empty_machine_admits_and_the_verdict_carries_every_number() -> None:
    verdict = decide(demand(28.0, 6.0), unified(), [claim(1, unified=12.0)])
    (place,) = verdict.evidence.placement
    assert verdict.admit and not verdict.never
    assert (place.demand_gib, place.reserve_gib, place.charged_gib, place.owed_gib) == (34.0, 4.0, 12.0, 12.0)
    assert place.capacity.value == 121.0


def test_no_budget_is_never_admitted_whatever_the_machine() -> None:
    verdict = decide(demand(None, 1.0), unified(), [])
    assert verdict.ruling == "undeclared" and verdict.never


@pytest.mark.parametrize("gib", [-1.0, math.nan, math.inf, -math.inf, 1e308])
def test_a_budget_that_is_no_amount_of_memory_is_none(gib: float) -> None:
    assert decide(demand(gib, 1.0), unified(), []).ruling == "undeclared"
    assert decide(demand(1.0, gib), unified(), []).ruling == "undeclared"
    assert decide(demand(0.0, gib), machine(), []).ruling == "undeclared"
    there = holding(Charge("unified", gib, 1.0, "device"))
    assert decide(demand(1.0), unified(holdings=(there,)), []).ruling == "unknown_holding"
    unseen = holding(Charge("unified", 10.0, gib, "device"))
    assert decide(demand(1.0), unified(holdings=(unseen,)), []).evidence.placement[0].owed_gib == 10.0


def test_a_budget_of_nothing_is_admitted_wherever_the_reserve_is_free() -> None:
    assert decide(demand(0.0, 0.0), machine(), []).admit
    assert decide(demand(0.0, 0.0), machine(pool("host", 64.0, available=1.9)), []).ruling == "no_room_now"


def test_a_required_accelerator_that_is_not_there_is_never_and_one_that_errs_is_not_now() -> None:
    here = machine(pool("host"))
    assert decide(demand(28.0), here, []).ruling == "no_device"
    assert decide(demand(28.0), replace(here, accelerators=reading(None)), []).ruling == "unreadable"
    assert decide(demand(0.0), replace(here, accelerators=reading(None)), []).admit


def test_an_accelerator_that_errs_closes_a_unified_machine_too() -> None:
    assert decide(demand(28.0), unified(accelerators=reading(None)), []).ruling == "unreadable"


def test_a_driver_that_errs_leaves_the_devices_of_another_vendor_usable() -> None:
    here = machine(pool("device:a", 80.0), pool("host"), accelerators=reading(None))
    assert decide(demand(28.0), here, []).admit
    assert decide(demand(28.0, count=2), here, []).ruling == "unreadable"


def test_more_devices_than_there_are_is_never() -> None:
    verdict = decide(demand(28.0, count=2), machine(pool("device:a", 80.0), pool("host")), [])
    assert verdict.ruling == "too_big" and verdict.never


@pytest.mark.parametrize(
    "here",
    [
        machine(pool("host", None)),
        machine(pool("host", available=None)),
        machine(pool("host", math.nan)),
        machine(pool("host", available=math.nan)),
        replace(machine(), holdings_missing="the process table did not answer in 2 s"),
        replace(machine(), pools=()),
    ],
)
def test_what_cannot_be_read_admits_nothing(here: Machine) -> None:
    verdict = decide(demand(0.0, 1.0), here, [])
    assert verdict.ruling == "unreadable" and not verdict.never


def test_a_reading_that_is_not_needed_may_be_missing() -> None:
    assert decide(demand(0.0, 1.0), machine(pool("host", free=None)), []).admit
    gpus = machine(pool("device:a", None), pool("host"))
    assert decide(demand(0.0, 1.0), gpus, []).admit


def test_budget_and_reserve_may_fill_the_pool_exactly_and_no_more() -> None:
    assert decide(demand(0.0, 62.0), machine(pool("host", 64.0)), []).admit
    verdict = decide(demand(0.0, 62.001), machine(pool("host", 64.0)), [])
    assert verdict.ruling == "too_big" and verdict.never


def test_of_partial_devices_a_worker_has_one_at_most() -> None:
    here = machine(*(replace(pool(f"device:MIG-{n}", 20.0), partial=True) for n in range(4)), pool("host"))
    assert decide(demand(10.0), here, []).admit
    several = decide(demand(10.0, count=2), here, [])
    assert several.ruling == "too_big" and several.evidence.accelerators.value == 1.0


def test_a_worker_of_two_devices_has_no_place_on_unified_memory() -> None:
    assert decide(demand(10.0, count=2), unified(), []).ruling == "too_big"


def test_of_several_devices_the_one_that_lacks_least_is_told() -> None:
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host"))
    claims = [Claim(1, "w1", {"device:a": 70.0}), Claim(2, "w2", {"device:b": 60.0})]
    verdict = decide(demand(30.0), here, claims)
    assert verdict.ruling == "pool_full" and verdict.evidence.places == 2
    assert [place.pool for place in verdict.evidence.placement] == ["device:b", "host"]


def test_a_worker_of_ours_on_a_device_that_it_is_not_charged_for_is_charged_what_it_uses_there() -> None:
    astray = holding(Charge("device:a", 4.0, 4.0, "device"), Charge("device:b", 30.0, 30.0, "device"), worker_id=1)
    here = machine(pool("device:a", 80.0), pool("device:b", 40.0), pool("host"), holdings=(astray,))
    verdict = confirm(demand(20.0), {"device:b": 20.0, "host": 1.0}, here, [Claim(1, "w1", {"device:a": 4.0})], 0)
    assert verdict.ruling == "pool_full" and verdict.evidence.placement[0].charged_gib == 30.0


def test_a_holder_that_nobody_declared_closes_the_pools_it_could_be_on_and_no_other() -> None:
    gpus = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host"))
    unknown = holding(Charge("device:a", None))
    assert decide(demand(28.0, 1.0), replace(gpus, holdings=(unknown,)), []).admit
    both = holding(Charge("device:a", None), Charge("device:b", None))
    assert decide(demand(28.0, 1.0), replace(gpus, holdings=(both,)), []).ruling == "unknown_holding"
    assert decide(demand(0.0, 1.0), replace(gpus, holdings=(both,)), []).admit


def test_charges_of_ours_and_of_others_are_summed_with_the_reserve() -> None:
    foreign = holding(Charge("host", 20.0, 20.0))
    here = machine(pool("host", 64.0), holdings=(foreign,))
    assert decide(demand(0.0, 22.0), here, [claim(1, host=20.0)]).admit
    assert decide(demand(0.0, 22.1), here, [claim(1, host=20.0)]).ruling == "pool_full"


def test_memory_that_is_not_back_is_charged_but_touches_no_more() -> None:
    here = machine(pool("host", 64.0, available=40.0))
    gone = claim(1, gone=True, host=30.0)
    verdict = decide(demand(0.0, 30.0), here, [gone])
    assert verdict.admit and verdict.evidence.placement[0].owed_gib == 0.0
    assert decide(demand(0.0, 33.0), here, [gone]).ruling == "pool_full"


def test_growth_that_is_still_owed_is_taken_off_the_live_reading() -> None:
    seen = holding(Charge("host", 40.0, 2.0, "host"), worker_id=1)
    here = machine(pool("host", 100.0, available=60.0), holdings=(seen,))
    verdict = decide(demand(0.0, 20.1), here, [claim(1, host=40.0)])
    assert verdict.ruling == "no_room_now"
    assert verdict.evidence.placement[0].owed_gib == 38.0
    assert decide(demand(0.0, 20.0), here, [claim(1, host=40.0)]).admit


def test_one_holder_above_its_charge_pays_nothing_of_what_another_owes() -> None:
    fat, thin = holding(Charge("host", 10.0, 18.0), pid=1), holding(Charge("host", 10.0, 2.0), pid=2)
    verdict = decide(demand(0.0, 1.0), machine(holdings=(fat, thin)), [])
    assert verdict.evidence.placement[0].owed_gib == 8.0


def test_on_unified_memory_the_host_part_pays_nothing_of_what_the_device_part_owes() -> None:
    seen = holding(Charge("unified", 6.0, 10.0, "host"), Charge("unified", 28.0, 5.0, "device"), worker_id=1)
    here = unified(holdings=(seen,))
    (place,) = decide(demand(1.0), here, [claim(1, host_gib=6.0, unified=34.0)]).evidence.placement
    assert place.owed_gib == 23.0


def test_who_competes_decides_which_live_reading_counts() -> None:
    here = machine(pool("host", 64.0, free=5.0, available=60.0))
    assert decide(demand(0.0, 20.0), here, []).admit
    for competing in (1, None):
        verdict = decide(demand(0.0, 20.0), replace(here, competing=competing), [])
        assert verdict.ruling == "no_room_now" and verdict.evidence.placement[0].live.source == "free"


def test_a_worker_of_ours_competes_while_it_loads_or_computes_and_not_while_it_is_idle() -> None:
    here = machine(pool("host", 64.0, free=5.0, available=60.0))
    for state, admits in (("ready", True), ("parked", True), ("starting", False), ("busy", False), ("retiring", True)):
        claims = claims_of(snapshot(provider(), worker(1, state=state, gib=0.0)))
        assert decide(demand(0.0, 20.0), here, claims).admit is admits, state


def test_a_device_has_its_own_live_reading_whoever_competes() -> None:
    gpus = machine(pool("device:a", 80.0, free=10.0, available=None), pool("host"), competing=0)
    assert decide(demand(28.0), gpus, []).ruling == "no_room_now"


def test_the_first_device_that_admits_is_taken_and_else_the_most_hopeful_is_told() -> None:
    small, full, free = pool("device:a", 24.0), pool("device:b", 80.0), pool("device:c", 80.0)
    taken = {"device:b": 70.0}
    gpus = machine(small, full, free, pool("host"))
    verdict = decide(demand(28.0, 1.0), gpus, [Claim(1, "w", taken)])
    assert [place.pool for place in verdict.evidence.placement] == ["device:c", "host"]
    worse = decide(demand(28.0, 1.0), machine(small, full, pool("host")), [Claim(1, "w", taken)])
    assert worse.ruling == "pool_full" and not worse.never


def test_a_budget_may_be_missing_where_no_device_is_required() -> None:
    assert decide(demand(None, 1.0, policy="none"), machine(), []).admit


def test_a_device_that_is_counted_and_shows_no_pool_is_not_there_now() -> None:
    here = machine(pool("host"), accelerators=reading(1.0))
    assert decide(demand(28.0), here, []).ruling == "unreadable"


def test_one_pool_of_a_place_that_cannot_be_read_closes_it_and_it_is_not_never() -> None:
    for here in (
        machine(pool("device:a", 80.0), pool("host", None)),
        machine(pool("device:a", None), pool("host")),
        machine(pool("device:a", None, free=80.0), pool("host")),
        machine(pool("device:a", 80.0, free=None), pool("host")),
    ):
        assert decide(demand(28.0), here, []).ruling == "unreadable"


def test_a_place_whose_pool_is_gone_is_not_there_now_and_the_verdict_says_which() -> None:
    verdict = confirm(demand(28.0), {"device:b": 28.0, "host": 1.0}, machine(pool("device:a", 80.0)), [], 7)
    lost = verdict.evidence.placement[0]
    assert verdict.ruling == "unreadable" and verdict.evidence.places == 1
    assert (lost.pool, lost.kind, lost.reserve_gib) == ("device:b", "device", 0.0)
    assert lost.capacity.failed and lost.live.missing == lost.capacity.missing == "there is no pool device:b"


def test_a_worker_of_one_device_may_have_any_of_the_partial_ones() -> None:
    here = machine(*(replace(pool(f"device:MIG-{n}", 20.0), partial=True) for n in range(4)), pool("host"))
    assert decide(demand(10.0), here, []).evidence.accelerators.value == 4.0


def test_a_pool_of_nothing_holds_nothing_and_a_reading_of_nothing_is_a_reading() -> None:
    nothing = machine(pool("host", 0.0, reserve=0.0))
    assert decide(demand(0.0, 0.0), nothing, []).admit
    assert decide(demand(0.0, 0.5), nothing, []).ruling == "too_big"
    assert decide(demand(0.0, 0.0), nothing, [claim(1, host=0.5)]).ruling == "pool_full"
    used_up = machine(pool("host", 64.0, reserve=0.0, available=0.0))
    assert decide(demand(0.0, 0.5), used_up, []).ruling == "no_room_now"
    assert decide(demand(0.0, 0.0), used_up, []).admit


def test_of_several_devices_that_are_too_small_now_or_for_good_the_one_that_lacks_least_is_told() -> None:
    def told(what: Demand, *cards: Pool) -> tuple[str, str]:
        verdict = decide(what, machine(*cards, pool("host", 500.0)), [])
        return verdict.ruling, verdict.evidence.placement[0].pool

    small, large = pool("device:a", 24.0), pool("device:b", 80.0)
    assert told(demand(100.0), small, large) == told(demand(100.0), large, small) == ("too_big", "device:b")
    kept = pool("device:c", 90.0, reserve=20.0)
    assert told(demand(100.0), large, kept) == told(demand(100.0), kept, large) == ("too_big", "device:b")
    busy, busier = pool("device:d", 80.0, free=20.0), pool("device:e", 80.0, free=10.0)
    assert told(demand(50.0), busy, busier) == told(demand(50.0), busier, busy) == ("no_room_now", "device:d")


def test_of_equally_hopeful_devices_the_first_is_told() -> None:
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host"))
    claims = [Claim(1, "w1", {"device:a": 70.0, "device:b": 70.0})]
    assert decide(demand(30.0), here, claims).evidence.placement[0].pool == "device:a"
    apart = [Claim(1, "w1", {"device:a": 60.0}), Claim(2, "w2", {"device:b": 70.0})]
    assert decide(demand(30.0), here, apart).evidence.placement[0].pool == "device:a"


def test_what_is_lacking_is_what_is_asked_kept_charged_or_owed_less_what_there_is() -> None:
    place = PoolEvidence("host", "host", 30.0, reading(24.0), 4.0, (), reading(20.0), 5.0, 3.0)
    assert (beyond_gib(place), over_gib(place), short_gib(place)) == (10.0, 15.0, 17.0)
    unread = replace(place, capacity=reading(None), live=reading(None))
    assert (beyond_gib(unread), over_gib(unread), short_gib(unread)) == (34.0, 39.0, 37.0)


# Whose claims count


def test_a_parked_worker_does_not_stand_in_its_own_way_but_everybody_else_does() -> None:
    own = holding(Charge("host", 40.0, 0.0), worker_id=7)
    here = machine(pool("host", 64.0), holdings=(own,))
    claims = [claim(7, host=40.0)]
    assert decide(demand(0.0, 40.0), here, claims).ruling == "pool_full"
    assert confirm(demand(0.0, 40.0), {"host": 40.0}, here, claims, 7).admit
    rival = holding(Charge("host", 30.0, 0.0), pid=501)
    contested = replace(here, holdings=(own, rival))
    assert confirm(demand(0.0, 40.0), {"host": 40.0}, contested, claims, 7).ruling == "pool_full"


def test_a_parked_worker_is_confirmed_on_the_place_it_was_parked_for() -> None:
    gpus = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host"))
    rival = replace(gpus, holdings=(holding(Charge("device:a", 70.0, 0.0)),))
    assert confirm(demand(28.0), {"device:a": 28.0, "host": 1.0}, rival, [], 7).ruling == "pool_full"


def test_a_worker_of_ours_that_the_queue_forgot_is_still_a_holding() -> None:
    forgotten = holding(Charge("host", 40.0, 1.0), worker_id=99)
    assert decide(demand(0.0, 40.0), machine(holdings=(forgotten,)), []).ruling == "pool_full"


def test_a_second_holding_of_one_worker_is_charged_for_itself() -> None:
    twice = [holding(Charge("host", 20.0, 1.0, "host"), pid=pid, worker_id=1) for pid in (500, 501)]
    here = machine(pool("host", 64.0), holdings=tuple(twice))
    assert decide(demand(0.0, 30.0), here, []).ruling == "pool_full"
    assert decide(demand(0.0, 30.0), here, [claim(1, host=20.0)]).ruling == "pool_full"
    assert decide(demand(0.0, 20.0), here, [claim(1, host=20.0)]).admit


def test_an_own_worker_is_counted_once_by_its_lease() -> None:
    seen = holding(Charge("host", 10.0, 10.0), worker_id=1)
    (place,) = decide(demand(0.0, 1.0), machine(holdings=(seen,)), [claim(1, host=10.0)]).evidence.placement
    assert place.charged_gib == 10.0


def test_leases_without_a_worker_are_charged_whether_returning_or_leaked() -> None:
    claims = claims_of(snapshot(lease(90, 20.0, "returning"), lease(91, 20.0, "leaked")))
    assert [(c.worker_id, c.gone, c.stays) for c in claims] == [(90, True, False), (91, True, True)]
    assert decide(demand(0.0, 23.0), machine(), claims).ruling == "pool_full"


def hopeless(need: Demand, here: Machine, claims: list[Claim]) -> bool:
    return not decide(need, here, claims, away=leavers(claims)).admit


def test_a_charge_on_the_machines_own_memory_counts_whatever_that_is_taken_for() -> None:
    before = snapshot(worker(1, gib=40.0, charges={"unified": 40.0}), machine=machine(pool("host", 64.0)))
    (there,) = claims_of(before)
    assert there.charges == {"host": 40.0}
    assert decide(demand(0.0, 30.0), before.machine, claims_of(before)).ruling == "pool_full"
    after = snapshot(worker(1, gib=40.0), lease(2, 3.0), machine=unified())
    assert [each.charges for each in claims_of(after)] == [{"unified": 40.0}, {"unified": 3.0}]


def test_it_is_hopeless_only_when_nothing_of_ours_could_help() -> None:
    full = [claim(1, host=50.0)]
    assert not hopeless(demand(0.0, 30.0), machine(), full)
    assert hopeless(demand(0.0, 30.0), machine(), [replace(full[0], stays=True)])
    stranger = machine(pool("host", 64.0, available=20.0))
    assert hopeless(demand(0.0, 30.0), stranger, [])
    seen = replace(stranger, holdings=(holding(Charge("host", 50.0, 15.0), worker_id=1),))
    assert not hopeless(demand(0.0, 30.0), seen, full)


# Whatever the numbers

GIB = st.floats(0.0, 200.0)
MAYBE = st.one_of(st.none(), GIB)


@st.composite
def places(draw: st.DrawFn) -> tuple[Machine, list[Claim], Verdict]:
    kinds = draw(st.sampled_from([("host",), ("unified",), ("device:a", "host"), ("device:a", "device:b", "host")]))
    pools = [
        pool(
            kind,
            draw(MAYBE),
            reserve=draw(st.floats(0.0, 8.0)),
            free=draw(MAYBE),
            available=draw(MAYBE),
        )
        for kind in kinds
    ]
    partial = draw(st.booleans())
    pools = [replace(each, partial=partial and each.id == "device:b") for each in pools]
    held = st.builds(Charge, st.sampled_from(kinds), MAYBE, MAYBE, st.sampled_from(["", "host", "device"]))
    holdings = tuple(
        holding(*charges, pid=500 + n, worker_id=draw(st.sampled_from([None, 1, 2, 9])))
        for n, charges in enumerate(draw(st.lists(st.lists(held, min_size=1, max_size=3), max_size=3)))
    )
    here = machine(*pools, holdings=holdings, competing=draw(st.sampled_from([0, 1, None])))
    if draw(st.integers(0, 9)) == 0:
        here = replace(here, holdings_missing="unread")
    if draw(st.integers(0, 9)) == 0:
        here = replace(here, accelerators=reading(None))
    claims = [
        Claim(
            n, f"w{n}", {draw(st.sampled_from(kinds)): draw(GIB)}, draw(GIB), draw(st.booleans()), draw(st.booleans())
        )
        for n in range(1, draw(st.integers(1, 4)))
    ]
    count = draw(st.sampled_from([1, 1, 2]))
    asked = demand(draw(st.sampled_from([0.0, 1.0, 28.0, None])), draw(st.floats(0.0, 60.0)), count=count)
    return here, claims, decide(asked, here, claims)


@given(places())
@settings(max_examples=400, deadline=None)
def test_what_is_admitted_keeps_every_pool_within_its_capacity(case: tuple[Machine, list[Claim], Verdict]) -> None:
    here, claims, verdict = case
    if not verdict.admit:
        return
    ours = {c.worker_id for c in claims}
    wanted = {place.pool: place.demand_gib for place in verdict.evidence.placement}
    asked = verdict.evidence.demand
    count = asked.count if asked.policy == "required" else 1
    assert math.isclose(math.fsum(wanted.values()), (asked.device_gib or 0.0) * count + asked.host_gib)
    assert not here.holdings_missing
    given = [here.pool(pool_id) for pool_id in wanted if pool_id != "host"]
    assert asked.policy == "none" or (len(given) == count and (here.accelerators.value or "unified" not in wanted))
    assert count == 1 or not any(each is None or each.partial for each in given)
    for pool_id, gib in wanted.items():
        there = here.pool(pool_id)
        assert there is not None and there.capacity.value is not None
        charged = [c.charges[pool_id] for c in claims if pool_id in c.charges]
        foreign = [c for h in here.holdings if h.worker_id not in ours for c in h.charges if c.pool == pool_id]
        assert all(c.charge_gib is not None for c in foreign), "an unknown holder was summed"
        total = math.fsum([gib, there.reserve_gib, *charged, *(c.charge_gib or 0.0 for c in foreign)])
        assert total <= there.capacity.value + 2 * SLACK_GIB
        alone = here.competing == 0 and not any(c.competes for c in claims)
        live = there.available if alone and there.kind != "device" else there.free
        assert live.value is not None
        owed = [max(0.0, (c.charge_gib or 0.0) - (c.used_gib or 0.0)) for c in foreign]
        assert math.fsum([gib, there.reserve_gib, *owed]) <= live.value + 2 * SLACK_GIB


@given(places())
@settings(max_examples=200, deadline=None)
def test_the_ruling_follows_from_the_evidence_alone(case: tuple[Machine, list[Claim], Verdict]) -> None:
    verdict = case[2]
    assert rule(verdict.evidence) == verdict.ruling


@given(places(), st.floats(0.0, 50.0))
@settings(max_examples=200, deadline=None)
def test_one_more_claim_never_opens_a_gate(case: tuple[Machine, list[Claim], Verdict], gib: float) -> None:
    here, claims, verdict = case
    more = [*claims, Claim(50, "more", {p.id: gib for p in here.pools})]
    assert verdict.admit or not decide(verdict.evidence.demand, here, more).admit


@given(
    st.sampled_from([("host",), ("unified",), ("device:a", "host"), ("device:a", "device:b", "host")]),
    st.lists(st.floats(8.0, 100.0), min_size=3, max_size=3),
    st.sampled_from([0.0, 20.0, 60.0, None]),
    st.floats(0.1, 60.0),
    st.integers(1, 2),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_what_submit_refuses_for_good_is_what_would_never_be_admitted(
    kinds: tuple[str, ...], capacities: list[float], vram: float | None, ram: float, count: int, partial: bool
) -> None:
    pools = [pool(kind, gib, reserve=1.0) for kind, gib in zip(kinds, capacities, strict=False)]
    here = machine(*(replace(each, partial=partial and each.kind == "device") for each in pools))
    verdict = decide(demand(vram, ram, count=count), here, [])
    policy = "none" if vram == 0.0 else "required"
    spec = {"slug": "boltz", "variant": "", "policy": policy, "vram_gib": vram, "ram_gib": ram, "count": count}
    assert never.ruling(spec, facts(here))[0] == (verdict.ruling if verdict.never else "")
