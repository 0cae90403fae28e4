"""Who waits for a command: one descriptor for each process, and gone is only who is known to be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import Yard, until

from scheduler.host import callers
from scheduler.host.callers import Callers
from scheduler.host.workers import tree
from scheduler.model.host import Deserted


class Waiting:
    """Callers over a yard's roster, and a child that calls."""

    def __init__(self, folder: Path) -> None:
        self.yard, self.told = Yard(folder), list[Any]()
        self.callers = Callers(self.yard.roster, self.told.append)
        self.child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        stat = tree.stat_of(self.child.pid)
        assert stat is not None
        self.caller = {"pid": self.child.pid, "started": stat.started, "boot_id": tree.boot_id()}

    def attend(self, *jobs: int) -> None:
        self.callers.attend(dict.fromkeys(jobs, self.caller))
        self.settle()

    def settle(self) -> None:
        """Until the roster's thread has done what it was told."""
        done = list[bool]()
        self.yard.roster.soon(lambda: done.append(True))
        until(lambda: done, "the roster")

    def pidfds(self) -> int:
        found = 0
        for name in os.listdir("/proc/self/fdinfo"):
            try:
                found += f"Pid:\t{self.child.pid}\n" in Path(f"/proc/self/fdinfo/{name}").read_text()
            except OSError:
                continue
        return found

    def close(self) -> None:
        self.child.kill()
        self.child.communicate()
        until(lambda: not self.pidfds(), "its descriptor let go")
        self.yard.end()


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(tmp_path)
    yield made
    made.close()


def test_a_process_has_one_descriptor_however_many_commands_it_calls_and_none_when_they_have_ended(
    waiting: Waiting,
) -> None:
    waiting.attend(1, 2, 3)
    waiting.attend(3)
    assert waiting.pidfds() == 1
    for job, state in ((1, "succeeded"), (2, "cancelled"), (3, "queued"), (3, "running")):
        waiting.callers.done(job, state)
    waiting.settle()
    assert waiting.pidfds() == 1
    waiting.callers.done(3, "failed")
    waiting.settle()
    assert waiting.pidfds() == 0 and waiting.told == []


def test_when_it_goes_everything_that_it_calls_is_deserted_and_nothing_else(waiting: Waiting) -> None:
    waiting.attend(1, 2, 3)
    waiting.callers.done(2, "succeeded")
    waiting.settle()
    waiting.child.kill()
    until(lambda: len(waiting.told) == 2, "the news")
    text = f"its caller, process {waiting.child.pid}, has gone"
    assert waiting.told == [Deserted(1, text), Deserted(3, text)]
    waiting.child.wait()
    waiting.attend(4)
    assert waiting.told[2:] == [Deserted(4, text)]


@pytest.mark.parametrize("wrong", [{"started": 1.0}, {"boot_id": "another"}, {"pid": 2**22 - 1}])
def test_a_caller_that_is_not_that_very_process_has_gone(waiting: Waiting, wrong: dict[str, Any]) -> None:
    waiting.caller |= wrong
    waiting.attend(1)
    assert [event.job_id for event in waiting.told] == [1] and waiting.pidfds() == 0


@pytest.mark.parametrize("missing", ["pidfd_open", "/boot_id", "/stat"])
def test_without_a_descriptor_to_look_by_nobody_is_taken_for_gone(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """EMFILE: the process is full, whoever calls lives."""
    full, asked = [True], list[object]()
    module, name = (os, "pidfd_open") if missing == "pidfd_open" else (tree, "open")
    whole = os.pidfd_open if missing == "pidfd_open" else open

    def opened(what: Any, *more: Any, **options: Any) -> Any:
        if name == "open" and not str(what).endswith(missing):
            return whole(what, *more, **options)
        asked.append(what)
        if full[0]:
            raise OSError(24, "Too many open files")
        return whole(what, *more, **options)

    monkeypatch.setattr(callers, "AGAIN_S", 0.05)
    monkeypatch.setattr(module, name, opened, raising=False)
    waiting.attend(1)
    until(lambda: len(asked) > 1, "a second look")
    full[0] = False
    until(lambda: waiting.pidfds() == 1, "the watch")
    assert waiting.told == []


def test_a_command_that_ends_while_its_caller_cannot_be_looked_at_is_looked_for_no_more(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def full(pid: int) -> int:
        asked.append(pid)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(callers, "AGAIN_S", 0.02)
    monkeypatch.setattr(os, "pidfd_open", full)
    waiting.attend(1)
    waiting.callers.done(1, "cancelled")
    waiting.settle()
    looked, timers = len(asked), waiting.yard.roster._timers
    until(lambda: not timers, "the last timer")
    assert len(asked) <= looked + 1 and waiting.told == []
