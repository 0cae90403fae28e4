"""The host's own part of an attempt: laid out without holding the loop up, and nothing of it left behind."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.clock import SystemClock
from scheduler.config import Paths, settings
from scheduler.host import attempt as attempts
from scheduler.host import collector
from scheduler.host.commands import GRACE_S, Commands
from scheduler.host.local import LocalHost
from scheduler.host.workers.orders import Launch
from scheduler.host.workers.records import laid
from scheduler.model.command import Shape
from scheduler.model.host import Adopt, Alive, Assignment, Failed, Gone, HostEvent, Park, Replied, Task
from scheduler.record import Recorder
from scheduler.view import Memory

SPEC = {"mode": "resident", "outputs": [], "folder": "/", "environment": None, "revision": "r", "slug": "echo"}


class Sent:
    """In the place of the roster's `send`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def __call__(self, worker_id: int, job_id: int, attempt: int, message: dict[str, Any], **more: Any) -> None:
        self.sent.append({"worker": worker_id, "job": job_id, "attempt": attempt, **message, **more})


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(Paths(str(tmp_path)), settings(), queue_id="Q", host_id="here", about={})
    made._served._specs["echo", ""] = SPEC
    made._kinds[1] = Park(1, "echo", "", "r", "resident", {}, {})
    os.makedirs(made.paths.worker(1))
    yield made
    made.close()


