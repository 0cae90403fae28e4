"""The waits for a scheduler: each has an end, and says who is waited for, for how long, and what to do next."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import child, ended, submitted, writing

from scheduler import wake
from scheduler.__main__ import answer
from scheduler.app import SchedulerLock
from scheduler.cli import asking, starting, stopping
from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.errors import SchedqError, Temporary
from scheduler.host.doorbell import Doorbell
from scheduler.model.host import Asked, HostEvent
from scheduler.store import connection
from scheduler.store.identity import host_id

HOLD = """
import fcntl, os
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("in", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    for name in ("ANSWER_S", "SILENT_S", "HANDOVER_S"):
        monkeypatch.setattr(asking, name, 0.5)
    monkeypatch.setattr(asking, "LOOK_S", 0.01)
    made = Paths(str(tmp_path / "queue"))
    submitted(made)
    return made


class Serving:
    """A scheduler in this process: it answers, notes what it is told, and goes only when it is closed."""

    def __init__(self, paths: Paths, **says: Any) -> None:
        self.told: list[Asked] = []
        self.closed = False
        self.says = {"pid": os.getpid(), "epoch": 1, "quiet_s": 0.0, "leaving": "", **says}
        self.bell = Doorbell(paths, self._note, lambda: self.says)
        self.bell.open()

    def _note(self, event: HostEvent) -> None:
        if isinstance(event, Asked):
            self.told.append(event)
            self.says["leaving"] = event.op

    def close(self) -> None:
        """It listens no more."""
        if not self.closed:
            self.closed = True
            self.bell.close()


@pytest.fixture
def serving(paths: Paths) -> Iterator[Serving]:
    lock, made = SchedulerLock(paths), Serving(paths)
    yield made
    made.close()
    lock.release()


def test_an_answer_says_whether_the_scheduler_is_about_to_go(paths: Paths, serving: Serving) -> None:
    for op in ("down", "restart"):
        before = asking.answering(paths)
        assert before is not None and asking.leaves(before) == ""
        line = wake.Line(paths)
        told = line.ask(op=op)
        line.close()
        after = asking.answering(paths)
        assert told is not None and after is not None
        assert asking.leaves(told) == asking.leaves(after) == op
        serving.says["leaving"] = ""


def test_one_that_was_told_to_hand_over_and_stays_is_not_waited_for_for_ever(paths: Paths, serving: Serving) -> None:
    with pytest.raises(Temporary) as caught:
        stopping.leave(paths, "restart", now=False)
    said = str(caught.value)
    assert f"scheduler {os.getpid()} was told to go" in said and "still there" in said
    assert paths.scheduler_log in said and "schedq up" in said


def test_one_that_answers_without_the_lock_of_the_queue_is_named_with_who_has_it(paths: Paths) -> None:
    """The folder was removed and made anew: the old scheduler goes on to answer at the address of the new one."""
    other = child(HOLD, paths.lock_scheduler)
    assert other.stdout is not None and other.stdout.readline() == "in\n"
    serving = Serving(paths)
    try:
        with pytest.raises(Temporary, match=f"process {os.getpid()} answers .* process {other.pid} has its lock"):
            asking.outwait(paths, serving.says)
    finally:
        serving.close()
        ended(other)


def test_one_that_falls_silent_while_it_goes_is_not_waited_for_for_ever(paths: Paths, serving: Serving) -> None:
    serving.says["leaving"] = "down"
    told = asking.answering(paths)
    assert told is not None
    serving.close()
    with pytest.raises(Temporary, match=f"scheduler {os.getpid()} was told to go and has not answered .*--takeover"):
        asking.outwait(paths, told)


def test_one_that_has_the_place_of_who_was_waited_for_ends_the_wait(paths: Paths, serving: Serving) -> None:
    told = asking.answering(paths)
    assert told is not None
    serving.says["epoch"] = 2
    asking.outwait(paths, told)


def test_who_tells_it_to_go_learns_what_it_went_for(paths: Paths) -> None:
    """A `down` that a restart overtakes: it is not down."""
    lock, serving = SchedulerLock(paths), Serving(paths)
    line = wake.Line(paths)
    try:
        assert line.ask(5.0, op="down") is not None
        assert line.ask(5.0, op="ping") is not None, "by now the order was noted"
        serving.says["leaving"] = "restart"
        serving.close()
        assert line.hear(5.0) == {"left": "restart"}
    finally:
        line.close()
        lock.release()
    with pytest.raises(Temporary, match="not down: the scheduler handed over"):
        stopping.require_down(paths, "restart")
    stopping.require_down(paths, "down")


def test_down_says_that_another_scheduler_was_started_meanwhile(paths: Paths, serving: Serving) -> None:
    with pytest.raises(Temporary, match=f"not down: .* scheduler {os.getpid()} was started meanwhile"):
        stopping.require_down(paths)


class Obedient(Serving):
    """An earlier version's scheduler: it has the lock, and goes when it is told to."""

    def __init__(self, paths: Paths) -> None:
        self.lock = SchedulerLock(paths)
        self.going = threading.Thread(target=self.go)
        super().__init__(paths)

    def _note(self, event: HostEvent) -> None:
        super()._note(event)
        if isinstance(event, Asked):
            self.going.start()

    def go(self) -> None:
        self.close()
        self.lock.release()


@pytest.fixture
def older(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A queue whose schema is an earlier one's, and is the one that the verbs are about."""
    monkeypatch.setattr(connection, "REVISIONS", (*connection.REVISIONS, "9999"))
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    return paths


@pytest.mark.parametrize("flags", [[], ["--now"]])
def test_down_ends_the_scheduler_of_an_earlier_version_too(
    older: Paths, capfd: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    serving = Obedient(older)
    code, _fast = answer(["down", *flags])
    serving.going.join()
    said = capfd.readouterr().err
    assert (code, said.endswith("down\n")) == (0, True), said
    assert "cannot be seen" in said and [each.op for each in serving.told] == ["down"]


def test_up_beside_the_scheduler_of_an_earlier_version_says_what_hands_over(
    older: Paths, serving: Serving, capfd: pytest.CaptureFixture[str]
) -> None:
    assert answer(["up"])[0] == 0
    said = capfd.readouterr().err
    assert "already up" in said and "schedq restart" in said


FULL = "the queue cannot be written, trying again every second: the disk of /q took no more; 0.0 MiB are left"


def test_a_wait_says_once_what_its_scheduler_is_in_trouble_with(
    paths: Paths, serving: Serving, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "TROUBLE_S", 0.05)
    serving.says |= {"leaving": "down", "trouble": FULL}
    for _ in range(2):
        with pytest.raises(Temporary):
            asking.outwait(paths, serving.says, within_s=0.3)
        assert capfd.readouterr().err.count(f"scheduler {os.getpid()}: {FULL}\n") == 1
    serving.says["trouble"] = ""
    with pytest.raises(Temporary):
        asking.outwait(paths, serving.says, within_s=0.3)
    assert capfd.readouterr().err == ""


def test_status_says_what_the_scheduler_is_in_trouble_with_where_the_figures_are_old(
    paths: Paths, serving: Serving, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    serving.says["trouble"] = FULL
    for age_s, says in ((16, True), (0, False)):
        with writing(paths) as db:
            db.execute("DELETE FROM facts")
            at = stamp(now_s() - age_s)
            db.execute("INSERT INTO facts (host_id, at, snapshot) VALUES (?, ?, '{}')", (host_id(), at))
        assert answer(["status"])[0] == 0
        assert (FULL in capfd.readouterr().err) is says
    serving.says["trouble"] = ""
    assert answer(["status"])[0] == 0 and FULL not in capfd.readouterr().err


def test_a_glance_asks_once_and_is_over_soon_where_nobody_answers(paths: Paths, serving: Serving) -> None:
    serving.close()
    assert asking.glance(paths, None) == ""


def failed(code: int, paths: Paths) -> SchedqError:
    """What is said of a scheduler that ended so while it started."""
    Path(paths.scheduler_log).touch()
    return starting._failed(paths, code, os.stat(paths.scheduler_log).st_size)


@pytest.mark.parametrize(
    ("code", "words", "exit_code"),
    [(-9, "SIGKILL.*schedq up tries again", 75), (-15, "SIGTERM.*schedq up", 75), (-11, "SIGSEGV.*--foreground", 1)],
)
def test_a_scheduler_that_is_killed_while_it_starts_is_said_to_be_by_name(
    paths: Paths, code: int, words: str, exit_code: int
) -> None:
    error = failed(code, paths)
    assert error.exit_code == exit_code
    with pytest.raises(SchedqError, match=words):
        raise error


def test_a_scheduler_that_ends_without_a_word_leaves_one_in_the_log(paths: Paths) -> None:
    assert "exit status 1" in str(failed(1, paths)) and "--foreground" in str(failed(1, paths))
    assert "ended with exit status 1" in Path(paths.scheduler_log).read_text()


def test_its_last_words_are_said(paths: Paths) -> None:
    before = os.stat(paths.scheduler_log).st_size if os.path.exists(paths.scheduler_log) else 0
    with open(paths.scheduler_log, "a") as file:
        file.write("schedq: the disk is full\n")
    error = starting._failed(paths, 75, before)
    assert error.exit_code == 75 and "did not start: the disk is full (all of it: " in str(error)
