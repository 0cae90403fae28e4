"""Schedulers that are stopped or killed: taken over by who needs one, told from strangers, swept up after."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from driven import Queue, eventually
from mounts import mounted
from queues import child, ended, writing

from scheduler.cli import asking, starting, stopping, takeover
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.host.workers import tree
from scheduler.store import intake

HOLD = """
import fcntl, os
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("in", flush=True)
sys.stdin.readline()
"""


@contextmanager
def stranger(paths: Paths) -> Iterator[int]:
    """The pid of a process that holds the scheduler's lock and never answers."""
    os.makedirs(paths.lock_scheduler, exist_ok=True)
    other = child(HOLD, paths.lock_scheduler)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    yield other.pid
    assert ended(other)[0] == 0, "it was ended"


def files_of_the_database(queue: Queue) -> list[str]:
    return [path.name for path in queue.home.iterdir() if path.name.startswith("queue.db-")]


def killed(queue: Queue) -> None:
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    eventually(lambda: not queue.status()["scheduler"]["running"], what="the lock is free")


def test_run_takes_over_a_scheduler_that_is_stopped(queue: Queue) -> None:
    queue.provider()
    queue("up")
    old = queue.scheduler_pid()
    os.kill(old, signal.SIGSTOP)
    done = queue("run", "echo", queue.input(say="hi"), timeout=60)
    assert done.code == 0 and done.json["said"] == "hi", done
    assert f"scheduler {old} is stopped" in done.err
    assert queue.scheduler_pid() != old


def test_up_and_down_say_what_to_do_with_a_stopped_scheduler_at_once(queue: Queue) -> None:
    queue("up")
    old = queue.scheduler_pid()
    os.kill(old, signal.SIGSTOP)
    for verb in ("up", "down", "restart"):
        done = queue(verb, timeout=20)
        assert done.code == 75 and f"kill -CONT {old}" in done.err and "up --takeover" in done.err, done
    os.kill(old, signal.SIGCONT)
    assert queue("down").code == 0


def test_a_takeover_ends_the_scheduler_of_its_own_queue_only(tmp_path: Path) -> None:
    """Two queues on two filesystems whose locks have one inode number, as on fresh disks."""
    with mounted(tmp_path / "one") as one, mounted(tmp_path / "two") as two:
        queues = [Queue(one), Queue(two)]
        try:
            for queue in queues:
                assert queue("up").code == 0
            inodes = {os.stat(queue.home / "lock" / "scheduler").st_ino for queue in queues}
            assert len(inodes) == 1
            for mine, other in (queues, queues[::-1]):
                old, healthy = mine.scheduler_pid(), other.scheduler_pid()
                os.kill(old, signal.SIGSTOP)
                done = mine("up", "--takeover")
                assert done.code == 0 and str(old) in done.err, done
                assert psutil.pid_exists(healthy) and other.scheduler_pid() == healthy
                assert mine.scheduler_pid() != old
        finally:
            for queue in queues:
                queue("down", "--now")
                for process in queue.processes():
                    process.kill()
                    process.wait(10)


