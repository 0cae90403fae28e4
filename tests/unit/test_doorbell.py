"""The scheduler's end of the wake socket: no datagram silences it; who watches is told, or told that it is not."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import client as clients
from scheduler.client import Client
from scheduler.config import Paths
from scheduler.host import doorbell as doorbells
from scheduler.host.doorbell import Doorbell
from scheduler.model.host import HostEvent, Nudged
from scheduler.store import intake
from scheduler.wake import Line


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "home"))
    intake.submit(made, [{"slug": "echo", "name": "a", "data": b"{}"} for _ in range(3)])
    return made


@pytest.fixture
def happened() -> list[HostEvent]:
    return []


@pytest.fixture
def bell(paths: Paths, happened: list[HostEvent]) -> Iterator[Doorbell]:
    made = Doorbell(paths, happened.append, lambda: {"pid": 1})
    made.open()
    yield made
    made.close()


@pytest.fixture
def line(paths: Paths) -> Iterator[Line]:
    made = Line(paths)
    yield made
    made.close()


def watched(line: Line, *jobs: object) -> int:
    """How many of these the doorbell says that it watches for us."""
    told = line.ask(20.0, op="watch", jobs=list(jobs))
    assert told is not None
    return int(str(told["watching"]))


def told(line: Line) -> list[dict[str, object]]:
    """All that was said to this line so far."""
    found = []
    while (answer := line.hear(0.0)) is not None:
        found.append(answer)
    return found


@pytest.mark.parametrize(
    "datagram",
    [
        b'{"op": "watch", "jobs": 5}',
        b'{"op": "watch", "jobs": null}',
        b'{"op": "watch", "jobs": {"a": 1}}',
        b'{"op": "watch", "jobs": [null, "7", 1.5, true, [], {}, -1, 0, 1e400]}',
        b'{"op": "watch"}',
        b'{"op": ["watch"]}',
        b'{"op": {"watch": 1}}',
        b'{"op": "down ", "now": []}',
        b"[" * 60_000,
        b'{"op":' * 10_000,
        b"\xff\xfe",
        b"9" * 60_000,
        b"null",
        b"\0",
    ],
    ids=lambda each: each[:40].decode("latin-1"),
)
@pytest.mark.parametrize("bound", [True, False])
def test_no_datagram_silences_the_doorbell(
    paths: Paths, bell: Doorbell, line: Line, datagram: bytes, bound: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        if bound:
            other.bind("")
        other.sendto(datagram, paths.wake_socket)
        other.sendto(b'{"op": "ping"}', paths.wake_socket)
        other.sendto(b'{"op": "watch", "jobs": [1]}', paths.wake_socket)
    assert line.ask(20.0, op="ping") == {"pid": 1}


def test_an_answer_that_cannot_be_made_silences_nobody(paths: Paths, line: Line) -> None:
    answers: list[Any] = [{"home": object()}, {"pid": 2}]
    made = Doorbell(paths, lambda _event: None, lambda: answers.pop(0))
    made.open()
    try:
        line.say(op="ping")
        assert line.ask(20.0, op="ping") == {"pid": 2}
    finally:
        made.close()


def test_a_descriptor_that_is_sent_along_is_no_reason_to_stop(
    paths: Paths, bell: Doorbell, line: Line, happened: list[HostEvent]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, open(__file__, "rb") as file:
        other.connect(paths.wake_socket)
        socket.send_fds(other, [b""], [file.fileno()])
        socket.send_fds(other, [b"{}"], [file.fileno()])
    assert line.ask(20.0, op="ping") == {"pid": 1}


def test_one_that_was_never_opened_can_be_closed_and_leaves_the_address_of_another(paths: Paths) -> None:
    first = Doorbell(paths, lambda _event: None, lambda: {"pid": 1})
    second = Doorbell(paths, lambda _event: None, lambda: {"pid": 2})
    second.open()
    first.close()
    asks = Line(paths)
    assert asks.ask(20.0, op="ping") == {"pid": 2}
    asks.close()
    second.close()
    assert not os.path.exists(paths.wake_socket)


def test_only_jobs_are_watched_and_counted(bell: Doorbell, line: Line) -> None:
    assert watched(line, 1, "2", True, None, 3) == 2


def test_a_job_that_ended_is_forgotten(bell: Doorbell, line: Line) -> None:
    assert watched(line, 1, 2) == 2
    bell.tell(1, "running")
    bell.tell(1, "succeeded")
    bell.tell(1, "succeeded")
    assert told(line) == [{"job": 1, "state": "running"}, {"job": 1, "state": "succeeded"}]
    assert len(bell) == 1


def test_a_watcher_that_is_gone_is_forgotten_with_all_its_jobs(bell: Doorbell, paths: Paths, line: Line) -> None:
    gone = Line(paths)
    assert watched(gone, 1, 2, 3) == 3 and watched(line, 1) == 1
    gone.close()
    bell.tell(1, "running")
    assert len(bell) == 1 and told(line) == [{"job": 1, "state": "running"}]


def test_when_it_is_full_the_oldest_go_and_who_asked_again_is_not_old(
    bell: Doorbell, line: Line, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbells, "MAX_WATCHES", 3)
    other = Line(paths)
    assert watched(line, 1, 2) == 2 and watched(other, 3) == 1
    assert watched(line, 1) == 1
    assert watched(other, 4) == 1, "in the place of 2"
    for job in (1, 2, 3, 4):
        bell.tell(job, "succeeded")
    assert told(line) == [{"job": 1, "state": "succeeded"}]
    assert [answer["job"] for answer in told(other)] == [3, 4]
    other.close()


def test_who_asks_for_more_than_can_be_kept_is_told_how_many_are(
    bell: Doorbell, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbells, "MAX_WATCHES", 3)
    assert watched(line, 1, 2, 3, 4, 5) == 3
    for job in (1, 2, 3, 4, 5):
        bell.tell(job, "succeeded")
    assert [answer["job"] for answer in told(line)] == [1, 2, 3]


def test_a_client_that_is_not_listened_for_looks_by_itself(
    paths: Paths, bell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbells, "MAX_WATCHES", 1)
    monkeypatch.setattr(clients, "HEARD_S", 600.0)
    with Client(paths.home) as queue:
        assert not queue._watch([1, 2]), "one of the two is not watched"
        assert queue._watch([1])
    monkeypatch.setattr(doorbells, "MAX_WATCHES", 10_000)
    with Client(paths.home) as queue:
        assert queue._watch(list(range(1, 5001))), "in several datagrams, each of which is answered"


def test_a_nudge_and_a_watch_wake_the_loop(paths: Paths, bell: Doorbell, line: Line, happened: list[HostEvent]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(b"", paths.wake_socket)
    assert watched(line, 1) == 1
    assert line.ask(20.0, op="ping") == {"pid": 1}
    assert happened == [Nudged(), Nudged()]


def test_an_address_is_not_bound_anew_once_the_queue_is_not_ours_any_more_and_anothers_stays(paths: Paths) -> None:
    made = Doorbell(paths, lambda _event: None, lambda: {"pid": 1}, lambda: False)
    os.unlink(paths.wake_socket)
    made._renew()
    assert not os.path.exists(paths.wake_socket)
    theirs = Doorbell(paths, lambda _event: None, lambda: {"pid": 2})
    made.open()
    made.close()
    assert os.path.exists(paths.wake_socket)
    theirs.open()
    theirs.close()
    assert not os.path.exists(paths.wake_socket)
