"""Which pools a machine has: one example a rule, and what holds whatever is there."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.machine import Device, Pool, Reading
from scheduler.rules.naming import named
from scheduler.rules.pools import Layout, Memory, Wanted, layout

NONE = Reading(None, "NVML")
"""Not applicable."""
LOST = Reading(None, "NVML", "the GPU is lost")


def gib(value: float) -> Reading:
    return Reading(value, "NVML")


def device(id: str = "GPU-aaaa1111", total: Reading | float = 80.0, **over: object) -> Device:
    """A card that can be read, with nothing on it."""
    known = total if isinstance(total, Reading) else gib(total)
    base = Device(id, "NVIDIA", "H100", known, known, known, number=0, slot="00000000:01:00.0", seen_as=id)
    return replace(base, **over)  # type: ignore[arg-type]


def gb10(total: Reading | float = NONE, **over: object) -> Device:
    return device("GPU-gb100000", total, integrated=True, name="NVIDIA GB10", **over)


def apu(total: float = 62.5, **over: object) -> Device:
    return device("0000:c4:00.0", total, integrated=True, **{"vendor": "AMD", "name": "AMD (card1)", **over})


def memory(total: float | None = 121.0, free: float = 60.0, available: float = 100.0, **over: Reading) -> Memory:
    known = gib(total) if total is not None else Reading(None, "meminfo", "cannot be read")
    return replace(Memory(known, gib(free), gib(available)), **over)


ROOM = memory()


def laid(*devices: Device, memory: Memory = ROOM, count: Reading | None = None, **ask: object) -> Layout:
    seen = count or Reading(float(len(devices)), "seen")
    return layout(devices, seen, memory, Wanted(**ask))  # type: ignore[arg-type]


def ids(found: Layout) -> list[str]:
    return [pool.id for pool in found.pools]


def pool(found: Layout, id: str) -> Pool:
    return next(pool for pool in found.pools if pool.id == id)


def test_a_machine_without_devices_has_its_memory() -> None:
    found = laid()
    assert ids(found) == ["host"] and found.count.value == 0.0 and not found.notes
    host = found.pools[0]
    assert (host.capacity.value, host.free.value, host.available.value, host.reserve_gib) == (121.0, 60.0, 100.0, 2.0)


def test_each_card_is_a_pool_beside_the_hosts_memory() -> None:
    card = device(free=gib(70.0), partial=True)
    found = laid(card, device("GPU-bbbb1111", 40.0))
    assert ids(found) == ["host", "device:GPU-aaaa1111", "device:GPU-bbbb1111"] and found.count.value == 2.0
    first = found.pools[1]
    assert (first.capacity.value, first.free, first.available) == (80.0, gib(70.0), gib(70.0))
    assert (first.kind, first.name, first.vendor, first.seen_as, first.partial) == (
        "device", "H100", "NVIDIA", "GPU-aaaa1111", True,
    )  # fmt: skip


@pytest.mark.parametrize("total", [NONE, gib(121.0), gib(109.0), gib(133.0)])
def test_an_integrated_device_without_a_total_or_with_the_machines_is_unified(total: Reading) -> None:
    found = laid(gb10(total))
    assert ids(found) == ["unified"] and found.count.value == 1.0
    only = found.pools[0]
    assert (only.capacity.value, only.free.value, only.available.value, only.reserve_gib) == (121.0, 60.0, 100.0, 4.0)
    assert (only.name, only.vendor, only.seen_as) == ("NVIDIA GB10", "NVIDIA", "GPU-gb100000")


@pytest.mark.parametrize("total", [108.0, 134.0, 24.0])
def test_an_integrated_device_with_another_total_is_unreadable_and_names_the_setting(total: float) -> None:
    found = laid(gb10(total))
    assert ids(found) == ["host", "device:GPU-gb100000"] and found.count.value == 1.0
    theirs = found.pools[1]
    assert theirs.capacity.failed and theirs.free.failed
    for word in (f"{total:.2f} GiB", "121.00", "unified = true", 'leave_alone = ["GPU-gb100000"]'):
        assert word in theirs.capacity.missing


def test_a_card_as_large_as_the_machines_memory_is_a_card() -> None:
    found = laid(device(total=139.0), memory=memory(128.0))
    assert ids(found) == ["host", "device:GPU-aaaa1111"] and pool(found, "device:GPU-aaaa1111").capacity.value == 139.0


def test_a_limit_of_ours_does_not_make_the_devices_total_another() -> None:
    found = laid(gb10(121.0), memory=memory(32.0, installed=gib(121.0)))
    assert ids(found) == ["unified"] and found.pools[0].capacity.value == 32.0


def test_a_card_without_totals_that_is_not_known_to_be_integrated_is_unreadable_in_words() -> None:
    theirs = pool(laid(device(total=NONE)), "device:GPU-aaaa1111")
    assert theirs.capacity.failed and theirs.free.failed and theirs.available.failed
    assert "unified = true" in theirs.capacity.missing and "leave_alone" in theirs.capacity.missing


@pytest.mark.parametrize("integrated", [True, False])
def test_a_total_that_could_not_be_read_is_never_unified_memory(integrated: bool) -> None:
    found = laid(device(total=LOST, integrated=integrated))
    theirs = pool(found, "device:GPU-aaaa1111")
    assert (
        theirs.capacity.failed and theirs.free.failed and "lost" in theirs.free.missing and "unified" not in ids(found)
    )


def test_a_machine_whose_memory_cannot_be_read_compares_nothing() -> None:
    found = laid(gb10(121.0), memory=memory(None))
    assert "unified" not in ids(found) and pool(found, "device:GPU-gb100000").capacity.failed
    assert ids(laid(gb10(), memory=memory(None))) == ["unified"]


def test_a_card_whose_free_memory_is_not_told_admits_nothing() -> None:
    theirs = pool(laid(device(free=NONE)), "device:GPU-aaaa1111")
    assert theirs.capacity.value == 80.0 and theirs.free.failed


def test_a_lost_card_is_unreadable_and_the_others_stay() -> None:
    found = laid(device(total=LOST, free=LOST), device("GPU-bbbb1111"))
    assert pool(found, "device:GPU-aaaa1111").capacity.failed
    assert pool(found, "device:GPU-bbbb1111").capacity.value == 80.0 and found.count.value == 2.0


@pytest.mark.parametrize(("total", "capacity"), [(62.5, 62.5), (200.0, 121.0)])
def test_an_integrated_device_of_amd_bounds_the_pool_by_what_it_may_map(total: float, capacity: float) -> None:
    only = laid(apu(total)).pools[0]
    assert (only.id, only.capacity.value, only.available.value) == ("unified", capacity, 100.0)


def test_an_integrated_device_beside_cards_is_left_alone_with_a_note() -> None:
    found = laid(apu(), device())
    assert (
        ids(found) == ["host", "device:GPU-aaaa1111"]
        and found.count.value == 1.0
        and "1 left alone" in found.count.source
    )
    assert "0000:c4:00.0" in found.notes[0] and "integrated" in found.notes[0] and len(found.devices) == 2


def test_beside_cards_that_are_left_alone_an_integrated_device_is_used() -> None:
    found = laid(apu(), device(), leave_alone=("GPU-aaaa",))
    assert ids(found) == ["unified"] and found.count.value == 1.0


def test_several_integrated_devices_are_still_one_pool_and_a_worker_gets_the_first() -> None:
    found = laid(gb10(), device("GPU-gb200000", NONE, integrated=True))
    assert ids(found) == ["unified"] and found.pools[0].seen_as == "GPU-gb100000" and found.count.value == 1.0
    assert "GPU-gb200000" in found.notes[0]


def test_unified_true_is_one_pool_whatever_is_there() -> None:
    for devices in ((), (device(), apu()), (device(total=LOST),), (gb10(24.0),)):
        found = laid(*devices, unified="true", count=Reading(None, "NVML", "errs"))
        assert ids(found) == ["unified"] and found.count == Reading(1.0, "setting unified = true")
    assert laid(device(), apu(), unified="true").pools[0].vendor == "AMD"
    assert "GPU-aaaa1111" in laid(device(), apu(), unified="true").notes[0]


def test_unified_false_leaves_integrated_devices_alone() -> None:
    found = laid(gb10(), unified="false")
    assert ids(found) == ["host"] and found.count.value == 0.0 and "left alone" in found.count.source
    assert "unified = false" in found.notes[0]


def test_all_left_alone_is_no_device_and_the_source_says_why() -> None:
    for unified in ("auto", "true", "false"):
        found = laid(device(), device("GPU-bbbb1111"), leave_alone=("GPU-aaaa", "GPU-bbbb"), unified=unified)
        assert ids(found) == ["host"] and found.count.value == 0.0
        assert found.count.source == "each of the 2 that are there is left alone"


def test_a_driver_that_errs_stays_a_failed_count() -> None:
    errs = Reading(None, "NVML", "the driver is not loaded")
    for devices, alone in (((), ()), ((apu(),), ()), ((device(), gb10()), ("GPU-aaaa",))):
        assert laid(*devices, count=errs, leave_alone=alone).count == errs


@pytest.mark.parametrize(
    "name",
    ["GPU-aaaa1111", "gpu-AAAA", "0000:01:00.0", "01:00.0", "00000000:01:00.0", "7", " card2 "],
)
def test_a_device_is_named_by_its_id_its_beginning_its_address_its_card_or_its_number(name: str) -> None:
    card = device(name="AMD device 744c (card2)", number=7)
    other = device("GPU-bbbb1111", number=17, slot="0001:01:00.0", name="H100 (card21)")
    assert named(name, [other, card]) == (card,)


@pytest.mark.parametrize("name", ["", "G", "GPU-", "GPU-aaa", "aaaa1111", "8", "card", "card7", "0002:01:00.0", "H100"])
def test_what_could_be_any_device_or_is_none_names_none(name: str) -> None:
    assert named(name, [device(number=7)]) == ()


def test_a_card_with_an_address_for_an_id_is_named_with_or_without_its_domain() -> None:
    assert named("c4:00.0", [apu(slot="0000:c4:00.0")]) and named("0000:c4:00.0", [apu(slot="")])


def test_the_address_of_a_divided_card_names_all_of_its_instances() -> None:
    parts = [device(f"MIG-{n}0000000", partial=True) for n in range(3)]
    found = laid(*parts, device("GPU-bbbb1111", slot="0000:02:00.0"), leave_alone=("01:00.0",))
    assert ids(found) == ["host", "device:GPU-bbbb1111"]


def test_a_name_that_names_nothing_is_said_with_what_there_is() -> None:
    found = laid(device(), leave_alone=("GPU-zzzz",), reserves={"card9": 1.0, "unified": 2.0})
    assert len(found.pools) == 2
    assert "'GPU-zzzz' has no effect" in found.notes[0] and "GPU-aaaa1111" in found.notes[0]
    assert any("reserves.card9 has no effect" in note for note in found.notes)
    assert any("reserves.unified has no effect" in note for note in found.notes)


def test_a_number_that_means_devices_of_two_vendors_leaves_both_alone_and_says_so() -> None:
    found = laid(device(), device("GPU-bbbb1111", vendor="AMD"), leave_alone=("0",))
    assert ids(found) == ["host"] and "means several" in found.notes[0]


def test_devices_of_two_vendors_are_said_and_how_to_leave_one_alone() -> None:
    found = laid(device(vendor="AMD"), device("GPU-bbbb1111"))
    assert any("AMD and NVIDIA" in note and "leave_alone" in note for note in found.notes)
    assert not laid(device(), device("GPU-bbbb1111")).notes


def test_a_device_that_was_told_of_twice_is_one_pool() -> None:
    found = laid(device(), device())
    assert ids(found) == ["host", "device:GPU-aaaa1111"] and found.count.value == 1.0 and "twice" in found.notes[0]


def test_reserves_are_defaults_capped_at_an_eighth_and_the_operators_word_as_it_is() -> None:
    def reserve(card: Device, **ask: object) -> float:
        return laid(card, **ask).pools[1].reserve_gib

    assert reserve(device()) == 0.5
    assert reserve(device(display=True)) == 1.0
    assert reserve(device(display=True), chosen=frozenset({"device"})) == 0.5
    assert reserve(device(), reserve_device_gib=45.0, chosen=frozenset({"device"})) == 45.0
    assert laid(memory=memory(8.0), reserve_host_gib=3.0, chosen=frozenset({"host"})).pools[0].reserve_gib == 3.0
    assert laid(gb10(), reserve_unified_gib=20.0, chosen=frozenset({"unified"})).pools[0].reserve_gib == 20.0
    assert reserve(device(), reserves={"device:GPU-aaaa": 3.0}) == 3.0
    assert reserve(device(total=2.0)) == 0.25
    assert reserve(device(total=2.0), reserves={"GPU-aaaa": 1.5}) == 1.5
    assert reserve(device(total=2.0), reserves={"0": 9.0}) == 2.0
    assert reserve(device(), reserves={"0": 1.0, "01:00.0": 3.0}) == 3.0
    assert reserve(device(), reserves={"GPU-bbbb": 3.0}) == 0.5
    assert laid(memory=memory(8.0)).pools[0].reserve_gib == 1.0
    assert laid(memory=memory(8.0), reserves={"host": 3.0}).pools[0].reserve_gib == 3.0
    assert laid(gb10(), reserves={"unified": 20.0}).pools[0].reserve_gib == 20.0
    assert laid(memory=memory(None)).pools[0].reserve_gib == 2.0


readings = st.one_of(
    st.sampled_from([NONE, LOST]), st.floats(0.0, 300.0).map(gib), st.sampled_from([gib(121.0), gib(110.0)])
)
some_devices = st.lists(
    st.builds(
        Device,
        id=st.sampled_from([f"GPU-{letter}{letter}{letter}{letter}" for letter in "abcdef"] + ["0000:01:00.0"]),
        vendor=st.sampled_from(["AMD", "Intel", "NVIDIA"]),
        name=st.sampled_from(["", "H100", "AMD (card1)"]),
        total=readings, free=readings, used=readings, integrated=st.booleans(), partial=st.booleans(),
        display=st.booleans(), slot=st.sampled_from(["", "0000:01:00.0", "00000000:02:00.0"]),
        number=st.one_of(st.none(), st.integers(0, 3)), seen_as=st.just("seen"),
    ),
    max_size=5,
)  # fmt: skip
names = st.sampled_from(["GPU-aaaa", "GPU-bbbb", "0", "1", "card1", "01:00.0", "nothing", "host", "unified"])
counts = st.one_of(st.none(), st.just(Reading(None, "NVML", "errs")))
memories = st.builds(
    Memory, total=st.one_of(st.just(LOST), st.floats(1.0, 300.0).map(gib)), free=readings, available=readings,
    installed=st.one_of(st.none(), st.just(gib(121.0))),
)  # fmt: skip
wanted = st.builds(
    Wanted, unified=st.sampled_from(["auto", "true", "false"]), leave_alone=st.lists(names, max_size=3).map(tuple),
    reserves=st.dictionaries(names, st.floats(0.0, 500.0), max_size=3),
    chosen=st.frozensets(st.sampled_from(["host", "unified", "device"])),
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(some_devices, counts, memories, wanted)
def test_what_holds_whatever_is_there(seen: list[Device], errs: Reading | None, memory: Memory, ask: Wanted) -> None:
    found = layout(seen, errs or Reading(float(len(seen)), "seen"), memory, ask)
    assert found == layout(seen, errs or Reading(float(len(seen)), "seen"), memory, ask)
    pools = ids(found)
    assert len(set(pools)) == len(pools) and [kind for kind in pools if kind in ("host", "unified")] == pools[:1]
    assert pools[0] == "host" or len(pools) == 1
    every = {device.id: device for device in reversed(seen)}
    assert {device.id for device in found.devices} == set(every)
    for pool in found.pools:
        assert math.isfinite(pool.reserve_gib) and pool.reserve_gib >= 0.0
        assert pool.capacity.value is None or pool.reserve_gib <= pool.capacity.value
        if pool.kind == "device":
            it = every[pool.id.removeprefix("device:")]
            assert pool.capacity.failed or pool.capacity == it.total
            assert pool.free == pool.available and (pool.free.value is not None or pool.free.failed)
            assert pool.free.failed or not pool.capacity.failed
    alone = {device.id for name in ask.leave_alone for device in named(name, found.devices)}
    told = " ".join(found.notes)
    for id in every:
        is_pool = f"device:{id}" in pools
        assert not (is_pool and id in alone)
        given = pools == ["unified"] and id not in alone
        assert is_pool or given or id in told
    if pools == ["unified"] and ask.unified == "auto":
        mine = [every[id] for id in every if id not in alone]
        assert mine and all(device.integrated for device in mine)
        assert any(not device.total.failed for device in mine)
    if pools == ["unified"] and memory.total.value is not None:
        capacity = found.pools[0].capacity.value
        assert capacity is not None and capacity <= memory.total.value
    if ask.unified == "false":
        assert pools[0] == "host" and not any(every[id.removeprefix("device:")].integrated for id in pools[1:])
    if errs is not None and pools != ["unified"]:
        assert found.count == errs
    elif pools != ["unified"]:
        assert found.count.value == len(pools) - 1
    else:
        assert found.count.value == 1.0 or found.count == errs


def test_the_order_of_what_was_seen_is_the_order_of_the_pools() -> None:
    cards = [device(f"GPU-{letter * 4}") for letter in "abc"]
    for order in itertools.permutations(cards):
        assert ids(laid(*order)) == ["host", *(f"device:{card.id}" for card in order)]


# Host memory that a device takes its own from, or may


def test_a_driver_that_errs_may_hide_a_device_that_shares_the_hosts_memory() -> None:
    (host,) = laid(count=LOST).pools
    assert (host.id, host.shared, host.reserve_gib) == ("host", True, 4.0)
    assert laid(count=LOST, unified="false").pools[0].shared is False
    assert laid(count=LOST, reserve_host_gib=9.0, chosen=frozenset({"host"})).pools[0].reserve_gib == 9.0
    known = laid(device(), count=LOST).pools
    assert known[0].shared is False and known[0].reserve_gib == 2.0


@pytest.mark.parametrize("ask", [{"leave_alone": ("GPU-gb100000",)}, {"unified": "false"}])
def test_an_integrated_device_without_a_pool_still_takes_the_hosts_memory(ask: dict[str, object]) -> None:
    (host,) = laid(gb10(), **ask).pools
    assert host.shared and host.reserve_gib == 4.0
    assert not laid().pools[0].shared and not laid(device()).pools[0].shared