def test_a_stranger_that_holds_the_lock_is_named_and_not_ended(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue("up")
    queue("down")
    paths = Paths(str(queue.home))
    monkeypatch.setattr(asking, "SILENT_S", 0.3)
    with stranger(paths) as pid, pytest.raises(Temporary, match=f"process {pid} .*nothing was ended"):
        takeover.take_over(paths)


@pytest.mark.parametrize("lie", ["", "boot", "start", "ended", "older"])
def test_only_the_newest_scheduler_of_this_boot_is_ended(
    tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "SILENT_S", 0.3)
    paths = Paths(str(tmp_path / "queue"))
    intake.submit(paths, [{"slug": "boltz", "name": "a", "data": b"{}", "params": {}, "revision": "r"}])
    other = child(HOLD, paths.lock_scheduler)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    stat = tree.stat_of(other.pid)
    assert stat is not None
    boot = "another" if lie == "boot" else tree.boot_id()
    started = stat.started + (1.0 if lie == "start" else 0.0)
    insert = "INSERT INTO schedulers (pid, started, boot_id, host_id, version, started_at, ended_at)"
    with writing(paths) as connection:
        gone = "2026-01-01T00:00:00.000Z" if lie == "ended" else None
        connection.execute(f"{insert} VALUES (?, ?, ?, 'h', '1', '2026', ?)", (other.pid, started, boot, gone))
        if lie == "older":
            connection.execute(f"{insert} VALUES (1, 1.0, ?, 'h', '1', '2026', NULL)", (boot,))
    if lie:
        with pytest.raises(Temporary, match=f"process {other.pid} .*nothing was ended"):
            takeover.take_over(paths)
        assert ended(other)[0] == 0
    else:
        takeover.take_over(paths)
        assert ended(other)[0] == -signal.SIGKILL


def test_run_waits_for_a_silent_scheduler_with_a_word_and_then_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(str(tmp_path / "queue"))
    monkeypatch.setattr(asking, "SILENT_S", 0.3)
    with stranger(paths) as pid:
        intake.submit(paths, [{"slug": "boltz", "name": "a", "data": b"{}", "params": {}, "revision": "r"}])
        with pytest.raises(Temporary, match=f"process {pid} "):
            starting.ensure(paths)
        assert f"scheduler {pid} does not answer yet: waiting" in capfd.readouterr().err


@pytest.mark.parametrize("long", [False, True])
def test_down_after_a_killed_scheduler_leaves_no_socket_and_no_log_of_the_database(queue: Queue, long: bool) -> None:
    if long:
        queue.home = queue.folder / ("d" * 90) / "home"
        queue.env["SCHEDQ_HOME"] = str(queue.home)
    run = Path(Paths(str(queue.home)).run)
    assert (run.parent == Path("/tmp")) == long
    queue("up")
    killed(queue)
    dead = Path(Paths(str(queue.home)).worker(7))
    dead.mkdir()
    code = f"import socket; socket.socket(socket.AF_UNIX).bind({str(run / '7.k')!r})"
    assert ended(child(code))[0] == 0
    assert (run / "wake").exists() and (run / "7.k").exists() and files_of_the_database(queue)
    done = queue("down")
    assert done.code == 0, done
    assert not run.exists() if long else list(run.iterdir()) == []
    assert files_of_the_database(queue) == []
    assert queue("up").code == 0
    assert queue("down").code == 0
    assert not run.exists() if long else list(run.iterdir()) == []
    assert files_of_the_database(queue) == []


def test_down_leaves_the_address_of_a_scheduler_that_runs_and_a_log_that_is_in_use(queue: Queue) -> None:
    queue("up")
    paths = Paths(str(queue.home))
    stopping.tidy(paths)
    assert os.path.exists(paths.wake_socket)
    assert asking.answering(paths) is not None
    killed(queue)
    with writing(paths) as connection:
        connection.execute("SELECT count(*) FROM jobs").fetchall()
        reader = child(
            "import sqlite3; c = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True, isolation_level=None);"
            "c.execute('BEGIN'); c.execute('SELECT * FROM queue').fetchall(); print('in', flush=True);"
            "sys.stdin.readline(); print(c.execute('SELECT count(*) FROM jobs').fetchone()[0])",
            paths.database,
        )
        assert reader.stdout is not None and reader.stdout.readline() == "in\n"
    assert queue("down").code == 0
    assert files_of_the_database(queue), "a reader has it open"
    code, out, _ = ended(reader)
    assert code == 0 and out.strip() == "0"


def test_an_emptied_database_is_refused_by_submit_status_and_up(queue: Queue) -> None:
    queue.provider()
    assert queue("submit", "echo", queue.input()).code == 0
    (queue.home / "queue.db").write_bytes(b"")
    (queue.home / "results" / "1").mkdir()
    for words in (("submit", "echo", queue.input()), ("status",), ("up",)):
        done = queue(*words)
        assert done.code == 3 and "0 bytes" in done.err and "backup" in done.err, done
    assert (queue.home / "queue.db").stat().st_size == 0


def test_submit_and_status_say_that_the_scheduler_is_stopped(queue: Queue) -> None:
    queue.provider()
    queue("up")
    pid = queue.scheduler_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        for told in (queue("submit", "echo", queue.input()), queue("status")):
            assert told.code == 0 and f"scheduler {pid} is stopped" in told.err, told
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_database_that_is_deleted_under_a_scheduler_is_said_to_be_lost_and_down_is_still_down(queue: Queue) -> None:
    queue.provider()
    assert queue("run", "echo", queue.input()).code == 0
    (queue.home / "queue.db").unlink()
    for words in (("wait", "1"), ("status",), ("submit", "echo", queue.input())):
        done = queue(*words)
        assert done.code == 3 and "queue.db is not there" in done.err and "backup" in done.err, done
    assert queue("down", "--now", timeout=90).code == 0
    assert queue.processes() == []


def test_up_on_a_full_disk_says_so_with_figures_though_its_log_takes_no_words(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        queue = Queue(disk)
        queue("submit", "nothing", "nowhere")
        assert queue("up").code == 0 and queue("down").code == 0
        with suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        for log in (queue.home / "scheduler.log", None):
            if log is None:
                (queue.home / "scheduler.log").unlink()
                with suppress(OSError), open(disk / "filler", "ab", buffering=0) as filler:
                    while filler.write(b"x" * 4096):
                        pass
            done = queue("up")
            assert done.code == 75 and "0.0 MiB are left" in done.err and "free some space" in done.err, done


def test_who_looks_and_who_waits_is_told_that_the_disk_of_the_scheduler_is_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        queue = Queue(disk)
        queue.provider()
        assert queue("up").code == 0 and queue("run", "echo", queue.input()).code == 0
        with suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        going = queue.start("down", "--now")
        try:
            eventually(lambda: "MiB are left" in queue("status").err, within_s=60, what="status says it")
        finally:
            (disk / "filler").unlink()
            _, said = going.communicate(timeout=60)
        assert going.returncode == 0 and "cannot be written" in said and "MiB are left" in said, said
