"""Which idle workers go for a job that needs their room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builders import claim, demand, machine, pool, worker
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.plan import WorkerView
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim, decide
from scheduler.rules.eviction import evictable, victims

HERE = machine(pool("host", 64.0))


def claims(*workers: WorkerView) -> list[Claim]:
    return [Claim(w.id, w.slug, w.charges) for w in workers]


def load_s(seconds: dict[str, float]) -> Callable[[WorkerView], float]:
    return lambda worker: seconds.get(worker.slug, 60.0)


def chosen_of(need: Demand, held: list[Claim], offered: list[WorkerView], **more: Any) -> tuple[WorkerView, ...] | None:
    here = more.pop("here", HERE)
    return victims(need, here, held, offered, more.pop("returning", []), load_s(more))


def ids(chosen: tuple[WorkerView, ...] | None) -> list[int] | None:
    return None if chosen is None else [w.id for w in chosen]


def test_only_a_ready_worker_without_a_job_that_nobody_pinned_is_evictable() -> None:
    assert evictable(worker())
    for state in ("parked", "starting", "busy", "retiring"):
        assert not evictable(worker(state=state))
    assert not evictable(worker(job_id=7))
    assert not evictable(worker(pinned=True))


def test_the_cheapest_for_their_size_that_suffice_go() -> None:
    workers = [worker(1, "a", gib=10.0), worker(2, "b", gib=10.0), worker(3, "c", gib=25.0)]
    assert ids(chosen_of(demand(host=35.0), claims(*workers), workers)) == [3]


def test_of_as_few_the_one_that_loads_fastest_for_its_size_goes() -> None:
    workers = [worker(1, "slow", gib=20.0), worker(2, "fast", gib=20.0), worker(3, "fast", gib=20.0)]
    assert ids(chosen_of(demand(host=20.0), claims(*workers), workers, slow=102.0, fast=10.0)) == [2]


def test_nobody_goes_where_the_room_is_coming_back_anyway() -> None:
    idle, retiring = worker(1, gib=20.0), worker(2, state="retiring", gib=20.0)
    both = claims(idle, retiring)
    assert ids(chosen_of(demand(host=40.0), both, [idle], returning=[both[1]])) == []


def test_nobody_goes_where_all_of_them_together_do_not_suffice() -> None:
    idle, busy = worker(1, gib=10.0), worker(2, state="busy", gib=50.0)
    assert chosen_of(demand(host=30.0), claims(idle, busy), [idle, busy]) is None


def test_a_worker_on_another_pool_is_of_no_use() -> None:
    gpus = machine(pool("device:a", 80.0), pool("host", 64.0))
    on_host, on_device = worker(1, gib=20.0), worker(2, charges={"device:a": 70.0})
    found = chosen_of(demand(28.0, 1.0), claims(on_host, on_device), [on_host, on_device], here=gpus)
    assert ids(found) == [2]


def test_of_two_cards_the_one_whose_workers_are_cheapest_to_load_again_is_emptied() -> None:
    gpus = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host", 64.0))
    dear, cheap = worker(1, "dear", charges={"device:a": 70.0}), worker(2, "cheap", charges={"device:b": 70.0})
    found = chosen_of(demand(28.0, 1.0), claims(dear, cheap), [dear, cheap], here=gpus, dear=200.0, cheap=10.0)
    assert ids(found) == [2]


def test_with_many_idle_workers_what_is_not_needed_stays() -> None:
    workers = [worker(n, f"p{n}", gib=2.0) for n in range(1, 31)]
    chosen = chosen_of(demand(host=30.0), claims(*workers), workers)
    assert chosen is not None and len(chosen) == 14


@given(
    st.lists(st.tuples(st.floats(0.1, 30.0), st.sampled_from(["ready", "busy", "starting"])), max_size=7),
    st.floats(0.5, 60.0),
)
@settings(max_examples=150, deadline=None)
def test_victims_suffice_are_all_needed_and_were_free_to_go(rows: list[tuple[float, str]], need: float) -> None:
    workers = [worker(n, f"p{n}", state, gib) for n, (gib, state) in enumerate(rows, 1)]
    held = claims(*workers)
    chosen = chosen_of(demand(host=need), held, workers)
    if chosen is None:
        return
    assert all(w.state == "ready" for w in chosen)
    left = [c for c in held if c.worker_id not in {w.id for w in chosen}]
    assert decide(demand(host=need), HERE, left).admit
    for spared in chosen:
        kept = [*left, claim(spared.id, **spared.charges)]
        assert not decide(demand(host=need), HERE, kept).admit
    assert chosen == chosen_of(demand(host=need), held, list(reversed(workers)))
