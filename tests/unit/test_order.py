"""Whose turn it is, and who may not go."""

from __future__ import annotations

import pytest
from builders import broken, holding, lease, machine, pool, provider, reading, snapshot, waiting, worker

from scheduler.model.machine import Charge
from scheduler.model.plan import Snapshot
from scheduler.rules.admission import claims_of
from scheduler.rules.order import Line, line, window_closed


def stand(*parts: object, **over: object) -> Line:
    whole: Snapshot = snapshot(*parts, **over)
    return line(whole, claims_of(whole))


def why(found: Line, slug: str = "boltz") -> str:
    return found.excluded[slug, ""][0]


def test_priority_goes_first_then_the_lower_id() -> None:
    found = stand(
        provider("a"), provider("b"), provider("c"), waiting("a", 9), waiting("b", 4), waiting("c", 12, priority=1)
    )
    assert [w.job_id for w in found.eligible] == [12, 4, 9]
    assert found.head is found.eligible[0]


@pytest.mark.parametrize(
    ("parts", "over", "ruling"),
    [
        ([provider()], {"draining": True}, "scheduler_down"),
        ([provider()], {"stopping": True}, "scheduler_down"),
        ([provider()], {"paused": True}, "paused"),
        ([provider()], {"drained": True}, "paused"),
        ([provider()], {"machine": machine(disk_free_gib=4.9)}, "disk"),
        ([provider()], {"machine": machine(disk_free_gib=None)}, "disk"),
        ([], {}, "not_installed"),
        ([provider(installed=False)], {}, "not_installed"),
        ([provider(), broken()], {}, "breaker"),
        ([provider(vram=None)], {}, "undeclared"),
        ([provider(vram=28.0)], {}, "no_device"),
        ([provider(vram=28.0)], {"machine": machine(accelerators=reading(None))}, "unreadable"),
        ([provider(ram=63.0)], {}, "too_big"),
        ([provider(ram=30.0)], {"machine": machine(holdings=(holding(Charge("host", None)),))}, "unknown_holding"),
        ([provider(ram=30.0)], {"machine": machine(holdings=(holding(Charge("host", 40.0, 40.0)),))}, "pool_full"),
        ([provider(ram=30.0)], {"machine": machine(pool("host", available=20.0))}, "no_room_now"),
        ([provider(ram=30.0), lease(90, 40.0, "leaked")], {}, "pool_full"),
        ([provider(ram=30.0), worker(5, "esm", gib=40.0, pinned=True)], {}, "pool_full"),
    ],
)
def test_whom_nothing_here_can_help_is_told_why_and_stands_in_nobodys_way(
    parts: list[object], over: dict[str, object], ruling: str
) -> None:
    found = stand(*parts, waiting(), **over)
    assert found.eligible == () and found.head is None
    assert why(found) == ruling and found.excluded["boltz", ""][1]


def test_a_disk_without_a_reserve_is_not_asked_for() -> None:
    assert stand(provider(), waiting(), machine=machine(disk_free_gib=None, disk_reserve_gib=0.0)).head


def test_a_stopped_queue_says_which_stop_it_is_and_what_ends_it() -> None:
    for over, word in (({"paused": True}, "paused:"), ({"paused": True, "drained": True}, "drained:")):
        told = str(stand(provider(), waiting(), **over).excluded["boltz", ""][1])
        assert word in told and "`schedq queue resume`" in told


def test_a_paused_provider_lets_the_others_go() -> None:
    found = stand(provider("a"), provider("b"), waiting("a", 1, paused="paused by ann"), waiting("b", 2))
    assert [w.slug for w in found.eligible] == ["b"] and found.excluded["a", ""] == ("paused", "paused by ann")


def test_a_half_open_breaker_lets_one_job_through_and_no_second() -> None:
    assert stand(provider(), broken(next_try_in_s=0.0), waiting()).head
    for state in ("parked", "starting", "busy"):
        assert why(stand(provider(), broken(next_try_in_s=0.0), waiting(), worker(state=state))) == "breaker"
    two = stand(
        provider("m"), provider("m", variant="x"), broken("m", 0.0), waiting("m", 1), waiting("m", 2, variant="x")
    )
    assert [w.job_id for w in two.eligible] == [1] and ("m", "x") in two.excluded


def test_who_only_waits_for_workers_of_ours_to_go_may_be_head() -> None:
    assert stand(provider(ram=30.0), waiting(), worker(5, "esm", "busy", 40.0)).head
    assert stand(provider(ram=30.0), waiting(), lease(90, 40.0, "returning")).head


def test_a_provider_with_a_worker_needs_no_room() -> None:
    assert stand(provider(ram=63.0), waiting(), worker(1, gib=1.0)).head


def test_a_window_closes_when_the_head_was_overtaken_for_as_long_as_it_may() -> None:
    assert not window_closed(waiting(), 900.0)
    assert not window_closed(waiting(head_for_s=899.9), 900.0)
    assert window_closed(waiting(head_for_s=900.0), 900.0)
    assert window_closed(waiting(), 0.0)
