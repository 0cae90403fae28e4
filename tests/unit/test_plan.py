"""What a tick does: a snapshot in, the instructions out; then what holds for every snapshot."""

from __future__ import annotations

import math
from dataclasses import replace

from builders import broken, card, holding, lease, machine, pool, provider, snapshot, unified, waiting, worker
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.machine import Charge, Pool
from scheduler.model.outcome import RULINGS
from scheduler.model.plan import Abort, Explain, Go, Head, Instruction, Retire, Send, Snapshot, Start
from scheduler.rules import explain
from scheduler.rules.admission import Claim, claims_of, decide
from scheduler.rules.order import PRESENT
from scheduler.rules.placement import demand_of, most_workers
from scheduler.rules.plan import plan
from scheduler.rules.room import SLACK_GIB

HERE = machine(pool("host", 64.0))


def made(*parts: object, **over: object) -> list[Instruction]:
    return plan(snapshot(*parts, **over))


def only(kind: type, found: list[Instruction]) -> list[Instruction]:
    return [each for each in found if isinstance(each, kind)]


def started(found: list[Instruction]) -> list[int]:
    return [each.job_id for each in found if isinstance(each, Start)]


def retired(found: list[Instruction]) -> list[int]:
    return [each.worker_id for each in found if isinstance(each, Retire)]


def told(found: list[Instruction]) -> dict[str, str]:
    return {each.slug: each.ruling for each in found if isinstance(each, Explain)}


def test_an_empty_queue_has_nothing_to_do() -> None:
    assert made(provider(), worker()) == []


def test_a_job_whose_provider_is_absent_starts_a_worker_with_its_charges() -> None:
    (start,) = only(Start, made(provider(vram=28.0, ram=6.0), waiting(), machine=unified()))
    assert isinstance(start, Start)
    assert (start.job_id, start.slug, start.charges) == (1, "boltz", {"unified": 34.0})
    assert start.verdict.admit


def test_a_ready_worker_is_sent_its_providers_next_job() -> None:
    assert made(provider(), waiting(job_id=7), worker(3)) == [Send(3, 7)]


def test_a_ready_worker_is_sent_the_job_that_was_admitted_to_it_and_no_other() -> None:
    found = made(provider(), waiting(job_id=7), worker(3, job_id=6))
    assert only(Send, found) == [Send(3, 6)] and told(found) == {"boltz": "busy"}


def test_a_worker_of_another_revision_is_sent_nothing() -> None:
    found = made(provider(), waiting(), worker(3, revision="older"))
    assert retired(found) == [3] and only(Send, found) == []


def test_a_busy_or_starting_worker_is_waited_for_and_named() -> None:
    for state in ("busy", "starting", "parked"):
        found = made(provider(), waiting(job_id=7), worker(3, state=state, job_id=6, shown=False))
        assert only(Start, found) == [] and only(Head, found) == [Head(7)]
        assert told(found) == {"boltz": "busy" if state == "busy" else "starting"}


def test_two_starts_in_one_plan_see_each_others_charges() -> None:
    found = made(
        provider("a", ram=40.0), provider("b", ram=40.0), provider("c", ram=20.0),
        waiting("a", 1), waiting("b", 2), waiting("c", 3),
    )  # fmt: skip
    assert started(found) == [1, 3]
    assert told(found) == {"b": "pool_full"}


def test_a_parked_worker_that_all_can_see_goes_or_is_ended() -> None:
    parked = worker(3, state="parked", gib=40.0, job_id=1)
    big = provider(ram=40.0)
    assert made(big, parked) == [Go(3)]
    assert made(big, replace(parked, shown=False)) == []
    rival = machine(holdings=(holding(Charge("host", 30.0, 0.0)),))
    (abort,) = made(big, parked, machine=rival)
    assert isinstance(abort, Abort) and abort.outcome == "" and "40 GiB of host" in abort.why


