"""Which pools a demand would come out of."""

from __future__ import annotations

from builders import demand, machine, pool, provider, unified

from scheduler.rules.placement import demand_of, placements


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
    from dataclasses import replace

    none = replace(provider("capiti"), vram_gib=None)
    assert demand_of(none).device_gib == 0.0
    assert demand_of(provider("boltz", 28.0, 6.0)).device_gib == 28.0
