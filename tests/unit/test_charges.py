"""What a worker of ours is charged for, what of that it still owes, and what comes back when it leaves."""

from __future__ import annotations

import math
from dataclasses import replace

from builders import claim, demand, holding, lease, machine, pool, provider, snapshot, unified, worker

from scheduler.model.machine import Charge, Held, Holding, Machine
from scheduler.rules.admission import Claim, Standing, claims_of, confirm, decide, nobodys_gib, part_of


def held_on(pool_id: str, here: Machine, *claims: Claim) -> tuple[Held, ...]:
    """Who is told to hold something of one pool."""
    return confirm(demand(), {pool_id: 0.0}, here, claims, 0).evidence.placement[0].held


# From the queue


def test_of_a_workers_charge_the_host_part_is_what_its_provider_declares() -> None:
    seen = snapshot(
        provider(vram=28.0, ram=6.0), provider("tool", 0.0, 12.0), provider("af3", 20.0, 9.0, variant="fast"),
        worker(1), worker(2, "tool"), worker(3, "af3", variant="fast"), worker(4, "af3"),
    )  # fmt: skip
    assert [(each.name, each.host_gib) for each in claims_of(seen)] == [
        ("boltz", 6.0), ("tool", math.inf), ("af3:fast", 9.0), ("af3", 0.0),
    ]  # fmt: skip


def test_what_a_pinned_worker_holds_stays() -> None:
    assert [each.stays for each in claims_of(snapshot(worker(1), worker(2, pinned=True)))] == [False, True]


def test_the_leases_of_one_worker_are_one_claim_and_summed_by_pool() -> None:
    leases = lease(90, 20.0, pool="device:a"), lease(90, 6.0), lease(90, 2.5)
    (found,) = claims_of(snapshot(*leases, machine=machine(pool("device:a", 80.0), pool("host"))))
    assert found.charges == {"device:a": 20.0, "host": 8.5}


def test_of_a_worker_that_gave_back_only_some_pools_the_rest_is_leaked() -> None:
    (found,) = claims_of(snapshot(lease(90, 6.0, "returning"), lease(90, 20.0, "leaked", "device:a")))
    assert found.gone and found.stays


def test_what_moves_to_the_machines_own_memory_is_added_to_what_is_charged_there_and_devices_stay() -> None:
    charges = {"host": 6.0, "unified": 34.0, "device:a": 10.0}
    (found,) = claims_of(snapshot(worker(1, charges=charges), machine=unified()))
    assert found.charges == {"unified": 40.0, "device:a": 10.0}


def test_a_charge_on_memory_that_the_machine_does_not_show_at_all_stays_as_it_is() -> None:
    (found,) = claims_of(snapshot(worker(1, charges={"unified": 34.0}), machine=replace(machine(), pools=())))
    assert found.charges == {"unified": 34.0}


# What is still owed


def test_a_worker_that_was_not_seen_to_use_anything_owes_its_whole_charge() -> None:
    assert held_on("host", machine(), claim(1, host=10.0)) == (Held("w1", 10.0, 0.0, 10.0),)
    assert held_on("unified", unified(), claim(1, host_gib=math.inf, unified=12.0)) == (Held("w1", 12.0, 0.0, 12.0),)


def test_a_worker_above_its_charge_owes_nothing() -> None:
    seen = holding(Charge("host", 10.0, 18.0), worker_id=1)
    assert held_on("host", machine(holdings=(seen,)), claim(1, host=10.0)) == (Held("w1", 10.0, 18.0, 0.0),)


def test_on_unified_memory_both_parts_are_owed_until_each_is_touched() -> None:
    seen = holding(Charge("unified", 6.0, 2.0, "host"), Charge("unified", 28.0, 5.0, "device"), worker_id=1)
    here = unified(holdings=(seen,))
    assert held_on("unified", here, claim(1, host_gib=6.0, unified=34.0)) == (Held("w1", 34.0, 7.0, 23.0 + 4.0),)
    fat = replace(seen, charges=(Charge("unified", 6.0, 2.0, "host"), Charge("unified", 28.0, 40.0, "device")))
    there = unified(holdings=(fat,))
    assert held_on("unified", there, claim(1, host_gib=6.0, unified=34.0)) == (Held("w1", 34.0, 42.0, 4.0),)
    assert held_on("unified", here, Claim(1, "w1", {"unified": 34.0})) == (Held("w1", 34.0, 7.0, 29.0),)


def test_of_a_host_part_larger_than_the_charge_no_more_than_the_charge_is_owed() -> None:
    assert held_on("unified", unified(), claim(1, host_gib=50.0, unified=34.0))[0].owed_gib == 34.0


# Beside what is charged


