"""Jobs that run alone, and warm workers whose charge is raised: the pure plan over whole machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import card, holding, lease, machine, pool, provider, snapshot, unified, waiting, worker
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import Charge, Machine
from scheduler.model.plan import Explain, Head, Retire, Send, Snapshot, Start, Waiting, WorkerView
from scheduler.rules.plan import plan
from scheduler.rules.room import fits


def alone(slug: str = "boltz", job_id: int = 5, behind: int = 9, **over: Any) -> Waiting:
    return waiting(slug, job_id, **{"alone": "again", "behind": behind, **over})


def seen(job: Waiting, *parts: object, on: Machine | None = None, **over: Any) -> Snapshot:
    return replace(snapshot(*parts, machine=on or unified(64.0)), alone=(job,), **over)


def boltz(**over: Any) -> Any:
    return provider("boltz", 20.0, 2.0, **over)


def started(found: list[Any]) -> Start | None:
    return next((each for each in found if isinstance(each, Start)), None)


def why(found: list[Any]) -> Explain:
    return next(each for each in found if isinstance(each, Explain) and not each.slug)


def on(place: str, gib: float, id: int = 1, slug: str = "esm", state: str = "ready", **over: Any) -> WorkerView:
    return worker(id, slug, state, charges={place: gib}, **over)


def test_it_starts_with_all_that_its_pool_can_give_when_nobody_of_ours_is_there() -> None:
    start = started(plan(seen(alone(), boltz())))
    assert start is not None and start.alone and start.job_id == 5
    assert 58.0 < start.charges["unified"] <= 60.0
    assert start.verdict.evidence.demand.host_gib == 2.0


def test_what_strangers_hold_is_not_given() -> None:
    other = holding(Charge("unified", 30.0, 30.0, "device"))
    here = unified(64.0, free=34.0, available=34.0, holdings=(other,))
    start = started(plan(seen(alone(), boltz(), on=here)))
    assert start is not None and 28.0 < start.charges["unified"] <= 30.0


def test_less_than_its_charge_is_not_enough_and_the_numbers_say_so() -> None:
    other = holding(Charge("unified", 45.0, 45.0, "device"))
    here = unified(64.0, free=19.0, available=19.0, holdings=(other,))
    found = plan(seen(alone(), boltz(), on=here))
    assert started(found) is None
    assert why(found).ruling == "pool_full"


def test_it_stands_behind_what_was_there_and_before_what_came_later() -> None:
    before, after = waiting("esm", 9), waiting("esm", 10)
    esm = provider("esm", 10.0)
    assert started(plan(seen(alone(), boltz(), esm, before))).slug == "esm"
    taken = on("unified", 10.0, state="busy", job_id=2)
    found = plan(seen(alone(), boltz(), esm, before, taken))
    assert started(found) is None and why(found).ruling == "reserved"
    assert "job 9 of esm is first" in why(found).why
    assert not any(isinstance(each, Head) and each.job_id == 5 for each in found)
    found = plan(seen(alone(), boltz(), esm, after, busy := on("unified", 10.0, state="busy", job_id=2)))
    assert busy and any(isinstance(each, Head) and each.job_id == 5 for each in found)


def test_a_higher_priority_goes_first_and_a_lower_one_does_not() -> None:
    esm = provider("esm", 10.0)
    assert started(plan(seen(alone(), boltz(), esm, waiting("esm", 99, priority=1)))).slug == "esm"
    found = plan(seen(alone(priority=1, head_for_s=900.0), boltz(), esm, waiting("esm", 1)))
    assert [each.slug for each in found if isinstance(each, Start)] == ["boltz"]


def test_inside_its_window_others_go_on_and_after_it_nothing_behind_it_is_sent_or_started() -> None:
    esm, fold = provider("esm", 10.0), provider("fold", 10.0)
    busy = on("unified", 10.0, 1, "fold", "busy", job_id=2)
    parts = (boltz(), esm, fold, busy, on("unified", 10.0, 2, "esm"), waiting("esm", 10))
    found = plan(seen(alone(head_for_s=10.0), *parts))
    assert any(isinstance(each, Send) for each in found)
    found = plan(seen(alone(head_for_s=900.0), *parts))
    assert not any(isinstance(each, Send | Start) for each in found)
    assert why(found).ruling == "busy" and "worker 1 of fold has job 2 there" in why(found).why


def test_idle_workers_make_room_when_nobody_there_is_at_work() -> None:
    esm = provider("esm", 10.0)
    found = plan(seen(alone(), boltz(), esm, on("unified", 10.0, 3)))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [3] and started(found) is None
    found = plan(seen(alone(), boltz(), esm, on("unified", 10.0, 3, state="retiring")))
    assert started(found) is None, "its memory is not back"
    found = plan(seen(alone(), boltz(), esm, lease(pool="unified", gib=10.0)))
    assert started(found) is None
    found = plan(seen(alone(), boltz(), esm, lease(pool="unified", gib=10.0, state="leaked")))
    assert started(found).charges["unified"] <= 50.0, "what leaked is not waited for, and not given"


def test_a_pinned_worker_is_named() -> None:
    found = plan(seen(alone(head_for_s=900.0), boltz(), provider("esm", 10.0), on("unified", 10.0, 3, pinned=True)))
    assert not any(isinstance(each, Retire) for each in found)
    assert "unpin 3" in why(found).why


def test_the_next_of_them_goes_to_the_same_worker_and_an_ordinary_job_does_not() -> None:
    own = on("unified", 60.0, 4, "boltz", alone=True, jobs_served=1, state_s=9.0)
    found = plan(seen(alone(), boltz(), own))
    assert [each for each in found if isinstance(each, Send)] == [Send(4, 5)]
    found = plan(snapshot(boltz(), own, waiting("boltz", 7), machine=unified(64.0)))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [4]
    assert not any(isinstance(each, Send) for each in found)


def test_an_ordinary_job_is_not_sent_to_a_worker_that_waits_for_the_next_of_them() -> None:
    own = on("unified", 60.0, 4, "boltz", alone=True, jobs_served=1, state_s=9.0)
    found = plan(seen(alone(behind=9), boltz(), own, waiting("boltz", 8)))
    assert not any(isinstance(each, Send) and each.job_id == 8 for each in found)


def test_one_that_is_measured_is_seen_idle_first() -> None:
    own = on("unified", 60.0, 4, "boltz", alone=True, job_id=5, attempt=1)
    assert not any(isinstance(each, Send) for each in plan(snapshot(boltz(), replace(own, state_s=1.0))))
    assert any(isinstance(each, Send) for each in plan(snapshot(boltz(), replace(own, state_s=3.0))))


def test_what_declares_nothing_or_too_much_can_be_measured_and_not_tried_again() -> None:
    for vram in (None, 500.0):
        start = started(plan(seen(alone(alone="measure"), provider("boltz", vram, 2.0))))
        assert start is not None and 58.0 < start.charges["unified"] <= 60.0
        found = plan(seen(alone(), provider("boltz", vram, 2.0)))
        assert started(found) is None and why(found).ruling in ("undeclared", "too_big")


def test_on_cards_it_takes_the_largest_and_the_hosts_memory() -> None:
    here = machine(card("GPU-1", 24.0), card("GPU-2", 80.0), pool(capacity=128.0))
    start = started(plan(seen(alone(), boltz(), on=here)))
    assert start.charges["device:GPU-2"] > 77.0 and start.charges["host"] > 120.0
    assert "device:GPU-1" not in start.charges


def test_a_job_of_another_revision_or_of_a_missing_provider_says_so() -> None:
    assert why(plan(seen(alone(revision="old"), boltz()))).ruling == "revision"
    assert why(plan(seen(alone("gone"), boltz()))).ruling == "not_installed"
    assert why(plan(seen(alone(), boltz(), paused=True))).ruling == "paused"


STATES = ("parked", "starting", "ready", "busy", "retiring")


@given(
    those=st.lists(st.tuples(st.sampled_from(STATES), st.integers(0, 2), st.floats(1.0, 20.0)), max_size=5),
    head_for_s=st.one_of(st.none(), st.floats(0.0, 2000.0)),
    behind=st.integers(0, 12),
    others=st.lists(st.integers(1, 12), max_size=2, unique=True),
)
def test_whatever_stands_there_it_starts_beside_nobody_of_ours_and_within_its_pools(
    those: list[tuple[str, int, float]], head_for_s: float | None, behind: int, others: list[int]
) -> None:
    here = machine(card("GPU-1", 80.0), card("GPU-2", 80.0), pool(capacity=128.0))
    workers = []
    for n, (state, where, gib) in enumerate(those, 1):
        charges = {"host": gib} if where == 0 else {f"device:GPU-{where}": gib, "host": 1.0}
        job = 100 + n if state in ("busy", "parked", "starting") else None
        workers.append(worker(n, "esm", state, charges=charges, job_id=job, attempt=1 if job else None))
    jobs = [waiting(slug, job) for slug, job in zip(("esm", "fold"), others, strict=False)]
    parts = (boltz(), provider("esm", 5.0), provider("fold", 5.0), *workers, *jobs)
    found = plan(seen(alone(job_id=50, behind=behind, head_for_s=head_for_s), *parts, on=here))
    start = next((each for each in found if isinstance(each, Start) and each.job_id == 50), None)
    if start is not None:
        begun = [each for each in found if isinstance(each, Start) and each is not start]
        assert not [w for w in (*workers, *begun) if set(w.charges) & set(start.charges)], "somebody of ours is there"
        for each in start.verdict.evidence.placement:
            assert fits((each.charged_gib, each.demand_gib, each.reserve_gib), each.capacity.value or 0.0)
        assert not [
            j
            for j in jobs
            if j.job_id <= behind and (j.slug, "") not in {(e.slug, e.variant) for e in found if isinstance(e, Start)}
        ]  # noqa: E501
    else:
        assert why(found).why
