"""What is kept of what attempts used: the peak of whom, of which size, and of which part; and what is not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from builders import holding, machine, pool, provider
from made_proc import integrated
from queues import AT, asked

from scheduler.clock import seconds
from scheduler.measured import Measured
from scheduler.model.machine import Charge, Tenant, device_part
from scheduler.model.outcome import Outcome
from scheduler.store import leases, workers
from scheduler.store.engine import Store

BOLTZ = provider("boltz", 28.0, ram=6.0)
OK = Outcome("ok")


class Told:
    """A host that tells what a test says: since a worker's start, and since its last send."""

    def __init__(self) -> None:
        self.since_start: dict[str, float] = {}
        self.since_send: dict[str, float] = {}

    def peaks(self, worker_id: int, anew: bool) -> dict[str, float]:
        return self.since_send if anew else self.since_start


class Yard:
    """One worker of boltz, and the attempts that end on it."""

    def __init__(self, store: Store, charges: dict[str, float], device: str = "unified") -> None:
        self.store, self.host = store, Told()
        self.measured: Any = Measured(self.host, "h", machine(pool("unified", 121.0)))  # type: ignore[arg-type]
        with store.write() as tx:
            self.worker = workers.insert(
                tx, slug="boltz", variant="", revision="r", mode="resident", host_id="h", epoch=1, created_at=AT,
                device=device, host_gib=6.0,
            )  # fmt: skip
            leases.reserve(tx, self.worker, "boltz", charges, "h", AT)
            for event in ("shown", "go"):
                workers.move(tx, self.worker, event, AT)
            workers.move(tx, self.worker, "answer", AT, ready_at=AT)
            leases.move(tx, self.worker, "go", AT)

    def ended(self, size: float, outcome: Outcome = OK, *, of: Any = BOLTZ, **used: float) -> Outcome:
        self.host.since_send = used
        self.host.since_start = {name: max(gib, self.host.since_start.get(name, 0.0)) for name, gib in used.items()}
        job = SimpleNamespace(id=7, attempt=1, slug="boltz", worker_id=self.worker, size=size, behind=None, laters=0)
        with self.store.write() as tx:
            return self.measured.ended(tx, job, outcome, of, AT)

    def idle(self, *charges: Charge, on_device: float | None = 20.0, later_s: float = 1.0) -> None:
        """`on_device` is what the driver says of its process 500; None = it does not list that."""
        there = replace(holding(*charges, worker_id=self.worker), listed=() if on_device is None else ((500, 7.0),))
        gb10 = integrated(Tenant(500, on_device), Tenant(4711, 9.0))
        over: Any = {"holdings": (there,), "devices": (gb10,), "at_s": seconds(AT) + later_s}
        here = machine(pool("unified", 121.0), **over)
        with self.store.write() as tx:
            Measured(self.host, "h", here).idle(tx, self.worker, BOLTZ, AT)  # type: ignore[arg-type]

    def kept(self) -> list[tuple[Any, ...]]:
        return asked(self.store.paths, "SELECT bucket, device_gib, host_gib FROM peaks ORDER BY id")


UNIFIED = (Charge("unified", 6.0, 2.0, "host"), Charge("unified", 28.0, 20.0, "device"))


@pytest.mark.parametrize("kind", ["error", "no_outputs", "later", "timed_out"])
def test_what_a_large_job_took_is_no_smaller_ones_peak_however_the_large_one_ended(store: Store, kind: str) -> None:
    yard = Yard(store, {"unified": 34.0})
    yard.ended(4096.0, Outcome(kind), unified=33.0)
    yard.ended(10.0, unified=33.0)
    assert yard.kept() == []
    yard.ended(4000.0, unified=33.5)
    assert [bucket for bucket, *_ in yard.kept()] == [12]


def test_a_large_job_that_never_reached_the_worker_left_nothing_in_it(store: Store) -> None:
    yard = Yard(store, {"unified": 34.0})
    yard.ended(4096.0, Outcome("interrupted", unsent=True), unified=5.0)
    yard.ended(10.0, unified=9.0)
    assert [bucket for bucket, *_ in yard.kept()] == [4]


def test_a_small_job_that_came_first_is_kept_and_the_larger_one_after_it(store: Store) -> None:
    yard = Yard(store, {"unified": 34.0})
    yard.ended(10.0, unified=9.0)
    yard.ended(4096.0, unified=33.0)
    assert [bucket for bucket, *_ in yard.kept()] == [4, 12]


def test_of_unified_memory_what_was_never_the_devices_is_the_hosts_and_both_are_the_sum(store: Store) -> None:
    yard = Yard(store, {"unified": 120.0})
    undeclared = provider("boltz", None, ram=0.0)
    yard.ended(10.0, of=undeclared, **{"unified": 34.0, device_part("unified"): 31.0})
    yard.ended(10.0, of=undeclared, **{"unified": 40.0, device_part("unified"): 31.0})
    assert yard.kept() == [(4, 31.0, 3.0), (4, 31.0, 9.0)]


def test_of_what_was_not_seen_nothing_is_kept_and_no_charge_is_lowered_by_it(store: Store) -> None:
    yard = Yard(store, {"unified": 44.0})
    yard.ended(10.0)
    assert yard.kept() == []
    with store.read() as tx:
        assert leases.by_pool(tx, yard.worker) == {"unified": 44.0}


def test_what_a_worker_holds_after_its_load_is_kept_before_its_first_job_and_not_after_it(store: Store) -> None:
    yard = Yard(store, {"unified": 34.0})
    yard.idle(*UNIFIED, later_s=-1.0)
    assert yard.kept() == [], "a snapshot from before its load tells nothing of it"
    yard.idle(*UNIFIED)
    assert yard.kept() == [(None, 20.0, 2.0)]
    yard.ended(10.0, Outcome("error"), **{"unified": 33.0, device_part("unified"): 27.0})
    yard.idle(Charge("unified", 6.0, 6.0, "host"), Charge("unified", 28.0, 27.0, "device"), on_device=27.0)
    assert yard.kept() == [(None, 20.0, 2.0)], "what a job left behind is not what the load took"


def test_of_an_idle_worker_whose_device_part_is_not_told_nothing_is_kept_of_unified_memory(store: Store) -> None:
    yard = Yard(store, {"unified": 34.0})
    yard.idle(Charge("unified", 34.0, 2.0, "host"), on_device=None)
    assert yard.kept() == []
    yard.idle(Charge("unified", 120.0, 22.0, "whole"))
    assert yard.kept() == [(None, 20.0, 2.0)], "of one that declares nothing both are told as one"