def test_of_two_parked_workers_the_second_sees_the_first_compete() -> None:
    here = machine(pool("host", 64.0, free=5.0, available=60.0))
    first, second = worker(1, "a", "parked", 10.0, job_id=1), worker(2, "b", "parked", 10.0, job_id=2)
    found = made(provider("a", ram=10.0), provider("b", ram=10.0), first, second, machine=here)
    assert only(Go, found) == [Go(1)] and [a.worker_id for a in found if isinstance(a, Abort)] == [2]


def test_idle_workers_that_nothing_waits_for_make_room_and_the_job_is_told_so() -> None:
    found = made(provider(ram=40.0), waiting(), worker(5, "esm", gib=30.0))
    assert retired(found) == [5] and started(found) == []
    assert told(found) == {"boltz": "pool_full"}
    (why,) = [explain.told(each.why) for each in found if isinstance(each, Explain)]
    assert "idle worker 5" in why
    assert started(made(provider(ram=40.0), waiting())) == [1]


def test_inside_the_window_a_worker_with_waiting_jobs_is_not_evicted_but_sent_its_next() -> None:
    parts = (provider(ram=40.0), provider("esm", ram=30.0), waiting(job_id=1), waiting("esm", 2))
    found = made(*parts, worker(5, "esm", gib=30.0))
    assert retired(found) == [] and only(Send, found) == [Send(5, 2)] and only(Head, found) == [Head(1)]


def test_once_the_window_has_closed_it_is_sent_nothing_and_goes_for_the_head() -> None:
    head = waiting(job_id=1, head_for_s=900.0)
    parts = (provider(ram=40.0), provider("esm", ram=30.0), head, waiting("esm", 2))
    found = made(*parts, worker(5, "esm", gib=30.0))
    assert retired(found) == [5] and only(Send, found) == []
    assert told(found) == {"boltz": "pool_full", "esm": "reserved"}


def test_after_the_closing_a_busy_worker_is_waited_for_and_others_start_only_beside_what_is_kept() -> None:
    head = waiting(job_id=1, head_for_s=900.0)
    parts = (provider(ram=40.0), head, worker(5, "esm", "busy", 30.0, job_id=9))
    small, large = (provider("tiny", ram=21.0), waiting("tiny", 3)), (provider("large", ram=25.0), waiting("large", 4))
    found = made(*parts, *large)
    assert started(found) == [] and told(found) == {"boltz": "pool_full", "large": "reserved"}
    found = made(*parts, *small, *large)
    assert only(Head, found) == [Head(1, (5,))] and started(found) == [3]


def test_the_victims_are_chosen_once_and_what_is_left_of_them_is_waited_for() -> None:
    parts = (provider(ram=40.0), provider("esm", ram=30.0), provider("af3", ram=12.0), waiting("esm", 2))
    head = waiting(job_id=1, head_for_s=900.0, victims=(5,))
    busy = (worker(5, "esm", "busy", 30.0, job_id=9, state_s=1.0), worker(6, "af3", "busy", 12.0, job_id=8))
    assert only(Head, made(*parts, head, *busy)) == [Head(1, (5,))]
    assert only(Head, made(*parts, replace(head, victims=None), *busy)) == [Head(1, (5,))]
    found = made(*parts, head, replace(busy[0], state="ready", job_id=None), busy[1])
    assert retired(found) == [5] and only(Send, found) == []


def test_a_set_of_victims_that_is_gone_without_making_the_room_is_chosen_anew() -> None:
    head = waiting(job_id=1, head_for_s=900.0, victims=(77,))
    found = made(provider(ram=40.0), provider("esm"), head, worker(5, "esm", "busy", 30.0, job_id=9))
    assert only(Head, found) == [Head(1, (5,))]


def test_a_job_that_was_admitted_before_the_closing_is_still_sent() -> None:
    head = waiting(job_id=1, head_for_s=900.0)
    found = made(provider(ram=40.0), provider("esm", ram=30.0), head, worker(5, "esm", gib=30.0, job_id=2))
    assert only(Send, found) == [Send(5, 2)] and retired(found) == []


def test_a_closed_window_of_a_head_that_waits_for_its_own_worker_blocks_nobody() -> None:
    head = waiting(job_id=1, head_for_s=5000.0)
    found = made(provider(), provider("esm"), head, waiting("esm", 2), worker(3, state="busy", job_id=9))
    assert started(found) == [2] and told(found) == {"boltz": "busy"}


