"""A case that is to have a worker of its own: none that has served anything is sent it, and it serves nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import machine, pool, provider, snapshot, waiting, worker
from hypothesis import given
from hypothesis import strategies as st
from queues import submitted

from scheduler.config import Paths
from scheduler.model.plan import Abort, Explain, Instruction, Raise, Retire, Send, Snapshot, Start
from scheduler.rules.plan import plan
from scheduler.rules.retirement import next_serves
from scheduler.store import checks
from scheduler.store.engine import Store

SMALL = machine(pool("host", 4.0))


def made(*parts: object, **over: object) -> list[Instruction]:
    return plan(snapshot(*parts, **over))


def only(kind: type, found: list[Instruction]) -> list[Instruction]:
    return [each for each in found if isinstance(each, kind)]


def test_it_is_sent_to_a_ready_worker_that_has_served_nothing() -> None:
    assert made(provider(), waiting(job_id=7, fresh=True), worker(3)) == [Send(3, 7)]


def test_a_used_worker_is_not_sent_it_but_retires_and_another_is_started() -> None:
    found = made(provider(), waiting(job_id=7, fresh=True), worker(3, jobs_served=1))
    assert only(Send, found) == []
    [retired] = only(Retire, found)
    assert isinstance(retired, Retire) and retired.worker_id == 3 and "unused worker" in retired.why
    assert [each.job_id for each in only(Start, found)] == [7]  # type: ignore[attr-defined]


def test_where_there_is_no_room_for_two_it_is_started_when_the_used_one_has_gone() -> None:
    found = made(provider(ram=2.5), waiting(job_id=7, fresh=True), worker(3, gib=2.5, jobs_served=1), machine=SMALL)
    assert [each.worker_id for each in only(Retire, found)] == [3]  # type: ignore[attr-defined]
    assert only(Start, found) == [] == only(Send, found)


def test_a_used_worker_that_is_busy_ends_its_job_first() -> None:
    found = made(provider(), waiting(job_id=7, fresh=True), worker(3, state="busy", job_id=1, jobs_served=1))
    assert only(Retire, found) == [] == only(Abort, found)
    [told] = only(Explain, found)
    assert isinstance(told, Explain) and told.ruling == "busy" and str(told.why).endswith("a new worker after it")


def test_a_pinned_worker_that_is_used_hands_its_pin_on() -> None:
    [retired] = only(Retire, made(provider(), waiting(fresh=True), worker(3, jobs_served=1, pinned=True)))
    assert isinstance(retired, Retire) and retired.again


def test_an_ordinary_job_takes_the_used_worker_and_one_of_another_provider_is_left_alone() -> None:
    assert made(provider(), waiting(job_id=7), worker(3, jobs_served=4)) == [Send(3, 7)]
    found = made(provider(), provider("esm"), waiting(fresh=True), worker(3), worker(4, "esm", jobs_served=1))
    assert only(Retire, found) == []


def test_the_one_behind_it_waits_for_its_own_worker_too() -> None:
    found = made(provider(), waiting(job_id=7, count=2, following=(0, 8), following_fresh=True), worker(3))
    assert only(Send, found) == [Send(3, 7)]


def test_while_nothing_may_start_its_used_worker_stays_warm() -> None:
    assert only(Retire, made(provider(), waiting(fresh=True), worker(3, jobs_served=1), paused=True)) == []


@pytest.mark.parametrize(("served", "serves"), [(0, True), (1, False)])
def test_a_worker_that_was_started_for_jobs_that_run_alone_takes_one_such_case(served: int, serves: bool) -> None:
    job = waiting(job_id=7, fresh=True, alone="again", behind=6)
    assert next_serves(worker(3, alone=True, jobs_served=served), job) is serves


VIEWS = st.builds(
    lambda id, state, served, bound, pinned: worker(
        id, state=state, jobs_served=served, pinned=pinned, gib=1.0,
        job_id=100 + id if state == "busy" or (bound and state != "parked") else None,
    ),
    st.integers(1, 6), st.sampled_from(["ready", "busy", "starting"]), st.integers(0, 2), st.booleans(),
    st.booleans(),
)  # fmt: skip


@given(st.lists(VIEWS, unique_by=lambda view: view.id, max_size=5), st.booleans(), st.booleans(), st.integers(1, 4))
def test_in_no_plan_is_it_sent_to_a_worker_that_has_served(views: list, first: bool, then: bool, most: int) -> None:
    queue = waiting(job_id=7, count=2, fresh=first, following=(0, 8), following_fresh=then)
    seen: Snapshot = snapshot(provider(max_workers=most), queue, *views)
    used = {view.id for view in views if view.jobs_served}
    fresh = {job for job, asks in ((7, first), (8, then)) if asks}
    sent = [each for each in plan(seen) if isinstance(each, Send | Raise)]
    assert not [each for each in sent if each.job_id in fresh and each.worker_id in used]
    assert len({each.worker_id for each in sent}) == len(sent)


def test_the_queue_knows_which_jobs_ask_for_it(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "queue"))
    check = {"case": "a", "expect": {}}
    submitted(paths, 2, beside={"check": {**check, "fresh": True}})
    submitted(paths, beside={"check": check})
    submitted(paths)
    with Store(paths).read() as tx:
        assert checks.fresh(tx, [1, 2, 3, 4, 99]) == {1, 2}
        assert checks.fresh(tx, []) == frozenset()
