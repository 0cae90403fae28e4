"""What an operator wants warm: a start without a job, by the same verdicts, behind every job that needs the room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import broken, card, machine, provider, reading, snapshot, waiting, worker
from hypothesis import given
from hypothesis import strategies as st
from test_loop import Night
from test_loop import provider as served
from test_plan import CASES, snapshots

from scheduler.clock import stamp
from scheduler.model.machine import Pool, Reading
from scheduler.model.plan import Abort, Go, Instruction, Postpone, Retire, Send, Settle, Snapshot, Start, Wish
from scheduler.record import PIN_AGAIN_S
from scheduler.rules import explain
from scheduler.rules.placement import demand_of, placements
from scheduler.rules.plan import plan
from scheduler.simulate.host import SimHost
from scheduler.store import peek, queue, wishes, workers

WISH = Wish("boltz", "")


def made(*parts: object, wish: Wish = WISH, **over: object) -> list[Instruction]:
    return plan(snapshot(*parts, wishes=(wish,), **over))


def waits(found: list[Instruction]) -> str:
    """The ruling of the one wish that waits; nothing was started for it."""
    assert not [each for each in found if isinstance(each, Start) and each.job_id is None]
    [reason] = [each for each in found if isinstance(each, Postpone)]
    assert explain.told(reason.why)
    return reason.ruling


def test_a_wish_starts_a_worker_without_a_job_on_an_ordinary_verdict() -> None:
    [start] = made(provider(ram=10.0))
    assert isinstance(start, Start) and start.job_id is None
    assert (start.slug, start.charges, start.verdict.ruling) == ("boltz", {"host": 10.0}, "admit")


def test_a_wish_is_met_by_a_worker_that_is_there_and_waits_for_one_that_comes_up_or_goes() -> None:
    for state, job_id in (("ready", None), ("ready", 3), ("busy", 3)):
        found = made(provider(), worker(4, state=state, job_id=job_id))
        assert [each for each in found if isinstance(each, Settle)] == [Settle("boltz", "", 4)]
    for state in ("parked", "starting"):
        assert waits(made(provider(), worker(4, state=state, shown=False))) == "starting"
    assert waits(made(provider(), worker(4, state="busy", job_id=3, retire_after="asked"))) == "busy"


def test_a_worker_that_came_up_for_a_wish_goes_by_the_same_two_steps_as_any() -> None:
    found = made(provider(), worker(4, state="parked"))
    assert [each for each in found if isinstance(each, Go)] == [Go(4)]
    full = provider(ram=60.0), worker(4, state="parked", gib=60.0), worker(5, "esm", "busy", 10.0, job_id=9)
    assert [each.worker_id for each in made(*full) if isinstance(each, Abort)] == [4]


def test_nobody_makes_room_for_a_wish() -> None:
    found = made(provider(ram=40.0), provider("esm"), worker(5, "esm", gib=30.0))
    assert waits(found) == "pool_full" and not [each for each in found if isinstance(each, Retire)]


def test_a_wish_waits_for_every_job_that_needs_room_or_cores_also_where_it_would_fit_beside() -> None:
    big = (provider("big", ram=50.0), waiting("big", 2), worker(5, "esm", "busy", 20.0, job_id=1))
    assert waits(made(provider(ram=1.0), *big)) == "reserved"
    more = (
        provider("esm", ram=20.0, max_workers=4),
        waiting("esm", 2, count=9),
        worker(5, "esm", "busy", 50.0, job_id=1),
    )
    assert waits(made(provider(ram=1.0), *more)) == "reserved"
    wide = (provider("wide", threads=8), waiting("wide", 2), worker(5, "wide"), worker(6, "esm", "busy", job_id=1))
    assert waits(made(provider(), *wide)) == "cores"
    own = (provider(ram=50.0), waiting(job_id=2), worker(5, "esm", "busy", 20.0, job_id=1))
    assert waits(made(*own)) == "reserved"


def test_a_job_that_waits_for_its_own_worker_or_for_another_device_holds_up_no_wish() -> None:
    busy = (provider("esm", max_workers=1), waiting("esm", 2), worker(5, "esm", "busy", job_id=1))
    assert [each.job_id for each in made(provider(), *busy) if isinstance(each, Start)] == [None]
    here = machine(card("a"), card("b"))
    tool = (
        provider("tool", vram=70.0, ram=0.0),
        waiting("tool", 2),
        worker(5, "x", "busy", charges={"device:a": 70.0}),
    )
    cpu_only = provider(ram=1.0)
    assert [each.job_id for each in made(cpu_only, *tool, machine=here) if isinstance(each, Start)] == [2, None]


def test_what_can_never_fit_is_dropped_with_its_reason_and_what_may_fit_one_day_waits() -> None:
    for never in (provider(vram=None), provider(ram=90.0), provider(vram=1.0)):
        [dropped] = [each for each in made(never) if isinstance(each, Settle)]
        assert dropped.worker_id is None and explain.told(dropped.why)
    assert waits(made(provider(installed=False))) == waits(made()) == "not_installed"
    assert waits(made(provider(), broken())) == "breaker"
    assert waits(made(provider(), paused=True)) == "paused"
    assert waits(made(provider(), draining=True)) == "scheduler_down"
    assert waits(made(provider(), machine=machine(disk_free_gib=1.0))) == "disk"


def test_one_wish_is_started_in_a_plan_and_one_that_just_failed_is_left_alone() -> None:
    both = (Wish("boltz", ""), Wish("esm", ""))
    found = plan(snapshot(provider(), provider("esm"), wishes=both))
    assert [each.slug for each in found if isinstance(each, Start)] == ["boltz"]
    assert made(provider(), wish=Wish("boltz", "", wait_s=1.0)) == []


@given(snapshots(), st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, min_size=1))
@CASES
def test_a_wish_changes_nothing_of_what_is_done_for_jobs(whole: Snapshot, wished: list[str]) -> None:
    found = plan(Snapshot(**{**vars(whole), "wishes": tuple(Wish(slug, "") for slug in wished)}))
    extra = [each for each in found if isinstance(each, Settle | Postpone)]
    starts = [each for each in found if isinstance(each, Start) and each.job_id is None]
    rest = [each for each in found if each not in extra and each not in starts]
    assert rest == plan(whole)
    assert len(starts) <= 1 and len(extra) + len(starts) <= len(wished)


@given(snapshots(), st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, min_size=1))
@CASES
def test_a_wish_takes_of_no_pool_that_a_job_without_a_worker_could_use(whole: Snapshot, wished: list[str]) -> None:
    found = plan(Snapshot(**{**vars(whole), "wishes": tuple(Wish(slug, "") for slug in wished)}))
    taken = {pool for each in found if isinstance(each, Start) and each.job_id is None for pool in each.charges}
    if not taken:
        return
    served_jobs = {each.job_id for each in found if isinstance(each, Start | Send)}
    here = {worker.slug for worker in whole.workers}
    for job in whole.waiting:
        demand = demand_of(whole.providers[job.slug, ""])
        pools = {pool for place in placements(demand, whole.machine) for pool, gib in place.items() if gib > 0}
        fits_alone = plan(Snapshot(**{**vars(whole), "workers": (), "waiting": (job,), "leases": ()}))
        could_be_helped = any(isinstance(each, Start) for each in fits_alone)
        if job.job_id not in served_jobs and job.slug not in here and could_be_helped and not whole.breakers:
            assert not taken & pools


# In the loop, and over a crash


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


def want(night: Night, slug: str = "boltz", *, pinned: bool = False) -> None:
    assert night.store is not None
    with night.store.write() as tx:
        wishes.put(tx, slug, "", stamp(night.clock.now_s()), "ann", pinned=pinned)


def states(night: Night) -> list[tuple[str, int, int]]:
    return [(row["state"], row["pinned"], row["warm_hits"]) for row in peek.workers(night.paths)]


def test_a_wish_loads_a_worker_that_the_first_job_finds_warm(night: Night) -> None:
    night.provide(served("boltz"))
    night.up()
    want(night)
    night.until(lambda: states(night) == [("ready", False, 0)])
    assert night.ask("SELECT count(*) FROM wishes") == [(0,)] and night.charged() == 10.0
    job, before = night.submit("boltz"), night.clock.elapsed_s
    night.until(lambda: night.state(job) == "succeeded")
    assert night.clock.elapsed_s - before < 11.0
    assert peek.job(night.paths, job)["attempts"][0]["warm"] is True and states(night)[0][2] == 1


def test_a_wish_with_a_pin_pins_its_worker_in_the_tick_in_which_it_is_ready(night: Night) -> None:
    night.provide(served("boltz", 30.0), served("esm", 30.0))
    loop = night.up()
    want(night, pinned=True)
    night.until(lambda: [state for state, *_ in states(night)] == ["starting"])
    night.submit("esm")
    loop.orders = type(loop.orders)(overtake_s=0.0)
    night.until(lambda: states(night)[0][0] == "ready")
    for _ in range(20):
        loop.tick()
    assert states(night) == [("ready", True, 0)]


@pytest.mark.parametrize("state", ["parked", "starting"])
def test_a_crash_while_a_worker_comes_up_for_a_wish_leaves_the_wish_and_no_charge_too_much(
    night: Night, state: str
) -> None:
    night.provide(served("boltz"))
    night.up()
    want(night)
    night.until(lambda: [each for each, *_ in states(night)] == [state])
    night.crash()
    night.up()
    night.until(lambda: [each for each, *_ in states(night)] == ["ready"])
    assert night.charged() == 10.0 and night.ask("SELECT count(*) FROM wishes") == [(0,)]


def test_a_wish_whose_start_fails_twice_is_dropped_with_the_last_error_and_a_new_one_is_tried(night: Night) -> None:
    night.provide(served("boltz"))
    night.host.fails = lambda worker_id: "load" if worker_id < 3 else ""
    night.up()
    want(night)
    night.until(lambda: night.ask("SELECT count(*) FROM wishes WHERE dropped_at IS NOT NULL") == [(1,)])
    [(text,)] = night.ask("SELECT text FROM wishes")
    assert text == "its start failed 2 times; the last error: the weights are not there (exit code 1)"
    want(night)
    night.until(lambda: [each for each, *_ in states(night)] == ["ready"])


def test_a_worker_whose_room_was_taken_while_it_was_parked_is_parked_again_and_not_at_once(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(served("boltz", 20.0))
    loop = night.up()
    want(night)
    loop.tick()
    assert states(night)[0][0] == "parked"
    there, none = night.host.machine(), reading(1.0)
    taken = replace(there, pools=(replace(there.pools[0], free=none, available=none),))
    with monkeypatch.context() as now:
        now.setattr(SimHost, "machine", lambda _host: taken)
        night.until(lambda: states(night) == [])
        [(ruling, text)] = night.ask("SELECT ruling, text FROM wishes")
        assert ruling == "no_room_now" and "20 GiB" in text
    for _ in range(10):
        loop.tick(0.02)
    assert night.ask("SELECT count(*) FROM workers") == [(1,)]
    night.until(lambda: [state for state, *_ in states(night)] == ["ready"])
    assert night.ask("SELECT count(*) FROM workers") == [(2,)]


def test_a_pinned_worker_neither_ages_nor_makes_room_and_does_both_when_it_is_let_go(night: Night) -> None:
    night.provide(served("boltz", 30.0, idle_timeout_s=5.0), served("esm", 30.0))
    night.up()
    want(night, pinned=True)
    night.until(lambda: states(night) == [("ready", True, 0)])
    job = night.submit("esm")
    for _ in range(60):
        night.loop.tick()  # type: ignore[union-attr]
    assert night.state(job) == "queued" and states(night) == [("ready", True, 0)]
    with night.store.write() as tx:  # type: ignore[union-attr]
        assert workers.pin(tx, 1, pinned=False)
    night.until(lambda: night.state(job) == "succeeded")


def test_a_scheduler_is_not_idle_while_a_wish_waits_for_its_room(night: Night) -> None:
    night.provide(served("boltz"))
    loop = night.up()
    want(night)
    taken, known = Reading(5.0, "simulated"), Reading(36.0, "simulated")
    here = night.host.machine()
    crowded = replace(here, pools=(Pool("unified", "unified", known, 4.0, taken, taken),))
    night.host.machine = lambda: crowded  # type: ignore[method-assign]
    night.until(lambda: night.clock.elapsed_s > 300.0)
    assert states(night) == [] and night.ask("SELECT ruling FROM wishes") == [("no_room_now",)]
    assert night.clock.monotonic_s() - loop.last_activity < 10.0


# A pin is its provider's


def pinned(night: Night) -> int:
    """A pinned worker that is ready; its id."""
    night.provide(served("boltz", idle_timeout_s=5.0))
    night.up()
    want(night, pinned=True)
    night.until(lambda: states(night) == [("ready", True, 0)])
    return peek.workers(night.paths)[0]["id"]


def test_a_pin_outlives_a_change_of_the_manifest_in_a_worker_of_the_one_that_is_here(night: Night) -> None:
    first = pinned(night)
    night.provide(replace(served("boltz", idle_timeout_s=5.0), revision="r2"))
    night.until(lambda: states(night) == [("ready", True, 0)] and peek.workers(night.paths)[0]["id"] != first)
    assert night.clock.elapsed_s < 60.0
    [(text,)] = night.ask("SELECT text FROM events WHERE event = 'warm' ORDER BY id DESC LIMIT 1")
    assert text == f"the pin of worker {first} wanted it warm"


def test_a_pinned_worker_that_ends_by_itself_is_followed_by_another_after_a_while(night: Night) -> None:
    first = pinned(night)
    died_s = night.clock.elapsed_s
    night.host.kill(first)
    night.until(lambda: states(night) == [("ready", True, 0)] and peek.workers(night.paths)[0]["id"] != first)
    assert PIN_AGAIN_S <= night.clock.elapsed_s - died_s < PIN_AGAIN_S + 20.0


def test_a_pinned_worker_that_its_operator_retires_is_followed_by_none(night: Night) -> None:
    first = pinned(night)
    with night.store.write() as tx:  # type: ignore[union-attr]
        workers.ask_to_retire(tx, first, "asked to by ann")
    night.until(lambda: states(night) == [])
    ended_s = night.clock.elapsed_s
    night.until(lambda: night.clock.elapsed_s > ended_s + 2 * PIN_AGAIN_S)
    assert states(night) == [] and night.ask("SELECT count(*) FROM wishes") == [(0,)]


def test_no_pin_is_left_of_workers_that_a_drain_or_the_end_of_the_scheduler_retired(night: Night) -> None:
    pinned(night)
    with night.store.write() as tx:  # type: ignore[union-attr]
        queue.drain(tx, stamp(night.clock.now_s()))
    night.until(lambda: states(night) == [])
    with night.store.write() as tx:  # type: ignore[union-attr]
        queue.resume(tx)
    ended_s = night.clock.elapsed_s
    night.until(lambda: night.clock.elapsed_s > ended_s + 2 * PIN_AGAIN_S)
    assert states(night) == [] and night.ask("SELECT count(*) FROM wishes") == [(0,)]
