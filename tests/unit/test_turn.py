"""The machine-wide turn: it spares retries where it can be had, and stands in nobody's way where it cannot."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.clock import monotonic_s
from scheduler.host import turn as turns
from scheduler.host.turn import Turn

PATIENCE_S = 20.0


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A file that everybody may read and nobody needs to write."""
    made = tmp_path / "machine-id"
    made.write_text("0123\n")
    made.chmod(0o444)
    return str(made)


@pytest.fixture
def turn(place: str) -> Iterator[Turn]:
    made = Turn(place)
    yield made
    made.close()


def begun(turn: Turn, worker_id: int) -> threading.Event:
    """What is set when that worker's start has begun."""
    there = threading.Event()
    turn.take(worker_id, there.set)
    return there


def is_free(place: str) -> bool:
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def soon_free(place: str) -> bool:
    until_s = monotonic_s() + PATIENCE_S
    while not is_free(place):
        if monotonic_s() > until_s:
            return False
        threading.Event().wait(0.005)
    return True


def test_the_turn_is_kept_from_a_start_until_the_last_of_those_is_done(turn: Turn, place: str) -> None:
    assert begun(turn, 1).wait(PATIENCE_S) and begun(turn, 2).wait(PATIENCE_S)
    assert not is_free(place)
    turn.done(1)
    assert not is_free(place)
    turn.done(2)
    assert soon_free(place)


def test_the_next_one_starts_when_the_one_before_is_done(turn: Turn, place: str) -> None:
    other = Turn(place)
    try:
        assert begun(turn, 1).wait(PATIENCE_S)
        waits = begun(other, 7)
        assert not waits.wait(0.1)
        turn.done(1)
        assert waits.wait(1.0)
    finally:
        other.close()


def test_a_worker_that_is_done_before_its_turn_is_not_started(turn: Turn, place: str) -> None:
    other = Turn(place)
    try:
        assert begun(turn, 1).wait(PATIENCE_S)
        never, later = begun(other, 7), begun(other, 8)
        other.done(7)
        turn.done(1)
        assert later.wait(PATIENCE_S) and not never.is_set()
    finally:
        other.close()


HOLDER = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
signal.pause()
"""


def test_a_stopped_holder_delays_one_start_by_the_wait_and_the_next_ones_not_at_all(
    turn: Turn, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "WAIT_S", 0.3)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, place], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        holder.send_signal(19)
        began_s = monotonic_s()
        assert begun(turn, 1).wait(PATIENCE_S)
        first_s = monotonic_s() - began_s
        assert begun(turn, 2).wait(PATIENCE_S)
        second_s = monotonic_s() - began_s - first_s
        assert first_s >= 0.3 > second_s
    finally:
        holder.kill()
        holder.communicate()
    assert begun(turn, 3).wait(PATIENCE_S)
    assert not is_free(place), "the holder has gone: this one has the turn"


def test_a_holder_that_is_slow_to_decide_keeps_it_no_longer_than_others_wait(
    turn: Turn, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "KEPT_S", 0.2)
    assert begun(turn, 1).wait(PATIENCE_S)
    assert soon_free(place)


def test_a_machine_without_the_file_goes_without_and_makes_none(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    turn = Turn(str(missing))
    try:
        assert begun(turn, 1).wait(PATIENCE_S)
        assert not missing.exists()
    finally:
        turn.close()


def test_a_filesystem_that_does_not_lock_for_readers_is_gone_without(
    turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, what: int) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert begun(turn, 1).wait(1.0)


@pytest.mark.skipif(os.getuid() != 0, reason="another user's process is started by root alone")
def test_another_users_lock_counts_and_needs_no_right_to_write(turn: Turn, open_folder: Path) -> None:
    place = open_folder / "machine-id"
    place.write_text("0123\n")
    place.chmod(0o444)
    turn.place = str(place)
    as_nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    as_nobody["env"] = {"PATH": "/usr/bin:/bin"}
    asker = (
        "import fcntl, os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "try:\n    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept BlockingIOError:\n    sys.exit(75)\n"
    )
    command = ["/usr/bin/env", "python3", "-c", asker, str(place)]
    free = subprocess.run(command, capture_output=True, text=True, **as_nobody)
    if free.returncode != 0:
        pytest.skip(f"no interpreter that another user may run: {free.stderr}")
    assert begun(turn, 1).wait(PATIENCE_S)
    assert subprocess.run(command, **as_nobody).returncode == 75
    turn.done(1)
    assert soon_free(str(place))
    assert subprocess.run(command, **as_nobody).returncode == 0


def test_nothing_is_kept_when_the_scheduler_lets_go(turn: Turn, place: str) -> None:
    assert begun(turn, 1).wait(PATIENCE_S)
    turn.close()
    assert soon_free(place)
