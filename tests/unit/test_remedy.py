"""What would let a demand in: one example of each kind of change, then against every set there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from builders import claim, demand, holding, machine, pool, unified, worker
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.machine import Charge, Holding, Machine
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
