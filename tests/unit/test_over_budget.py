"""What runs over its budget goes on alone, behind the others, and the night ends; peaks are learned and charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from queues import asked, scheduler, ticked

from scheduler.config import Paths
from scheduler.loop import Loop
from scheduler.model.host import Charged, Task
from scheduler.model.machine import Charge, Holding
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider
from scheduler.perform import Identity
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import intake, leases, peek, schedulers
from scheduler.store.engine import Store
from scheduler.view import Orders

OVER = Outcome("over_budget", "CUDA out of memory. Tried to allocate 2.00 GiB")


def provider(slug: str, gib: float = 10.0, **more: Any) -> Provider:
    return Provider(slug, policy="required", vram_gib=gib, revision="r", backoff_s=1.0, **more)


class Host(SimHost):
    """A machine that says what attempts use: `uses[job_id]` GiB; what is not told uses what it is charged."""

    uses: dict[int, float]
    last: dict[int, int]
    sent: list[tuple[int, dict[str, float], list[int]]]

    def attend(self, callers: object) -> None: ...

    def keep_environments(self, variants: object) -> None: ...

    def peaks(self, worker_id: int, anew: bool) -> dict[str, float]:
        """What the worker's last job was told to use."""
        job = self.last.get(worker_id)
        return {"unified": self.uses[job]} if job in self.uses else super().peaks(worker_id, anew)

    def submit(self, task: Task) -> None:
        """Note what it is charged, and who else is at work."""
        self.last[task.worker_id] = task.job_id
        self.sent.append((task.job_id, dict(task.charges), sorted(set(self._alive) - {task.worker_id})))
        super().submit(task)


