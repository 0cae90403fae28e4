"""Which pools a demand would come out of."""

from __future__ import annotations

from dataclasses import replace

from builders import demand, machine, pool, provider, unified

from scheduler.model.verdict import Demand
from scheduler.rules.placement import MOST, demand_of, given, placements


def test_a_provider_without_device_takes_host_memory_only() -> None:
    gpus = machine(pool("device:a", 80.0), pool("host"))
    assert placements(demand(0.0, 6.0), gpus) == ({"host": 6.0},)
    assert placements(demand(0.0, 6.0), unified()) == ({"unified": 6.0},)


def test_on_unified_memory_both_budgets_are_one_sum() -> None:
    assert placements(demand(28.0, 6.0), unified()) == ({"unified": 34.0},)


def test_each_device_is_a_place_of_its_own() -> None:
    gpus = machine(pool("device:a", 24.0), pool("device:b", 80.0), pool("host"))
    assert placements(demand(28.0, 6.0), gpus) == (
        {"device:a": 28.0, "host": 6.0},
        {"device:b": 28.0, "host": 6.0},
    )


def test_a_worker_on_two_devices_gives_the_whole_budget_on_each() -> None:
    gpus = machine(pool("device:a"), pool("device:b"), pool("device:c"), pool("host"))
    found = placements(demand(28.0, 6.0, count=2), gpus)
    assert len(found) == 3
    assert found[0] == {"device:a": 28.0, "device:b": 28.0, "host": 6.0}


def test_a_machine_without_a_fitting_pool_has_no_place() -> None:
    assert placements(demand(28.0, 6.0), machine(pool("host"))) == ()
    assert placements(demand(28.0, count=2), machine(pool("device:a"), pool("host"))) == ()


def test_a_device_budget_that_policy_none_declares_is_not_demanded() -> None:
    none = replace(provider("capiti"), vram_gib=None)
    assert demand_of(none).device_gib == 0.0
    assert demand_of(provider("boltz", 28.0, 6.0)).device_gib == 28.0


def test_a_demand_has_everything_that_its_provider_declares() -> None:
    wide = provider("af3", 28.0, 6.0, variant="fast", count=2)
    assert demand_of(wide) == Demand("af3", "fast", "required", 28.0, 6.0, 2)


def test_an_undeclared_device_budget_takes_no_memory_of_the_device() -> None:
    assert placements(demand(None, 6.0), unified()) == ({"unified": 6.0},)
    assert placements(demand(None, 6.0), machine(pool("device:a"), pool("host"))) == ({"device:a": 0.0, "host": 6.0},)


def test_without_memory_of_the_machine_there_is_no_place() -> None:
    assert placements(demand(0.0, 6.0), replace(machine(), pools=())) == ()
    assert placements(demand(28.0, 6.0), replace(machine(), pools=(pool("device:a"),))) == ()


def test_of_very_many_combinations_of_devices_only_the_first_are_looked_at() -> None:
    many = machine(*(pool(f"device:{n}") for n in range(24)), pool("host"))
    found = placements(demand(28.0, 6.0, count=2), many)
    assert len(found) == MOST == 256  # of 24 * 23 / 2 = 276
    assert found[0] == {"device:0": 28.0, "device:1": 28.0, "host": 6.0}


def test_a_worker_is_given_the_devices_of_its_place_and_none_where_it_requires_none() -> None:
    assert given("required", {"device:a": 28.0, "device:b": 28.0, "host": 6.0}) == ("device:a", "device:b")
    assert given("required", {"unified": 34.0}) == ("unified",)
    assert given("none", {"unified": 6.0}) == given("none", {"host": 6.0}) == ()
