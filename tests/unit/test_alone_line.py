"""Whom a job that runs alone keeps waiting, and who keeps it: one that cannot go keeps nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import broken, card, holding, lease, machine, pool, provider, snapshot, unified, waiting, worker

from scheduler.model.command import EXEC, Shape, provider_of
from scheduler.model.machine import Charge, Machine
from scheduler.model.plan import Explain, Head, Postpone, Retire, Send, Snapshot, Start, Waiting, Wish, WorkerView
from scheduler.rules.plan import plan

CLOSED = 900.0


def alone(slug: str = "boltz", job_id: int = 5, behind: int = 9, **over: Any) -> Waiting:
    return waiting(slug, job_id, **{"alone": "again", "behind": behind, **over})


def seen(jobs: list[Waiting], *parts: object, on: Machine | None = None, **over: Any) -> Snapshot:
    return replace(snapshot(*parts, machine=on or unified(64.0)), alone=tuple(jobs), **over)


def stranger(gib: float, capacity: float = 64.0) -> Machine:
    other = holding(Charge("unified", gib, gib, "device"), name="somebody")
    return unified(capacity, free=capacity - gib, available=capacity - gib, holdings=(other,))


def boltz(**over: Any) -> Any:
    return provider("boltz", 20.0, 2.0, **over)


def at(place: str, gib: float, id: int = 1, slug: str = "esm", state: str = "ready", **over: Any) -> WorkerView:
    return worker(id, slug, state, charges={place: gib}, **over)


def starts(found: list[Any]) -> list[str]:
    return [each.slug for each in found if isinstance(each, Start)]


def heads(found: list[Any]) -> set[int]:
    return {each.job_id for each in found if isinstance(each, Head)}


def whys(found: list[Any]) -> dict[int, Explain]:
    return {each.job_id: each for each in found if isinstance(each, Explain) and not each.slug}


COMMAND = Shape(20.0, 2.0, 1, 1, True, "d", "a").variant()


def exclusive(**over: Any) -> Waiting:
    return alone(EXEC, variant=COMMAND, revision="", **over)


KINDS = {
    "again": (alone(head_for_s=CLOSED), boltz()),
    "measured": (alone(head_for_s=CLOSED, alone="measure"), provider("boltz", None)),
    "exclusive": (exclusive(head_for_s=CLOSED), provider_of(COMMAND)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["stranger", "leak", "pin"])
def test_one_that_could_not_go_if_all_of_ours_had_gone_holds_nobody_back_and_evicts_nobody(
    kind: str, what: str
) -> None:
    job, own = KINDS[kind]
    gib = 59.9 if kind == "measured" else 45.0
    here, there = unified(64.0 if kind != "measured" else 70.0), []
    if what == "stranger":
        here = stranger(gib, here.pools[0].capacity.value or 0.0)
    elif what == "leak":
        there = [lease(pool="unified", gib=gib, state="leaked")]
    else:
        there = [at("unified", gib, 8, "big", pinned=True)]
    if kind == "measured":  # it needs next to nothing: it is kept out by what is full to the brim
        big = 65.95
        here = stranger(big, 70.0) if what == "stranger" else here
        there = [replace(each, charges={"unified": big}) if isinstance(each, WorkerView) else each for each in there]
        there = [lease(pool="unified", gib=big, state="leaked")] if what == "leak" else there
    small = provider("esm", 0.02, 0.0) if kind == "measured" else provider("esm", 5.0)
    fold = at("unified", 0.02 if kind == "measured" else 3.0, 3, "fold")
    parts = (own, small, provider("fold", 0.02), provider("big", 1.0), fold)
    found = plan(seen([job], *parts, waiting("esm", 10), *there, on=here))
    assert starts(found) == ["esm"], "what stands behind it goes on"
    assert not any(isinstance(each, Retire) for each in found), "nothing is evicted for it"
    assert 5 not in heads(found)
    if what == "pin":
        assert whys(found)[5].ruling in ("pool_full", "busy")
    else:
        assert whys(found)[5].ruling in ("pool_full", "no_room_now")


def test_a_pinned_worker_beside_which_it_would_fit_holds_nobody_back_either_and_is_named() -> None:
    pinned, fold = at("unified", 5.0, 3, "fold", pinned=True), at("unified", 5.0, 4, "idle")
    parts = (boltz(), provider("esm", 5.0), provider("fold", 5.0), provider("idle", 5.0), pinned, fold)
    found = plan(seen([alone(head_for_s=CLOSED)], *parts, waiting("esm", 10)))
    assert starts(found) == ["esm"] and 5 not in heads(found)
    assert not any(isinstance(each, Retire) for each in found)
    assert whys(found)[5].ruling == "busy" and "unpin 3" in str(whys(found)[5].why)


def test_of_two_cards_it_takes_the_one_that_it_can_be_given() -> None:
    other = holding(Charge("device:GPU-1", 75.0, 75.0, "device"), name="somebody")
    here = machine(card("GPU-1", 80.0, free=5.0), card("GPU-2", 40.0), pool(capacity=128.0), holdings=(other,))
    [start] = [each for each in plan(seen([alone()], boltz(), on=here)) if isinstance(each, Start)]
    assert start.charges["device:GPU-2"] > 38.0 and "device:GPU-1" not in start.charges


def test_what_is_started_in_the_same_plan_ends_again_and_takes_no_window_from_it() -> None:
    busy = at("unified", 10.0, 1, "fold", "busy", job_id=2)
    parts = (boltz(), provider("esm", 45.0), provider("fold", 10.0), busy, waiting("esm", 10))
    found = plan(seen([alone(head_for_s=10.0)], *parts))
    assert starts(found) == ["esm"] and 5 in heads(found)


def test_its_own_warm_worker_gets_it_although_no_second_one_would_fit() -> None:
    own = at("unified", 30.0, 4, "boltz", alone=True, jobs_served=1, state_s=9.0)
    found = plan(seen([alone()], boltz(), own, on=stranger(45.0)))
    assert [each for each in found if isinstance(each, Send)] == [Send(4, 5)]


def test_its_warm_worker_is_not_evicted_for_a_job_behind_it() -> None:
    own = at("unified", 60.0, 4, "boltz", alone=True, jobs_served=1, state_s=9.0)
    found = plan(seen([alone()], boltz(), provider("esm", 5.0), own, waiting("esm", 10)))
    assert [each for each in found if isinstance(each, Send)] == [Send(4, 5)]
    assert not any(isinstance(each, Retire) for each in found)


def test_a_worker_that_waits_for_the_next_of_them_makes_room_for_a_job_before_it() -> None:
    own = at("unified", 60.0, 4, "boltz", alone=True, jobs_served=1, state_s=9.0)
    found = plan(seen([alone()], boltz(), own, waiting("boltz", 99, priority=1)))
    assert [each.worker_id for each in found if isinstance(each, Retire)] == [4]


KEPT = {
    "revision": (alone(revision="old"), [boltz()]),
    "not_installed": (alone("gone"), []),
    "breaker": (alone(), [boltz(), broken()]),
    "undeclared": (alone(), [provider("boltz", None)]),
    "too_big": (alone(), [provider("boltz", 500.0)]),
    "paused": (alone(paused="its provider is paused"), [boltz()]),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", ["again", "measure", "exclusive"])
@pytest.mark.parametrize("ruling", KEPT)
def test_one_that_may_not_go_keeps_no_other_and_each_has_its_own_reason(ruling: str, kind: str, strict: bool) -> None:
    job, parts = KEPT[ruling]
    after = exclusive(job_id=7) if kind == "exclusive" else alone("esm", 7, alone=kind)
    third = alone("fold", 8)
    job = replace(job, head_for_s=CLOSED)
    parts = [*parts, provider("esm", 10.0), provider("fold", 10.0), provider_of(COMMAND)]
    found = plan(seen([job, after, third], *parts, strict=strict))
    assert [(each.job_id, each.alone) for each in found if isinstance(each, Start)] == [(7, True)]
    told = whys(found)
    assert told[5].ruling == ruling and told[8].ruling == "reserved" and f"job 7 of {after.slug}" in str(told[8].why)
    assert len({(each.slug, each.variant) for each in told.values()}) == 2, "one reason does not overwrite the other"


def test_at_most_one_of_them_is_a_head_and_those_behind_an_ordinary_job_keep_their_order() -> None:
    parts = (boltz(), provider("esm", 10.0), provider("fold", 10.0))
    busy = at("unified", 10.0, 1, "fold", "busy", job_id=2)
    found = plan(seen([alone(revision="old"), alone("esm", 6), alone("fold", 7)], *parts, busy))
    assert heads(found) == {6} and starts(found) == []
    taken = at("unified", 10.0, 1, "fold", "busy", job_id=2)
    found = plan(seen([alone(), alone("esm", 6)], *parts, taken, waiting("fold", 8)))
    assert heads(found) == {8} and starts(found) == []
    told = whys(found)
    assert "job 8 of fold is first" in str(told[5].why) and "job 5 of boltz is first" in str(told[6].why)


def test_a_measurement_goes_where_the_retry_of_the_same_provider_waits_for_its_figures() -> None:
    found = plan(seen([alone(), alone(job_id=6, alone="measure")], provider("boltz", None, 2.0)))
    assert [each.job_id for each in found if isinstance(each, Start)] == [6]
    assert whys(found)[5].ruling == "undeclared"


def test_what_an_operator_wants_warm_is_not_started_into_the_room_that_one_waits_for() -> None:
    parts = (boltz(), provider("esm", 5.0), provider("fold", 10.0), at("unified", 10.0, 1, "fold", "busy", job_id=2))
    found = plan(seen([alone()], *parts, wishes=(Wish("esm", ""),)))
    assert starts(found) == []
    [late] = [each for each in found if isinstance(each, Postpone)]
    assert (
        late.ruling == "reserved" and "job 5 of boltz" in str(late.why) and "esm is started after it" in str(late.why)
    )
    found = plan(seen([alone(revision="old")], *parts, wishes=(Wish("esm", ""),)))
    assert starts(found) == ["esm"], "one that may not go keeps no wish"