def test_the_others_go_on_in_the_tick_in_which_a_closed_head_is_served() -> None:
    head = waiting(job_id=1, head_for_s=5000.0)
    found = made(provider(), provider("esm"), provider("c"), head, waiting("esm", 2), waiting("c", 3), worker(7, "esm"))
    assert started(found) == [1, 3] and only(Send, found) == [Send(7, 2)] and told(found) == {}


def test_strict_order_lets_nobody_pass_a_head_that_needs_room() -> None:
    found = made(
        provider("a", ram=40.0), provider("b"), waiting("a", 1), waiting("b", 2),
        worker(5, "x", "busy", 30.0, job_id=9), strict=True,
    )  # fmt: skip
    assert started(found) == [] and told(found)["b"] == "reserved" and only(Head, found) == [Head(1, (5,))]


def test_room_that_idle_workers_give_back_for_one_job_is_not_taken_by_a_later_one() -> None:
    found = made(
        provider("a", ram=50.0), provider("b", ram=20.0), waiting("a", 1), waiting("b", 2), worker(5, "x", gib=20.0)
    )
    assert retired(found) == [5] and started(found) == []
    assert told(found) == {"a": "pool_full", "b": "reserved"}


def test_a_provider_that_cannot_be_helped_never_holds_up_the_others() -> None:
    hopeless = waiting("boltz", 1, priority=9, head_for_s=1e6)
    found = made(provider(vram=28.0), provider("capiti"), hopeless, waiting("capiti", 2))
    assert started(found) == [2] and told(found) == {"boltz": "no_device"} and only(Head, found) == []
    found = made(provider(), broken(), provider("capiti"), hopeless, waiting("capiti", 2))
    assert started(found) == [2] and told(found) == {"boltz": "breaker"}


def test_a_pinned_worker_is_never_evicted() -> None:
    closed = waiting(job_id=1, head_for_s=1e6)
    assert retired(made(provider(ram=40.0), closed, worker(5, "esm", gib=30.0, pinned=True))) == []


def test_the_threads_of_busy_and_starting_workers_stay_within_the_cores() -> None:
    wide = provider(threads=6)
    busy = worker(3, "esm", "busy", job_id=9)
    esm = provider("esm", threads=4)
    found = made(wide, esm, waiting(), busy)
    assert started(found) == [] and told(found) == {"boltz": "cores"}
    found = made(wide, esm, waiting(), worker(4), busy)
    assert only(Send, found) == [] and told(found) == {"boltz": "cores"}
    assert started(made(replace(wide, threads=4), esm, waiting(), busy)) == [1]


def test_a_job_wider_than_the_machine_runs_alone() -> None:
    wide = provider(threads=16)
    assert started(made(wide, waiting())) == [1]
    assert told(made(wide, provider("esm"), waiting(), worker(3, "esm", "starting"))) == {"boltz": "cores"}
    assert told(made(wide, provider("esm"), waiting("esm", 2), worker(3, state="busy", job_id=1))) == {"esm": "cores"}


def test_a_closed_head_that_lacks_cores_is_not_overtaken_any_more() -> None:
    head = waiting(job_id=1, head_for_s=900.0)
    parts = (provider(threads=8), provider("esm", threads=1), provider("c", threads=1), waiting("esm", 2))
    found = made(*parts, head, worker(4), worker(5, "esm"), worker(6, "c", "busy", job_id=9))
    assert only(Send, found) == [] and told(found) == {"boltz": "cores", "esm": "reserved"}


def test_the_cores_of_a_closed_head_are_kept_while_its_room_is_made() -> None:
    found = made(
        provider("a", ram=1.0, threads=4), provider("b", ram=40.0, threads=4), provider("d", ram=40.0, threads=4),
        waiting("b", 1, head_for_s=900.0), waiting("a", 2), worker(3, "a", charges={"host": 1.0}),
        worker(4, "d", charges={"host": 40.0}), machine=replace(HERE, cores=7),
    )  # fmt: skip
    assert retired(found) == [4] and only(Send, found) == [] and told(found)["a"] == "reserved"


