"""The machine was started anew while a night went on: nothing of it lives, its rows are of another boot, it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.config import Paths
from scheduler.loop import Loop
from scheduler.model.host import Asked
from scheduler.model.provider import Provider
from scheduler.perform import Identity
from scheduler.simulate import host as simulated
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import intake, peek, schedulers
from scheduler.store.engine import Store
from scheduler.view import Orders

CATALOG = {
    (slug, ""): Provider(slug, policy="required", vram_gib=gib, revision="r", backoff_s=1.0)
    for slug, gib in (("boltz", 20.0), ("esm2", 10.0), ("propka", 10.0))
}


def booted(clock: VirtualClock) -> SimHost:
    """A machine on which nothing runs yet."""
    return SimHost(
        clock, dict(CATALOG), capacity_gib=44.0, reserve_gib=4.0, load_s=lambda slug: 10.0, run_s=lambda task: 50.0
    )


def scheduler(paths: Paths, host: SimHost, clock: VirtualClock) -> tuple[Loop, Store]:
    store = Store(paths)
    with store.write() as tx:
        epoch = schedulers.begin(
            tx, pid=1, started=1.0, boot_id=simulated.BOOT_ID, host_id="h", version="t", at="2027-01-15T08:00:00Z"
        )
    loop = Loop(store, host, clock, Identity(epoch, "h", "q"), Orders(), draw=lambda: 0.5)
    loop.recover()
    return loop, store


def test_after_a_reboot_the_night_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy worker, one that loads, one that was parked and one that is idle: all are gone, their jobs are not."""
    paths, clock = Paths(str(tmp_path / "home")), VirtualClock()
    row = {"name": "x", "revision": "r", "input_name": "x.json", "input_kind": "json", "data": b"{}"}

    def submit(slug: str) -> int:
        return intake.submit(paths, [{"slug": slug, **row}])[0]

    before, store = scheduler(paths, booted(clock), clock)
    busy = submit("boltz")
    while peek.states(paths, [busy])[busy] != "running":
        before.tick()
    loading, waiting = submit("esm2"), submit("boltz")
    for _ in range(3):
        before.tick(0.0)
    parked = submit("propka")
    before.tick(0.0)
    jobs = [busy, loading, waiting, parked]
    assert peek.states(paths, jobs) == {busy: "running", loading: "admitted", waiting: "queued", parked: "admitted"}
    states = [worker["state"] for worker in peek.status(paths)["workers"]]
    assert states == ["busy", "starting", "parked"]
    store.close()

    monkeypatch.setattr(simulated, "BOOT_ID", "the next boot")
    later = VirtualClock(start_s=clock.now_s() + 600.0)
    host = booted(later)
    after, store = scheduler(paths, host, later)
    for _ in range(400):
        after.tick()
        if set(peek.states(paths, jobs).values()) == {"succeeded"}:
            break
    assert {job: [each["outcome"] for each in peek.job(paths, job)["attempts"]] for job in jobs} == {
        busy: ["lost", "ok"], loading: ["interrupted", "ok"], waiting: ["ok"], parked: ["interrupted", "ok"],
    }  # fmt: skip
    assert [peek.job(paths, job)["tries"] for job in jobs] == [2, 1, 1, 1]
    host.after(0.0, Asked("down"))
    while after.tick():
        pass
    whole = peek.status(paths)
    assert whole["workers"] == [] and all(not pool.get("charged_gib") for pool in whole["pools"])
    store.close()
