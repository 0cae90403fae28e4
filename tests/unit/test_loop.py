"""The real loop and store under a virtual clock: what a tick does, and what a new scheduler makes of a crash."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from queues import asked, ticked

from scheduler import loop as loop_module
from scheduler.clock import seconds
from scheduler.config import Paths
from scheduler.errors import SchedqError, TakenOver, Temporary
from scheduler.loop import Loop
from scheduler.model.host import (
    Answered,
    Asked,
    Failed,
    Forgotten,
    Gone,
    Nudged,
    Park,
    Replied,
    Returned,
    Task,
)
from scheduler.model.outcome import Outcome
from scheduler.model.plan import BreakerState, Go
from scheduler.model.provider import Provider
from scheduler.model.states import JOB_ENDED
from scheduler.perform import Identity
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import breakers, engine, intake, leases, peek, queue, schedulers, timings, workers
from scheduler.store.engine import Store
from scheduler.view import Orders


def provider(slug: str, gib: float = 10.0, **more: object) -> Provider:
    return Provider(slug, policy="required", vram_gib=gib, revision="r", backoff_s=1.0, **more)  # type: ignore[arg-type]


class Night:
    """A queue on disk, a simulated machine, and schedulers that come and go."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(str(folder / "home"))
        self.clock = VirtualClock()
        self.outcomes: dict[int, list[Outcome]] = {}
        self.host = SimHost(
            self.clock, {}, capacity_gib=36.0, reserve_gib=4.0, load_s=lambda slug: 10.0, run_s=lambda task: 5.0,
            outcome=self._outcome,
        )  # fmt: skip
        self.store: Store | None = None
        self.loop: Loop | None = None

    def _outcome(self, task: Task) -> Outcome:
        planned = self.outcomes.get(task.job_id, [])
        return planned.pop(0) if planned else Outcome("ok")

    def provide(self, *providers: Provider) -> None:
        for one in providers:
            self.host.catalog[one.slug, one.variant] = one

    def submit(self, slug: str, **columns: object) -> int:
        row = {"slug": slug, "variant": "", "name": "x", "revision": "r", "input_name": "x.json", "input_kind": "json",
               "data": b"{}", **columns}  # fmt: skip
        return intake.submit(self.paths, [row])[0]

    def up(self) -> Loop:
        self.store = Store(self.paths)
        with self.store.write() as tx:
            epoch = schedulers.begin(
                tx,
                pid=1,
                started=1.0,
                boot_id="simulated",
                host_id="simulated",
                version="test",
                at="2027-01-15T08:00:00Z",
            )
        self.loop = Loop(
            self.store, self.host, self.clock, Identity(epoch, "simulated", "q"), Orders(), draw=lambda: 0.5
        )
        self.loop.recover()
        return self.loop

    def crash(self) -> None:
        assert self.store is not None
        self.store.close()

    def until(self, condition: Callable[[], bool], most: int = 400) -> None:
        assert self.loop is not None
        ticked(self.loop, condition, most, self.paths)

    def state(self, job_id: int) -> str:
        return peek.states(self.paths, [job_id])[job_id]

    def ask(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        return asked(self.paths, question, *values)

    def breaker(self, slug: str = "boltz") -> BreakerState | None:
        assert self.store is not None
        with self.store.read() as tx:
            return breakers.row(tx, slug)

    def charged(self) -> float:
        assert self.store is not None
        with self.store.write() as tx:
            return sum(row.charge_gib for row in leases.charged(tx))


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


def test_a_job_is_loaded_for_run_and_ended(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(job) == "succeeded")
    assert night.clock.elapsed_s == pytest.approx(15.0)
    assert (job, "succeeded") in night.host.told


def test_the_next_job_of_a_warm_worker_loads_nothing(night: Night) -> None:
    night.provide(provider("boltz"))
    first, second = night.submit("boltz"), night.submit("boltz")
    night.up()
    night.until(lambda: night.state(second) == "succeeded")
    assert night.clock.elapsed_s == pytest.approx(20.0)
    assert (
        peek.job(night.paths, first)["attempts"][0]["worker_id"]
        == peek.job(night.paths, second)["attempts"][0]["worker_id"]
    )


def test_two_that_do_not_fit_together_follow_each_other(night: Night) -> None:
    night.provide(provider("boltz", 20.0), provider("af3", 20.0))
    first, second = night.submit("boltz"), night.submit("af3")
    night.up()
    night.until(lambda: night.state(first) == "running")
    assert night.state(second) == "queued"
    assert night.charged() == 20.0
    night.until(lambda: night.state(second) == "succeeded")
    assert night.charged() == 20.0


def test_a_claim_that_was_never_sent_is_given_back_uncounted(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(job) == "admitted")
    night.crash()
    night.host._alive.clear()
    night.host._due.clear()
    night.up()
    assert night.state(job) == "queued"
    night.until(lambda: night.state(job) == "succeeded")
    shown = peek.job(night.paths, job)
    assert shown["attempt"] == 2 and shown["tries"] == 1


def test_a_worker_that_died_with_its_scheduler_loses_the_attempt_and_the_job_runs_again(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(job) == "running")
    night.crash()
    night.host._alive.clear()
    night.host._due.clear()
    night.up()
    night.until(lambda: night.state(job) == "succeeded")
    shown = peek.job(night.paths, job)
    assert [a["outcome"] for a in shown["attempts"]] == ["lost", "ok"]
    assert night.charged() == 10.0


def test_a_scheduler_with_a_lower_epoch_can_write_nothing(night: Night) -> None:
    night.provide(provider("boltz"))
    old = night.up()
    store = night.store
    night.up()
    with pytest.raises(TakenOver):
        old.tick(0.0)
    assert store is not None
    store.close()


def test_the_second_worker_killed_by_one_job_ends_the_job_and_not_the_night(night: Night) -> None:
    night.provide(provider("boltz"))
    poison, good = night.submit("boltz"), night.submit("boltz")
    loop = night.up()
    for _ in range(400):
        if night.state(poison) in ("failed", "succeeded"):
            break
        assert night.store is not None
        with night.store.read() as tx:
            running = [row for row in queue.live(tx) if row.id == poison and row.state == "running"]
        for row in running:
            night.host.kill(row.worker_id)
        loop.tick()
    shown = peek.job(night.paths, poison)
    assert shown["state"] == "failed" and shown["outcome"]["kind"] == "quarantined"
    night.until(lambda: night.state(good) == "succeeded")


def test_an_idle_worker_retires_when_its_time_has_passed_and_its_charge_goes(night: Night) -> None:
    night.provide(provider("boltz", idle_timeout_s=60.0))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(job) == "succeeded")
    ended = night.clock.elapsed_s
    night.until(lambda: night.charged() == 0.0)
    assert night.clock.elapsed_s - ended == pytest.approx(60.0, abs=6.0)


