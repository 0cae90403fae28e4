"""An answer that was stored reaches the loop, whatever goes wrong on the way."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host import collector as module
from scheduler.host.collector import Collector
from scheduler.host.workers.orders import Stored
from scheduler.model.host import Failed, Gone, HostEvent, Nudged, Replied, Task

SPEC: dict[str, Any] = {"mode": "resident", "outputs": [], "environment": None, "revision": "r", "slug": "echo"}


@pytest.fixture
def heard() -> list[HostEvent]:
    return []


@pytest.fixture
def collector(tmp_path: Path, heard: list[HostEvent]) -> Iterator[Collector]:
    made = Collector(Paths(str(tmp_path)), lambda *_: SPEC, heard.append)
    yield made
    made.close()


def answered(collector: Collector, ago_s: float = 0.0) -> None:
    task = Task(1, 7, 1, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b"{}", {}, "")
    os.makedirs(collector.paths.jobs)
    place = attempts.lay_out(collector.paths, task, whole=False)
    Path(place.reply_path).write_text('{"ok": true, "result": {"n": 1}}')
    os.utime(place.reply_path, (time.time() - ago_s,) * 2)
    collector.take(task)
    collector.heard(Stored(1, 7, 1, place.reply_path))


@pytest.mark.parametrize(("ago_s", "told_s"), [(0.0, 0.0), (-500.0, 0.0), (3600.0, 3600.0)])
def test_an_answer_says_how_long_ago_it_was_stored_where_nobody_listened(
    collector: Collector, heard: list[HostEvent], ago_s: float, told_s: float
) -> None:
    answered(collector, ago_s)
    (event,) = heard
    assert isinstance(event, Replied) and event.ago_s == pytest.approx(told_s, abs=5.0)


def test_an_answer_is_an_event_whatever_fails_around_it(
    collector: Collector, heard: list[HostEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise TypeError("planted")

    monkeypatch.setattr(collector, "_job_facts", fails)
    answered(collector)
    (event,) = heard
    assert isinstance(event, Replied)
    assert (event.job_id, event.attempt, event.outcome.kind) == (7, 1, "no_reply")
    assert "TypeError: planted" in event.outcome.text


def test_an_environment_that_cannot_be_read_costs_no_answer(
    collector: Collector, heard: list[HostEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[str, str]:
        raise OSError("planted")

    monkeypatch.setattr(module.environments, "versions", fails)
    answered(collector)
    (event,) = heard
    assert isinstance(event, Replied)
    assert (event.outcome.kind, event.reply, event.versions) == ("ok", b'{"n":1}', {})


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Collections wait until it is set."""
    gate, collect = threading.Event(), module.collect.collect

    def waits(*given: Any) -> Any:
        assert gate.wait(20.0)
        return collect(*given)

    monkeypatch.setattr(module.collect, "collect", waits)
    yield gate
    gate.set()


def with_outputs(collector: Collector, job: int = 7, worker: int = 1) -> Stored:
    task = Task(worker, job, 1, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b"{}", {}, "")
    os.makedirs(collector.paths.jobs, exist_ok=True)
    place = attempts.lay_out(collector.paths, task, whole=True)
    (Path(place.out_dir) / "model.pdb").write_text("ATOM")
    Path(place.reply_path).write_text('{"ok": true, "result": {"n": 1}}')
    collector.take(task)
    return Stored(worker, job, 1, place.reply_path)


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("ends", [Gone(1, -9), Failed(1, "worker 1 has no keeper", alive=False)])
def test_every_word_of_a_workers_end_waits_for_its_stored_answer_however_often_both_are_said(
    collector: Collector, heard: list[HostEvent], held: threading.Event, ends: Gone | Failed, busy: bool
) -> None:
    if busy:  # both threads, so that the first collection of this worker has not begun
        for number in (2, 3):
            collector.heard(with_outputs(collector, number, number))
    stored = with_outputs(collector)
    collector.heard(stored)
    collector.heard(stored)
    for event in (ends, Gone(1, -9)):
        collector.gone(event, lambda: None)
    assert [event for event in heard if not isinstance(event, Nudged)] == []
    held.set()
    collector.close()
    of_it = [event for event in heard if not isinstance(event, Nudged) and event.worker_id == 1]  # type: ignore[union-attr]
    assert isinstance(of_it[0], Replied) and of_it[0].outcome.kind == "ok" and of_it[1:] == [ends, Gone(1, -9)]


def test_a_stale_reply_does_not_cost_the_attempt_that_its_worker_is_on(
    collector: Collector, heard: list[HostEvent]
) -> None:
    stored = with_outputs(collector)
    collector.heard(Stored(1, 6, 1, stored.reply_path))
    collector.heard(stored)
    collector.close()
    assert [event.job_id for event in heard if isinstance(event, Replied)] == [7]


def test_a_jobs_record_says_of_which_queue_it_is(tmp_path: Path) -> None:
    heard: list[HostEvent] = []
    collector = Collector(Paths(str(tmp_path)), lambda *_: SPEC, heard.append, queue_id="Q")
    collector.heard(with_outputs(collector))
    collector.close()
    (event,) = heard
    assert isinstance(event, Replied)
    record = json.loads((Path(event.destination) / "job.json").read_text())
    assert record["queue_id"] == "Q" and record["host"] == os.uname().nodename
