"""The real loop and store under a virtual clock: what a tick does, and what a new scheduler makes of a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.config import Paths
from scheduler.errors import TakenOver, Temporary
from scheduler.loop import Loop
from scheduler.model.host import Asked, Failed, Returned, Task
from scheduler.model.outcome import Outcome
from scheduler.model.plan import BreakerState
from scheduler.model.provider import Provider
from scheduler.perform import Identity
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import breakers, intake, leases, peek, queue, schedulers, workers
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
        for _ in range(most):
            if condition():
                return
            self.loop.tick()
        raise AssertionError(f"not after {most} ticks; {peek.status(self.paths)}")

    def state(self, job_id: int) -> str:
        return peek.states(self.paths, [job_id])[job_id]

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
    night.until(lambda: night.state(job) == "succeeded")


def test_an_event_that_contradicts_the_queue_is_left_out_and_the_others_count(night: Night) -> None:
    night.provide(provider("boltz"))
    job = night.submit("boltz")
    night.up()
    night.until(lambda: night.state(job) == "running")
    night.host.after(5.0, Returned(1, back=True))
    night.until(lambda: night.state(job) == "succeeded")
    assert night.charged() == 10.0


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
