"""A file whose server does not answer: nobody waits for the cache that it holds up, and which file it is is said."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from builders import reading
from keepers import until

from scheduler.host.machine import cached, reclaim
from scheduler.host.machine.levels import HostLevel, Left
from scheduler.host.machine.reclaim import Reclaim
from scheduler.model.host import Reclaimed

DEAD = "/mnt/dead/weights.bin"


class Fixed(HostLevel):
    def read(self) -> Left:
        return reading(1.0), reading(40.0)


class Hanging:
    """A way to reclaim that comes to a file that cannot be looked at until it `answers`."""

    def __init__(self, mode: str = "files", **more: Any) -> None:
        self.answers, self.reached, self.told = threading.Event(), threading.Event(), list[Reclaimed]()
        self.reclaim = Reclaim(
            self.told.append,  # type: ignore[arg-type]
            lambda then: then(),
            mode=mode,
            files=lambda: [DEAD],
            level=Fixed(),
            **more,
        )

    def stat(self, path: Any, *rest: Any, **more: Any) -> os.stat_result:
        if path == DEAD:
            self.reached.set()
            assert self.answers.wait(30.0)
        return STAT(path, *rest, **more)


STAT = os.stat


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    made = Hanging()
    monkeypatch.setattr(os, "stat", made.stat)
    monkeypatch.setattr(reclaim, "LIMIT_S", 0.3)
    monkeypatch.setattr(reclaim, "HANGS_S", 0.1)
    yield made
    made.answers.set()
    made.reclaim.close()


def test_a_reclaim_that_hangs_is_off_after_its_limits_and_says_where_until_it_comes_back(hanging: Hanging) -> None:
    hanging.reclaim.ask("host", 4.0, 2.0, 7)
    assert hanging.reclaim.word == "running" and hanging.reached.wait(10.0)
    until(lambda: hanging.reclaim.word == "off", "its limits")
    [note] = hanging.reclaim.notes()
    assert "nobody waits for that: it has not come back for 0 s from /mnt/dead/weights.bin" in note
    assert "see to that mount" in note and DEAD in hanging.reclaim.facts()["running"]
    hanging.reclaim.ask("host", 4.0, 2.0, 8)
    hanging.answers.set()
    [event] = until(lambda: list(hanging.told), "its end")
    assert event.job_id == 7 and hanging.reclaim.facts()["running"] == ""
    assert hanging.reclaim.word == "off" and "not tried again for" in hanging.reclaim.notes()[0]


def test_what_comes_back_long_after_goes_no_other_way_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = list[str]()
    made = Hanging("auto", command="true")
    monkeypatch.setattr(os, "stat", made.stat)
    monkeypatch.setattr(reclaim, "LIMIT_S", 0.2)
    monkeypatch.setattr(reclaim.outside, "command", lambda line: ways.append(line) or "exit 0")
    monkeypatch.setattr(reclaim.cgroup, "reclaimable", lambda proc: ways.append("groups") or [])
    made.reclaim.ask("host", 4.0, 2.0, None)
    until(lambda: made.reclaim.word == "off", "its limits")
    made.answers.set()
    until(lambda: made.told, "its end")
    assert ways == []


def test_a_pass_for_loading_workers_that_hangs_is_not_said_to_give_anything_back(hanging: Hanging) -> None:
    hanging.reclaim.tend([3], 1.0, 2.0)
    assert hanging.reached.wait(10.0)
    assert "is dropped from the file cache" in hanging.reclaim.notes()[0]
    until(lambda: (hanging.reclaim.tend([3], 1.0, 2.0), DEAD in hanging.reclaim.notes()[0])[1], "what is said of it")
    assert "is dropped" not in hanging.reclaim.facts()["tending"]
    hanging.answers.set()
    told = lambda: (hanging.reclaim.tend([3], 1.0, 2.0), hanging.reclaim.notes()[0])[1]  # noqa: E731
    until(lambda: "is dropped from the file cache" in told(), "the next pass")


def test_an_open_file_of_a_process_is_named_as_people_know_it(tmp_path: Any) -> None:
    path = tmp_path / "weights.bin"
    path.write_text("w")
    with path.open() as file:
        assert cached.named(f"/proc/self/fd/{file.fileno()}") == str(path)
    assert cached.named("/proc/self/fd/9999") == "/proc/self/fd/9999" and cached.named(DEAD) == DEAD
