"""What an operator says of a holder that nobody declared: kept whole, of one process for good, and cheap to ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler import strangers
from scheduler.cli import declaring
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.errors import SchedqError, Temporary, UsageError
from scheduler.strangers import Declared, Strangers

AT = "2026-11-29T12:00:00.000000Z"
NAMED = Declared("alphafold", None, None, "", 24.0, 2.0, AT, "ada")


def of_pid(pid: int, started: float, vram: float = 8.0, boot: str = "") -> Declared:
    return Declared("", pid, started, boot or strangers.boot_id(), vram, 1.0, AT, "ada")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until the test has ended."""
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.communicate()


def say(paths: Paths, monkeypatch: pytest.MonkeyPatch, **values: object) -> int:
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    return declaring.declare(Call("machine declare", values))


def test_nothing_is_declared_before_anything_was(paths: Paths) -> None:
    assert strangers.declared(paths) == ()
    assert Strangers(paths).budget_of("alphafold", os.getpid(), 1.0) is None


def test_what_is_declared_is_kept_and_said_anew_it_replaces(paths: Paths) -> None:
    strangers.declare(paths, NAMED)
    strangers.declare(paths, of_pid(7, 99.0))
    strangers.declare(paths, replace(NAMED, vram_gib=30.0))
    assert strangers.declared(paths) == (of_pid(7, 99.0), replace(NAMED, vram_gib=30.0))
    assert strangers.remove(paths, "pid 7") == (of_pid(7, 99.0),)
    assert strangers.remove(paths, "pid 7") == ()
    assert [each.slug for each in strangers.declared(paths)] == ["alphafold"]


def test_the_file_is_for_its_owner_alone_and_nothing_is_left_beside_it(paths: Paths) -> None:
    strangers.declare(paths, NAMED)
    assert os.stat(strangers.file_of(paths)).st_mode & 0o777 == 0o600
    assert os.listdir(paths.home) == ["strangers.json"]


def test_a_process_counts_only_as_the_one_that_was_meant(paths: Paths) -> None:
    strangers.declare(paths, of_pid(7, 99.0))
    asked = Strangers(paths)
    assert asked.budget_of("", 7, 99.0) == (8.0, 1.0)
    assert asked.budget_of("", 7, 100.0) is None, "a later process of that pid"
    assert asked.budget_of("", 8, 99.0) is None
    assert asked.budget_of("", 7, None) is None
    assert Strangers(paths, boot=lambda: "another boot").budget_of("", 7, 99.0) is None


def test_what_is_said_of_a_process_goes_before_what_is_said_of_its_name(paths: Paths) -> None:
    strangers.declare(paths, NAMED)
    strangers.declare(paths, of_pid(7, 99.0))
    asked = Strangers(paths)
    assert asked.budget_of("alphafold", 7, 99.0) == (8.0, 1.0)
    assert asked.budget_of("alphafold", 8, 99.0) == (24.0, 2.0)
    assert asked.budget_of("alphafold2", 8, 99.0) is None
    assert asked.budget_of("", None, None) is None


