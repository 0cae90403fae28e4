"""Whole nights of the pure plan: the bound of every head, nobody starves, nobody is stopped that must not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from builders import machine, pool, provider, snapshot, unified, waiting, worker
from hypothesis import given, settings
from hypothesis import strategies as st
from nights import Job, Night, Worker

from scheduler.model.machine import Machine
from scheduler.model.plan import Head, Retire, Send, Start
from scheduler.rules import closing, desk, heads, search
from scheduler.rules.plan import plan

SLUGS = ("a", "b", "c", "d", "e")
CARDS = machine(pool("device:x", 48.0, reserve=1.0), pool("device:y", 24.0, reserve=1.0), pool("host", 64.0))
ONE = replace(unified(64.0, reserve=4.0), cores=12)


@st.composite
def nights(draw: st.DrawFn) -> Night:
    here: Machine = draw(st.sampled_from([ONE, CARDS]))
    most = 22.0 if here is CARDS else 58.0
    figures = st.floats(1.0, most)
    providers = {
        slug: provider(
            slug, draw(figures), 0.5, threads=draw(st.integers(1, 4)), max_workers=draw(st.integers(1, 2)),
            idle_timeout_s=0.0,
        )
        for slug in SLUGS
    }  # fmt: skip
    lasts = st.one_of(st.floats(1.0, 60.0), st.floats(1.0, 7200.0))
    arrivals = draw(st.sampled_from([st.just(0.0), st.floats(0.0, 600.0), st.floats(0.0, 20000.0)]))
    jobs = []
    times = sorted(draw(st.lists(arrivals, min_size=4, max_size=24)))
    for n, at_s in enumerate(times, 1):
        jobs.append(Job(n, draw(st.sampled_from(SLUGS)), draw(lasts), at_s, draw(st.sampled_from([0, 0, 0, 1]))))
    pinned: tuple[Worker, ...] = ()
    if draw(st.integers(0, 3)) == 0:
        charges = {"unified": 1.5} if here is ONE else {"device:x": 1.0, "host": 0.5}
        pinned = (Worker(0, "e", charges, state="ready", shown=True, pinned=True),)
        providers["e"] = replace(providers["e"], vram_gib=1.0, max_workers=1)
    return Night(
        here, providers, {slug: draw(st.floats(0.0, 300.0)) for slug in SLUGS}, jobs,
        overtake_s=draw(st.sampled_from([0.0, 60.0, 900.0])), release_s=draw(st.sampled_from([0.0, 0.0, 7.0])),
        pinned=pinned, keep_plans=True,
    )  # fmt: skip


@given(nights())
@settings(max_examples=60, deadline=None)
def test_every_head_is_sent_within_its_bound_and_every_job_ends(night: Night) -> None:
    night.run()
    assert all(job.end_s is not None for job in night.jobs)
    assert night.late() == []


@given(nights())
@settings(max_examples=40, deadline=None)
def test_no_victim_is_busy_starting_bound_or_pinned_and_no_pool_is_charged_beyond_its_room(night: Night) -> None:
    night.run()
    for seen, found in night.plans:
        by_id = {worker.id: worker for worker in seen.workers}
        for each in found:
            if isinstance(each, Retire):
                victim = by_id[each.worker_id]
                assert victim.state == "ready" and victim.job_id is None and not victim.pinned
        for there in seen.machine.pools:
            held = [worker.charges.get(there.id, 0.0) for worker in seen.workers]
            held += [lease.charge_gib for lease in seen.leases if lease.pool == there.id]
            held += [each.charges.get(there.id, 0.0) for each in found if isinstance(each, Start)]
            assert sum(held) + there.reserve_gib <= (there.capacity.value or 0.0) + 1e-3


@given(nights())
@settings(max_examples=30, deadline=None)
def test_the_first_of_the_line_is_a_head_until_it_is_admitted(night: Night) -> None:
    night.run()
    for seen, found in night.plans:
        admitted = {each.job_id for each in found if isinstance(each, Start | Send)}
        left = [w for w in seen.waiting if w.job_id not in admitted]
        named = {each.job_id for each in found if isinstance(each, Head)}
        if left and not admitted:
            first = min(left, key=lambda w: (-w.priority, w.job_id))
            assert first.job_id in named


@given(nights())
@settings(max_examples=30, deadline=None)
def test_strict_order_admits_nobody_before_everybody_earlier(night: Night) -> None:
    night.strict, night.overtake_s = True, 0.0
    night.run()
    for job in night.jobs:
        assert job.admitted_s is not None
        for other in night.jobs:
            if other.priority == job.priority and other.id < job.id:
                assert other.admitted_s is not None and other.admitted_s <= job.admitted_s


def test_a_head_is_not_overtaken_by_its_own_priority_for_ever_while_a_higher_one_always_has_something_first() -> None:
    providers = {
        slug: provider(slug, float(gib), 0.0, idle_timeout_s=0.0)
        for slug, gib in zip(SLUGS, (50, 30, 12, 9, 8), strict=True)
    }
    rows = [(150.5, "a", 10.0, 0)]
    rows += [(2.0 + 20 * n, "cd"[n % 2], 100.0, 0) for n in range(200)]
    rows += [(10.0 + 40 * n, "e", 45.0, 1) for n in range(100)]
    jobs = [Job(n, slug, run_s, at_s, priority) for n, (at_s, slug, run_s, priority) in enumerate(sorted(rows), 1)]
    night = Night(ONE, providers, dict.fromkeys(SLUGS, 10.0), jobs, overtake_s=300.0)
    night.run()
    (large,) = [job for job in jobs if job.slug == "a"]
    first_s = max(job.admitted_s or 0.0 for job in jobs if job.priority == 0 and job.id < large.id)
    assert large.admitted_s is not None and large.admitted_s <= max(first_s, 150.5) + 300.0 + 10.0 + 100.0


def shared(cards: int, slugs: str, **over: object) -> Night:
    """Forty jobs of a minute, all of one provider or a quarter of a second one; as many workers as there are cards."""
    there = machine(*[pool(f"device:{n}", 48.0, reserve=1.0) for n in range(cards)], pool("host", 64.0))
    providers = {slug: provider(slug, 40.0, 0.5, max_workers=0, idle_timeout_s=0.0, **over) for slug in slugs}
    jobs = [Job(n, slugs[n % 4 == 0 and len(slugs) > 1], 60.0) for n in range(1, 41)]
    return Night(there, providers, dict.fromkeys(slugs, 100.0), jobs, keep_plans=True)


def test_two_cards_share_a_night_of_one_provider_and_one_card_has_one_worker() -> None:
    ends = []
    for cards in (1, 2):
        night = shared(cards, "a")
        assert broken_rules(night) == [] and len(night.workers) == cards
        ends.append(max(job.end_s or 0.0 for job in night.jobs))
    assert ends == [100.0 + 40 * 60.0, 100.0 + 20 * 60.0]


def test_the_card_of_a_provider_that_has_done_all_is_used_for_the_other() -> None:
    night = shared(2, "ab")
    assert broken_rules(night) == []
    assert [(each.slug, each.from_s) for each in night.workers.values()] == [("a", 0.0), ("b", 0.0), ("a", 700.0)]
    assert max(job.end_s or 0.0 for job in night.jobs) == 100.0 + 21 * 60.0


# A fault in any rule is seen


def crowded(seed: int, overtake_s: float = 900.0) -> Night:
    """A night on which heads wait for large rooms while small jobs keep coming: fixed, and told from its seed."""
    chance = search.Chance(seed)
    providers = {
        slug: provider(slug, float(gib), 0.0, idle_timeout_s=0.0)
        for slug, gib in zip(SLUGS, (40, 28, 20, 12, 6), strict=True)
    }
    jobs, at_s = [], 0.0
    for n in range(1, 81):
        at_s += chance.below(40)
        slug = SLUGS[(0, 1, 2, 2, 3, 3, 3, 4, 4, 4)[chance.below(10)]]
        jobs.append(Job(n, slug, float(5 + chance.below(120) + 600 * (chance.below(12) == 0)), at_s))
    return Night(
        ONE, providers, {slug: 30.0 + 10.0 * n for n, slug in enumerate(SLUGS)}, jobs, overtake_s=overtake_s,
        keep_plans=True,
    )  # fmt: skip


def nibbled(overtake_s: float = 60.0) -> Night:
    """A head of 50 of 60 GiB behind a job of 30; long small jobs come after its window has closed."""
    providers = {
        slug: provider(slug, float(gib), 0.0, idle_timeout_s=0.0)
        for slug, gib in zip(SLUGS, (50, 30, 12, 9, 8), strict=True)
    }
    jobs = [Job(1, "b", 200.0), Job(2, "a", 10.0, 1.0)]
    jobs += [Job(n, slug, 3000.0, 70.0 + n) for n, slug in enumerate("cde", 3)]
    return Night(ONE, providers, dict.fromkeys(SLUGS, 10.0), jobs, overtake_s=overtake_s, keep_plans=True)


def test_after_the_closing_as_much_starts_as_the_head_can_spare_and_no_more() -> None:
    night = nibbled()
    assert broken_rules(night) == []
    started = {job.slug: job.admitted_s for job in night.jobs}
    assert started["a"] == 210.0
    assert started["d"] == 74.0 and (started["c"] or 0.0) > 210.0 and (started["e"] or 0.0) > 210.0


def broken_rules(night: Night) -> list[str]:
    """What a night broke: the bound, a set of victims that grew, or a victim that was busy, bound or starting."""
    try:
        night.run(most_ticks=3000)
    except AssertionError as error:
        return [str(error)]
    found = night.late()
    chosen: dict[int, set[int]] = {}
    for _, told in night.plans:
        for each in told:
            if isinstance(each, Head) and each.victims:
                if not set(each.victims) <= chosen.get(each.job_id, set(each.victims)):
                    found.append(f"the victims of job {each.job_id} gained a member")
                chosen[each.job_id] = set(each.victims)
    for seen, told in night.plans:
        by_id = {worker.id: worker for worker in seen.workers}
        for each in told:
            if isinstance(each, Retire):
                victim = by_id[each.worker_id]
                if victim.state != "ready" or victim.job_id is not None:
                    found.append(f"worker {victim.id} was {victim.state} and retired")
    return found


def keeps_the_victims_it_chose() -> bool:
    """Whether a stored set stands although another worker would be cheaper to wait for by now."""
    cheap, dear = worker(5, "b", "busy", 30.0, job_id=8, state_s=29.0), worker(6, "c", "busy", 30.0, job_id=9)
    head = waiting("a", 1, head_for_s=900.0, victims=(6,))
    seen = snapshot(provider("a", ram=30.0), provider("b", ram=30.0), provider("c", ram=30.0), head, cheap, dear)
    return Head(1, (6,)) in plan(seen)


def test_victims_are_chosen_once() -> None:
    assert keeps_the_victims_it_chose()


SEEDS = range(1, 9)


@pytest.mark.parametrize("overtake_s", [60.0, 300.0, 900.0])
def test_the_crowded_nights_break_no_rule(overtake_s: float) -> None:
    for seed in SEEDS:
        assert broken_rules(crowded(seed, overtake_s)) == []


fixed_victims = heads._victims


def _chosen_anew(tick: desk.Desk, waiting: Any, *where: Any) -> Any:
    return fixed_victims(tick, replace(waiting, victims=None), *where)


def _never_closing(self: desk.Desk, waiting: Any) -> bool:
    return False


def _victims_are_sent(self: desk.Desk, worker: Any, waiting: Any) -> bool:
    return False


def _nothing_kept(*args: Any) -> closing.Reservation:
    kept = closing.reserve(*args)
    return replace(kept, claim=replace(kept.claim, charges={}))


def _anybody(worker: Any) -> bool:
    return worker.state in ("ready", "busy") and not worker.pinned


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the window never closes": lambda patch: patch.setattr(desk.Desk, "closed", _never_closing),
    "victims are sent work": lambda patch: patch.setattr(desk.Desk, "is_victim", _victims_are_sent),
    "nothing is kept for a closed head": lambda patch: patch.setattr(heads, "reserve", _nothing_kept),
    "the victims are chosen anew at each tick": lambda patch: patch.setattr(heads, "_victims", _chosen_anew),
    "anybody may be a victim": lambda patch: (
        patch.setattr("scheduler.rules.eviction.evictable", _anybody),
        patch.setattr(heads, "evictable", _anybody),
        patch.setattr(desk, "evictable", _anybody),
    )[0],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    whole = [nibbled(), *(crowded(seed, overtake_s) for overtake_s in (60.0, 300.0) for seed in SEEDS)]
    assert any(broken_rules(night) for night in whole) or not keeps_the_victims_it_chose()