class Night:
    """A queue on disk, a machine of 36 GiB of which 4 stay reserved, and one scheduler."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(str(folder / "home"))
        self.clock = VirtualClock()
        self.outcomes: dict[int, list[Outcome]] = {}
        self.host = Host(
            self.clock, {}, capacity_gib=36.0, reserve_gib=4.0, load_s=lambda slug: 10.0, run_s=lambda task: 5.0,
            outcome=self._outcome,
        )  # fmt: skip
        self.host.uses, self.host.last, self.host.sent = {}, {}, []
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
               "data": b"{}", "size": 100.0, **columns}  # fmt: skip
        return intake.submit(self.paths, [row])[0]

    def up(self, **orders: Any) -> Loop:
        self.store = Store(self.paths)
        with self.store.write() as tx:
            epoch = schedulers.begin(
                tx, pid=1, started=1.0, boot_id="simulated", host_id="simulated", version="test",
                at="2027-01-15T08:00:00Z",
            )  # fmt: skip
        who = Identity(epoch, "simulated", "q")
        self.loop = Loop(self.store, self.host, self.clock, who, Orders(**orders), draw=lambda: 0.5)
        self.loop.recover()
        return self.loop

    def until(self, condition: Callable[[], bool], most: int = 600) -> None:
        assert self.loop is not None
        ticked(self.loop, condition, most, self.paths)

    def ended(self, *jobs: int) -> bool:
        return set(peek.states(self.paths, jobs).values()) <= {"succeeded", "failed"}

    def state(self, job_id: int) -> str:
        return peek.states(self.paths, [job_id])[job_id]

    def order(self) -> list[int]:
        return [job for job, _charges, _others in self.host.sent]

    def charged(self) -> float:
        assert self.store is not None
        with self.store.read() as tx:
            return sum(row.charge_gib for row in leases.charged(tx))


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


def test_a_job_over_its_budget_goes_on_alone_behind_the_others_and_the_night_ends(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    first = night.submit("boltz")
    others = [night.submit("boltz"), night.submit("esm"), night.submit("boltz"), night.submit("esm")]
    night.outcomes[first] = [OVER]
    night.up()
    night.until(lambda: night.ended(first, *others))
    assert night.state(first) == "succeeded"
    assert night.order()[-1] == first
    _, charges, beside = night.host.sent[-1]
    assert beside == [], "no other worker of ours was there"
    assert charges["unified"] == pytest.approx(32.0, abs=1.0), "with what its pool can give"
    tried = asked(night.paths, "SELECT attempt, outcome FROM attempts WHERE job_id = ? ORDER BY attempt", first)
    assert tried == [(1, "over_budget"), (2, "ok")]


def test_alone_once_more_is_all(night: Night) -> None:
    night.provide(provider("boltz"))
    job, after = night.submit("boltz"), night.submit("boltz")
    night.outcomes[job] = [OVER, OVER]
    night.up()
    night.until(lambda: night.ended(job, after))
    assert (night.state(job), night.state(after)) == ("failed", "succeeded")
    shown = peek.job(night.paths, job)
    assert shown["outcome"]["kind"] == "over_budget" and len(shown["attempts"]) == 2
    for words in ("alone as well", "GiB used of", "GiB charged", "GiB free", "CUDA out of memory"):
        assert words in shown["outcome"]["text"]


def test_those_of_one_batch_run_alone_together_on_one_worker(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad = [night.submit("boltz", batch="night") for _ in range(3)]
    good = [night.submit("esm") for _ in range(3)]
    for job in bad:
        night.outcomes[job] = [OVER]
    night.up()
    night.until(lambda: night.ended(*bad, *good))
    assert night.order()[-3:] == bad
    alone = asked(night.paths, "SELECT id, jobs_served FROM workers WHERE alone = 1")
    assert [served for _, served in alone] == [3]
    assert all(beside == [] for _, _, beside in night.host.sent[-3:])


def test_a_later_one_of_a_batch_joins_the_first_of_it_whatever_was_submitted_between(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad = [night.submit("boltz", batch="night"), night.submit("boltz", batch="night")]
    for job in bad:
        night.outcomes[job] = [OVER]
    night.up()
    night.until(lambda: peek.job(night.paths, bad[0])["blocked"] == "after" and night.state(bad[1]) == "running")
    between = night.submit("esm")
    night.until(lambda: peek.job(night.paths, bad[1])["blocked"] == "after")
    assert asked(night.paths, "SELECT behind FROM jobs WHERE batch = 'night'") == [(bad[1],), (bad[1],)]
    night.until(lambda: night.ended(*bad, between))
    assert len(night.order()) == 5


def test_a_stream_of_others_delays_what_runs_alone_by_its_window_only(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad = night.submit("boltz")
    night.outcomes[bad] = [OVER]
    night.up(overtake_s=100.0)
    others: list[int] = []

    def more() -> bool:
        if night.state(bad) == "succeeded":
            return True
        waits = sum(state == "queued" for state in peek.states(night.paths, others).values())
        others.extend(night.submit("esm") for _ in range(3 - waits))
        return False

    night.until(more, most=2000)
    assert night.clock.elapsed_s < 200.0
    assert others, "others came all the time"


def test_while_it_waits_its_reason_says_what_for(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad, other = night.submit("boltz"), night.submit("esm")
    night.outcomes[bad] = [OVER]
    night.host.run_s = lambda task: 5.0 if task.job_id == bad else 500.0
    night.up()
    night.until(lambda: night.state(bad) == "queued" and len(peek.job(night.paths, bad)["attempts"]) == 1)
    with scheduler(night.paths):
        night.until(lambda: (peek.job(night.paths, bad)["reason"] or {}).get("ruling") == "busy")
        reason = peek.job(night.paths, bad)["reason"]
        assert f"has job {other} there" in reason["text"] and "alone" in reason["text"]
        shown = {job["id"]: job for job in peek.status(night.paths)["jobs"]}
        assert shown[bad]["reason"] == reason


def test_a_cancelled_job_that_waits_to_run_alone_ends_and_one_that_is_held_comes_back_to_its_place(
    night: Night,
) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad, worse, other = night.submit("boltz"), night.submit("boltz"), night.submit("esm")
    night.outcomes[bad] = night.outcomes[worse] = [OVER]
    night.outcomes[worse] = [OVER]
    night.host.run_s = lambda task: 500.0 if task.job_id == other else 5.0
    night.up()
    night.until(lambda: peek.job(night.paths, worse)["blocked"] == "after")
    intake.cancel(night.paths, [bad])
    assert night.state(bad) == "cancelled"
    from scheduler.store import operator

    assert night.store is not None
    with night.store.write() as tx:
        operator.hold(tx, worse, "2027-01-15T08:00:01Z")
    with night.store.write() as tx:
        operator.release(tx, worse, "2027-01-15T08:00:02Z")
    assert peek.job(night.paths, worse)["blocked"] == "after"
    night.until(lambda: night.ended(worse, other))
    assert night.host.sent[-1][0] == worse and night.host.sent[-1][2] == []


def test_what_three_runs_of_a_size_used_is_charged_for_the_next(night: Night) -> None:
    night.provide(provider("boltz", 10.0))
    large = [night.submit("boltz", size=1000.0) for _ in range(4)]
    night.host.uses = dict.fromkeys(large, 14.0)
    night.up()
    night.until(lambda: night.ended(*large))
    charges = [charged["unified"] for _, charged, _ in night.host.sent]
    assert charges[:3] == [10.0] * 3
    assert charges[3] == pytest.approx(14.0), "the warm worker's lease is raised for the fourth"
    small = night.submit("boltz", size=10.0)
    night.host.uses[small] = 14.0
    night.until(lambda: night.ended(small))
    assert asked(night.paths, "SELECT bucket, runs FROM learned") == [(10, 4)]
    taught = asked(night.paths, "SELECT bucket, count(*) FROM peaks GROUP BY bucket")
    assert taught == [(10, 4)], "a smaller job after it taught nothing"


def test_a_raised_lease_is_lowered_to_what_was_measured_and_not_below_what_is_declared(night: Night) -> None:
    night.provide(provider("boltz", 10.0))
    jobs = [night.submit("boltz", size=1000.0) for _ in range(4)]
    night.host.uses = {**dict.fromkeys(jobs[:3], 14.0), jobs[3]: 6.0}
    night.up()
    night.until(lambda: night.ended(*jobs))
    assert night.host.sent[-1][1]["unified"] == pytest.approx(14.0)
    assert night.charged() == pytest.approx(10.0)


@pytest.fixture
def taught(night: Night) -> Night:
    """A warm worker that is charged 10 GiB, and jobs of its size were seen to use 14."""
    night.provide(provider("boltz", 10.0))
    jobs = [night.submit("boltz", size=1000.0) for _ in range(3)]
    night.host.uses = dict.fromkeys([*jobs, 4, 5], 14.0)
    night.up()
    night.until(lambda: night.ended(*jobs))
    return night


def hide(night: Night) -> list[tuple[int, dict[str, float]]]:
    """From now on nobody hears what a keeper was asked to show, but whoever looks here."""
    asked_for: list[tuple[int, dict[str, float]]] = []
    night.host.charge = lambda worker_id, charges: asked_for.append((worker_id, charges))  # type: ignore[method-assign]
    return asked_for


def test_a_raise_that_nobody_has_seen_yet_is_charged_and_nothing_is_sent(taught: Night) -> None:
    shown, large = hide(taught), taught.submit("boltz", size=1000.0)
    taught.until(lambda: bool(shown))
    for _ in range(5):
        taught.loop.tick()
    assert taught.state(large) == "admitted" and taught.charged() == pytest.approx(14.0)
    worker_id, charges = shown[0]
    taught.host.after(0.0, Charged(worker_id, {"unified": 10.0}))  # of an order before this one
    for _ in range(5):
        taught.loop.tick()
    assert taught.state(large) == "admitted"
    taught.host.after(0.0, Charged(worker_id, charges))
    taught.until(lambda: taught.ended(large))
    assert taught.host.sent[-1][:2] == (large, {"unified": 14.0})
    assert asked(taught.paths, f"SELECT count(*) FROM events WHERE job_id = {large} AND event = 'raised'") == [(1,)]
    assert asked(taught.paths, "SELECT warm_hits, raising FROM workers") == [(3, None)]


def test_a_keeper_that_does_not_answer_is_asked_again(taught: Night) -> None:
    shown, large = hide(taught), taught.submit("boltz", size=1000.0)
    taught.until(lambda: len(shown) > 2)
    assert taught.state(large) == "admitted" and shown[0] == shown[1]


def test_a_raise_whose_job_is_cancelled_is_taken_back_and_its_worker_stays_warm(taught: Night) -> None:
    shown, large = hide(taught), taught.submit("boltz", size=1000.0)
    taught.until(lambda: bool(shown))
    intake.cancel(taught.paths, [large])
    taught.until(lambda: len(shown) > 1)
    assert shown[1] == (shown[0][0], {"unified": 10.0}) and taught.charged() == pytest.approx(10.0)
    small = taught.submit("boltz", size=10.0)
    taught.until(lambda: taught.ended(small))
    assert asked(taught.paths, "SELECT id, state FROM workers") == [(shown[0][0], "ready")]


def test_a_scheduler_that_takes_over_in_the_middle_of_a_raise_begins_it_anew(taught: Night) -> None:
    shown, large = hide(taught), taught.submit("boltz", size=1000.0)
    taught.until(lambda: bool(shown))
    taught.store.close()
    taught.up()
    taught.until(lambda: len(shown) > 2)
    assert [charges["unified"] for _, charges in shown] == [14.0, 10.0, 14.0]
    taught.host.after(0.0, Charged(*shown[-1]))
    taught.until(lambda: taught.ended(large))
    assert asked(taught.paths, f"SELECT tries FROM jobs WHERE id = {large}") == [(1,)]
    assert asked(taught.paths, "SELECT id, state FROM workers") == [(shown[0][0], "ready")]


def test_a_raise_that_somebody_was_admitted_beside_is_taken_back_uncounted_and_tried_again(taught: Night) -> None:
    shown, large = hide(taught), taught.submit("boltz", size=1000.0)
    taught.until(lambda: bool(shown))
    theirs = Holding("esm", 77, "bob", (Charge("unified", 20.0, 0.0, "device"),))
    empty = taught.host.machine
    taught.host.machine = lambda: replace(empty(), holdings=(theirs,))  # type: ignore[method-assign]
    taught.host.after(0.0, Charged(*shown[0]))
    taught.until(lambda: taught.state(large) == "queued")
    assert taught.charged() == pytest.approx(10.0) and shown[-1][1] == {"unified": 10.0}
    told = asked(taught.paths, f"SELECT text FROM events WHERE job_id = {large} AND event = 'pool_full'")
    assert "esm" in told[0][0]
    del taught.host.machine, taught.host.charge
    taught.until(lambda: taught.ended(large))
    assert taught.host.sent[-1][:2] == (large, {"unified": 14.0})
    assert asked(taught.paths, f"SELECT tries, attempt FROM jobs WHERE id = {large}") == [(1, 2)]


def test_a_lowered_charge_is_shown_to_everybody(taught: Night) -> None:
    shown, large = [], taught.submit("boltz", size=1000.0)
    charge = taught.host.charge

    def seen(worker_id: int, charges: dict[str, float]) -> None:
        shown.append(charges["unified"])
        charge(worker_id, charges)

    taught.host.charge = seen  # type: ignore[method-assign]
    taught.host.uses[large] = 6.0
    taught.until(lambda: taught.ended(large))
    assert shown == [14.0, 10.0] and taught.charged() == pytest.approx(10.0)


def test_a_warm_worker_waits_for_the_rest_of_its_room_with_the_numbers(night: Night) -> None:
    night.provide(provider("boltz", 10.0), provider("esm", 20.0))
    jobs = [night.submit("boltz", size=1000.0) for _ in range(3)]
    night.host.uses = dict.fromkeys(jobs, 14.0)
    night.up(overtake_s=10_000.0)
    night.until(lambda: night.ended(*jobs))
    beside = night.submit("esm")
    night.host.run_s = lambda task: 1000.0 if task.job_id == beside else 5.0
    night.until(lambda: night.state(beside) == "running")
    large, small = night.submit("boltz", size=1000.0), night.submit("boltz", size=10.0)
    night.host.uses |= {large: 14.0, small: 2.0}
    with scheduler(night.paths):
        night.until(lambda: (peek.job(night.paths, large)["reason"] or {}).get("ruling") == "pool_full")
        text = peek.job(night.paths, large)["reason"]["text"]
    assert "is charged 10 GiB of" in text and "is charged 14 GiB" in text and "3 runs of its size" in text
    assert night.state(large) == "queued"
    night.until(lambda: night.ended(large, small, beside))
    assert night.state(large) == "succeeded"


def test_a_learned_peak_refuses_no_job_for_good(night: Night) -> None:
    night.provide(provider("boltz", 10.0))
    jobs = [night.submit("boltz", size=1000.0) for _ in range(4)]
    night.host.uses = dict.fromkeys(jobs, 50.0)
    night.up()
    night.until(lambda: night.ended(*jobs))
    assert [night.state(job) for job in jobs] == ["succeeded"] * 4
    assert night.host.sent[-1][1]["unified"] == pytest.approx(32.0), "all that the pool can give, and no more"


def test_strict_order_has_nobody_overtake_what_runs_alone(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad, other = night.submit("boltz"), night.submit("esm")
    night.outcomes[bad] = [OVER]
    night.up(strict=True)
    night.until(lambda: peek.job(night.paths, bad)["blocked"] == "after")
    late = night.submit("esm")
    night.until(lambda: night.ended(bad, other, late))
    assert night.order() == [bad, other, bad, late]
