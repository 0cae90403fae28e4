"""`down`: what a killed scheduler left is brought down and nothing else is begun; what stays is said, with figures."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from driven import Queue, eventually
from queues import AT

from scheduler import wake
from scheduler.app import SchedulerLock
from scheduler.cli import asking, remaining, stopping
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.host.doorbell import Doorbell
from scheduler.model.host import Asked
from scheduler.store import intake, leases, peek, workers
from scheduler.store.engine import Store


def killed(queue: Queue) -> None:
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    eventually(lambda: not queue.status()["scheduler"]["running"], what="the lock is free")


@pytest.mark.parametrize("now", [False, True])
def test_down_after_a_killed_scheduler_starts_nothing_that_waits(queue: Queue, now: bool) -> None:
    """The one that brings the workers down takes nothing new, though a warm worker is there that could."""
    queue.provider()
    queue("up")
    assert queue("run", "echo", queue.input()).code == 0
    killed(queue)
    assert queue("submit", "echo", queue.input("b.json")).code == 0
    done = queue("down", *(["--now"] if now else []))
    assert done.code == 0 and "starting one to bring them down" in done.err, done
    shown = queue.show(2)
    assert (shown["state"], shown["attempt"]) == ("queued", 0)
    assert queue.processes() == [] and peek.workers(Paths(str(queue.home))) == []


def test_down_after_a_killed_scheduler_waits_for_what_runs_and_for_nothing_else(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input(wait_for=str(gate)))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    queue("submit", "echo", queue.input("b.json"))
    killed(queue)
    going = queue.start("down")
    eventually(lambda: queue.status()["scheduler"]["running"], what="a scheduler is there to bring it down")
    gate.touch()
    assert going.wait(60) == 0, going.communicate()
    going.communicate()
    assert [queue.show(job)["state"] for job in (1, 2)] == ["succeeded", "queued"]
    assert queue.processes() == []


class Stubborn:
    """A scheduler in this process that cannot bring its workers down: it goes when it is told to hand over."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self.asked = paths, list[str]()
        with Store(paths).write() as tx:
            stuck, gone = (
                workers.insert(
                    tx, slug=slug, variant="", revision="r", mode="resident", host_id="h", epoch=1, created_at=AT
                )
                for slug in ("fold", "esm")
            )
            for worker_id, slug, gib in ((stuck, "fold", 28.0), (gone, "esm", 3.5)):
                leases.reserve(tx, worker_id, slug, {"unified": gib}, "h", AT)
                leases.move(tx, worker_id, "go", AT)
            tx.exec_driver_sql("UPDATE workers SET state = 'retiring', leader_pid = ? WHERE id = 1", (os.getpid(),))
            tx.exec_driver_sql("UPDATE workers SET state = 'gone' WHERE id = 2")
            leases.move(tx, gone, "exit", AT)
            leases.move(tx, gone, "overdue", AT)
        self.lock = SchedulerLock(paths)
        self.bell = Doorbell(paths, self._hear, lambda: {"pid": os.getpid(), "epoch": 1, "quiet_s": 0.0})
        self.bell.open()
        self.ended = threading.Thread(target=self._end)

    def _hear(self, event: object) -> None:
        if isinstance(event, Asked):
            self.asked.append(event.op)
            if event.op == "restart":
                self.ended.start()

    def _end(self) -> None:
        self.bell.close()
        self.lock.release()


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubborn:
    for name, value in (("SAY_S", 0.0), ("LOOK_S", 0.0), ("GRACE_S", 0.0), ("PATIENCE_S", 0.3)):
        monkeypatch.setattr(remaining, name, value)
    monkeypatch.setattr(asking, "LOOK_S", 0.01)
    paths = Paths(str(tmp_path / "queue"))
    intake.submit(paths, [{"slug": "fold", "name": "a", "data": b"{}"}])
    return Stubborn(paths)


STUCK = f"worker 1 (fold, retiring, process {os.getpid()}) with 28.0 GiB on unified"
LEAKED = "3.5 GiB on unified of worker 2 (esm), which is gone and whose memory is not back (leaked)"


@pytest.mark.parametrize("now", [True, False])
def test_what_cannot_be_brought_down_is_said_with_its_figures_and_not_waited_for_for_ever(
    stubborn: Stubborn, capfd: pytest.CaptureFixture[str], now: bool
) -> None:
    with pytest.raises(Temporary) as caught:
        stopping.leave(stubborn.paths, "down", now=now)
    said = capfd.readouterr().err
    assert said.count(f"waiting for {STUCK}; {LEAKED}") == 1, said
    assert STUCK in str(caught.value) and LEAKED in str(caught.value)
    assert "the scheduler has ended" in str(caught.value) and caught.value.exit_code == 75
    assert stubborn.asked == ["down", "restart"] and not wake.scheduler_runs(stubborn.paths)
    stubborn.ended.join()


def test_who_may_finish_is_waited_for_however_long_that_takes(
    stubborn: Stubborn, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(remaining, "monotonic_s", lambda: clock[0])
    patient, now = remaining.Remaining(stubborn.paths, now=False), remaining.Remaining(stubborn.paths, now=True)
    with Store(stubborn.paths).write() as tx:
        tx.exec_driver_sql("UPDATE workers SET state = 'busy' WHERE id = 1")
    clock[0] = 86_400.0
    patient.look()
    assert capfd.readouterr().err == ""
    with pytest.raises(remaining.Stays, match="after 86400 s"):
        now.look()
    with Store(stubborn.paths).write() as tx:
        tx.exec_driver_sql("UPDATE workers SET state = 'retiring' WHERE id = 1")
    patient.look()
    clock[0] += 1.0
    with pytest.raises(remaining.Stays, match="after 1 s"):
        patient.look()
    stubborn._end()
