"""What is learned of a bucket, what follows for a charge, and what the store keeps of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import card, machine, pool, provider, reading, unified
from hypothesis import given, settings
from hypothesis import strategies as st
from queues import AT, submitted

from scheduler.config import Paths
from scheduler.model.provider import NOTHING, Learned
from scheduler.rules.peaks import (
    KEPT_RUNS,
    LEAST_RUNS,
    bucket_of,
    bucket_words,
    budget_gib,
    charged_as,
    demand_for,
    judged,
    lacking,
    learned_from,
    on_device_gib,
)
from scheduler.rules.placement import demand_of, placements
from scheduler.rules.room import fits
from scheduler.store import peaks
from scheduler.store.engine import Store

GIB = st.floats(0.0, 200.0)
RUNS = st.lists(st.tuples(st.one_of(st.none(), GIB), st.one_of(st.none(), GIB)), max_size=120)


@given(st.floats(0.0, 1e300))
def test_a_bucket_is_a_doubling(size: float) -> None:
    bucket = bucket_of(size)
    assert size <= 2.0**bucket
    assert bucket == 0 or size > 2.0 ** (bucket - 1)


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e12))
def test_a_larger_job_is_never_in_a_smaller_bucket(one: float, other: float) -> None:
    assert (bucket_of(one) <= bucket_of(other)) == (one <= other) or bucket_of(one) == bucket_of(other)


def test_what_has_no_size_or_an_odd_one_has_a_bucket() -> None:
    assert [bucket_of(size) for size in (None, math.nan, -3.0, 0.0, 1.0, 1.5, math.inf)] == [0, 0, 0, 0, 0, 1, 1023]
    assert bucket_words(0) == "up to 1" and bucket_words(10) == "513 to 1024"


@given(RUNS)
def test_a_part_is_learned_as_the_largest_of_its_last_fifty_and_of_three_at_least(
    runs: list[tuple[float | None, float | None]],
) -> None:
    found = learned_from(runs)
    for part, said in ((0, found.device_gib), (1, found.host_gib)):
        seen = [run[part] for run in runs[-KEPT_RUNS:] if run[part] is not None]
        assert said == (max(seen) if len(seen) >= LEAST_RUNS else 0.0)  # type: ignore[type-var]
    assert found.runs in (0, *range(LEAST_RUNS, KEPT_RUNS + 1))


def test_an_outlier_fades() -> None:
    runs: list[tuple[float | None, float | None]] = [(40.0, None)] + [(5.0, None)] * (KEPT_RUNS - 1)
    assert learned_from(runs).device_gib == 40.0
    assert learned_from([*runs, (5.0, None)]).device_gib == 5.0


def test_a_figure_that_is_no_amount_teaches_nothing() -> None:
    assert learned_from([(math.inf, None), (math.nan, None), (-1.0, None), (3.0, None)]) == NOTHING


@given(declared=GIB, ram=GIB, device=GIB, host=GIB, capacity=st.floats(1.0, 200.0), shared=st.booleans())
def test_a_charge_is_the_larger_of_declared_and_learned_and_what_was_learned_never_makes_it_too_big(
    declared: float, ram: float, device: float, host: float, capacity: float, shared: bool
) -> None:
    by = provider("boltz", declared or 1.0, ram)
    here = unified(capacity) if shared else machine(card(capacity=capacity), pool(capacity=capacity))
    found, plain = demand_for(by, Learned(device, host, 3), here), demand_of(by)
    assert found.device_gib is not None and plain.device_gib is not None
    assert plain.device_gib <= found.device_gib <= max(plain.device_gib, device)
    assert plain.host_gib <= found.host_gib <= max(plain.host_gib, host)
    reserves = {p.id: (p.reserve_gib, p.capacity.value or 0.0) for p in here.pools}
    if all(
        fits((gib, reserves[p][0]), reserves[p][1]) for place in placements(plain, here) for p, gib in place.items()
    ):
        assert all(
            fits((gib, reserves[p][0]), reserves[p][1]) for place in placements(found, here) for p, gib in place.items()
        )


def test_too_few_runs_charge_what_is_declared() -> None:
    assert demand_for(provider(), NOTHING, machine()) == demand_of(provider())


def test_an_undeclared_device_budget_stays_undeclared_whatever_was_learned() -> None:
    assert demand_for(provider("boltz", None), Learned(9.0, 9.0, 9), unified()).device_gib is None


def test_a_manifest_without_a_host_budget_is_charged_its_learned_host_use() -> None:
    assert demand_for(provider("propka", 0.0, 0.0), Learned(0.0, 3.5, 3), machine()).host_gib == 3.5


def test_a_pool_whose_capacity_could_not_be_read_bounds_nothing() -> None:
    here = machine(pool(capacity=None))
    assert demand_for(provider("propka", 0.0, 1.0), Learned(0.0, 500.0, 3), here).host_gib == 500.0
    assert reading(None).failed


@given(device=GIB, host=GIB, more=GIB, shared=st.booleans())
def test_what_is_lacking_is_what_a_charge_is_less_than_the_demand(
    device: float, host: float, more: float, shared: bool
) -> None:
    here = unified() if shared else machine(card())
    demand = demand_of(provider("boltz", device or 1.0, host))
    [place] = placements(demand, here)
    assert lacking(place, demand) == {}
    assert charged_as(demand, place, host).device_gib == pytest.approx(device or 1.0)
    larger = demand_of(provider("boltz", (device or 1.0) + more, host))
    short = lacking(place, larger)
    assert all(gib > 0 for gib in short.values())
    assert {pool: gib + short.get(pool, 0.0) for pool, gib in place.items()} == pytest.approx(
        placements(larger, here)[0]
    )


def test_the_ceiling_of_an_allocator_is_what_of_a_charge_is_each_devices() -> None:
    assert on_device_gib({"unified": 30.0}, 6.0) == 24.0
    assert on_device_gib({"device:a": 20.0, "device:b": 19.0, "host": 4.0}, 4.0) == 19.0
    assert on_device_gib({"host": 4.0}, 4.0) is None


@given(st.floats(0.001, 500.0), st.sampled_from(["device", "host"]))
def test_a_budget_that_follows_from_a_peak_holds_it_and_the_allocators_headroom(peak: float, part: str) -> None:
    budget = budget_gib(peak, part)
    assert budget >= peak + (0.5 if part == "device" else 0.0)
    assert judged(budget, peak) == "fits"
    assert budget <= peak * 1.1 + 0.85


def test_a_budget_is_judged_beside_its_peak() -> None:
    assert judged(None, 1.0) == "undeclared"
    assert judged(1.0, 1.01) == "under"
    assert judged(28.0, 9.0) == "over"
    assert judged(0.4, 0.1) == "fits", "what little that keeps from others is nobody's trouble"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    paths = Paths(str(tmp_path / "home"))
    submitted(paths, size=100.0)
    made = Store(paths)
    yield made
    made.close()


def ran(store: Store, *gibs: float, bucket: int | None = 7, slug: str = "boltz", host_id: str = "here") -> None:
    with store.write() as tx:
        for gib in gibs:
            peaks.add(
                tx, slug, "", host_id, AT, bucket=bucket, device_gib=gib, host_gib=gib / 2, job_id=1, attempt=1,
                worker_id=1, outcome="ok",
            )  # fmt: skip


def known(store: Store, host_id: str = "here") -> dict[tuple[str, str, int], Learned]:
    with store.read() as tx:
        return peaks.known(tx, host_id)


def test_a_bucket_is_known_after_three_runs_of_it_on_this_host(store: Store) -> None:
    ran(store, 9.0, 8.0)
    ran(store, 30.0, host_id="elsewhere")
    ran(store, 30.0, bucket=9)
    ran(store, 30.0, bucket=None)
    assert known(store) == {}
    ran(store, 7.0)
    assert known(store) == {("boltz", "", 7): Learned(9.0, 4.5, 3)}


def test_the_store_keeps_fifty_runs_of_a_bucket_and_follows_them(store: Store) -> None:
    ran(store, 40.0, *[5.0] * 49)
    assert known(store)["boltz", "", 7] == Learned(40.0, 20.0, 50)
    ran(store, 6.0)
    assert known(store)["boltz", "", 7] == Learned(6.0, 3.0, 50)
    with store.read() as tx:
        assert peaks.sizes(tx, [1, 2]) == {1: 100.0}
        count = tx.exec_driver_sql("SELECT count(*) FROM peaks").scalar()
    assert count == 50


@settings(max_examples=15, deadline=None)
@given(st.lists(GIB, max_size=70))
def test_what_the_store_learned_is_what_the_rule_says_of_the_runs(gibs: list[float]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(f"{folder}/home")
        submitted(paths)
        made = Store(paths)
        ran(made, *gibs)
        expected = learned_from([(gib, gib / 2) for gib in gibs])
        assert known(made).get(("boltz", "", 7), NOTHING) == expected
        made.close()


def test_forgetting_a_provider_leaves_the_others(store: Store) -> None:
    ran(store, 1.0, 1.0, 1.0)
    ran(store, 2.0, 2.0, 2.0, slug="esm")
    with store.write() as tx:
        assert peaks.forget(tx, "boltz", None) == 3
        assert peaks.forget(tx, "esm", "other") == 0
    assert list(known(store)) == [("esm", "", 7)]
