"""Whether the memory of a worker that is gone is back: by who is listed, by what is on nobody's name, never by time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import machine, pool, reading
from made_proc import device, integrated

from scheduler.model.machine import Charge, Device, Holding, Machine, Reading, Tenant
from scheduler.rules.returning import unreturned

A = "device:a"


def nobody(gib: float, pool_id: str = A) -> Holding:
    """What a driver attributes to no process."""
    return Holding("unattributed", 0, "", (Charge(pool_id, gib, gib, "device"),), competes=None)


def own(used: float | None, charge: float = 30.0, worker_id: int = 2) -> Holding:
    return Holding("boltz", 900, "me", (Charge(A, charge, used, "device"),), worker_id)


def there(card: Device, *holdings: Holding, **over: Any) -> Machine:
    return machine(pool(A, card.total.value), pool("host"), devices=(card,), holdings=holdings, **over)


def asked(here: Machine, before: float | None = 0.25, pool_id: str = A, **more: Any) -> str:
    return unreturned(pool_id, before, here, **more)


# What was on nobody's name before


def test_memory_is_back_when_no_more_is_on_nobodys_name_than_before() -> None:
    assert asked(there(device(used=0.25), nobody(0.25))) == ""
    assert asked(there(device(used=1.25), nobody(1.25))) == ""


def test_what_is_missing_is_told_in_figures() -> None:
    text = asked(there(device(used=24.31), nobody(24.31)))
    assert text == "24.31 GiB of a are on nobody's name, 0.25 were before it was started: 24.06 GiB are not back"


@pytest.mark.parametrize(
    ("total", "over", "back"), [(40.0, 1.0, True), (40.0, 1.01, False), (80.0, 1.6, True), (80.0, 1.61, False)]
)
def test_the_margin_is_a_gib_or_two_percent_of_the_device(total: float, over: float, back: bool) -> None:
    found = asked(there(device(used=2.0 + over, total=total), nobody(2.0 + over)), before=2.0)
    assert (found == "") is back, found


def test_the_margin_is_the_operators() -> None:
    assert asked(there(device(used=9.0), nobody(9.0)), before=0.0, margin_gib=10.0) == ""


def test_other_workers_that_came_meanwhile_are_on_their_own_name() -> None:
    here = there(device("a", Tenant(901, 40.0), used=40.25), own(40.0, 40.0), nobody(0.25))
    assert asked(here) == ""


def test_where_no_driver_lists_anybody_a_living_worker_may_be_what_is_there() -> None:
    hidden = device(used=40.0, tenants_missing="another pid namespace")
    assert asked(there(hidden, own(None, 40.0), nobody(40.0)), before=0.0) == ""
    text = asked(there(hidden, own(None, 10.0), nobody(40.0)), before=0.0)
    assert "10 may be of workers that no driver lists" in text and "30 GiB are not back" in text


def test_a_listing_driver_excuses_nobody_who_is_not_listed() -> None:
    here = there(device("a", Tenant(77, 1.0), used=31.0), own(None, 40.0), nobody(30.0))
    assert "29.75 GiB are not back" in asked(here)


def test_without_totals_then_or_now_they_decide_nothing() -> None:
    assert asked(there(device(used=30.0), nobody(30.0)), before=None) == ""
    nothing = Reading(None, "driver")
    assert asked(machine(pool(A), devices=(replace(device(), used=nothing, free=nothing),)), before=0.0) == ""
    total = there(replace(device(used=30.0), used=nothing), nobody(30.0))
    assert "30 GiB are not back" in asked(total, before=0.0), "a total less what is free is a figure too"


# Who is listed


def test_a_driver_that_lists_a_process_of_its_keeps_the_charge() -> None:
    here = there(device("a", Tenant(500, 4.25), used=4.25))
    assert asked(here, listed={500}) == "the driver of a still lists its process 500 with 4.25 GiB"
    assert asked(here, listed={501}) == ""


def test_on_unified_memory_the_drivers_list_is_what_tells() -> None:
    here = machine(pool("unified", 121.0), devices=(integrated(Tenant(500, 28.0)),))
    text = asked(here, None, "unified", listed={500})
    assert "still lists its process 500 with 28 GiB" in text
    assert asked(here, None, "unified", listed={501}) == ""


def test_a_driver_that_told_who_is_there_and_does_not_now_is_no_answer() -> None:
    silent = integrated(tenants_missing="it did not answer")
    here = machine(pool("unified", 121.0), devices=(silent,))
    assert "it did not answer" in asked(here, None, "unified", tells={silent.id})
    assert asked(here, None, "unified", tells=()) == "", "a driver that never tells cannot be waited for"
    assert asked(here, None, "unified", tells={silent.id}, on_device=False) == "", "it was on no device"


# What cannot be read is not back


@pytest.mark.parametrize(
    ("here", "word"),
    [
        (there(device(), holdings_missing="the process table hangs"), "the process table hangs"),
        (there(replace(device(), used=reading(None))), "it did not answer"),
        (machine(pool("host")), "not among this machine's devices"),
        (machine(pool("host"), accelerators=reading(None)), "it did not answer"),
    ],
)
def test_unknown_never_gives_back(here: Machine, word: str) -> None:
    assert word in asked(here)


def test_host_memory_is_back_with_the_process_whatever_meminfo_says() -> None:
    here = machine(pool("host", 64.0, free=1.0), devices=(device("a", Tenant(500, 4.0)),))
    assert asked(here, None, "host", listed={500}) == ""


def test_a_device_that_is_left_alone_meanwhile_is_looked_at_all_the_same() -> None:
    here = machine(pool("host"), devices=(device("a", Tenant(7, 1.0), used=31.0),))
    assert "29.75 GiB are not back" in asked(here)
    assert asked(machine(pool("host"), devices=(device("a", Tenant(7, 1.0), used=1.25),))) == ""