def test_a_second_worker_of_a_provider_starts_only_where_it_may_and_nobody_else_needs_the_room() -> None:
    busy, several = worker(3, state="busy", job_id=6, gib=10.0), provider(ram=10.0, max_workers=2)
    line = waiting(job_id=7, count=9)
    assert started(made(provider(ram=10.0), line, busy)) == []
    assert started(made(several, line, busy)) == [7]
    big = (provider("big", ram=60.0), waiting("big", 9))
    assert started(made(several, line, busy, *big)) == []
    assert started(made(several, line, busy, replace(busy, id=4))) == []


def test_a_second_worker_starts_when_what_waits_takes_longer_than_loading_it() -> None:
    busy = worker(3, state="busy", job_id=6, gib=10.0)
    known = provider(ram=10.0, max_workers=3, load_s=100.0, run_s=40.0)
    assert [started(made(known, waiting(job_id=7, count=n), busy)) for n in (2, 3)] == [[], [7]]
    pair = (busy, replace(busy, id=4))
    assert [started(made(known, waiting(job_id=7, count=n), *pair)) for n in (5, 6)] == [[], [7]]


def test_a_second_worker_waits_for_one_that_comes_up_for_nobody_and_for_jobs_that_lack_cores() -> None:
    busy, several, line = worker(3, state="busy", job_id=6), provider(max_workers=3), waiting(job_id=7, count=9)
    assert started(made(several, line, busy, worker(4, state="starting"))) == []
    wide = (provider("wide", threads=8), waiting("wide", 2), worker(5, "wide"))
    assert started(made(several, line, busy, *wide)) == []


def test_an_idle_worker_of_another_makes_room_for_a_second_one_only_where_that_pays_for_loading_it_again() -> None:
    busy = worker(3, state="busy", job_id=6, gib=30.0)
    parts = (provider(ram=30.0, max_workers=2, load_s=100.0, run_s=10.0), provider("esm", ram=30.0, load_s=200.0), busy)
    for count, gone in ((30, []), (31, [5])):
        found = made(*parts, waiting(job_id=7, count=count), worker(5, "esm", gib=30.0))
        assert retired(found) == gone and started(found) == []
    pinned = worker(5, "esm", gib=30.0, pinned=True)
    assert retired(made(*parts, waiting(job_id=7, count=31), pinned)) == []


def test_unless_it_is_declared_there_is_one_worker_for_each_device_that_holds_one() -> None:
    def most(*cards: Pool, **over: object) -> int:
        return most_workers(provider(**{"vram": 40.0, "max_workers": 0, **over}), machine(*cards))

    large, small, blind = card("a", 80.0), card("b", 40.0), card("c", None)
    assert most(large, replace(large, id="device:d"), small, blind) == 2
    assert most(large, replace(large, id="device:d"), small, count=2) == 1
    assert most(small) == most(pool("unified", 121.0)) == most(large, large, vram=0.0) == 1
    assert most(large, max_workers=7) == 7
    busy = worker(3, state="busy", job_id=6, charges={"device:a": 40.0})
    two = machine(large, replace(large, id="device:d"))
    one = provider(vram=45.0, max_workers=0)
    for there, gained in ((two, [7]), (machine(large), [])):
        assert started(made(one, waiting(job_id=7, count=9), busy, machine=there)) == gained


def test_on_cards_a_second_worker_only_waits_for_those_who_wait_for_a_card_too() -> None:
    cards = machine(pool("device:x", 48.0), pool("device:y", 48.0), pool("host", 64.0))
    several, busy = provider(vram=40.0, max_workers=2), worker(3, state="busy", job_id=6, charges={"device:x": 40.0})
    full = worker(4, "esm", "busy", charges={"host": 20.0}, job_id=8)
    free = (several, waiting(job_id=7, count=9), busy, full)
    on_host = (provider("tool", ram=50.0), waiting("tool", 9))
    on_card = (provider("big", vram=46.0), waiting("big", 9))
    assert started(made(*free, *on_host, machine=cards)) == [7]
    assert started(made(*free, *on_card, machine=cards)) == [9]


