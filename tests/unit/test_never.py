"""What `submit` refuses for good, from the capacities that were recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import Machine, Pool, Reading
from scheduler.model.verdict import NEVER, Demand
from scheduler.rules import admission, never


def spec(**over: object) -> dict[str, object]:
    return {"slug": "boltz", "variant": "", "policy": "required", "vram_gib": 28.0, "ram_gib": 6.0, "count": 1, **over}


def pool(kind: str, capacity: float | None, reserve: float = 1.0, id: str = "") -> dict[str, object]:
    return {"id": id or kind, "kind": kind, "capacity_gib": capacity, "reserve_gib": reserve}


def test_a_budget_that_exactly_fits_beside_the_reserve_is_not_refused() -> None:
    assert never.ruling(spec(), {"pools": [pool("unified", 35.0)]}) == ("", "")
    assert never.ruling(spec(), {"pools": [pool("unified", 34.99)]})[0] == "too_big"


def test_a_refusal_tells_the_need_the_reserve_and_the_largest_pool() -> None:
    ruling, text = never.ruling(
        spec(vram_gib=100.5),
        {"pools": [pool("device", 24.0, 0.5, "device:a"), pool("device", 80.0, 0.5, "device:b"), pool("host", 64.0)]},
    )
    assert ruling == "too_big"
    assert "100.5 GiB" in text and "0.5 GiB" in text and "80 GiB of device:b" in text


def test_figures_are_shown_with_as_many_decimals_as_it_takes_and_no_more() -> None:
    measured = {"pools": [pool("host", 23.5405846)]}
    asked = spec(policy="none", vram_gib=None, ram_gib=23.0)
    assert "24 GiB, more than the 23.54 GiB of host" in never.ruling(asked, measured)[1]
    assert "more than the 23.996 GiB of host" in never.ruling(asked, {"pools": [pool("host", 23.996)]})[1]


def test_one_pool_that_holds_it_is_enough_but_two_devices_need_two() -> None:
    facts = {"pools": [pool("device", 24.0), pool("device", 80.0), pool("host", 64.0)]}
    assert never.ruling(spec(), facts) == ("", "")
    ruling, text = never.ruling(spec(count=2), facts)
    assert ruling == "too_big" and "needs 2 devices" in text


def test_host_memory_counts_apart_on_discrete_machines() -> None:
    facts = {"pools": [pool("device", 80.0), pool("host", 6.5)]}
    ruling, text = never.ruling(spec(), facts)
    assert ruling == "too_big" and "(host)" in text


def test_a_provider_without_device_is_never_refused_because_of_one() -> None:
    facts = {"pools": [pool("host", 64.0)], "accelerators": 0}
    assert never.ruling(spec(policy="none", vram_gib=None), facts) == ("", "")
    assert never.ruling(spec(), facts)[0] == "no_device"


@pytest.mark.parametrize(
    "facts",
    [{}, {"pools": []}, {"pools": [pool("host", 64.0)]}, {"pools": [pool("unified", None)], "accelerators": None}],
)
def test_what_is_not_known_refuses_nothing(facts: dict[str, object]) -> None:
    assert never.ruling(spec(), facts) == ("", "")


def test_no_budget_is_refused_whatever_the_machine() -> None:
    ruling, text = never.ruling(spec(vram_gib=None), {})
    assert ruling == "undeclared" and "vram_budget_gb" in text


def card(name: str, capacity: float | None, reserve: float = 0.5, partial: bool = False) -> dict[str, object]:
    return {**pool("device", capacity, reserve, f"device:{name}"), "partial": partial}


HOST = pool("host", 64.0)


def test_a_spec_without_a_variant_a_count_or_host_memory_asks_for_one_device_alone() -> None:
    bare = {"slug": "boltz", "policy": "required", "vram_gib": 28.0, "ram_gib": None}
    assert never.ruling(bare, {"pools": [pool("unified", 29.0)]}) == ("", "")
    assert never.ruling(bare, {"pools": [pool("unified", 28.5)]})[0] == "too_big"
    assert never.ruling({**bare, "count": None}, {"pools": [card("a", 80.0), HOST]}) == ("", "")


def test_no_budget_is_told_of_the_variant() -> None:
    assert never.ruling(spec(variant="fast", vram_gib=None), {}) == (
        "undeclared", "boltz:fast declares no vram_budget_gb: it is admitted on a measured budget or not at all; "
        "measure it with `schedq measure boltz:fast --write`",
    )  # fmt: skip


def test_no_device_is_told_with_what_says_so_if_anything_does() -> None:
    none = {"pools": [HOST], "accelerators": 0.0}
    said = "boltz requires an accelerator and this machine has none"
    assert never.ruling(spec(), none) == ("no_device", said)
    assert never.ruling(spec(), {**none, "accelerators_source": None}) == ("no_device", said)
    assert never.ruling(spec(), {**none, "accelerators_source": "no driver"}) == ("no_device", f"{said} (no driver)")


def test_fewer_devices_than_one_worker_takes_are_counted_without_the_partial_ones_but_one() -> None:
    slices = [card(f"MIG-{n}", 20.0, partial=True) for n in range(3)]
    for pools, there, count, told in (
        ([card("a", 80.0), HOST], 1.0, 2, "1"),
        ([pool("unified", 121.0)], 1.0, 2, "1"),
        ([*slices, HOST], 3.0, 2, "1"),
        ([*slices, card("a", 80.0), card("b", 80.0), HOST], 5.0, 3, "2"),
    ):
        assert never.ruling(spec(count=count), {"pools": pools, "accelerators": there}) == (
            "too_big", f"boltz needs {count} devices at once and this machine has {told}",
        )  # fmt: skip
    named = {"pools": [card("a", 80.0), HOST], "accelerators": 1.0, "accelerators_source": "2 are there, 1 left alone"}
    said = "boltz needs 2 devices at once and this machine has 1 (2 are there, 1 left alone)"
    assert never.ruling(spec(count=2), named) == ("too_big", said)
    assert never.ruling(spec(vram_gib=19.5), {"pools": [*slices, HOST], "accelerators": 3.0}) == ("", "")


@pytest.mark.parametrize("there", [2.0, 3.0, None])
def test_a_device_that_is_counted_and_shows_no_pool_may_be_there_one_day(there: float | None) -> None:
    facts = {"pools": [card("a", 80.0), HOST], "accelerators": there}
    assert never.ruling(spec(count=2), facts) == ("", "")


def test_the_largest_pool_that_is_told_is_the_one_with_most_beside_its_reserve() -> None:
    facts = {"pools": [card("a", 90.0, 20.0), card("b", 80.0, 1.0), HOST]}
    assert never.ruling(spec(vram_gib=100.0), facts) == (
        "too_big",
        "boltz needs 100 GiB (device) and 1 GiB stay reserved: 101 GiB, more than the 80 GiB of device:b, the largest "
        "pool that it could use",
    )


def test_each_refusal_tells_which_memory_is_meant() -> None:
    shared = never.ruling(spec(), {"pools": [pool("unified", 30.0)]})[1]
    assert "needs 34 GiB (device and host) and 1 GiB" in shared and "30 GiB of unified" in shared
    alone = never.ruling(spec(policy="none", vram_gib=None), {"pools": [pool("unified", 5.0)]})[1]
    assert "needs 6 GiB (host) and 1 GiB" in alone and "5 GiB of unified" in alone


def test_devices_of_which_too_few_can_hold_it_are_counted() -> None:
    facts = {"pools": [card("a", 24.0), card("b", 80.0), card("c", 80.0), HOST]}
    assert never.ruling(spec(vram_gib=28.125, count=3), facts) == (
        "too_big", "boltz needs 3 devices of 28.12 GiB at once and 2 can hold that",
    )  # fmt: skip


@pytest.mark.parametrize(
    "pools",
    [
        [card("a", 24.0)],
        [card("a", 24.0), pool("host", None)],
        [card("a", 80.0), pool("host", None)],
        [card("a", 24.0), card("b", None), HOST],
        [card("a", None), pool("host", 2.0)],
    ],
)
def test_beside_a_pool_that_could_not_be_read_nothing_is_too_big(pools: list[dict[str, object]]) -> None:
    assert never.ruling(spec(), {"pools": pools, "accelerators": 1.0}) == ("", "")


def test_a_provider_without_device_on_a_machine_without_pools_is_not_refused() -> None:
    assert never.ruling(spec(policy="none", vram_gib=None), {}) == ("", "")


GIB = st.sampled_from([0.0, 0.1, 5.5, 6.0, 27.9, 28.0, 63.0, 64.0, 80.0])
CAPACITY = st.one_of(st.none(), GIB.filter(bool))


@st.composite
def machines(draw: st.DrawFn) -> list[dict[str, object]]:
    if draw(st.booleans()):
        return [pool("unified", draw(CAPACITY))]
    devices = [pool("device", draw(CAPACITY), 0.5, f"device:{n}") for n in range(draw(st.integers(0, 3)))]
    return [*devices, pool("host", draw(CAPACITY), 2.0)]


@given(
    pools=machines(),
    policy=st.sampled_from(["required", "none"]),
    vram=st.one_of(st.none(), GIB),
    ram=GIB,
    count=st.integers(1, 3),
)
def test_submit_refuses_what_admission_would_never_admit_and_nothing_else(
    pools: list[dict[str, object]], policy: str, vram: float | None, ram: float, count: int
) -> None:
    there = float(sum(each["kind"] != "host" for each in pools))
    asked = spec(policy=policy, vram_gib=vram, ram_gib=ram, count=count)
    told = never.ruling(asked, {"pools": pools, "accelerators": there})[0]

    def reading(value: object) -> Reading:
        return Reading(value, "test", "" if value is not None else "lost")  # type: ignore[arg-type]

    machine = Machine(
        at_s=0.0, boot_id="b", host_id="h", cores=8, accelerators=reading(there),
        pools=tuple(
            Pool(str(p["id"]), str(p["kind"]), reading(p["capacity_gib"]), float(p["reserve_gib"]),  # type: ignore[arg-type]
                 reading(p["capacity_gib"]), reading(p["capacity_gib"]))
            for p in pools
        ),
    )  # fmt: skip
    demand = Demand("boltz", "", policy, vram if policy == "required" else 0.0, ram, count)
    decided = admission.decide(demand, machine, []).ruling
    assert told == (decided if decided in NEVER else "")