def test_a_change_is_seen_at_the_next_look_and_nothing_is_read_before(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers.declare(paths, NAMED)
    reads: list[str] = []
    real = strangers.readable.read
    monkeypatch.setattr(strangers.readable, "read", lambda path, most: reads.append(path) or real(path, most))
    asked = Strangers(paths)
    for _ in range(50):
        assert asked.budget_of("alphafold", 8, 1.0) == (24.0, 2.0)
    assert len(reads) == 1
    strangers.declare(paths, replace(NAMED, vram_gib=25.0))
    reads.clear()
    assert asked.budget_of("alphafold", 8, 1.0) == (25.0, 2.0) and len(reads) == 1
    os.unlink(strangers.file_of(paths))
    assert asked.budget_of("alphafold", 8, 1.0) is None


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b'{"schema_version": 2, "declared": []}',
    b'{"schema_version": 1, "declared": {}}',
    b'{"schema_version": 1, "declared": [7]}',
    b'{"schema_version": 1, "declared": [{"slug": "a"}]}',
    b"[" * 200_000,
    *(
        json.dumps({"schema_version": 1, "declared": [{**vars(NAMED), **over}]}).encode()
        for over in (
            {"vram_gib": float("nan")}, {"vram_gib": -1}, {"ram_gib": True}, {"ram_gib": 1e300}, {"slug": ""},
            {"slug": 7}, {"pid": 7}, {"slug": "", "pid": 7}, {"slug": "", "pid": True, "started": 1.0},
            {"slug": "", "pid": -7, "started": 1.0}, {"user": None},
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_is_named_and_left_as_it_is_whatever_is_asked(paths: Paths, data: bytes) -> None:
    os.makedirs(paths.home)
    file = Path(strangers.file_of(paths))
    file.write_bytes(data)
    for ask in (
        lambda: strangers.declared(paths),
        lambda: strangers.declare(paths, NAMED),
        lambda: strangers.remove(paths, "alphafold"),
    ):
        with pytest.raises(UsageError) as caught:
            ask()
        told = str(caught.value)
        assert str(file) in told and "correct it, or move it away" in told and len(told) < len(str(file)) + 300
    assert file.read_bytes() == data
    asked = Strangers(paths)
    assert asked.budget_of("alphafold", 7, 99.0) is None and str(file) in asked.trouble


def test_a_file_that_breaks_while_a_scheduler_runs_takes_nothing_back(paths: Paths) -> None:
    strangers.declare(paths, NAMED)
    asked = Strangers(paths)
    assert asked.budget_of("alphafold", 8, 1.0) == (24.0, 2.0) and not asked.trouble
    Path(strangers.file_of(paths)).write_text("{")
    assert asked.budget_of("alphafold", 8, 1.0) == (24.0, 2.0)
    assert "not what schedq wrote" in asked.trouble
    os.unlink(strangers.file_of(paths))
    strangers.declare(paths, replace(NAMED, ram_gib=3.0))
    assert asked.budget_of("alphafold", 8, 1.0) == (24.0, 3.0) and not asked.trouble


@pytest.mark.parametrize("made", ["pipe", "folder", "large"])
def test_what_is_no_file_of_ours_is_not_waited_for(paths: Paths, made: str) -> None:
    os.makedirs(paths.home)
    file = Path(strangers.file_of(paths))
    if made == "pipe":
        os.mkfifo(file)
    elif made == "folder":
        file.mkdir()
    else:
        file.write_bytes(b" " * (strangers.MOST_BYTES + 1))
    with pytest.raises(UsageError, match=r"strangers\.json (is a pipe|is a folder|has 1048577 bytes)"):
        strangers.declared(paths)
    assert Strangers(paths).budget_of("a", 1, 1.0) is None


def test_two_who_declare_at_once_lose_nothing(paths: Paths) -> None:
    def many(first: int) -> None:
        for pid in range(first, first + 20):
            strangers.declare(paths, of_pid(pid, 1.0, boot="b"))

    threads = [threading.Thread(target=many, args=(first,)) for first in (100, 200, 300)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(strangers.declared(paths)) == 60


def test_one_who_keeps_the_file_is_not_waited_for_for_ever(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "PATIENCE_S", 0.01)
    strangers.declare(paths, NAMED)
    lock = strangers.locks.take(paths.home)
    assert lock is not None
    with pytest.raises(Temporary, match="try again"):
        strangers.declare(paths, NAMED)
    strangers.locks.let_go(lock)


def test_a_write_that_fails_leaves_what_was_there(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    strangers.declare(paths, NAMED)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(strangers.os, "fsync", full)
        with pytest.raises(
            Temporary, match=r"strangers\.json cannot be written .No space left on device.; nothing was"
        ):
            say(paths, monkeypatch, who="boltz", vram="1")
    assert strangers.declared(paths) == (NAMED,) and os.listdir(paths.home) == ["strangers.json"]


def test_a_living_process_is_declared_and_told_who_it_is(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    assert say(paths, monkeypatch, who=str(child.pid), vram="24", ram="0.5") == 0
    told = capfd.readouterr()
    assert f"pid {child.pid} (" in told.out and "import sys" in told.out and "24.00 GiB" in told.out
    assert "a scheduler that runs looks every few seconds" in told.err
    started = strangers.started_of(child.pid)
    assert started is not None
    assert Strangers(paths).budget_of("python", child.pid, started) == (24.0, 0.5)
    assert say(paths, monkeypatch, json=True) == 0
    [row] = json.loads(capfd.readouterr().out)["declared"]
    assert (row["pid"], row["slug"], row["vram_gib"], row["ram_gib"], row["gone"]) == (
        child.pid,
        None,
        24.0,
        0.5,
        False,
    )
    child.kill()
    child.wait()
    assert say(paths, monkeypatch) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1].endswith(", gone") and max(map(len, lines)) <= 80
    assert say(paths, monkeypatch, who=str(child.pid), remove=True) == 0
    assert strangers.declared(paths) == ()


def test_a_process_that_is_not_there_a_zombie_and_a_thread_are_refused(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(UsageError, match=f"no process {ended.pid} lives here"):
        say(paths, monkeypatch, who=str(ended.pid), vram="1")
    ended.wait()
    with pytest.raises(UsageError, match=f"no process {ended.pid} lives here"):
        say(paths, monkeypatch, who=str(ended.pid), vram="1")
    ready, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), over.wait()))
    thread.start()
    ready.wait()
    try:
        with pytest.raises(UsageError, match=f"is a thread of process {os.getpid()}"):
            say(paths, monkeypatch, who=str(thread.native_id), vram="1")
    finally:
        over.set()
        thread.join()
    assert not os.path.exists(strangers.file_of(paths))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"who": "boltz"}, "needs --vram GIB or --ram GIB"),
        ({"who": "boltz", "vram": "nan"}, "--vram 'nan' is no amount of memory; write GiB as a number from 0"),
        ({"who": "boltz", "ram": "inf"}, "--ram 'inf' is no amount"),
        ({"who": "boltz", "ram": "-1"}, "--ram '-1' is no amount"),
        ({"who": "boltz", "vram": "24GiB"}, "--vram '24GiB' is no amount"),
        ({"who": "boltz", "vram": "1e12"}, "from 0 to 1073741824"),
        ({"who": "a/b", "vram": "1"}, "'a/b' is neither a process id nor a holder's name"),
        ({"who": "boltz@tree", "vram": "1"}, "leave @tree out"),
        ({"who": "-7", "vram": "1"}, "neither a process id"),
        ({"who": "9" * 30, "vram": "1"}, "neither a process id"),
        ({"who": "b" * 65, "vram": "1"}, "neither a process id"),
        ({"who": "", "vram": "1"}, "neither a process id"),
        ({"vram": "1"}, "needs PID|SLUG"),
        ({"remove": True}, "needs PID|SLUG"),
        ({"who": "boltz", "remove": True, "vram": "1"}, "--remove takes no --vram and no --ram"),
        ({"who": "boltz", "remove": True}, "boltz is not declared; declared: nothing is"),
    ],
)
def test_a_call_that_says_nothing_clear_is_refused_in_words(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, values: dict[str, object], says: str
) -> None:
    with pytest.raises(SchedqError) as caught:
        say(paths, monkeypatch, **values)
    assert says in str(caught.value) and caught.value.exit_code == 2
    assert not os.path.exists(strangers.file_of(paths))