@pytest.fixture
def sent(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> Sent:
    made = Sent()
    monkeypatch.setattr(host._roster, "send", made)
    return made


def task(job: int = 7, attempt: int = 1, **files: Any) -> Task:
    return Task(
        1, job, attempt, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b'{"msa": ""}', files, "", 100.0
    )


def replied(host: LocalHost) -> Replied:
    found: list[HostEvent] = host.poll(20.0)
    assert isinstance(found[0], Replied)
    return found[0]


def pinned(path: Path, data: bytes, **over: Any) -> dict[str, Any]:
    """A file that an input names, as submit pinned it."""
    path.write_bytes(data)
    stat = path.stat()
    return {
        "pinned": True, "path": str(path), "bytes": len(data), "mtime_ns": stat.st_mtime_ns,
        "sha256": hashlib.sha256(data).hexdigest(), **over,
    }  # fmt: skip


def test_a_pinned_file_that_must_be_read_is_read_off_the_loops_thread(
    host: LocalHost, sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, right = [], attempts._changed

    def changed(kept: dict[str, Any]) -> str:
        readers.append(threading.current_thread())
        return right(kept)

    monkeypatch.setattr(attempts, "_changed", changed)
    kept = pinned(tmp_path / "large", b"abc", mtime_ns=1)
    (tmp_path / "large").write_bytes(b"xyz")
    host.submit(task(**{"/msa": kept}))
    event = replied(host)
    assert (event.job_id, event.outcome.kind) == (7, "input_changed")
    assert "has other contents now" in event.outcome.text
    assert readers and threading.main_thread() not in readers


def test_nothing_is_sent_by_a_host_that_was_closed_meanwhile(host: LocalHost, sent: Sent) -> None:
    host._closed = True
    host.submit(task())
    assert sent.sent == []


def test_a_pinned_file_that_is_as_it_was_is_not_read(host: LocalHost, sent: Sent, tmp_path: Path) -> None:
    kept = pinned(tmp_path / "large", b"abc", sha256="not looked at")
    host.submit(task(**{"/msa": kept}))
    assert sent.sent[0]["request"]["msa"] == str(tmp_path / "large")


def test_a_pinned_file_of_another_size_is_refused_with_both_sizes_and_not_read(
    host: LocalHost, sent: Sent, tmp_path: Path
) -> None:
    host.submit(task(**{"/msa": pinned(tmp_path / "large", b"abc", bytes=5)}))
    assert "has 3 bytes now, and had 5" in replied(host).outcome.text
    assert sent.sent == []


def test_the_limit_of_logs_reaches_the_log_of_an_attempt(host: LocalHost, sent: Sent) -> None:
    host.submit(task())
    assert sent.sent[0]["log_max"] == settings().number("log_max_mib") * (1 << 20)


def test_the_limit_of_logs_reaches_the_logs_of_a_command(host: LocalHost, sent: Sent) -> None:
    assert host._commands._log_max == settings().number("log_max_mib") * (1 << 20)
    launches: list[Launch] = []
    roster = SimpleNamespace(
        go=lambda _, launch: launches.append(launch), send=lambda *_, **more: sent.sent.append(more)
    )
    commands = Commands(host.paths, roster, lambda _: [], lambda *_: None, 3 << 20)  # type: ignore[arg-type]
    commands.go(1)
    commands.send(replace(task(), slug="exec", variant=Shape(0.0, 1.0, 0, 1, False, "f", "abc").variant()), "")
    assert launches[0].log_max_bytes == 3 << 20 and launches[0].stop_grace_s == GRACE_S
    assert sent.sent[-1]["log_max"] == 3 << 20


def test_what_was_laid_out_for_a_job_goes_when_the_queue_has_its_end(host: LocalHost, sent: Sent) -> None:
    host.submit(task())
    place = attempts.desk(host.paths, 7, 1, "x.json")
    Path(place.reply_path).write_text("{}")
    host.tell(7, "running")
    assert os.path.exists(place.input_path)
    host.tell(7, "succeeded")
    assert os.listdir(host.paths.worker(1)) == []
    assert not os.path.exists(place.input_path) and not os.path.exists(place.reply_path)


def test_a_crash_between_an_answers_commit_and_its_news_leaves_nothing_for_good(host: LocalHost, sent: Sent) -> None:
    for job in (7, 8):
        host.submit(task(job))
        Path(attempts.desk(host.paths, job, 1, "").reply_path).write_text("{}")
    host._left = laid(host.paths)  # as the next scheduler finds them when it opens
    known = Adopt(1, "echo", "", "r", "resident", "retiring", "another boot", None, None, None, None)
    busy = Assignment(8, 1, "", task(8))
    host.adopt([Adopt(**{**vars(known), "assignment": busy})])
    over, runs = (attempts.desk(host.paths, job, 1, "x.json") for job in (7, 8))
    assert not os.path.exists(over.input_path) and not os.path.exists(over.reply_path)
    assert os.path.exists(runs.input_path) and os.path.exists(runs.reply_path)
    assert [(job, attempt) for _, job, attempt in laid(host.paths)] == [(8, 1)]


def test_a_sign_of_life_starts_the_patience_with_a_known_worker_anew() -> None:
    memory, clock = Memory(alive_at={1: 0.0}), SystemClock()
    recorder = Recorder(None, memory, clock, {})  # type: ignore[arg-type]
    recorder.record(Alive(1))
    recorder.record(Alive(2))
    assert memory.alive_at[1] > 0.0 and 2 not in memory.alive_at


def test_a_cancel_of_a_worker_that_is_gone_is_heard_after_the_answer_that_it_left(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, collect = threading.Event(), collector.collect.collect

    def waits(*given: Any) -> Any:
        assert done.wait(20.0)
        return collect(*given)

    monkeypatch.setattr(collector.collect, "collect", waits)
    place = attempts.lay_out(host.paths, task(), whole=True)
    (Path(place.out_dir) / "model.pdb").write_text("ATOM")
    Path(place.reply_path).write_text('{"ok": true}')
    assignment = Assignment(7, 1, "", task())
    host.adopt([Adopt(1, "echo", "", "r", "resident", "busy", "", None, None, None, None, assignment)])
    host.stop(1, 0.0, "cancelled")
    host._roster.after(0.0, done.set)
    host._roster._do(0, lambda: None)
    ends: list[HostEvent] = []
    while len(ends) < 3:
        found = host.poll(20.0)
        assert found
        ends += [event for event in found if isinstance(event, Replied | Failed | Gone)]
    assert [type(event) for event in ends] == [Replied, Gone, Failed]


def test_the_parameters_of_a_command_go_when_the_queue_has_its_end(host: LocalHost, sent: Sent) -> None:
    host._served._specs["echo", ""] = {**SPEC, "mode": "oneshot", "command": ["true", "{params}"], "wrap": []}
    host.submit(task())
    path = Path(host.paths.attempt(7, 1)) / "params.json"
    assert path.exists()
    host.tell(7, "succeeded")
    assert not path.exists()
