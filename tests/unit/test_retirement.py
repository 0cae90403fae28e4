"""Which workers end whatever waits."""

from __future__ import annotations

import pytest
from builders import card, machine, pool, provider, reading, snapshot, worker

from scheduler.model.plan import Abort, Retire, WorkerView
from scheduler.rules.retirement import stops


def ends(view: WorkerView, *, wanted: bool = False, **over: object) -> list[Abort | Retire]:
    by = over.pop("by", provider(idle_timeout_s=600.0, start_timeout_s=900.0, request_timeout_s=3600.0))
    return stops(snapshot(by, view, **over), {("boltz", "")} if wanted else set())


@pytest.mark.parametrize(
    ("view", "outcome"),
    [
        (worker(state="busy", job_id=1, cancel=True), "cancelled"),
        (worker(state="busy", job_id=1, deadline_in_s=0.0), "timed_out"),
        (worker(state="busy", job_id=1, alive_s=3600.0), "timed_out"),
        (worker(state="starting", job_id=1, alive_s=900.0), "timed_out"),
        (worker(state="parked", job_id=1, shown=False, state_s=30.0), ""),
    ],
)
def test_who_is_out_of_time_or_cancelled_is_stopped_for_real(view: WorkerView, outcome: str) -> None:
    (stop,) = ends(view)
    assert isinstance(stop, Abort) and stop.outcome == outcome and stop.why


@pytest.mark.parametrize(
    "view",
    [
        worker(idle_s=600.0),
        worker(revision="other"),
        worker(retire_after="the operator asked"),
        worker(mode="oneshot", jobs_served=1),
        worker(retire_after="the operator asked", pinned=True),
    ],
)
def test_who_is_idle_and_aged_outdated_or_used_up_retires(view: WorkerView) -> None:
    (stop,) = ends(view)
    assert isinstance(stop, Retire) and stop.why


@pytest.mark.parametrize(
    "view",
    [
        worker(idle_s=599.9),
        worker(idle_s=9999.0, pinned=True),
        worker(state="busy", job_id=1, alive_s=3599.0, retire_after="asked", revision="other"),
        worker(state="starting", alive_s=899.0, revision="other"),
        worker(job_id=1, revision="other", idle_s=9999.0, retire_after="asked"),
        worker(state="parked", shown=False, state_s=29.0),
        worker(state="retiring", cancel=True, alive_s=1e9),
        worker(mode="oneshot"),
        worker(state="starting", cancel=True, job_id=1),
    ],
)
def test_everybody_else_stays(view: WorkerView) -> None:
    assert ends(view) == []


def test_an_idle_worker_on_a_device_that_is_left_alone_goes_also_when_jobs_wait() -> None:
    view = worker(charges={"device:GPU-00000001-0000": 20.0, "host": 1.0})
    gone = machine(card("GPU-2"), pool())
    (stop,) = ends(view, wanted=True, machine=gone)
    assert isinstance(stop, Retire) and stop.why == "GPU-00000001 is left alone, or not there any more"
    busy = worker(state="busy", job_id=1, charges=view.charges)
    assert not ends(busy, machine=gone)
    assert not ends(view, machine=machine(card("GPU-2"), pool(), accelerators=reading(None)))
    assert not ends(view, machine=machine(card("GPU-00000001-0000"), pool()))
    assert not ends(worker(charges={"unified": 20.0}), machine=gone)


@pytest.mark.parametrize("state", ["parked", "starting"])
def test_a_worker_that_comes_up_for_nobody_ends_at_once_when_it_is_to_retire_and_no_other_does(state: str) -> None:
    (stop,) = ends(worker(state=state, retire_after="the operator asked"))
    assert isinstance(stop, Abort) and (stop.outcome, stop.why) == ("", "the operator asked")
    assert ends(worker(state=state, retire_after="the operator asked", job_id=4)) == []


def test_a_worker_for_which_jobs_wait_does_not_age() -> None:
    assert ends(worker(idle_s=9999.0), wanted=True) == []


def test_an_idle_timeout_of_zero_is_never() -> None:
    assert ends(worker(idle_s=1e9), by=provider(idle_timeout_s=0.0)) == []


def test_a_worker_without_a_manifest_ages_like_others() -> None:
    view = worker(slug="gone", idle_s=600.0)
    assert [s.worker_id for s in ends(view)] == [view.id]


def test_down_lets_what_runs_run_and_down_now_does_not() -> None:
    states = ("parked", "starting", "ready", "busy", "retiring")
    views = [worker(n, state=state, job_id=n if state == "busy" else None) for n, state in enumerate(states)]
    found = stops(snapshot(provider(), *views, draining=True), set())
    assert [(type(s), s.worker_id) for s in found] == [(Abort, 0), (Abort, 1), (Retire, 2)]
    now = stops(snapshot(provider(), *views, stopping=True, draining=True), set())
    assert [(s.worker_id, s.outcome) for s in now if isinstance(s, Abort)] == [(n, "interrupted") for n in range(4)]


def test_a_pause_or_a_full_disk_gives_back_what_was_not_sent_yet() -> None:
    admitted, loading = worker(1, job_id=4), worker(2, state="starting")
    for over in ({"paused": True}, {"machine": machine(disk_free_gib=1.0)}):
        found = stops(snapshot(provider(), admitted, loading, **over), set())
        assert [(s.worker_id, s.outcome) for s in found if isinstance(s, Abort)] == [(1, "")]


def test_a_drained_queue_retires_its_idle_workers_once_nothing_runs() -> None:
    idle, pinned, loading, busy = (
        worker(1),
        worker(2, pinned=True),
        worker(3, state="starting"),
        worker(4, state="busy"),
    )
    assert stops(snapshot(provider(), idle, pinned, loading, busy, drained=True), set()) == []
    found = stops(snapshot(provider(), idle, pinned, loading, drained=True), set())
    assert [(type(s), s.worker_id) for s in found] == [(Retire, 1), (Retire, 2)] and "drained" in found[0].why
    given_back = stops(snapshot(provider(), worker(5, state="starting", job_id=9), drained=True), set())
    assert [(type(s), s.worker_id) for s in given_back] == [(Abort, 5)]
    assert stops(snapshot(provider(), idle, pinned, paused=True), set()) == []
