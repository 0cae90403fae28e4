"""Which idle workers go for a job that needs their room."""

from __future__ import annotations

from builders import claim, demand, machine, pool, provider, worker
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.plan import WorkerView
from scheduler.model.provider import Provider
from scheduler.rules.admission import Claim, decide
from scheduler.rules.eviction import evictable, victims

HERE = machine(pool("host", 64.0))


def table(*providers: Provider) -> dict[tuple[str, str], Provider]:
    return {(p.slug, ""): p for p in providers}


def claims(*workers: WorkerView) -> list[Claim]:
    return [Claim(w.id, w.slug, w.charges) for w in workers]


def ids(chosen: tuple[WorkerView, ...] | None) -> list[int] | None:
    return None if chosen is None else [w.id for w in chosen]


def test_only_a_ready_worker_without_a_job_that_nobody_pinned_is_evictable() -> None:
    assert evictable(worker())
    for state in ("parked", "starting", "busy", "retiring"):
        assert not evictable(worker(state=state))
    assert not evictable(worker(job_id=7))
    assert not evictable(worker(pinned=True))


def test_the_fewest_that_suffice_go() -> None:
    workers = [worker(1, "a", gib=10.0), worker(2, "b", gib=10.0), worker(3, "c", gib=25.0)]
    assert ids(victims(demand(host=35.0), HERE, claims(*workers), workers, {})) == [3]


def test_of_as_few_the_one_that_loads_fastest_for_its_size_goes() -> None:
    workers = [worker(1, "slow", gib=20.0), worker(2, "fast", gib=20.0), worker(3, "fast", gib=20.0)]
    providers = table(provider("slow", load_s=102.0), provider("fast", load_s=10.0))
    assert ids(victims(demand(host=20.0), HERE, claims(*workers), workers, providers)) == [2]


def test_nobody_goes_where_the_room_is_coming_back_anyway() -> None:
    idle, retiring = worker(1, gib=20.0), worker(2, state="retiring", gib=20.0)
    both = claims(idle, retiring)
    assert ids(victims(demand(host=40.0), HERE, both, [idle], {}, returning=[both[1]])) == []


def test_nobody_goes_where_all_of_them_together_do_not_suffice() -> None:
    idle, busy = worker(1, gib=10.0), worker(2, state="busy", gib=50.0)
    assert victims(demand(host=30.0), HERE, claims(idle, busy), [idle, busy], {}) is None


def test_a_worker_on_another_pool_is_of_no_use() -> None:
    gpus = machine(pool("device:a", 80.0), pool("host", 64.0))
    on_host, on_device = worker(1, gib=20.0), worker(2, charges={"device:a": 70.0})
    assert ids(victims(demand(28.0, 1.0), gpus, claims(on_host, on_device), [on_host, on_device], {})) == [2]


def test_with_many_idle_workers_what_is_not_needed_stays() -> None:
    workers = [worker(n, f"p{n}", gib=2.0) for n in range(1, 31)]
    chosen = victims(demand(host=30.0), HERE, claims(*workers), workers, {})
    assert chosen is not None and len(chosen) == 14


@given(
    st.lists(st.tuples(st.floats(0.1, 30.0), st.sampled_from(["ready", "busy", "starting"])), max_size=7),
    st.floats(0.5, 60.0),
)
@settings(max_examples=150, deadline=None)
def test_victims_suffice_are_all_needed_and_were_free_to_go(rows: list[tuple[float, str]], need: float) -> None:
    workers = [worker(n, f"p{n}", state, gib) for n, (gib, state) in enumerate(rows, 1)]
    held = claims(*workers)
    chosen = victims(demand(host=need), HERE, held, workers, {})
    if chosen is None:
        return
    assert all(w.state == "ready" for w in chosen)
    left = [c for c in held if c.worker_id not in {w.id for w in chosen}]
    assert decide(demand(host=need), HERE, left).admit
    for spared in chosen:
        kept = [*left, claim(spared.id, **spared.charges)]
        assert not decide(demand(host=need), HERE, kept).admit
    assert chosen == victims(demand(host=need), HERE, held, list(reversed(workers)), {})
