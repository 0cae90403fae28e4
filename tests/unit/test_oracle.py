"""A few hundred random machines against an oracle that knows their future; and that it sees what is done wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from made_worlds import OWN_MEMORY
from oracle import Tally, judge

from scheduler.host.machine import attribution
from scheduler.model.machine import Machine, Reading
from scheduler.model.plan import Go, Raise, Send, Snapshot, Waiting, WorkerView
from scheduler.model.provider import Learned, Provider
from scheduler.model.verdict import Demand, PoolEvidence, Verdict
from scheduler.rules import admission, alone, desk, heads, raising
from scheduler.rules import plan as planning
from scheduler.rules.desk import Desk
from scheduler.rules.peaks import lacking
from scheduler.rules.placement import demand_of
from scheduler.rules.plan import plan
from scheduler.rules.room import fits

STATES = 300
SOUGHT = 1500
"""Worlds in which a planted fault is looked for."""


def test_nothing_is_admitted_that_will_not_fit_and_no_never_is_wrong() -> None:
    tally = Tally()
    for seed in range(STATES):
        judge(seed, tally)
    assert tally.over == [] and tally.never_wrong == [] and tally.beside == []
    assert tally.starts > 50 and tally.gone > 50 and tally.admitted > 100, "there was something to decide"
    assert tally.raised > 10 and tally.sent > 10 and tally.lowered > 5 and tally.lone > 5
    assert tally.not_raised.total() > 10


def found(planned: Any = plan, manners: Sequence[str] = ()) -> str:
    """The first over-admission that the oracle sees; "" if there is none."""
    tally = Tally()
    for seed in range(SOUGHT):
        judge(seed, tally, planned=planned, manners=manners)
        if tally.over:
            return tally.over[0]
    return ""


Gate = Callable[[PoolEvidence], bool]


def without(name: str, instead: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = tuple((ruling, instead if ruling == name else closed) for ruling, closed in admission.GATES)
    monkeypatch.setattr(admission, "GATES", gates)


def test_it_sees_that_growth_still_owed_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def live_alone(place: PoolEvidence) -> bool:
        return not fits((place.demand_gib, place.reserve_gib), place.live.value or 0.0)

    without("no_room_now", live_alone, monkeypatch)
    assert found()


def test_it_sees_that_charges_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    without("pool_full", lambda place: False, monkeypatch)
    assert found(manners=OWN_MEMORY)


def test_it_sees_that_an_unknown_holding_is_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    without("unknown_holding", lambda place: False, monkeypatch)
    assert found()


def test_it_sees_that_the_cache_is_counted_on_while_somebody_competes(monkeypatch: pytest.MonkeyPatch) -> None:
    live = admission._live
    monkeypatch.setattr(admission, "_live", lambda pool, competing, back_gib: live(pool, 0, back_gib))
    assert found()


def test_it_sees_that_memory_which_is_not_back_is_not_charged() -> None:
    def forgetful(snapshot: Snapshot, **more: Any) -> Any:
        return plan(replace(snapshot, leases=()), **more)

    assert found(forgetful, manners=("flat",))


def test_it_sees_that_a_failed_reading_is_a_full_one() -> None:
    def trusting(snapshot: Snapshot, **more: Any) -> Any:
        return plan(replace(snapshot, machine=_guessed(snapshot.machine)), **more)

    assert found(trusting)


def _guessed(machine: Machine) -> Machine:
    """A machine whose table is taken for empty where it could not be read."""
    return replace(machine, holdings_missing="", competing=machine.competing or 0)


def test_it_sees_that_parked_workers_are_let_go_unchecked() -> None:
    def unchecked(snapshot: Snapshot, **more: Any) -> Any:
        told = plan(snapshot, **more)
        parked = {worker.id for worker in snapshot.workers if worker.state == "parked"}
        return [Go(each.worker_id) if getattr(each, "worker_id", None) in parked else each for each in told]

    assert found(unchecked)


def test_it_sees_that_what_is_on_nobodys_name_is_left_out() -> None:
    def blind(snapshot: Snapshot, **more: Any) -> Any:
        machine = snapshot.machine
        pools = tuple(
            replace(pool, free=Reading(pool.capacity.value, "guessed")) if pool.kind == "device" else pool
            for pool in machine.pools
        )
        named = tuple(holding for holding in machine.holdings if holding.pid)
        return plan(replace(snapshot, machine=replace(machine, pools=pools, holdings=named)), **more)

    assert found(blind)


# Warm workers, learned charges, jobs that run alone


def test_it_sees_that_every_raise_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(at: Desk, worker: WorkerView, waiting: Waiting) -> Send | Raise:
        more, demand = raising.more_for(at, worker, waiting), at.demand(waiting)
        if not more:
            return Send(worker.id, waiting.job_id)
        verdict = at.standing(waiting).verdict(demand, more)
        charges = {pool: gib + more.get(pool, 0.0) for pool, gib in worker.charges.items()}
        return Raise(worker.id, waiting.job_id, charges, demand.host_gib, verdict)

    monkeypatch.setattr(planning, "raise_for", always)
    monkeypatch.setattr(heads, "raise_for", always)
    assert "raise" in found()


def test_it_sees_that_a_job_is_sent_whatever_all_can_see_beside_the_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(at: Desk, worker: WorkerView) -> None:
        at.send(worker, Send(worker.id, worker.job_id or 0))

    monkeypatch.setattr(raising, "_confirm", unchecked)
    assert "sent raised" in found()


def test_it_sees_that_a_larger_job_is_sent_without_a_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "raise_for", lambda at, worker, waiting: Send(worker.id, waiting.job_id))
    assert "sent" in found()


def test_it_sees_that_less_is_raised_than_the_job_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(charges: dict[str, float], demand: Demand) -> dict[str, float]:
        return {pool: gib / 2 for pool, gib in lacking(charges, demand).items()}

    monkeypatch.setattr(raising, "lacking", half)
    assert "sent raised" in found()


def test_it_sees_that_one_part_of_unified_memory_pays_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raising, "_grown", lambda at, worker, waiting: at.demand(waiting))
    assert "sent" in found()


def test_it_sees_that_a_raise_is_not_charged_beside_the_starts_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Desk.send

    def forgetful(at: Desk, worker: WorkerView, order: Send | Raise) -> None:
        claims = at.claims
        send(at, worker, order)
        at.claims = claims

    monkeypatch.setattr(Desk, "send", forgetful)
    assert "raise" in found()


def test_it_sees_that_what_was_learned_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def declared(provider: Provider, learned: Learned, machine: Machine) -> Demand:
        return demand_of(provider)

    monkeypatch.setattr(desk, "demand_for", declared)
    assert found()


def test_it_sees_that_a_job_that_runs_alone_is_charged_the_whole_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = alone._whole

    def all_of_it(at: Desk, job: Waiting, place: dict[str, float]) -> Verdict:
        verdict = whole(at, job, place)
        pools = tuple(replace(pool, demand_gib=pool.capacity.value or 0.0) for pool in verdict.evidence.placement)
        return replace(verdict, evidence=replace(verdict.evidence, placement=pools))

    monkeypatch.setattr(alone, "_whole", all_of_it)
    assert "alone" in found()


def test_it_sees_that_a_job_runs_alone_beside_another_worker_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "_there", lambda at, place: [])
    tally, seeds = Tally(), iter(range(SOUGHT))
    while not tally.beside:
        judge(next(seeds), tally)


def test_it_sees_that_no_reserve_is_kept() -> None:
    def greedy(snapshot: Snapshot, **more: Any) -> Any:
        pools = tuple(replace(pool, reserve_gib=0.0) for pool in snapshot.machine.pools)
        return plan(replace(snapshot, machine=replace(snapshot.machine, pools=pools)), **more)

    assert found(greedy)


@pytest.mark.parametrize(("name", "much"), [("MUCH_GIB", 1000.0), ("MUCH_SHARE", 1.0)])
def test_it_sees_that_much_on_nobodys_name_is_taken_for_the_drivers_own(
    name: str, much: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribution, name, much)
    assert found(manners=("honest",))
