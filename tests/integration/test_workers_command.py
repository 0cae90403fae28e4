"""The keeper of a command whose caller started it: when it begins, and what the caller's signals are to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import QUEUE, Yard, until

from scheduler.host.workers import command, tree
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.spawn import keeper_argv
from scheduler.model.command import EXEC, Shape
from scheduler.model.host import Answered, Gone, Park, Shown

ORDER = Park(1, EXEC, Shape(0.0, 0.1, 0, 1, False, "f", "a").variant(), "", "oneshot", {"host": 0.1}, {"host": 1})


class Caller:
    """This process as one that starts a keeper for a command of its own."""

    def __init__(self, yard: Yard, kind: str = "f") -> None:
        self.yard, self.heard = yard, b""
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(10)
        yard.ids.add(1)
        yard.roster.expect(ORDER)
        folder, control = yard.paths.worker(1), os.path.join(yard.paths.run, "1.k")
        until(lambda: os.path.isdir(folder), "the worker's folder")
        argv = keeper_argv(ORDER, QUEUE, control, folder)
        argv[-1:-1] = [f"caller={theirs.fileno()}", f"group={os.getpgrp()}", f"kind={kind}"]
        theirs.set_inheritable(True)
        self.keeper = os.posix_spawn(argv[0], argv, os.environ, setpgroup=0, setsigmask=[])
        theirs.close()
        yard.ear.wait(Shown)
        yard.roster.go(1, Launch([], {}, "/", mode="oneshot", stop_grace_s=1.0))
        yard.ear.wait(Answered)

    def say(self, **what: Any) -> None:
        self.ours.sendall(json.dumps(what).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        while b"\n" not in self.heard:
            self.heard += self.ours.recv(1 << 16)
        line, _, self.heard = self.heard.partition(b"\n")
        return json.loads(line)

    def begin(self) -> Path:
        """The order to begin; where the attempt's end will be."""
        folder = Path(self.yard.paths.attempt(7, 1))
        folder.mkdir(parents=True)
        reply = folder.with_name("1.json")
        self.yard.roster.send(1, 7, 1, {}, reply_path=str(reply), log_path="", argv=[], cwd="/", env={}, devices=[])
        until(lambda: self.state() == "busy", "the order to begin")
        return reply

    def state(self) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(os.path.join(self.yard.paths.run, "1.k"))
            return json.loads(sock.makefile("rb").readline())["state"]

    def close(self) -> None:
        self.ours.close()
        until(lambda: tree.stat_of(self.keeper) is None or os.waitpid(self.keeper, os.WNOHANG)[0], "the keeper's end")


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    yard = Yard(tmp_path / "home")
    made = Caller(yard)
    yield made
    made.close()
    yard.end()


def test_a_command_whose_caller_is_slow_to_name_it_begins_when_it_is_named(caller: Caller) -> None:
    reply = caller.begin()
    time.sleep(0.5)
    assert caller.yard.ear.none(Stored) and caller.yard.ear.none(Gone)
    caller.say(argv=["sh", "-c", "exit 7"])
    assert caller.hear().keys() == {"started"}
    assert caller.hear()["exit"] == 7
    stored = caller.yard.ear.wait(Stored)
    assert not stored.no_reply and json.loads(reply.read_bytes())["exit_code"] == 7


def test_a_command_that_is_never_named_gives_its_room_back_as_one_that_never_began(caller: Caller) -> None:
    since_s, reply = time.monotonic(), caller.begin()
    gone = caller.yard.ear.wait(Gone)
    assert command.UNSAID_S - 0.5 < time.monotonic() - since_s < command.UNSAID_S + 10.0
    assert gone.begun is None and "did not say" in gone.why, gone
    assert not reply.exists()


NOTES = """
import os, signal, sys
if sys.argv[2] == "own":
    os.setpgid(0, 0)
def note(number, _frame):
    with open(sys.argv[1], "a") as file:
        file.write(f"{who} {number}\\n")
for number in (signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, note)
who = "leader"
ready, begun = os.pipe()
if os.fork() == 0:
    who = "child"
    os.write(begun, b".")
else:
    os.read(ready, 1)
    note(0, None)
while True:
    signal.pause()
"""
"""A command with a child; both note which signals came to them."""


@pytest.mark.parametrize("own", [False, True])
def test_a_terminals_signal_is_passed_on_to_a_group_of_the_commands_own_and_to_no_other(
    caller: Caller, tmp_path: Path, own: bool
) -> None:
    caller.begin()
    notes = tmp_path / "notes"
    caller.say(argv=[sys.executable, "-c", NOTES, str(notes), "own" if own else "its caller's"])
    assert "started" in caller.hear()
    until(notes.exists, "the command's start")
    caller.say(signal=int(signal.SIGINT), terminal=True)
    if own:
        until(lambda: notes.read_text().count(f" {int(signal.SIGINT)}") == 2, "the terminal's signal at both")
    caller.say(signal=int(signal.SIGUSR1), terminal=False)
    until(lambda: f"leader {int(signal.SIGUSR1)}" in notes.read_text(), "the caller's signal at the leader")
    said = sorted(notes.read_text().split("\n"))
    whole = [f"{who} {int(signal.SIGINT)}" for who in ("leader", "child")] if own else []
    assert said == sorted(["", "leader 0", f"leader {int(signal.SIGUSR1)}", *whole])
