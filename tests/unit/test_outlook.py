"""What `status` and `schedq plan` say of when: the scheduler's forecast, carried on to the moment of asking."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest
from pytest import approx
from queues import submitted, writing

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.model.plan import Predict
from scheduler.store import heads, outlook, peek, queue, timings, whole_batch, workers
from scheduler.store.engine import Store

NOW_S = 1_800_000_000.0


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(peek, "now_s", lambda: NOW_S)
    monkeypatch.setattr(peek, "scheduler_runs", lambda paths: True)
    return Paths(str(tmp_path / "queue"))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_batch, "now_s", lambda: NOW_S)
    monkeypatch.setattr(whole_batch, "scheduler_runs", lambda paths: True)


def times(paths: Paths) -> dict[int, tuple[float | None, float | None]]:
    return {job["id"]: (job["starts_in_s"], job["ends_in_s"]) for job in peek.status(paths)["jobs"]}


def forecast(store: Store, in_s: float, run_s: float = 10.0, count: int = 1) -> None:
    with store.write() as tx:
        heads.set_forecasts(tx, [(Predict("boltz", "", in_s, run_s, count), stamp(NOW_S + in_s))])


def a_worker(store: Store, age_s: float) -> int:
    with store.write() as tx:
        return workers.insert(
            tx, slug="boltz", variant="", revision="r1", mode="resident", host_id="h", epoch=1,
            created_at=stamp(NOW_S - age_s),
        )  # fmt: skip


def test_nobody_knows_when_a_command_ends(paths: Paths, store: Store) -> None:
    submitted(paths, 1, slug="exec", variant="v0r1n0t1-dabc")
    with store.write() as tx:
        heads.set_forecasts(tx, [(Predict("exec", "v0r1n0t1-dabc", 60.0, 0.1, 1), stamp(NOW_S + 60.0))])
    assert times(paths) == {1: (60.0, None)}


def test_of_a_provider_whose_runs_nobody_saw_only_the_first_start_is_told(paths: Paths, store: Store) -> None:
    submitted(paths, 3)
    forecast(store, 60.0, run_s=inf, count=1)
    assert times(paths) == {1: (60.0, None), 2: (None, None), 3: (None, None)}
    forecast(store, 60.0, run_s=inf, count=2)
    assert times(paths) == {1: (60.0, None), 2: (60.0, None), 3: (None, None)}


def test_nothing_is_told_of_what_stands_behind_a_job_of_which_nobody_knows_when_it_ends(
    paths: Paths, store: Store, now: None
) -> None:
    submitted(paths, 3)
    running(store, 1, sent_s=5.0)
    forecast(store, -5.0, run_s=7.0)
    assert times(paths) == dict.fromkeys((1, 2, 3), (None, None)), "what others take says nothing of it"
    assert whole_batch.ends_in_s(paths, [1, 2, 3]) is None
    assert json.loads(json.dumps(peek.planned(paths, 9), allow_nan=False))["jobs"][1]["starts_in_s"] is None


def test_each_waiting_job_starts_behind_those_before_it(paths: Paths, store: Store) -> None:
    submitted(paths, 3)
    assert times(paths) == dict.fromkeys((1, 2, 3), (None, None))
    forecast(store, 60.0)
    assert times(paths) == {1: (60.0, 70.0), 2: (70.0, 80.0), 3: (80.0, 90.0)}
    submitted(paths, priority=5)
    assert times(paths)[4] == (60.0, 70.0) and times(paths)[1] == (70.0, 80.0)


def test_two_workers_take_two_at_a_time(paths: Paths, store: Store) -> None:
    submitted(paths, 4)
    forecast(store, 0.0, count=2)
    assert [times(paths)[n][0] for n in (1, 2, 3, 4)] == [0.0, 0.0, 10.0, 10.0]


def test_a_forecast_that_is_over_says_now_and_not_before(paths: Paths, store: Store) -> None:
    submitted(paths)
    forecast(store, -30.0)
    assert times(paths) == {1: (0.0, 10.0)}


def test_a_job_that_comes_up_and_one_that_runs_have_what_is_left_of_the_usual(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    worker_id = a_worker(store, age_s=30.0)
    with store.write() as tx:
        timings.loaded(tx, "boltz", "", 100.0)
        timings.ran(tx, "boltz", "", 40.0)
        queue.admit(tx, 1, worker_id, 1, stamp(NOW_S - 30.0))
    assert times(paths)[1] == (approx(70.0), approx(110.0))
    with store.write() as tx:
        workers.move(tx, worker_id, "go", stamp(NOW_S - 25.0))
        workers.move(tx, worker_id, "answer", stamp(NOW_S - 20.0))
        queue.send(tx, 1, 1, stamp(NOW_S - 15.0))
    assert times(paths)[1] == (None, approx(25.0))


def test_a_run_that_takes_longer_than_usual_has_a_tenth_of_what_it_took_left(paths: Paths, store: Store) -> None:
    submitted(paths)
    worker_id = a_worker(store, age_s=900.0)
    with store.write() as tx:
        timings.ran(tx, "boltz", "", 40.0)
        queue.admit(tx, 1, worker_id, 1, stamp(NOW_S - 900.0))
        queue.send(tx, 1, 1, stamp(NOW_S - 900.0))
    assert times(paths)[1] == (None, approx(outlook.LEAST_LEFT * 900.0))


def running(store: Store, job_id: int, sent_s: float, progress: tuple[float, float] | None = None) -> None:
    """The job runs on a worker of its own, sent so long ago."""
    worker_id = a_worker(store, age_s=900.0)
    with store.write() as tx:
        queue.admit(tx, job_id, worker_id, 1, stamp(NOW_S - 900.0))
        queue.send(tx, job_id, 1, stamp(NOW_S - sent_s))
        if progress is not None:
            queue.progress(tx, job_id, 1, *progress, "working")


def test_a_job_that_tells_how_far_it_is_has_left_what_its_own_pace_says(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    with store.write() as tx:
        timings.ran(tx, "boltz", "", 14.0)
    running(store, 1, 23.0, (23, 60))
    assert times(paths)[1] == (None, approx(37.0))
    running(store, 2, 10.0, (0, 60))
    assert times(paths)[2] == (None, approx(4.0)), "of one that has done nothing the usual is all that is known"


def test_no_job_is_said_to_start_before_the_only_worker_is_expected_to_be_free(paths: Paths, store: Store) -> None:
    submitted(paths, 4)
    with store.write() as tx:
        timings.ran(tx, "boltz", "", 14.0)
    running(store, 1, 30.0, (1, 6))
    forecast(store, -5.0, run_s=14.0)
    assert [times(paths)[n][0] for n in (2, 3)] == [approx(150.0), approx(164.0)]
    running(store, 2, 6.0)
    forecast(store, -5.0, run_s=14.0, count=2)
    assert [times(paths)[n][0] for n in (3, 4)] == [approx(8.0), approx(150.0)]


def test_without_a_scheduler_nobody_knows_when(paths: Paths, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(paths)
    forecast(store, 60.0)
    monkeypatch.setattr(peek, "scheduler_runs", lambda paths: False)
    assert times(paths) == {1: (None, None)}


def test_show_status_and_plan_say_the_same(paths: Paths, store: Store) -> None:
    submitted(paths, 30)
    submitted(paths, slug="esm")
    forecast(store, 60.0)
    planned = {job["id"]: (job["starts_in_s"], job["ends_in_s"]) for job in peek.planned(paths, 100)["jobs"]}
    assert planned == {**{n: (60.0 + 10.0 * (n - 1), 70.0 + 10.0 * (n - 1)) for n in range(1, 31)}, 31: (None, None)}
    assert times(paths).items() <= planned.items()
    for job_id in (1, 7, 30, 31):
        shown = peek.job(paths, job_id)
        assert (shown["starts_in_s"], shown["ends_in_s"]) == planned[job_id]


def test_a_plan_shows_the_soonest_first_and_counts_the_rest(paths: Paths, store: Store) -> None:
    submitted(paths, 5)
    submitted(paths, slug="esm")
    forecast(store, 60.0)
    found = peek.planned(paths, 3)
    assert [job["id"] for job in found["jobs"]] == [1, 2, 3, 6]
    assert found["waiting_more"] == 2 and found["blocked"] == 0
    assert peek.planned(Paths(str(paths.home) + "-none"), 3)["jobs"] == []


def told(paths: Paths, sent_s: float, said_s: float, done: float, total: float, usual_s: float | None = None) -> float:
    """What is left of a job that was sent so long ago, and said so long ago how far it is."""
    submitted(paths)
    store = Store(paths)
    running(store, 1, sent_s)
    with store.write() as tx:
        if usual_s is not None:
            timings.ran(tx, "boltz", "", usual_s)
        queue.progress(tx, 1, 1, done, total, "working", stamp(NOW_S - said_s))
    store.close()
    return times(paths)[1][1] or 0.0


def test_between_two_words_of_a_worker_what_is_left_falls(paths: Paths) -> None:
    assert told(paths, sent_s=100.0, said_s=40.0, done=1, total=10) == approx(60.0 * 9 - 40.0)


def test_a_worker_that_is_silent_for_longer_than_was_left_has_a_tenth_of_that_left(paths: Paths) -> None:
    assert told(paths, sent_s=1000.0, said_s=900.0, done=5, total=10) == approx(0.1 * 900.0)


def test_the_first_steps_say_less_than_what_its_provider_usually_takes(paths: Paths) -> None:
    assert told(paths, sent_s=2.0, said_s=0.0, done=1, total=1000, usual_s=60.0) == approx(58.0)


def test_the_first_steps_are_all_that_is_known_where_nothing_was_learned(paths: Paths) -> None:
    assert told(paths, sent_s=2.0, said_s=0.0, done=1, total=1000) == approx(2.0 * 999)


def test_a_pace_counts_once_it_rests_on_some_of_the_work_or_some_time(paths: Paths) -> None:
    assert told(paths, sent_s=6.0, said_s=0.0, done=1, total=1000, usual_s=60.0) == approx(6.0 * 999)


def batch_of(paths: Paths, *states: str) -> list[int]:
    """A batch of jobs, all of one provider, of which these were brought into a state."""
    ids = submitted(paths, len(states), batch="night")
    with writing(paths) as db:
        for job_id, state in zip(ids, states, strict=True):
            over = stamp(NOW_S) if state in ("succeeded", "failed") else None
            db.execute("UPDATE jobs SET state = ?, ended_at = ? WHERE id = ?", (state, over, job_id))
    return ids


def test_a_batch_ends_when_the_last_of_its_jobs_does(paths: Paths, store: Store, now: None) -> None:
    submitted(paths, 2)
    ids = batch_of(paths, "succeeded", "failed", "queued", "queued", "queued")
    submitted(paths, 4)
    forecast(store, 60.0)
    found = whole_batch.batch(paths, "night")
    assert found is not None and found["ends_in_s"] == approx(110.0)
    assert (found["jobs"], found["open"], found["succeeded"]) == (5, 3, 1)
    assert whole_batch.ends_in_s(paths, ids[:3]) == approx(90.0)
    assert whole_batch.ends_in_s(paths, ids[:2]) is None and whole_batch.batch(paths, "other") is None


@pytest.mark.parametrize("change", ["state = 'held'", "blocked = 'begin', not_before_at = '2099-01-01T00:00:00Z'"])
def test_nobody_knows_when_a_batch_ends_of_which_a_job_may_not_start(
    paths: Paths, store: Store, now: None, change: str
) -> None:
    batch_of(paths, "queued", "queued")
    forecast(store, 60.0)
    with writing(paths) as db:
        db.execute(f"UPDATE jobs SET {change} WHERE id = 1")
    found = whole_batch.batch(paths, "night")
    assert found is not None and found["open"] == 2 and found["ends_in_s"] is None


def test_nobody_knows_when_a_batch_ends_of_which_a_provider_was_never_seen(
    paths: Paths, store: Store, now: None
) -> None:
    batch_of(paths, "queued")
    submitted(paths, slug="esm", batch="night")
    forecast(store, 60.0)
    assert (whole_batch.batch(paths, "night") or {})["ends_in_s"] is None
