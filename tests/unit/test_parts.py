"""What a holding is to each pool that it is on, and what a machine says of all its holdings."""

from __future__ import annotations

import math
from dataclasses import replace

from builders import holding, machine, pool, reading

from scheduler.model.machine import MOST_GIB, Charge, Held, Holding, Part, Reading


def test_a_number_is_no_failure_nor_is_what_does_not_apply() -> None:
    assert not Reading(0.0, "test").failed and not Reading(5.0, "test", "stale").failed
    assert not Reading(None, "test").failed
    assert Reading(None, "test", "it did not answer").failed


def test_the_charges_on_one_pool_are_summed_and_owed_apart() -> None:
    both = holding(Charge("unified", 6.0, 2.0, "host"), Charge("unified", 28.0, 5.0, "device"))
    assert both.parts == {"unified": Part(34.0, 7.0, 5.0, 4.0 + 23.0, True)}
    fat = holding(Charge("unified", 6.0, 10.0, "host"), Charge("unified", 28.0, 5.0, "device"))
    assert fat.parts == {"unified": Part(34.0, 15.0, 5.0, 23.0, True)}


def test_each_pool_has_a_part_of_its_own() -> None:
    apart = holding(Charge("device:a", 28.0, 28.0, "device"), Charge("host", 6.0, 1.0, "host"))
    assert apart.parts == {
        "device:a": Part(28.0, 28.0, 28.0, 0.0, True),
        "host": Part(6.0, 1.0, 0.0, 5.0, True),
    }


def test_one_charge_that_nobody_declared_makes_the_part_undeclared() -> None:
    half = holding(Charge("unified", 6.0, 2.0, "host"), Charge("unified", None, 5.0, "device"))
    assert half.parts == {"unified": Part(None, 7.0, 5.0, 4.0, True)}
    assert holding(Charge("host", None, 0.5)).parts == {"host": Part(None, 0.5, 0.0, 0.0, True)}


def test_use_that_could_not_be_read_counts_nothing_and_all_of_its_charge_is_owed() -> None:
    assert holding(Charge("host", 10.0, None)).parts == {"host": Part(10.0, 0.0, 0.0, 10.0, False)}
    half = holding(Charge("unified", 6.0, 0.0, "host"), Charge("unified", 28.0, None, "device"))
    assert half.parts == {"unified": Part(34.0, 0.0, 0.0, 34.0, True)}


def test_what_is_no_amount_of_memory_was_not_declared_or_not_seen_and_the_largest_amount_is_one() -> None:
    most = holding(Charge("host", MOST_GIB, MOST_GIB))
    assert most.parts == {"host": Part(MOST_GIB, MOST_GIB, 0.0, 0.0, True)}
    for gib in (-1.0, 2 * MOST_GIB, math.nan, math.inf):
        assert holding(Charge("host", gib, 3.0)).parts == {"host": Part(None, 3.0, 0.0, 0.0, True)}
        assert holding(Charge("host", 10.0, gib)).parts == {"host": Part(10.0, 0.0, 0.0, 10.0, False)}


def test_a_holder_is_told_by_name_process_and_user_as_far_as_they_are_known() -> None:
    assert Holding("esm", 500, "bob", ()).told == "esm (pid 500, bob)"
    assert Holding("esm", 500, "", ()).told == "esm (pid 500)"
    assert Holding("unattributed", 0, "bob", ()).told == "unattributed"
    assert Holding("esm", 500, "bob", ()).held(Part(4.0, 3.0, 2.0, 1.0, True)) == Held(
        "esm (pid 500, bob)", 4.0, 3.0, 1.0
    )


def test_holdings_are_ours_by_worker_id_or_somebody_elses_by_pool() -> None:
    ours = holding(Charge("host", 10.0, 10.0), worker_id=7)
    esm = holding(Charge("host", 4.0, 3.0), Charge("device:a", None, 1.0), name="esm", pid=501)
    af3 = holding(Charge("host", 2.0, 2.0), name="af3", pid=502)
    here = machine(holdings=(esm, ours, af3))
    assert here.ours == {7: ours} and here.others == (esm, af3)
    assert here.held_by_others == {
        "host": (Held("esm (pid 501, bob)", 4.0, 3.0, 1.0), Held("af3 (pid 502, bob)", 2.0, 2.0, 0.0)),
        "device:a": (Held("esm (pid 501, bob)", None, 1.0, 0.0),),
    }


def test_a_pool_is_found_by_its_id() -> None:
    here = machine(pool("device:a", 80.0), pool("host", 64.0))
    assert here.pool("host") == here.pools[1] and here.pool("device:b") is None


def test_of_partial_devices_one_counts_for_a_worker_of_several() -> None:
    whole, parts = pool("device:a"), [replace(pool(f"device:MIG-{n}"), partial=True) for n in range(3)]
    mixed = machine(whole, replace(whole, id="device:b"), *parts, pool("host"))
    assert mixed.accelerators.value == 5.0
    assert mixed.for_several == replace(
        mixed.accelerators, value=2.0, source="test; of 3 partial devices a process sees one at most"
    )
    assert machine(*parts, pool("host")).for_several.value == 1.0
    alike, errs = machine(whole, pool("host")), replace(mixed, accelerators=reading(None))
    assert alike.for_several is alike.accelerators and errs.for_several is errs.accelerators
