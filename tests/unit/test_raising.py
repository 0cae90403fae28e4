"""A warm worker that gets a larger job than it is charged for: raised, shown to all, and only then sent."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders import card, holding, machine, provider, snapshot, unified, waiting, worker
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import Charge
from scheduler.model.plan import Explain, Head, Lower, Raise, Retire, Send, Show, Waiting, WorkerView
from scheduler.model.provider import Learned
from scheduler.rules.plan import plan
from scheduler.rules.room import fits


def boltz(**over: Any) -> Any:
    return provider("boltz", 20.0, 2.0, **over)


def on(place: str, gib: float, id: int = 1, slug: str = "esm", state: str = "ready", **over: Any) -> WorkerView:
    return worker(id, slug, state, charges={place: gib}, **over)


def larger(**over: Any) -> Waiting:
    return waiting("boltz", 7, **{"learned": Learned(30.0, 2.0, 3), **over})


def warm(**over: Any) -> WorkerView:
    return on("unified", 22.0, 1, "boltz", host_gib=2.0, **over)


def test_a_warm_workers_charge_is_raised_for_a_larger_job_and_shown_before_the_job_is_sent() -> None:
    found = plan(snapshot(boltz(), warm(), larger(), machine=unified(64.0)))
    [order] = [each for each in found if isinstance(each, Raise)]
    assert order.charges == {"unified": 32.0} and order.job_id == 7 and order.verdict.admit
    assert [place.demand_gib for place in order.verdict.evidence.placement] == [10.0], "admitted for the difference"
    assert not [each for each in found if isinstance(each, Send | Explain)]


def test_a_smaller_job_is_sent_as_ever() -> None:
    assert Send(1, 7) in plan(snapshot(boltz(), warm(), larger(learned=Learned(9.0, 1.0, 3)), machine=unified(64.0)))


def test_where_the_rest_does_not_fit_it_waits_in_numbers_and_idle_workers_make_room() -> None:
    esm, busy = provider("esm", 33.0), on("unified", 33.0, 2, "esm", "busy", job_id=3)
    found = plan(snapshot(boltz(), esm, warm(), busy, larger(), machine=unified(64.0)))
    assert not any(isinstance(each, Send) for each in found)
    told = next(each for each in found if isinstance(each, Explain))
    assert told.ruling == "pool_full" and "is charged 22 GiB of unified, and this job is charged 32 GiB" in told.why
    idle = on("unified", 33.0, 2, "esm")
    found = plan(snapshot(boltz(), esm, warm(), idle, larger(), machine=unified(64.0)))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [2]


def test_a_closed_head_that_needs_a_raise_keeps_its_room_and_chooses_victims_but_not_its_own_worker() -> None:
    esm, busy = provider("esm", 33.0), on("unified", 33.0, 2, "esm", "busy", job_id=3)
    late = waiting("esm", 8)
    found = plan(snapshot(boltz(), esm, warm(), busy, larger(head_for_s=900.0), late, machine=unified(64.0)))
    [head] = [each for each in found if isinstance(each, Head) and each.job_id == 7]
    assert head.victims == (2,)
    idle = on("unified", 33.0, 2, "esm")
    found = plan(snapshot(boltz(), esm, warm(), idle, larger(head_for_s=900.0), late, machine=unified(64.0)))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [2]
    assert not any(isinstance(each, Send) and each.worker_id == 2 for each in found)


@given(charged=st.floats(1.0, 40.0), learned=st.floats(1.0, 80.0), beside=st.floats(0.0, 60.0), ours=st.booleans())
def test_a_raise_never_makes_charged_and_reserve_exceed_the_capacity(
    charged: float, learned: float, beside: float, ours: bool
) -> None:
    other = on("unified", beside, 2, "esm", "busy", job_id=3)
    parts: tuple[object, ...] = (
        provider("boltz", 1.0, 0.0),
        provider("esm", 1.0),
        larger(learned=Learned(learned, 0.0, 3)),
    )
    left = 64.0 - beside if not ours else 64.0
    there = () if ours else (holding(Charge("unified", beside, beside, "device")),)
    here = unified(64.0, free=max(0.0, left), available=max(0.0, left), holdings=there)
    workers = (on("unified", charged, 1, "boltz", host_gib=0.0), *((other,) if ours else ()))
    for order in plan(snapshot(*parts, *workers, machine=here)):
        if isinstance(order, Raise):
            assert fits((math.fsum(order.charges.values()), beside, 4.0), 64.0)


def test_on_unified_memory_what_one_job_made_a_worker_touch_of_a_part_pays_not_for_the_other_part_of_the_next() -> None:
    """30 GiB of its device and 2 of host memory; the next job takes 20 and 9: it will hold 30 and 9."""
    risen_before = on("unified", 32.0, 1, "boltz", host_gib=2.0)
    job = larger(learned=Learned(20.0, 9.0, 3))
    [order] = [
        each
        for each in plan(snapshot(boltz(), risen_before, job, machine=unified(64.0)))
        if isinstance(each, Raise | Send)
    ]
    assert isinstance(order, Raise) and order.charges == {"unified": 39.0} and order.host_gib == 9.0
    full = unified(42.0, free=42.0, available=42.0)
    assert not [each for each in plan(snapshot(boltz(), risen_before, job, machine=full)) if isinstance(each, Send)]


@pytest.mark.parametrize("head_for_s", [None, 900.0])
def test_a_worker_that_can_never_be_raised_far_enough_makes_room_for_one_that_is_started_anew(
    head_for_s: float | None,
) -> None:
    """30 and 9 GiB are more than 40 less 4; 20 and 9 are not. And a card of 24 GiB will never have 40, another has."""
    job = larger(learned=Learned(20.0, 9.0, 3), head_for_s=head_for_s)
    touched = on("unified", 32.0, 1, "boltz", host_gib=2.0)
    found = plan(snapshot(boltz(), touched, job, machine=unified(40.0)))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [1]
    job = larger(learned=Learned(40.0, 2.0, 3), head_for_s=head_for_s)
    small, here = carded(20.0), machine(card(capacity=24.0), card("GPU-2"))
    found = plan(snapshot(boltz(), small, job, machine=here))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [1]
    [told] = [each for each in found if isinstance(each, Explain)]
    assert isinstance(told.why, str) and "idle worker 1 makes room for it now" in told.why


def test_a_worker_that_others_alone_keep_from_its_raise_or_that_is_pinned_stays() -> None:
    job = larger(learned=Learned(40.0, 2.0, 3))
    esm, busy = provider("esm", 33.0), on("unified", 33.0, 2, "esm", "busy", job_id=3)
    found = plan(snapshot(boltz(), esm, warm(), busy, job, machine=unified(64.0)))
    assert not [each for each in found if isinstance(each, Retire)]
    here = machine(card(capacity=24.0), card("GPU-2"))
    found = plan(snapshot(boltz(), carded(20.0, pinned=True), job, machine=here))
    assert not [each for each in found if isinstance(each, Retire)]


# On cards, where a job may lack of the one pool and not of the other

CARD = "device:GPU-1"


def carded(device_gib: float = 22.0, host_gib: float = 2.0, **over: Any) -> WorkerView:
    return worker(1, "boltz", charges={CARD: device_gib, "host": host_gib}, host_gib=host_gib, **over)


@pytest.mark.parametrize("cards", [(card(),), (card(), card("GPU-2"))], ids=["one card", "two cards"])
def test_a_warm_worker_on_a_card_that_lacks_host_memory_alone_is_raised_by_that(cards: tuple[Any, ...]) -> None:
    job = larger(learned=Learned(20.0, 9.0, 3))
    found = plan(snapshot(boltz(), carded(), job, machine=machine(*cards)))
    [order] = [each for each in found if isinstance(each, Raise)]
    assert order.charges == {CARD: 22.0, "host": 9.0}
    assert [(place.pool, place.demand_gib) for place in order.verdict.evidence.placement] == [("host", 7.0)]


def test_a_warm_worker_that_lacks_memory_of_its_card_alone_is_raised_by_that() -> None:
    found = plan(snapshot(boltz(), carded(), larger(learned=Learned(30.0, 1.0, 3)), machine=machine(card())))
    [order] = [each for each in found if isinstance(each, Raise)]
    assert order.charges == {CARD: 30.0, "host": 2.0}


def test_idle_workers_make_room_for_the_host_memory_that_a_worker_on_a_card_lacks() -> None:
    esm, idle = provider("esm", 0.0, 50.0), worker(2, "esm", charges={"host": 50.0})
    job = larger(learned=Learned(20.0, 20.0, 3))
    found = plan(snapshot(boltz(), esm, carded(), idle, job, machine=machine(card())))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [2]
    busy = worker(2, "esm", "busy", charges={"host": 50.0}, job_id=3)
    found = plan(snapshot(boltz(), esm, carded(), busy, job, machine=machine(card())))
    assert not [each for each in found if isinstance(each, Raise | Retire)]
    [told] = [each for each in found if isinstance(each, Explain)]
    assert told.ruling == "pool_full" and "is charged 2 GiB of host, and this job is charged 20 GiB" in told.why


def test_a_closed_head_that_lacks_host_memory_waits_for_the_workers_that_have_it() -> None:
    esm, busy = provider("esm", 0.0, 50.0), worker(2, "esm", "busy", charges={"host": 50.0}, job_id=3)
    job = larger(learned=Learned(20.0, 20.0, 3), head_for_s=900.0)
    found = plan(snapshot(boltz(), esm, carded(), busy, job, waiting("esm", 8), machine=machine(card())))
    [head] = [each for each in found if isinstance(each, Head) and each.job_id == 7]
    assert head.victims == (2,)


# Once it is raised


def risen(raised: str = "shown", **over: Any) -> WorkerView:
    """A warm worker of 22 GiB that was raised to 32 for job 7."""
    values = {"job_id": 7, "attempt": 1, "host_gib": 2.0, "before": {"unified": 22.0}, **over}
    return on("unified", 32.0, 1, "boltz", raised=raised, **values)


def test_nothing_is_sent_until_all_can_see_what_the_charges_were_raised_to() -> None:
    assert plan(snapshot(boltz(), risen("asked"), machine=unified(64.0))) == []
    assert plan(snapshot(boltz(), risen("unasked"), machine=unified(64.0))) == [Show(1)]
    assert Send(1, 7) in plan(snapshot(boltz(), risen(), machine=unified(64.0)))


def test_a_raise_that_somebody_else_was_admitted_beside_is_taken_back() -> None:
    theirs = holding(Charge("unified", 30.0, 0.0, "device"))
    found = plan(snapshot(boltz(), risen(), machine=unified(64.0, holdings=(theirs,))))
    [order] = [each for each in found if isinstance(each, Lower)]
    assert order.verdict is not None and order.verdict.ruling == "pool_full"
    assert not [each for each in found if isinstance(each, Send)]


def test_a_raise_counts_what_its_worker_uses_already_once() -> None:
    """22 GiB are in use, 10 more are asked for, 4 stay reserved: 36 of 37 GiB."""
    used = holding(Charge("unified", 30.0, 20.0, "device"), Charge("unified", 2.0, 2.0, "host"), worker_id=1)
    here = unified(37.0, free=15.0, available=15.0, holdings=(used,))
    assert Send(1, 7) in plan(snapshot(boltz(), risen(), machine=here))
    short = unified(37.0, free=13.9, available=13.9, holdings=(used,))
    assert [each.worker_id for each in plan(snapshot(boltz(), risen(), machine=short)) if isinstance(each, Lower)] == [
        1
    ]


def test_memory_that_a_raise_has_is_not_given_to_a_start_of_the_same_queue() -> None:
    esm = provider("esm", 30.0)
    found = plan(snapshot(boltz(), esm, risen("asked"), waiting("esm", 9), machine=unified(64.0)))
    assert [each.ruling for each in found if isinstance(each, Explain)] == ["pool_full"]


@pytest.mark.parametrize(
    ("over", "queue"),
    [({"job_id": None}, {}), ({}, {"paused": True}), ({}, {"drained": True}), ({}, {"draining": True})],
)
@pytest.mark.parametrize("raised", ["unasked", "asked", "shown"])
def test_a_raise_without_its_job_or_in_a_queue_that_sends_nothing_is_taken_back_and_its_worker_lives(
    over: dict[str, Any], queue: dict[str, Any], raised: str
) -> None:
    found = plan(snapshot(boltz(), risen(raised, **over), machine=unified(64.0), **queue))
    assert [type(each) for each in found] == [Lower]


def test_a_worker_whose_raise_is_not_taken_back_yet_is_sent_nothing_else() -> None:
    found = plan(snapshot(boltz(), risen(job_id=None), larger(), machine=unified(64.0)))
    assert not [each for each in found if isinstance(each, Send | Raise)]
