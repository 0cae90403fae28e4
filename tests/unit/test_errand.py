"""An attempt's reply on its way to its file: it is stored, it waits for room, or its end says why not."""

from __future__ import annotations

import errno
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.host.workers import errand as errands
from scheduler.host.workers import lean, regular


class Way:
    """A worker's end of a connection, an errand at the other, and what the keeper was told."""

    def __init__(self, folder: Path) -> None:
        self.home, self.path = folder / "jobs", folder / "jobs" / "7" / "1.json"
        self.path.parent.mkdir(parents=True)
        self.loop, self.stands = lean.Loop(), True
        self.told: list[dict[str, Any]] = []
        self.how: dict[str, Any] | None = None
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "w"))
        listener.listen()
        order = {"job": 7, "attempt": 1, "reply_path": str(self.path)}
        self.errand = errands.Errand(
            self.loop, order, lambda event, **more: self.told.append({"event": event, **more}), self._ended,
            lambda: None, lambda: self.stands,
        )  # fmt: skip
        self.errand.connect(str(folder / "w"))
        self.worker = listener.accept()[0]
        listener.close()

    def _ended(self, errand: errands.Errand, how: dict[str, Any]) -> None:
        self.how = how

    def say(self, data: bytes) -> None:
        """The worker says this, and it is heard whole."""
        for at in range(0, len(data), 1 << 16):
            self.worker.sendall(data[at : at + (1 << 16)])
            self.errand.read()

    def until(self, true: Callable[[], object]) -> None:
        end = time.monotonic() + 20.0
        while not true():
            assert time.monotonic() < end
            self.loop.after("look", 0.02, lambda: None)
            self.loop.turn()


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    made = Way(tmp_path)
    yield made
    made.worker.close()


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_reply_is_stored_though_its_folder_was_taken_away(way: Way, size: int) -> None:
    line = json.dumps({"ok": True, "x": "y" * size}).encode() + b"\n"
    way.say(line[: len(line) - 5])
    shutil.rmtree(way.home)
    way.say(line[len(line) - 5 :])
    assert way.how is not None and not way.how["no_reply"]
    assert json.loads(way.path.read_bytes())["x"] == "y" * size
    assert [path.name for path in way.path.parent.iterdir()] == ["1.json"]


def test_a_reply_waits_for_room_and_is_stored_then(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    made = regular.made
    troubles = iter([errno.ENOSPC, errno.EDQUOT])

    def full(path: str, folder: int | None = None) -> int:
        number = next(troubles, 0)
        if number:
            raise OSError(number, "no room")
        return made(path, folder)

    monkeypatch.setattr(regular, "made", full)
    way.say(b'{"ok": true}\n')
    assert way.how is None
    way.until(lambda: way.how)
    assert [told["event"] for told in way.told] == ["waiting", "waiting"]
    assert json.loads(way.path.read_bytes()) == {"ok": True}


def test_a_reply_that_can_never_be_stored_ends_its_attempt_with_the_reason(way: Way) -> None:
    way.path.mkdir()
    way.say(b'{"ok": true}\n')
    assert way.how is not None and way.how["no_reply"]
    assert "could not be stored" in way.how["error"] and str(way.path) in way.how["error"]


def test_a_reply_for_a_queue_that_was_removed_is_stored_nowhere(way: Way) -> None:
    way.stands = False
    shutil.rmtree(way.home)
    way.say(b'{"ok": true}\n')
    assert way.how is not None and "the queue was removed" in way.how["error"]
    assert not way.home.exists()


def test_an_attempt_ends_whatever_goes_wrong_in_storing_it(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way.errand, "_keep", lambda reply: 1 / 0)
    way.say(b'{"ok": true}\n')
    assert way.how is not None and "division by zero" in way.how["error"]
