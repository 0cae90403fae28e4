"""Jobs that run alone through the real loop: one that cannot go keeps nobody, and none becomes an ordinary one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from queues import asked, scheduler
from test_over_budget import OVER, Night, provider

from scheduler.model.machine import Charge, Holding, Machine, Reading
from scheduler.store import operator, peek


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


def test_a_stranger_that_leaves_one_no_room_stops_nobody_else_and_it_goes_when_that_has_gone(night: Night) -> None:
    night.provide(provider("boltz", 10.0), provider("esm", 5.0))
    bad = night.submit("boltz")
    night.outcomes[bad] = [OVER]
    night.up(overtake_s=100.0)
    night.until(lambda: peek.job(night.paths, bad)["blocked"] == "after")
    read, gone = night.host.machine, False

    def machine() -> Machine:
        seen = read()
        pool = seen.pools[0]
        left = Reading(36.0 - 24.0, "simulated")
        other = Holding("stranger", 77, "bob", (Charge("unified", 24.0, 24.0, "device"),))
        return seen if gone else replace(seen, pools=(replace(pool, free=left, available=left),), holdings=(other,))

    night.host.machine = machine  # type: ignore[method-assign]
    others: list[int] = []

    def more() -> bool:
        waits = sum(state == "queued" for state in peek.states(night.paths, others).values())
        others.extend(night.submit("esm") for _ in range(2 - waits))
        return night.clock.elapsed_s > 400.0

    night.until(more, most=2000)
    done = [job for job in others if night.state(job) == "succeeded"]
    assert len(done) > 40, "the queue goes on after the window of the one that cannot go"
    assert asked(night.paths, "SELECT count(*) FROM workers WHERE slug = 'esm'") == [(1,)], "on its one warm worker"
    with scheduler(night.paths):
        assert peek.job(night.paths, bad)["reason"]["ruling"] == "pool_full"
    gone = True
    night.until(lambda: night.state(bad) == "succeeded", most=2000)


def test_one_whose_provider_is_gone_keeps_no_other_and_each_says_what_it_waits_for(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"), provider("fold"))
    bad, other, third = night.submit("boltz"), night.submit("esm"), night.submit("fold")
    night.outcomes = {job: [OVER] for job in (bad, other, third)}
    night.host.run_s = lambda task: 200.0 if (task.job_id, task.attempt) == (other, 2) else 5.0
    night.up()
    night.until(lambda: {peek.job(night.paths, job)["blocked"] for job in (bad, other, third)} == {"after"})
    del night.host.catalog["boltz", ""]
    night.until(lambda: night.state(other) == "running")
    with scheduler(night.paths):
        told = {job: peek.job(night.paths, job)["reason"] for job in (bad, third)}
    assert told[bad]["ruling"] == "not_installed" and "boltz" in told[bad]["text"]
    assert told[third]["ruling"] == "busy" and f"has job {other} there" in told[third]["text"]
    night.until(lambda: night.ended(other, third))
    night.provide(provider("boltz"))
    night.until(lambda: night.ended(bad))
    assert [night.state(job) for job in (bad, other, third)] == ["succeeded"] * 3


def test_one_whose_backing_off_an_operator_ends_runs_alone_all_the_same(night: Night) -> None:
    night.provide(provider("boltz"), provider("esm"))
    bad = night.submit("boltz")
    night.outcomes[bad] = [OVER]
    night.up()
    night.until(lambda: peek.job(night.paths, bad)["blocked"] == "after")
    assert night.store is not None
    with night.store.write() as tx:
        tx.exec_driver_sql("UPDATE jobs SET blocked = 'backoff', not_before_at = '2099-01-01T00:00:00Z'")
    night.until(lambda: (peek.job(night.paths, bad)["blocked"]) == "backoff")
    with night.store.write() as tx:
        assert operator.try_now(tx, "boltz") == 1
    night.until(lambda: night.ended(bad))
    _, charges, beside = night.host.sent[-1]
    assert night.state(bad) == "succeeded" and beside == []
    assert charges["unified"] == pytest.approx(32.0, abs=1.0), "with all that its pool can give, not with its charge"