def test_a_worker_that_is_told_to_stop_is_overdue_a_minute_after_its_grace(night: Night) -> None:
    night.provide(provider("boltz", idle_timeout_s=5.0, stop_grace_s=7.0))
    night.submit("boltz")
    night.up()
    night.until(lambda: night.charged() == 0.0 and night.ask("SELECT state FROM workers") == [("gone",)])
    [(since, overdue)] = night.ask("SELECT at, overdue_at FROM events, workers WHERE event = 'retire'")
    assert seconds(overdue) - seconds(since) == pytest.approx(67.0)


def test_a_job_that_takes_longer_than_it_was_given_is_stopped_for_real(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz", timeout_s=2.0)
    night.up()
    night.until(lambda: night.state(job) == "timed_out")
    assert night.clock.elapsed_s == pytest.approx(12.0, abs=0.1)
    with night.store.read() as tx:  # type: ignore[union-attr]
        assert all(row.state in ("retiring", "gone") for row in workers.live(tx))


def test_cancelling_before_the_send_ends_the_job_and_leaves_the_worker_to_the_next(night: Night) -> None:
    night.provide(provider("boltz"))
    first, second = night.submit("boltz"), night.submit("boltz")
    night.up()
    night.until(lambda: night.state(first) == "admitted")
    intake.cancel(night.paths, [first])
    night.until(lambda: night.state(second) == "succeeded")
    assert night.state(first) == "cancelled"
    assert night.clock.elapsed_s < 20.0


def test_down_waits_for_what_runs_and_starts_nothing_new(night: Night) -> None:
    night.provide(provider("boltz"))
    first, second = night.submit("boltz"), night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(first) == "running")
    night.host.after(0.0, Asked("down"))
    for _ in range(50):
        if not loop.tick():
            break
    assert night.state(first) == "succeeded" and night.state(second) == "queued"
    assert night.charged() == 0.0