def test_a_worker_that_is_astray_counts_with_what_it_uses_and_one_that_uses_nothing_is_not_named() -> None:
    cards = machine(pool("device:a", 80.0), pool("device:b", 40.0), pool("host"))
    charged = Claim(1, "w1", {"device:a": 4.0})
    astray = replace(cards, holdings=(holding(Charge("device:b", 30.0, 12.0, "device"), worker_id=1),))
    assert held_on("device:b", astray, charged) == (Held("w1", 12.0, 12.0, 0.0),)
    idle = replace(cards, holdings=(holding(Charge("device:b", 30.0, 0.0, "device"), worker_id=1),))
    assert held_on("device:b", idle, charged) == ()


def test_workers_that_the_queue_forgot_are_told_of_by_worker_id() -> None:
    ten = holding(Charge("host", 1.0, 1.0), name="ten", pid=0, worker_id=10)
    nine = holding(Charge("host", 1.0, 1.0), name="nine", pid=0, worker_id=9)
    two = holding(Charge("host", 1.0, 1.0), name="two", pid=0, worker_id=2)
    found = held_on("host", machine(holdings=(ten, nine, two)))
    assert [each.name for each in found] == ["two", "nine", "ten"]


def test_what_nobody_declared_adds_nothing_to_the_sum_of_the_charges() -> None:
    known, unknown = holding(Charge("host", 20.0, 20.0), pid=1), holding(Charge("host", None, 3.0), pid=2)
    verdict = decide(demand(0.0, 1.0), machine(holdings=(known, unknown)), [])
    assert verdict.ruling == "unknown_holding" and verdict.evidence.placement[0].charged_gib == 20.0


# When somebody leaves


def test_a_claims_part_of_a_pool_is_what_it_owes_there_and_what_it_was_seen_to_use_comes_back() -> None:
    seen = holding(Charge("host", 40.0, 2.0, "host"), Charge("device:b", 30.0, 12.0, "device"), worker_id=1)
    here = machine(pool("device:a", 80.0), pool("device:b", 40.0), pool("host"), holdings=(seen,))
    charged = claim(1, host=40.0)
    assert part_of(charged, "host", "host", here) == (Held("w1", 40.0, 2.0, 38.0), 2.0)
    assert part_of(charged, "device:b", "device", here) == (Held("w1", 12.0, 12.0, 0.0), 12.0)
    assert part_of(charged, "device:a", "device", here) == (Held("w1", 0.0, 0.0, 0.0), 0.0)


def test_of_a_worker_that_was_not_seen_its_charge_comes_back() -> None:
    assert part_of(claim(2, host=10.0), "host", "host", machine()) == (Held("w2", 10.0, 0.0, 10.0), 10.0)
    assert part_of(claim(2, host=10.0), "unified", "unified", unified()) == (Held("w2", 0.0, 0.0, 0.0), 0.0)
    unread = holding(Charge("host", 10.0, None), worker_id=2)
    assert part_of(claim(2, host=10.0), "host", "host", machine(holdings=(unread,)))[1] == 10.0


def test_what_leaves_is_given_back_to_a_reading_and_never_to_a_missing_one() -> None:
    full = [claim(1, host=50.0)]
    there = machine(pool("host", 64.0, available=4.0), holdings=(holding(Charge("host", 50.0, 48.0), worker_id=1),))
    (place,) = decide(demand(0.0, 30.0), there, full, away=full).evidence.placement
    assert (place.live.value, place.charged_gib, place.owed_gib) == (52.0, 0.0, 0.0)
    unread = machine(pool("host", 64.0, available=None))
    assert decide(demand(0.0, 30.0), unread, full, away=full).ruling == "unreadable"


def test_when_somebody_elses_process_leaves_ours_are_charged_as_before() -> None:
    rival, mate = holding(Charge("host", 30.0, 25.0), pid=501), holding(Charge("host", 4.0, 4.0), pid=502)
    seen = holding(Charge("host", 10.0, 10.0), worker_id=1)
    here = machine(pool("host", 64.0, available=20.0), holdings=(rival, mate, seen))
    (place,) = Standing(here, [claim(1, host=10.0)], gone=(rival,)).decide(demand(0.0, 1.0)).evidence.placement
    assert (place.charged_gib, place.live.value) == (14.0, 45.0)


def test_when_the_one_that_competes_leaves_what_the_cache_would_give_back_counts() -> None:
    loads = replace(holding(Charge("host", 2.0, 2.0), pid=501), competes=True)
    idles = holding(Charge("host", 3.0, 3.0), pid=502)
    here = machine(pool("host", 64.0, free=5.0, available=50.0), holdings=(loads, idles), competing=1)
    lives = [
        Standing(there, [], gone=gone).decide(demand(0.0, 1.0)).evidence.placement[0].live.value
        for there, gone in ((here, (loads,)), (here, (idles,)), (replace(here, competing=None), (loads,)))
    ]
    assert lives == [52.0, 8.0, 7.0]


