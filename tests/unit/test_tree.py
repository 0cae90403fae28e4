"""Who belongs to a worker: by mark, by session, by parent; and never by a pid alone."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import until

from scheduler.config import Paths
from scheduler.host.workers import tree
from scheduler.host.workers.protocol import agreed, claim_of
from scheduler.host.workers.records import sweep

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    env = {"SCHEDQ_WORKER": "q:5"}
    with subprocess.Popen(SLEEP, env=env, start_new_session=True, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_itself_only_with_its_start(child: subprocess.Popen[str]) -> None:
    stat = tree.stat_of(child.pid)
    assert stat is not None
    assert tree.is_alive(child.pid, stat.started)
    assert not tree.is_alive(child.pid, stat.started + 1)
    assert not tree.is_alive(None, None)
    tree.signal_all([tree.Stat(child.pid, "S", 1, 1, stat.started - 1)], 9)
    time.sleep(0.05)
    assert child.poll() is None
    tree.signal_all([stat], 9)
    assert child.wait(10) == -9


def test_a_zombie_is_not_alive(child: subprocess.Popen[str]) -> None:
    stat = tree.stat_of(child.pid)
    assert stat is not None
    os.kill(child.pid, 9)
    until(lambda: tree.stat_of(child.pid).state == "Z", "the zombie")  # type: ignore[union-attr]
    assert not tree.is_alive(child.pid, stat.started)
    assert tree.members("q", 5) == []
    assert child.pid not in [s.pid for s in tree.below(os.getpid())]


def test_members_are_found_by_mark_and_by_session(child: subprocess.Popen[str]) -> None:
    stat = tree.stat_of(child.pid)
    assert stat is not None
    assert [s.pid for s in tree.members("q", 5)] == [child.pid]
    assert tree.members("q", 55) == []
    assert [s.pid for s in tree.members("other", 1, child.pid, stat.started)] == [child.pid]
    assert tree.members("other", 1, child.pid, stat.started - 1) == []


def test_a_lock_is_seen_without_being_taken(tmp_path: Path) -> None:
    assert not tree.is_held(str(tmp_path))
    assert not tree.is_held(str(tmp_path / "none"))
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert tree.is_held(str(tmp_path))
    assert tree.alive(str(tmp_path), "q", 77)
    os.close(lock)
    assert not tree.alive(str(tmp_path), "q", 77)


def test_a_leader_of_another_boot_is_none(tmp_path: Path) -> None:
    noted = {"pid": 1, "started": 5.0, "boot_id": tree.boot_id()}
    (tmp_path / "leader.json").write_text(json.dumps(noted))
    assert tree.leader_of(str(tmp_path)) == (1, 5.0)
    (tmp_path / "leader.json").write_text(json.dumps({**noted, "boot_id": "x"}))
    assert tree.leader_of(str(tmp_path)) is None
    (tmp_path / "leader.json").write_text("{")
    assert tree.leader_of(str(tmp_path)) is None


def test_a_claim_is_read_back_as_it_was_written() -> None:
    argv = ["py", "k.py", "--schedq-keeper", "worker=1", "charge=device:a:1.0", "charge=host:2.0", "variant=", "/w/1"]
    claim = claim_of(argv)
    assert claim == {"worker": "1", "charge": "device:a:1.0 host:2.0", "variant": "", "folder": "/w/1"}
    assert claim_of(["py", "k.py"]) is None


@pytest.mark.parametrize(("theirs", "spoken"), [(1, 1), (0, 0), (2, None), ("1", None), (None, None)])
def test_two_sides_speak_a_number_that_both_know(theirs: object, spoken: int | None) -> None:
    assert agreed(theirs) == spoken


def test_a_sweep_reads_the_process_table_once_whatever_lies_there(
    child: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, right, reads = Paths(str(tmp_path)), tree.everyone, []
    for worker in (5, 1001, 1002, 1003):
        os.makedirs(paths.worker(worker))
    stat = tree.stat_of(child.pid)
    assert stat is not None
    leader = {"pid": stat.session, "started": 0.0, "boot_id": tree.boot_id()}
    Path(paths.worker(1003), "leader.json").write_text(json.dumps(leader))  # a number that is somebody else's by now
    monkeypatch.setattr(tree, "everyone", lambda: reads.append(1) or right())
    sweep(paths, "q", older_than_s=-1.0)
    assert os.listdir(paths.workers) == ["5"]
    assert len(reads) == 1


KEEPS = """
import subprocess, sys, time
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(below.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def keeper(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """A process that claims to be a keeper, of the kind that is asked for, and one that it started: their pids."""
    argv = [
        sys.executable,
        "-c",
        KEEPS,
        "--schedq-keeper",
        "worker=9",
        "queue=q",
        f"kind={request.param}",
        "/h/workers/9",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        below = int(process.stdout.readline())
        yield process.pid, below
        os.kill(below, 9)
        process.kill()


@pytest.mark.parametrize("keeper", ["f"], indirect=True)
def test_a_process_is_in_the_room_of_the_keeper_above_it_and_who_started_that_is_not(keeper: tuple[int, int]) -> None:
    assert [claim["folder"] for claim in tree.rooms_around(keeper[1])] == ["/h/workers/9"]
    assert [claim for claim in tree.rooms_around(os.getpid()) if claim["folder"] == "/h/workers/9"] == []


@pytest.mark.parametrize("keeper", ["l"], indirect=True)
def test_a_process_that_has_room_for_itself_and_what_it_starts_are_in_it(
    keeper: tuple[int, int], child: subprocess.Popen[str]
) -> None:
    for pid in (os.getpid(), child.pid):
        assert "/h/workers/9" in [claim["folder"] for claim in tree.rooms_around(pid)]