def test_memory_that_is_on_its_way_back_is_waited_for_before_an_idle_worker_goes() -> None:
    for returning in (
        lease(90, 30.0),
        worker(4, "x", "retiring", 30.0),
        worker(4, "x", gib=30.0, retire_after="asked"),
    ):
        found = made(provider(ram=30.0), waiting(), returning, worker(5, "esm", gib=30.0))
        assert 5 not in retired(found) and told(found) == {"boltz": "pool_full"}
    (why,) = [explain.told(each.why) for each in found if isinstance(each, Explain)]
    assert "on their way out" in why


def test_a_worker_that_is_sent_its_job_in_this_plan_is_no_victim_of_it() -> None:
    found = made(
        provider("a", ram=20.0), provider("b", ram=50.0), waiting("a", 1), waiting("b", 2), worker(3, "a", gib=20.0),
        overtake_s=0.0,
    )  # fmt: skip
    assert only(Send, found) == [Send(3, 1)] and retired(found) == [] and told(found) == {"b": "pool_full"}


def test_inside_the_window_a_worker_whose_job_only_waits_for_cores_is_kept() -> None:
    found = made(
        provider("a", ram=50.0), provider("b", ram=20.0, threads=8), provider("c"), waiting("a", 1), waiting("b", 2),
        worker(3, "b", gib=20.0), worker(4, "c", "busy", job_id=9),
    )  # fmt: skip
    assert retired(found) == [] and told(found) == {"a": "pool_full", "b": "cores"}


def test_a_busy_worker_of_another_revision_does_not_count_as_the_providers_own() -> None:
    assert started(made(provider(), waiting(), worker(3, state="busy", job_id=9, revision="older"))) == [1]


def test_going_down_starts_nothing_and_says_so() -> None:
    found = made(provider(), waiting(), draining=True)
    assert started(found) == [] and told(found) == {"boltz": "scheduler_down"}


def test_stops_come_before_starts() -> None:
    found = made(
        provider("a", ram=1.0), provider("b", ram=50.0), waiting("a", 1), waiting("b", 2), worker(5, "x", gib=20.0)
    )
    kinds = [type(each) for each in found]
    assert [kind for kind in kinds if kind in (Retire, Start, Explain)] == [Retire, Start, Explain]


# Whatever the snapshot

SLUGS = ["a", "b", "c", "d"]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    kinds = draw(st.sampled_from([("host",), ("unified",), ("device:g", "host")]))
    pools = [
        pool(kind, 64.0, reserve=2.0, free=draw(st.floats(0.0, 64.0)), available=draw(st.floats(30.0, 64.0)))
        for kind in kinds
    ]
    vram = draw(st.sampled_from([0.0, 0.0, 8.0]))
    providers = [
        provider(
            slug, vram, draw(st.floats(0.0, 62.0)), threads=draw(st.integers(1, 12)),
            max_workers=draw(st.integers(1, 2)), installed=draw(st.integers(0, 9)) > 0,
            load_s=draw(st.one_of(st.none(), st.floats(1.0, 100.0))),
        )
        for slug in SLUGS
    ]  # fmt: skip
    ids = iter(range(1, 99))
    lines = [
        waiting(
            slug, next(ids), priority=draw(st.integers(0, 1)), count=draw(st.integers(1, 3)),
            head_for_s=draw(st.sampled_from([None, 0.0, 100.0, 5000.0])),
        )
        for slug in draw(st.lists(st.sampled_from(SLUGS), unique=True))
    ]  # fmt: skip
    workers = []
    for slug in draw(st.lists(st.sampled_from(SLUGS), max_size=4)):
        state = draw(st.sampled_from(["parked", "starting", "ready", "ready", "busy", "retiring"]))
        bound = state == "busy" or (state != "retiring" and draw(st.booleans()))
        workers.append(
            worker(
                next(ids), slug, state, charges={kinds[0]: draw(st.floats(0.0, 30.0))},
                job_id=next(ids) if bound else None, idle_s=draw(st.floats(0.0, 700.0)),
                alive_s=draw(st.floats(0.0, 4000.0)), shown=draw(st.booleans()), pinned=draw(st.booleans()),
                revision=draw(st.sampled_from(["r", "r", "r", "old"])), cancel=draw(st.booleans()),
                deadline_in_s=draw(st.sampled_from([None, None, -1.0, 50.0])),
                retire_after=draw(st.sampled_from(["", "", "", "the operator asked"])),
            )
        )  # fmt: skip
    leases = [lease(next(ids), draw(st.floats(0.0, 30.0)), pool=kinds[0]) for _ in range(draw(st.integers(0, 1)))]
    breakers = [broken("a", draw(st.sampled_from([0.0, 30.0])))] if draw(st.booleans()) else []
    foreign = (holding(Charge(kinds[0], draw(st.one_of(st.none(), st.floats(0.0, 20.0))), 1.0)),)
    return snapshot(
        *providers, *lines, *workers, *leases, *breakers,
        machine=machine(*pools, holdings=foreign if draw(st.booleans()) else ()),
        overtake_s=draw(st.sampled_from([0.0, 900.0])), draining=draw(st.integers(0, 9)) == 0,
        stopping=draw(st.integers(0, 9)) == 0, paused=draw(st.integers(0, 9)) == 0,
    )  # fmt: skip