def test_exit_75_is_tried_again_later_and_uses_no_try(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.outcomes[job] = [Outcome("error", "the licence server is busy", 75, retry_after_s=30.0)]
    night.up()
    night.until(lambda: night.state(job) == "succeeded")
    assert night.clock.elapsed_s >= 45.0
    assert peek.job(night.paths, job)["tries"] == 1


def test_while_the_queue_cannot_be_written_nothing_that_happened_is_forgotten(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    assert night.store is not None
    write, failures = night.store.write, iter([True, True, True])

    def full() -> object:
        if next(failures, False):
            raise Temporary("the disk is full")
        return write()

    monkeypatch.setattr(night.store, "write", full)
    for _ in range(3):
        assert loop.tick()
        assert loop.trouble == "the queue cannot be written, trying again every second: the disk is full"
    night.until(lambda: night.state(job) == "succeeded")
    assert loop.trouble == ""


def test_an_event_that_contradicts_the_queue_is_left_out_and_the_others_count(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(job) == "running")
    night.host.after(5.0, Returned(1, back=True))
    night.until(lambda: night.state(job) == "succeeded")
    assert night.charged() == 10.0


def test_a_turn_that_fails_by_a_fault_of_ours_is_said_and_the_next_one_goes_on(
    night: Night, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()

    def fails(*args: object, **more: object) -> None:
        raise OverflowError("intermediate overflow in fsum")

    with monkeypatch.context() as planted:
        planted.setattr("scheduler.loop.plan", fails)
        assert loop.tick()
        assert "a turn failed" in loop.trouble and "intermediate overflow" in loop.trouble
    assert "a fault of schedq" in caplog.text
    night.until(lambda: night.state(job) == "succeeded")


class Room:
    """A chore of calls or news that only notes what it is asked."""

    any = False

    def __init__(self) -> None:
        self.doubted = 0
        self.starts: list[bool] = []

    def turn(self, tx: Any, *, starts: bool = True, **more: Any) -> list[Any]:
        self.starts.append(starts)
        return []

    def due_in_s(self) -> list[float]:
        return []

    def doubt(self) -> None:
        self.doubted += 1


def test_a_turn_that_was_rolled_back_is_doubted_by_every_chore(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    calls, news = Room(), Room()
    loop.chores.schedules, loop.chores.telling = calls, news  # type: ignore[assignment]
    read, failures = loop.watch.read, [OverflowError("planted")]

    def fails(*args: Any) -> None:
        if failures:
            raise failures.pop()
        read(*args)

    with monkeypatch.context() as planted:
        planted.setattr(loop.watch, "read", fails)
        loop._inbox.append(Nudged())
        assert loop.tick()
    assert not failures and (calls.doubted, news.doubted) == (1, 1)


@pytest.mark.parametrize("order", ["down", "restart"])
def test_a_scheduler_that_is_about_to_go_makes_no_call(night: Night, order: str) -> None:
    night.provide(provider("boltz"))
    loop = night.up()
    loop.chores.schedules = calls = Room()  # type: ignore[assignment]
    loop.tick()
    assert calls.starts == [True]
    loop._inbox.append(Asked(order, False))
    loop.tick()
    assert calls.starts == [True, False]


def test_an_order_that_did_not_reach_a_living_worker_keeps_its_charge_until_it_is_gone(night: Night) -> None:
    night.provide(provider("boltz", retry_outcomes=()))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    night.host.after(0.0, Failed(1, "the request did not reach the worker whole"))
    loop.tick()
    assert night.charged() == 10.0
    night.until(lambda: night.state(job) == "succeeded")
    assert peek.job(night.paths, job)["tries"] == 1


def test_a_new_scheduler_begins_its_patience_with_a_warm_worker_anew(night: Night) -> None:
    night.provide(provider("boltz", request_timeout_s=6.0))
    first = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(first) == "succeeded")
    night.clock.sleep(60.0)
    second = night.submit("boltz")
    night.until(lambda: night.state(second) == "running")
    night.clock.sleep(2.0)
    night.crash()
    night.up()
    night.until(lambda: night.state(second) == "succeeded")


def test_what_a_job_was_given_in_all_outlives_its_scheduler(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz", timeout_s=3.0)
    night.up()
    night.until(lambda: night.state(job) == "running")
    sent = night.clock.elapsed_s
    night.clock.sleep(2.0)
    night.crash()
    night.up()
    night.until(lambda: night.state(job) == "timed_out")
    assert night.clock.elapsed_s - sent == pytest.approx(3.0, abs=0.1)


def test_a_provider_that_was_mended_gets_a_new_chance_at_once(night: Night) -> None:
    night.provide(provider("boltz", start_timeout_s=5.0))
    job = night.submit("boltz")
    loop = night.up()
    with night.store.write() as tx:  # type: ignore[union-attr]
        breakers.put(tx, "boltz", BreakerState(2, ("(start)", "(start)"), "no weights", 1e9, 4e9))
    for _ in range(3):
        loop.tick()
    assert peek.job(night.paths, job)["state"] == "queued"
    night.provide(provider("boltz", environment="new"))
    night.until(lambda: night.state(job) == "succeeded")


class Crash(BaseException):
    """The scheduler's process dies here."""


def full(night: Night, monkeypatch: pytest.MonkeyPatch, *which: int) -> None:
    """Let these writes fail at their commit, counted from the next one as 1."""
    assert night.store is not None
    write, numbers = night.store.write, iter(range(1, 10_000))

    @contextmanager
    def failing() -> Iterator[Any]:
        with write() as tx:
            yield tx
            if next(numbers) in which:
                raise Temporary("the disk is full")

    monkeypatch.setattr(night.store, "write", failing)


# Starts that fail


def test_a_keeper_that_cannot_start_opens_the_breaker_instead_of_being_tried_without_end(night: Night) -> None:
    night.provide(provider("boltz"))
    jobs = [night.submit("boltz") for _ in range(4)]
    night.host.fails = lambda worker_id: "keeper"
    night.up()
    night.until(lambda: night.clock.elapsed_s > 50.0)
    assert night.ask("SELECT count(*) FROM workers") == [(2,)]
    found = night.breaker()
    assert found is not None and found.failures == 2
    assert "its keeper could not be started: Permission denied" in found.last_error
    [(ruling, text)] = night.ask("SELECT ruling, text FROM reasons")
    assert ruling == "breaker" and "Permission denied" in text
    assert all(peek.job(night.paths, job)["tries"] == 0 for job in jobs)
    night.host.fails = lambda worker_id: ""
    night.until(lambda: all(night.state(job) == "succeeded" for job in jobs))


def test_a_job_whose_keeper_could_not_start_waits_before_the_next_is_started(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.host.fails = lambda worker_id: "keeper" if worker_id == 1 else ""
    night.up()
    night.until(lambda: night.state(job) == "queued" and night.ask("SELECT blocked FROM jobs") == [("backoff",)])
    assert "its keeper could not be started: Permission denied" in peek.job(night.paths, job)["reason"]["text"]
    night.until(lambda: night.state(job) == "succeeded")
    assert night.clock.elapsed_s >= 15.9
    assert night.ask("SELECT count(*) FROM workers") == [(2,)]


def test_a_keeper_that_ends_by_itself_while_parked_counts_against_its_provider(night: Night) -> None:
    night.provide(provider("boltz"))
    night.submit("boltz")
    loop = night.up()
    loop.tick()
    night.host._due.clear()
    night.host.after(0.0, Gone(1, None, "no module named signal"))
    loop.tick()
    found = night.breaker()
    assert found is not None and found.failures == 1 and "no module named signal" in found.last_error


def test_a_worker_that_asks_for_another_time_before_it_is_ready_puts_its_provider_off_and_fails_nothing(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    jobs = [night.submit("boltz", data=b"%d" % n) for n in range(5)]
    go = SimHost.go

    def busy(host: SimHost, worker_id: int) -> None:
        host.after(1.0, Gone(worker_id, 75, "later: the licence server is busy (retry_after_s=90)"))
        host.after(1.0, Returned(worker_id, back=True))

    monkeypatch.setattr(SimHost, "go", busy)
    night.up()
    night.until(lambda: night.clock.elapsed_s > 170.0)
    assert night.ask("SELECT count(*) FROM workers") == [(2,)]
    found = night.breaker()
    assert found is not None and found.failures == 0
    [(ruling, text)] = night.ask("SELECT ruling, text FROM reasons")
    assert ruling == "breaker" and "asked to be tried later" in text and "the licence server is busy" in text
    assert {peek.job(night.paths, job)["tries"] for job in jobs} == {0}
    monkeypatch.setattr(SimHost, "go", go)
    night.until(lambda: all(night.state(job) == "succeeded" for job in jobs))
    assert night.breaker() is None


def test_a_keeper_that_was_stopped_because_nobody_came_is_nobodys_fault(night: Night) -> None:
    night.provide(provider("boltz"))
    night.submit("boltz")
    loop = night.up()
    loop.tick()
    night.host._due.clear()
    night.host.after(0.0, Gone(1, None, "", "parked for 60 s and nobody came"))
    loop.tick()
    assert night.breaker() is None


def test_a_worker_found_parked_although_it_was_let_go_is_nobodys_fault(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    with monkeypatch.context() as dying:
        dying.setattr(SimHost, "go", _die)
        with pytest.raises(Crash):
            night.until(lambda: False)
    assert night.ask("SELECT state FROM workers") == [("starting",)]
    night.crash()
    night.up()
    night.until(lambda: night.ask("SELECT state FROM workers WHERE id = 1") == [("gone",)])
    assert night.breaker() is None
    night.until(lambda: night.state(job) == "succeeded")


def _die(*_: object) -> None:
    raise Crash


def test_workers_that_answer_and_leave_before_they_are_sent_anything_are_not_started_without_end(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    for n in range(6):
        night.submit("boltz", data=b"%d" % n)

    def fleeting(host: SimHost, worker_id: int) -> None:
        host.after(0.1, Answered(worker_id, 7, 7.0))
        host.after(0.1, Gone(worker_id, 1, "cannot listen"))
        host.after(0.1, Returned(worker_id, back=True))

    monkeypatch.setattr(SimHost, "go", fleeting)
    night.up()
    night.until(lambda: night.clock.elapsed_s > 55.0)
    assert night.ask("SELECT count(*) FROM workers")[0][0] <= 4
    assert night.ask("SELECT sum(tries) FROM jobs") == [(0,)]


def test_requests_that_cannot_be_sent_are_given_back_with_a_wait(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    night.host.after(0.0, Failed(1, "the request did not reach the worker whole"))
    night.until(lambda: night.state(job) == "queued")
    given_back = night.clock.elapsed_s
    night.until(lambda: night.state(job) == "admitted")
    assert night.clock.elapsed_s - given_back >= 0.9
    assert loop.tick()


# What is remembered of workers


def test_the_time_that_one_job_was_given_does_not_end_the_next(night: Night) -> None:
    night.provide(provider("boltz"))
    night.host.run_s = lambda task: 20.0
    first = night.submit("boltz", timeout_s=8.0)
    loop = night.up()
    night.until(lambda: night.state(first) == "running")
    second = night.submit("boltz", priority=5)
    night.host._due.clear()
    night.host.after(1.0, Forgotten(1, first, 1))
    night.until(lambda: night.state(second) == "succeeded")
    assert peek.job(night.paths, second)["attempt"] == 1
    assert loop.memory.deadline.keys() <= {1}


def test_a_worker_that_is_sent_a_job_without_a_time_limit_has_none(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "admitted")
    loop.memory.deadline[1] = night.clock.monotonic_s() + 11.0
    night.until(lambda: night.state(job) == "succeeded")
    assert loop.memory.deadline == {}


def test_a_worker_that_knew_nothing_of_its_attempt_is_idle_from_then_on(night: Night) -> None:
    night.provide(provider("boltz", idle_timeout_s=30.0))
    first = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(first) == "succeeded")
    second = night.submit("boltz", timeout_s=2000.0)
    night.host.run_s = lambda task: 1000.0
    night.until(lambda: night.state(second) == "running")
    night.clock.sleep(100.0)
    intake.cancel(night.paths, [second])
    night.host._due.clear()
    night.host.after(0.0, Forgotten(1, second, 1))
    loop.tick()
    assert night.state(second) == "cancelled"
    assert night.ask("SELECT state FROM workers") == [("ready",)]
    assert loop.memory.idle_since[1] == pytest.approx(night.clock.monotonic_s(), abs=0.1)
    assert loop.memory.sent_at == loop.memory.deadline == {}


def test_a_repeated_answer_to_the_last_attempt_does_not_free_a_worker_that_is_on_the_next(night: Night) -> None:
    night.provide(provider("boltz"))
    first, second = night.submit("boltz"), night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(second) == "running")
    for event in (Replied(1, first, 1, Outcome("ok"), b"{}"), Forgotten(1, first, 1)):
        night.host.after(0.0, event)
        loop.tick()
        assert night.ask("SELECT state FROM workers") == [("busy",)]
    assert [night.state(job) for job in (first, second)] == ["succeeded", "running"]
    assert night.ask("SELECT count(*) FROM events WHERE event = 'late' AND job_id = ?", first) == [(2,)]
    night.until(lambda: night.state(second) == "succeeded")


def test_what_was_remembered_in_a_turn_that_was_rolled_back_is_not_remembered(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: bool(night.ask("SELECT 1 FROM workers WHERE state = 'starting'")))
    full(night, monkeypatch, *range(1, 12))
    night.until(lambda: night.state(job) == "succeeded")
    with night.store.read() as tx:  # type: ignore[union-attr]
        known = timings.known(tx)["boltz", ""]
    assert (known.loads, known.runs) == (1, 1)


# Revisions


def test_a_job_that_goes_back_into_the_line_does_not_start_under_another_revision(night: Night) -> None:
    night.provide(provider("boltz"))
    first, second = night.submit("boltz"), night.submit("boltz")
    night.host.fails = lambda worker_id: "load"
    loop = night.up()
    night.until(lambda: bool(night.ask("SELECT 1 FROM workers WHERE state = 'starting'")))
    night.host.catalog["boltz", ""] = Provider("boltz", policy="required", vram_gib=10.0, revision="r2")
    night.until(lambda: night.ask("SELECT state FROM workers") == [("gone",)])
    assert night.ask("SELECT blocked FROM jobs") == [("revision",), ("revision",)]
    for _ in range(30):
        loop.tick()
    assert night.ask("SELECT count(*) FROM workers") == [(1,)]
    assert [peek.job(night.paths, job)["reason"]["ruling"] for job in (first, second)] == ["revision"] * 2
    assert "for revision r of boltz, and revision r2 is here now" in peek.job(night.paths, first)["reason"]["text"]
    night.host.catalog["boltz", ""] = Provider("boltz", policy="required", vram_gib=10.0, revision="r3")
    loop.tick()
    assert "and revision r3 is here now" in peek.job(night.paths, first)["reason"]["text"]
    night.host.fails = lambda worker_id: ""
    night.provide(provider("boltz"))
    night.until(lambda: night.state(second) == "succeeded")


@pytest.mark.parametrize("state", ["parked", "starting"])
def test_a_job_is_not_sent_when_its_manifest_changes_while_its_worker_comes_up(night: Night, state: str) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.ask("SELECT state FROM workers") == [(state,)])
    if state == "parked":
        night.host.go = _die  # type: ignore[assignment, method-assign]
    night.host.submit = _die  # type: ignore[assignment, method-assign]
    night.host.catalog["boltz", ""] = Provider("boltz", policy="required", vram_gib=10.0, revision="r2")
    for _ in range(30):
        loop.tick()
    shown = peek.job(night.paths, job)
    assert (shown["state"], shown["tries"], shown["reason"]["ruling"]) == ("queued", 0, "revision")
    assert night.ask("SELECT state FROM workers") == [("gone",)]
    assert night.charged() == 0.0 and night.breaker() is None


def test_a_broken_manifest_is_not_shown_as_another_revision(night: Night) -> None:
    job = night.submit("boltz")
    night.host.catalog["boltz", ""] = Provider("boltz", installed=False, not_installed_text="its manifest is broken")
    loop = night.up()
    for _ in range(3):
        loop.tick()
    assert night.ask("SELECT blocked FROM jobs") == [(None,)]
    assert night.ask("SELECT ruling FROM reasons") == [("not_installed",)]
    night.provide(provider("boltz"))
    night.until(lambda: night.state(job) == "succeeded")


def test_a_new_chance_is_not_lost_with_the_turn_that_could_not_be_written(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    with night.store.write() as tx:  # type: ignore[union-attr]
        breakers.put(tx, "boltz", BreakerState(2, ("(start)", "(start)"), "no weights", 1e9, 4e9))
    loop.tick()
    night.provide(provider("boltz", environment="new"))
    full(night, monkeypatch, 1)
    night.until(lambda: night.state(job) == "succeeded")


# A scheduler that stays


def test_a_scheduler_is_not_idle_while_a_job_waits_for_its_time(night: Night) -> None:
    night.provide(provider("boltz", idle_timeout_s=1.0))
    job = night.submit("boltz")
    night.outcomes[job] = [Outcome("error", "no licence", 75, retry_after_s=3600.0)]
    loop = night.up()
    night.until(lambda: night.clock.elapsed_s > 1500.0)
    assert night.state(job) == "queued" and night.charged() == 0.0
    assert night.clock.monotonic_s() - loop.last_activity < 10.0
    night.until(lambda: night.state(job) == "succeeded", most=800)
    ended = night.clock.elapsed_s
    night.until(lambda: night.clock.elapsed_s > ended + 100.0)
    assert night.clock.monotonic_s() - loop.last_activity > 80.0


def test_a_scheduler_that_cannot_write_does_not_count_as_idle(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    night.provide(provider("boltz"))
    night.submit("boltz")
    loop = night.up()
    full(night, monkeypatch, *range(1, 1000))
    night.until(lambda: night.clock.elapsed_s > 300.0)
    assert night.clock.monotonic_s() - loop.last_activity < 10.0


# What contradicts, what fails


def test_a_plan_that_contradicts_the_queue_costs_no_event_and_is_made_anew_a_second_later(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job, other = night.submit("boltz"), night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    with monkeypatch.context() as wrong:
        wrong.setattr(loop_module, "plan", lambda seen, **more: [Go(1)])
        night.until(lambda: night.state(job) == "succeeded", most=20)
        before = night.clock.elapsed_s
        for _ in range(5):
            assert loop.tick()
        assert night.clock.elapsed_s - before >= 5.0
    assert (job, "succeeded") in night.host.told
    night.until(lambda: night.state(other) == "succeeded")


def test_an_order_to_hand_over_is_obeyed_while_no_plan_can_be_made(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    monkeypatch.setattr(loop_module, "plan", lambda seen, **more: [Go(1)])
    night.host.after(0.0, Asked("restart"))
    assert not all(loop.tick() for _ in range(5))


def test_a_full_disk_in_the_middle_of_a_contradiction_loses_no_event(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"), provider("af3"))
    jobs = [night.submit("boltz"), night.submit("af3")]
    night.up()
    night.until(lambda: all(night.state(job) == "running" for job in jobs))
    night.host.after(0.0, Returned(1, back=True))
    night.clock.sleep(6.0)
    full(night, monkeypatch, 2)
    night.until(lambda: all(night.state(job) == "succeeded" for job in jobs))
    assert night.charged() == 20.0


def test_a_host_that_cannot_be_read_for_a_while_ends_no_scheduler_and_loses_no_answer(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    first, second = night.submit("boltz"), night.submit("boltz")
    night.up()
    night.until(lambda: night.state(first) == "running")

    def unreadable(host: SimHost) -> None:
        raise OSError("Permission denied")

    with monkeypatch.context() as blind:
        blind.setattr(SimHost, "providers", unreadable)
        night.until(lambda: night.state(first) == "succeeded")
        night.until(lambda: night.state(second) == "running")

    def nothing(host: SimHost) -> None:
        raise SchedqError("the readings are gone")

    third = night.submit("boltz")
    with monkeypatch.context() as blind:
        blind.setattr(SimHost, "machine", nothing)
        night.until(lambda: night.state(second) == "succeeded", most=30)
        before = night.clock.elapsed_s
        for _ in range(5):
            assert night.loop is not None and night.loop.tick()
        assert night.clock.elapsed_s - before >= 5.0
        assert night.state(third) == "queued"
    night.until(lambda: night.state(third) == "succeeded")


def test_one_deed_that_fails_keeps_no_other_from_being_done_and_is_told_of_its_worker(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("af3"), provider("boltz"))
    first, second = night.submit("af3"), night.submit("boltz")
    park = SimHost.park

    def failing(host: SimHost, order: Park) -> None:
        if order.worker_id == 1:
            raise RuntimeError("out of file descriptors")
        park(host, order)

    monkeypatch.setattr(SimHost, "park", failing)
    loop = night.up()
    loop.tick()
    assert {(first, "admitted"), (second, "admitted")} <= set(night.host.told)
    night.until(lambda: night.state(second) == "running")
    night.until(lambda: night.state(first) == "succeeded")
    assert "out of file descriptors" in night.ask("SELECT text FROM events WHERE event = 'failed_start'")[0][0]


def test_a_stop_that_could_not_be_given_is_given_again(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    night.provide(provider("boltz", idle_timeout_s=20.0))
    job = night.submit("boltz")
    night.up()
    stop, failures = SimHost.stop, iter([True, True])

    def failing(host: SimHost, worker_id: int, grace_s: float, why: str) -> None:
        if next(failures, False):
            raise OSError("no such device")
        stop(host, worker_id, grace_s, why)

    monkeypatch.setattr(SimHost, "stop", failing)
    night.until(lambda: night.state(job) == "succeeded")
    night.until(lambda: night.charged() == 0.0)


def test_news_that_cannot_be_told_keeps_no_scheduler_from_going_on(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")

    def mute(host: SimHost, job_id: int, state: str) -> None:
        raise OSError("Connection refused")

    monkeypatch.setattr(SimHost, "tell", mute)
    night.up()
    night.until(lambda: night.state(job) == "succeeded")


# A retire that races arriving requests


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.sampled_from(["submit", "retire", "tick", "tick", "wait", "crash"]), max_size=40))
def test_a_retire_that_races_arriving_requests_loses_none_and_sends_each_once(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        night = Night(Path(folder))
        night.host = Strict(**vars(night.host))
        night.provide(provider("boltz"))
        loop, jobs = night.up(), []
        for step in [*steps, "submit"]:
            if step == "submit":
                jobs.append(night.submit("boltz"))
            elif step == "crash":
                night.crash()
                loop = night.up()
            elif step == "retire":
                with night.store.write() as tx:  # type: ignore[union-attr]
                    for row in workers.live(tx):
                        job = queue.bound(tx, row.id)
                        done, job_id = workers.ask_to_retire(tx, row.id, "ann asked for it")
                        assert job_id == (job.id if job is not None else None)
                        coming = "coming" if row.state in ("parked", "starting") else "after"
                        assert done == ("going" if row.state == "retiring" else coming if job is not None else "now")
            else:
                loop.tick(0.0 if step == "tick" else None)
        night.until(lambda: all(night.state(job) == "succeeded" for job in jobs))
        assert night.ask("SELECT max(tries), max(deaths) FROM jobs") == [(1, 0)]
        night.crash()


# A night of everything at once


class Strict(SimHost):
    """A simulated machine that says when a job, or a worker, is asked to do two things at once."""

    def submit(self, task: Task) -> None:
        assert task.worker_id not in self.at_work, f"worker {task.worker_id} is on another job"
        assert task.job_id not in {each.job_id for each in self.at_work.values()}, f"job {task.job_id} runs already"
        super().submit(task)


class WildNight(Night):
    """Starts fail, workers die, jobs are put off and cancelled, schedulers die at every point; all by one draw."""

    def __init__(self, folder: Path, draw: Random) -> None:
        super().__init__(folder)
        self.draw, self.calm = draw, False
        self.starts: dict[int, str] = {}
        self.host = Strict(**{**vars(self.host), "outcome": self._outcome, "fails": self._fails})

    def chance(self, of: float) -> bool:
        return not self.calm and self.draw.random() < of

    def _fails(self, worker_id: int) -> str:
        if worker_id not in self.starts:
            self.starts[worker_id] = self.draw.choice(["keeper", "load"]) if self.chance(0.3) else ""
        return self.starts[worker_id]

    def _outcome(self, task: Task) -> Outcome:
        if self.chance(0.2):
            return Outcome("error", "no licence", 75, retry_after_s=20.0)
        return Outcome("error", "cannot") if self.chance(0.1) else Outcome("ok")

    def point(self, name: str) -> None:
        if name in ("tick.committed", "store.write") and self.chance(0.02):
            raise Crash

    def turn(self) -> None:
        """One tick, or the death of the scheduler and the coming of the next."""
        assert self.loop is not None
        try:
            self.loop.tick()
        except Crash:
            self.crash()
            self.rise()

    def rise(self) -> None:
        while True:
            try:
                self.up()
                return
            except Crash:
                self.crash()


@pytest.fixture(scope="module")
def crashing() -> Iterator[dict[str, WildNight]]:
    """Arms the crash points that a scheduler passes, for whichever night is current."""
    current: dict[str, WildNight] = {}
    with pytest.MonkeyPatch.context() as armed:
        for module in (loop_module, engine):
            armed.setattr(module, "crashpoint", lambda name: current["night"].point(name))
        yield current


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(seed=st.integers(0, 1 << 32))
def test_whatever_a_night_brings_every_job_ends_once_and_nothing_is_left(
    crashing: dict[str, WildNight], seed: int
) -> None:
    draw = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        night = crashing["night"] = WildNight(Path(folder), draw)
        night.provide(
            *(provider(slug, gib, idle_timeout_s=40.0) for slug, gib in (("a", 10.0), ("b", 14.0), ("c", 20.0)))
        )
        jobs = [night.submit(draw.choice("abc"), data=b"%d" % n, timeout_s=draw.choice([None, 4.0])) for n in range(8)]
        night.rise()
        for _ in range(1500):
            if all(state in JOB_ENDED for state in peek.states(night.paths, jobs).values()):
                break
            night.turn()
            if night.chance(0.02):
                intake.cancel(night.paths, [draw.choice(jobs)])
            if night.chance(0.02) and night.host.at_work:
                night.host.kill(draw.choice(sorted(night.host.at_work)))
        states = peek.states(night.paths, jobs)
        assert set(states.values()) <= set(JOB_ENDED), states
        night.calm = True
        for _ in range(60):
            night.turn()
        assert night.ask("SELECT id, state FROM workers WHERE state <> 'gone'") == []
        assert night.ask("SELECT id, state FROM leases WHERE state <> 'released'") == []
        assert night.ask("SELECT job_id, attempt FROM attempts WHERE ended_at IS NULL") == []
        assert night.host.at_work == {}
        night.crash()


# What ended while nobody listened


def test_an_answer_from_long_ago_ends_its_job_then_and_teaches_how_long_it_ran(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    [(worker_id,)] = night.ask("SELECT worker_id FROM jobs")
    sent_s = night.clock.now_s()
    night.clock.sleep(4000.0)
    loop._inbox.append(Replied(worker_id, job, 1, Outcome("ok"), b"{}", ago_s=3996.0))
    loop.tick()
    assert night.state(job) == "succeeded"
    [(ended, closed)] = night.ask("SELECT j.ended_at, a.ended_at FROM jobs j JOIN attempts a ON a.job_id = j.id")
    assert ended == closed and seconds(ended) - sent_s == pytest.approx(4.0, abs=0.01)
    with night.store.read() as tx:  # type: ignore[union-attr]
        assert timings.known(tx)["boltz", ""].run_s == pytest.approx(4.0, abs=0.01)


def test_no_job_ends_before_it_began_whatever_the_clock_did_meanwhile(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    [(worker_id,)] = night.ask("SELECT worker_id FROM jobs")
    loop._inbox.append(Replied(worker_id, job, 1, Outcome("ok"), b"{}", ago_s=1e6))
    loop.tick()
    asked_for = "SELECT j.started_at, j.ended_at, a.sent_at, a.ended_at FROM jobs j JOIN attempts a ON a.job_id = j.id"
    [row] = night.ask(asked_for)
    assert row[0] <= row[1] and row[2] <= row[3]
