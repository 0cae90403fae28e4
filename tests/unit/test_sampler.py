"""The newest snapshot at hand: never waited for, never older than it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import machine

from scheduler.clock import monotonic_s
from scheduler.config import Paths, settings
from scheduler.host.machine import sampler as module
from scheduler.host.machine.sampler import STALE_S, Sampler
from scheduler.model.machine import Machine


class Fake:
    """Snapshots that are numbered by their cores, and can be held up."""

    def __init__(self) -> None:
        self.taken, self.fails, self.closed = 0, False, False
        self.began, self.go = threading.Semaphore(0), threading.Event()
        self.go.set()

    def take(self) -> Machine:
        self.began.release()
        assert self.go.wait(20.0)
        if self.fails:
            raise RuntimeError("no such luck")
        self.taken += 1
        return machine(cores=self.taken)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def sampler(tmp_path: Path, fake: Fake) -> Iterator[Sampler]:
    made = Sampler(
        Paths(str(tmp_path)), settings(), queue_id="Q", host_id="here", budget_of=lambda slug: None, period_s=3600.0,
        snapshots=fake,  # type: ignore[arg-type]
    )  # fmt: skip
    yield made
    fake.go.set()
    made.close()


def test_before_the_first_snapshot_nothing_is_known(sampler: Sampler) -> None:
    found = sampler.latest()
    assert found.holdings_missing and found.pools[0].capacity.failed


def test_closing_it_lets_go_of_the_drivers(sampler: Sampler, fake: Fake) -> None:
    sampler.open()
    sampler.close()
    assert fake.closed


def test_open_takes_the_first(sampler: Sampler) -> None:
    sampler.open()
    assert sampler.latest().cores == 1 and not sampler.latest().holdings_missing


def test_a_refresh_is_a_snapshot_that_began_after_it_was_asked_for(sampler: Sampler, fake: Fake) -> None:
    sampler.open()
    fake.began.acquire()
    fake.go.clear()
    first, second, seen = threading.Event(), threading.Event(), []
    sampler.refresh(lambda: (seen.append(sampler.latest().cores), first.set()))
    assert fake.began.acquire(timeout=10.0)
    sampler.refresh(lambda: (seen.append(sampler.latest().cores), second.set()))
    assert sampler.latest().cores == 1, "asking for the newest waited for a probe"
    fake.go.set()
    assert first.wait(10.0) and second.wait(10.0)
    assert seen == [2, 3]


def test_a_snapshot_that_fails_is_an_unreadable_machine_and_not_the_end(sampler: Sampler, fake: Fake) -> None:
    sampler.open()
    fake.fails = True
    done = threading.Event()
    sampler.refresh(done.set)
    assert done.wait(10.0)
    assert "no such luck" in sampler.latest().holdings_missing
    fake.fails = False
    again = threading.Event()
    sampler.refresh(lambda: [][1])
    sampler.refresh(again.set)
    assert again.wait(10.0) and sampler.latest().holdings_missing == ""


def test_its_age_is_in_every_reading_and_too_old_a_one_reads_nothing(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler.open()
    now = monotonic_s()
    monkeypatch.setattr(module, "monotonic_s", lambda: now + 7.0)
    assert sampler.latest().pools[0].available.age_s == pytest.approx(7.0, abs=1.0)
    monkeypatch.setattr(module, "monotonic_s", lambda: now + STALE_S + 2.0)
    found = sampler.latest()
    assert "last read" in found.holdings_missing and found.pools[0].available.failed and found.competing is None
    assert found.disk_free_gib is None and found.accelerators.failed