CASES = settings(max_examples=400, deadline=None)


@given(snapshots())
@CASES
def test_the_same_snapshot_gives_the_same_plan_in_whatever_order_it_is_listed(whole: Snapshot) -> None:
    turned = replace(whole, waiting=whole.waiting[::-1], workers=whole.workers[::-1], leases=whole.leases[::-1])
    assert plan(whole) == plan(whole) == plan(turned)


@given(snapshots())
@CASES
def test_nobody_busy_starting_bound_or_pinned_is_retired_and_no_worker_is_told_two_things(whole: Snapshot) -> None:
    found = plan(whole)
    by_id = {w.id: w for w in whole.workers}
    for worker_id in retired(found):
        assert by_id[worker_id].state == "ready" and by_id[worker_id].job_id is None
    needed = [each.worker_id for each in found if isinstance(each, Retire) and "needed" in each.why]
    assert not any(by_id[worker_id].pinned for worker_id in needed)
    for abort in [each for each in found if isinstance(each, Abort)]:
        view = by_id[abort.worker_id]
        timed_out = view.alive_s >= 3600.0 or (view.deadline_in_s or 1.0) <= 0
        assert view.state != "busy" or whole.stopping or view.cancel or timed_out
    named = [each.worker_id for each in found if isinstance(each, Send | Go | Abort | Retire)]
    assert len(named) == len(set(named))


@given(snapshots())
@CASES
def test_every_waiting_job_is_started_sent_or_explained_and_exactly_one_of_these(whole: Snapshot) -> None:
    found = plan(whole)
    served = [each.job_id for each in found if isinstance(each, Start | Send)]
    explained = [each.job_id for each in found if isinstance(each, Explain)]
    assert len(set(served)) == len(served)
    for line in whole.waiting:
        assert (line.job_id in served) + (line.job_id in explained) == 1
    for each in found:
        if isinstance(each, Explain):
            assert each.ruling in RULINGS and each.ruling != "admit" and explain.told(each.why)


@given(snapshots(), st.data())
@CASES
def test_a_retire_that_comes_between_two_plans_takes_no_job_with_it(whole: Snapshot, data: st.DataObject) -> None:
    named = data.draw(st.lists(st.sampled_from([w.id for w in whole.workers] or [0]), unique=True))
    asked = replace(
        whole,
        workers=tuple(replace(w, retire_after="the operator asked") if w.id in named else w for w in whole.workers),
    )
    found = plan(asked)
    served = {each.job_id for each in found if isinstance(each, Start | Send)}
    told = {each.job_id for each in found if isinstance(each, Explain)}
    assert {line.job_id for line in asked.waiting} <= served | told
    waiting_ids = {line.job_id for line in asked.waiting}
    before = {each.worker_id: each for each in plan(whole) if isinstance(each, Abort)}
    for each in found:
        if isinstance(each, Send) and each.worker_id in named:
            assert each.job_id not in waiting_ids
        if isinstance(each, Abort | Retire) and each.worker_id in named:
            (view,) = [w for w in asked.workers if w.id == each.worker_id]
            assert view.job_id is None or each.worker_id in before