def test_a_name_that_a_manifest_declares_is_said_to_be_so(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert say(paths, monkeypatch, who="capiti", vram="0", ram="3") == 0
    told = capfd.readouterr()
    assert told.out == "capiti is declared: 0.00 GiB of devices and 3.00 GiB of the machine's memory\n"
    assert "capiti has a manifest here" in told.err
    assert say(paths, monkeypatch, who="capiti", remove=True, json=True) == 0
    assert [row["slug"] for row in json.loads(capfd.readouterr().out)["removed"]] == ["capiti"]


@pytest.mark.parametrize("key", ["vram_gib", "started"])
def test_a_number_of_400_digits_is_a_broken_file_and_stops_nobody(paths: Paths, key: str) -> None:
    row = {"slug": "", "pid": 7, "started": 1, "boot_id": "b", "vram_gib": 1, "ram_gib": 1, "at": "", "user": ""}
    text = json.dumps({"schema_version": 1, "declared": [{**row, key: "X"}]}).replace('"X"', "9" * 400)
    os.makedirs(paths.home, exist_ok=True)
    with open(strangers.file_of(paths), "w") as file:
        file.write(text)
    with pytest.raises(UsageError, match="not what schedq wrote"):
        strangers.declared(paths)
    there = strangers.Strangers(paths, boot=lambda: "b")
    assert there.budget_of("x", 7, 1.0) is None and "not what schedq wrote" in there.trouble