# Memory on nobody's name


def nobodys(*charges: Charge) -> Holding:
    """What a driver counts as used and attributes to no process."""
    return Holding("unattributed", 0, "", charges)


def test_as_much_of_it_as_they_were_charged_goes_with_workers_whom_no_driver_tells() -> None:
    there = (Charge("device:a", 45.0, 45.0, "device"),)
    mate = holding(Charge("device:a", 5.0, 5.0, "device"), pid=502)
    here = machine(pool("device:a", 80.0), pool("host"), holdings=(nobodys(*there), mate))
    claims = [Claim(n, f"w{n}", {"device:a": 20.0}) for n in (1, 2, 3)]

    def left(*away: Claim, here: Machine = here) -> tuple[Held, ...]:
        stay = [each for each in claims if each not in away]
        found = Standing(here, claims, away=away).verdict(demand(1.0), {"device:a": 1.0}).evidence.placement[0].held
        assert found[: len(stay)] == tuple(Held(each.name, 20.0, 0.0, 20.0) for each in stay)
        assert found[-1] == Held("esm (pid 502, bob)", 5.0, 5.0, 0.0)
        return found[len(stay) : -1]

    assert left() == (Held("unattributed", 45.0, 45.0, 0.0),)
    assert left(claims[0]) == (Held("unattributed", 25.0, 25.0, 0.0),)
    assert left(*claims) == (Held("unattributed", 0.0, 0.0, 0.0),)
    assert left(claim(9, host=6.0)) == (Held("unattributed", 45.0, 45.0, 0.0),)
    seen = holding(Charge("device:a", 20.0, 18.0, "device"), worker_id=1)
    odd = nobodys(Charge("device:a", 45.0, 40.0, "device"))
    assert left(claims[0], here=replace(here, holdings=(odd, mate, seen))) == (Held("unattributed", 45.0, 40.0, 5.0),)


def test_what_may_be_a_workers_of_it_is_all_of_it_on_the_pools_where_its_use_is_not_told() -> None:
    both = nobodys(Charge("device:a", 45.0, 40.0, "device"), Charge("device:b", 10.0, 10.0, "device"))
    others = both, nobodys(Charge("device:a", None, 1.0)), nobodys(Charge("host", 3.0, 3.0)), holding(pid=502)
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host"), holdings=others)
    own = Claim(1, "w1", {"device:a": 20.0})
    assert nobodys_gib(own, "device:a", here) == 45.0 and nobodys_gib(own, "device:b", here) == 0.0
    assert nobodys_gib(claim(1, host=6.0), "host", here) == 3.0
    unread = holding(Charge("device:a", 20.0, None, "device"), worker_id=1)
    assert nobodys_gib(own, "device:a", replace(here, holdings=(*others, unread))) == 45.0
    seen = holding(Charge("device:a", 20.0, 18.0, "device"), worker_id=1)
    assert nobodys_gib(own, "device:a", replace(here, holdings=(*others, seen))) == 0.0


# What is gone and not back


def test_what_a_worker_that_is_gone_did_not_give_back_is_charged_once() -> None:
    nobodys = holding(Charge("device:a", 24.0, 24.0, "device"), name="unattributed", pid=0)
    here = machine(pool("device:a", 80.0, free=56.0), pool("host"), holdings=(nobodys,))
    gone = Claim(7, "boltz", {"device:a": 30.0}, gone=True, stays=True)
    held = held_on("device:a", here, gone)
    assert held == (Held("boltz (gone, its memory leaked)", 30.0, 0.0, 0.0), Held("unattributed", 0.0, 0.0, 0.0))
    assert decide(demand(48.0), here, [gone]).admit, "80 less 30 charged less 2 reserved"
    assert decide(demand(48.1), here, [gone]).ruling == "pool_full"


def test_what_is_on_nobodys_name_beyond_that_stays_a_strangers() -> None:
    nobodys = holding(Charge("device:a", 24.0, 24.0, "device"), name="unattributed", pid=0)
    here = machine(pool("device:a", 80.0, free=56.0), pool("host"), holdings=(nobodys,))
    gone = Claim(7, "boltz", {"device:a": 10.0}, gone=True)
    assert [each.charge_gib for each in held_on("device:a", here, gone)] == [10.0, 14.0]
    assert held_on("device:a", here, gone)[0].name == "boltz (gone, its memory is not back yet)"
    elsewhere = Claim(7, "boltz", {"device:b": 30.0}, gone=True)
    assert [each.charge_gib for each in held_on("device:a", here, elsewhere)] == [24.0]
