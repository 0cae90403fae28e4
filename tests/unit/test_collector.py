"""An answer that was stored reaches the loop, whatever goes wrong on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host import collector as module
from scheduler.host.collector import Collector
from scheduler.host.workers.orders import Stored
from scheduler.model.host import HostEvent, Replied, Task

SPEC: dict[str, Any] = {"mode": "resident", "outputs": [], "environment": None, "revision": "r", "slug": "echo"}


@pytest.fixture
def heard() -> list[HostEvent]:
    return []


@pytest.fixture
def collector(tmp_path: Path, heard: list[HostEvent]) -> Iterator[Collector]:
    made = Collector(Paths(str(tmp_path)), lambda *_: SPEC, heard.append)
    yield made
    made.close()


def answered(collector: Collector) -> None:
    task = Task(1, 7, 1, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b"{}", {}, "")
    os.makedirs(collector.paths.jobs)
    place = attempts.lay_out(collector.paths, task, whole=False)
    Path(place.reply_path).write_text('{"ok": true, "result": {"n": 1}}')
    collector.take(task)
    collector.heard(Stored(1, 7, 1, place.reply_path))


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