@given(snapshots())
@CASES
def test_what_is_started_together_stays_within_the_pools_beside_all_that_is_charged(whole: Snapshot) -> None:
    starts = [each for each in plan(whole) if isinstance(each, Start)]
    for there in whole.machine.pools:
        new = [start.charges[there.id] for start in starts if there.id in start.charges]
        if not new:
            continue
        foreign = [c.charge_gib for h in whole.machine.holdings for c in h.charges if c.pool == there.id]
        assert None not in foreign
        charged = [w.charges.get(there.id, 0.0) for w in whole.workers]
        charged += [each.charge_gib for each in whole.leases if each.pool == there.id]
        total = math.fsum([*new, *charged, *(gib or 0.0 for gib in foreign), there.reserve_gib])
        assert total <= (there.capacity.value or 0.0) + 2 * SLACK_GIB


@given(snapshots())
@CASES
def test_what_starts_beside_a_closed_head_leaves_it_all_that_its_victims_do_not_give(whole: Snapshot) -> None:
    found = plan(whole)
    by_job = {w.job_id: w for w in whole.waiting}
    for head in only(Head, found):
        assert isinstance(head, Head)
        if head.victims is None:
            continue
        first = by_job[head.job_id]
        if any((w.slug, w.revision) == (first.slug, "r") and w.state in PRESENT for w in whole.workers):
            continue
        starts = [each for each in found if isinstance(each, Start)]
        bound = {w.id for w in whole.workers if w.job_id is not None}
        sends = [each for each in found if isinstance(each, Send) and each.worker_id not in bound]
        drained = [each.job_id for each in sends if each.worker_id in head.victims]
        ahead = [(-by_job[job_id].priority, job_id) < (-first.priority, first.job_id) for job_id in drained]
        assert not drained if first.victims else all(ahead)
        before = [s for s in starts if by_job[s.job_id].priority > first.priority]
        if before:
            continue
        free_to_go = [w for w in whole.workers if w.state == "retiring" or w.id in set(retired(found))]
        away = {w.id for w in free_to_go} | set(head.victims)
        claims = [*claims_of(whole), *(Claim(0, s.slug, s.charges, math.inf) for s in starts)]
        gone = [claim for claim in claims if claim.worker_id in away or (claim.gone and not claim.stays)]
        demand = demand_of(whole.providers[first.slug, ""])
        without = [claim for claim in claims if claim.worker_id]
        if decide(demand, whole.machine, without, away=gone).admit:
            assert decide(demand, whole.machine, claims, away=gone).admit


@given(snapshots())
@CASES
def test_while_it_goes_down_nothing_new_starts(whole: Snapshot) -> None:
    found = plan(replace(whole, draining=True))
    assert not [each for each in found if isinstance(each, Start | Go | Send | Head)]


@given(snapshots())
@CASES
def test_cores_are_never_given_twice(whole: Snapshot) -> None:
    found = plan(whole)
    threads = {slug: whole.providers[slug, ""].threads for slug in SLUGS}
    before = [
        threads[w.slug] for w in whole.workers
        if w.state in ("parked", "starting", "busy") or (w.state == "ready" and w.job_id is not None)
    ]  # fmt: skip
    bound = {w.job_id for w in whole.workers}
    by_id = {w.id: w for w in whole.workers}
    new = [threads[each.slug] for each in found if isinstance(each, Start)]
    new += [
        threads[by_id[each.worker_id].slug] for each in found if isinstance(each, Send) and each.job_id not in bound
    ]
    if new:
        total = sum(before) + sum(new)
        assert total <= whole.machine.cores or (len(new) == 1 and not before)
