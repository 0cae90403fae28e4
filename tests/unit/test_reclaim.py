"""When the file cache is asked to give memory back, and what the plan does meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import demand, machine, pool, provider, snapshot, unified, waiting, worker

from scheduler.model.machine import Closed, Machine
from scheduler.model.plan import Abort, Explain, Instruction, Reclaim, Retire, Start
from scheduler.rules import explain
from scheduler.rules.admission import Claim, decide
from scheduler.rules.evidence import as_json
from scheduler.rules.plan import plan
from scheduler.rules.reclaim import MARGIN_GIB, lacking

BUSY = Claim(1, "esm", {"host": 1.0}, competes=True)


def cached(free: float = 4.0, available: float = 40.0, **over: Any) -> Machine:
    """64 GiB of host memory, most of it file cache; the cache can be given back."""
    return machine(pool(free=free, available=available), **{"reclaim": "ready", **over})


def found(kind: type, instructions: list[Instruction]) -> list[Any]:
    return [each for each in instructions if isinstance(each, kind)]


def busy(**over: Any) -> Any:
    return worker(1, "esm", "busy", job_id=7, attempt=1, **over)


def test_what_lacks_is_asked_of_the_cache_while_somebody_competes_and_enough_is_available() -> None:
    here = cached(free=4.0)
    verdict = decide(demand(host=8.0), here, [BUSY])
    assert verdict.ruling == "no_room_now"
    assert lacking(verdict, here) == ("host", 1.0 + 8.0 + 2.0 - 4.0 + MARGIN_GIB)


def test_the_cache_is_left_alone_where_it_is_no_help() -> None:
    here = cached(free=4.0, available=10.9)
    assert lacking(decide(demand(host=8.0), here, [BUSY]), here) is None
    full = cached()
    assert lacking(decide(demand(host=70.0), full, [BUSY]), full) is None
    unread = replace(cached(), pools=(pool(free=4.0, available=None),))
    assert lacking(decide(demand(host=8.0), unread, [BUSY]), unread) is None


def test_it_is_not_asked_where_it_is_off_or_was_of_no_use_a_moment_ago() -> None:
    here = cached(reclaim="off")
    assert lacking(decide(demand(host=8.0), here, [BUSY]), here) is None


def test_a_pool_that_the_guard_keeps_closed_is_not_opened_by_it() -> None:
    here = cached(closed=(Closed("host", "bob holds all of it"),))
    assert lacking(decide(demand(host=8.0), here, [BUSY]), here) is None


def test_the_plan_asks_for_the_first_in_line_says_so_and_evicts_nobody_meanwhile() -> None:
    idle = worker(2, "old", "ready", gib=3.0, idle_s=50.0)
    parts = (provider("esm"), provider("old", ram=3.0), provider("boltz", ram=3.0), provider("af", ram=9.0))
    seen = snapshot(*parts, busy(), idle, waiting("boltz", 8), waiting("af", 9), machine=cached())
    decided = plan(seen)
    owed = 1.0 + 3.0  # of the two that are there, who were not seen to use anything
    assert found(Reclaim, decided) == [Reclaim("host", owed + 3.0 + 2.0 - 4.0 + MARGIN_GIB, 8)]
    assert not found(Retire, decided) and not found(Start, decided)
    [told] = [each for each in found(Explain, decided) if each.job_id == 8]
    assert told.ruling == "no_room_now" and "of the file cache are being turned into free memory" in str(told.why)
    running = replace(seen, machine=replace(seen.machine, reclaim="running"))
    assert not found(Reclaim, plan(running)) and not found(Retire, plan(running))
    spent = replace(seen, machine=replace(seen.machine, reclaim="off"))
    assert not found(Reclaim, plan(spent)) and [each.worker_id for each in found(Retire, plan(spent))] == [2]


def test_a_stranger_that_computes_does_not_keep_the_cache_from_being_given_back() -> None:
    seen = snapshot(provider("boltz", ram=8.0), waiting("boltz", 8), machine=cached(competing=1))
    assert [each.job_id for each in found(Reclaim, plan(seen))] == [8]
    spent = replace(seen, machine=replace(seen.machine, reclaim="off"))
    assert not found(Reclaim, plan(spent))
    [told] = found(Explain, plan(spent))
    assert told.ruling == "no_room_now"


def test_a_start_beside_a_busy_worker_follows_once_the_memory_is_free() -> None:
    parts = (provider("esm"), provider("boltz", ram=8.0), busy(), waiting("boltz", 8))
    [start] = found(Start, plan(snapshot(*parts, machine=cached(free=11.0))))
    assert start.job_id == 8


def test_on_unified_memory_the_cache_goes_before_a_model_of_a_device_comes_though_nobody_competes() -> None:
    here = unified(free=4.0, available=100.0, reclaim="ready")
    parts = (provider("boltz", vram=28.0, ram=6.0), waiting("boltz", 8))
    decided = plan(snapshot(*parts, machine=here))
    assert found(Reclaim, decided) == [Reclaim("unified", 28.0 + 6.0 + 4.0 - 4.0 + MARGIN_GIB, 8)]
    assert not found(Start, decided)
    [told] = found(Explain, decided)
    assert told.ruling == "no_room_now" and "takes what is free of unified for all that there is" in told.why
    for machine_ in (replace(here, reclaim="off"), unified(free=60.0, available=100.0, reclaim="ready")):
        assert found(Start, plan(snapshot(*parts, machine=machine_)))


def test_on_unified_memory_what_needs_no_device_starts_on_what_is_available() -> None:
    here = unified(free=4.0, available=100.0, reclaim="ready")
    assert found(Start, plan(snapshot(provider("cpu", ram=30.0), waiting("cpu", 8), machine=here)))


def test_nothing_is_admitted_on_a_pool_that_the_guard_keeps_closed_and_its_reason_says_whose_memory_it_is() -> None:
    here = machine(closed=(Closed("host", "host has 1 GiB left; it is held by bob"),))
    verdict = decide(demand(host=1.0), here, [])
    assert verdict.ruling == "no_room_now"
    assert explain.sentence(verdict) == (
        "boltz needs 1 GiB of host, and the guard admits nothing there now: host has 1 GiB left; it is held by bob"
    )
    assert as_json(verdict)["placement"][0]["closed"] == "host has 1 GiB left; it is held by bob"
    parked = worker(1, "boltz", "parked", job_id=8)
    [abort] = found(Abort, plan(snapshot(provider("boltz"), parked, machine=here)))
    assert "the guard admits nothing" in abort.why
