"""`schedq log`: what the worker wrote for a job, also when it never came up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import AT, asking, scheduler, submitted

from scheduler.cli import following, reading
from scheduler.config import Paths
from scheduler.errors import SchedulerDown
from scheduler.model.outcome import Outcome
from scheduler.store import queue, reasons, workers
from scheduler.store.engine import Store

Ask = Callable[..., tuple[int, str, str]]
BROKEN = "boltz failed 2 times in a row; the last error: No module named 'torch'"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Paths(str(tmp_path / "home"))
    submitted(made)
    return made


@pytest.fixture
def ask(paths: Paths, capfd: pytest.CaptureFixture[str]) -> Ask:
    return asking(capfd)


def started(paths: Paths, log: str, *, warm: bool = False, comes_up: bool = False, job: int = 1) -> int:
    """One more attempt at the job, by a worker that is started for it and writes that; the worker's id."""
    store = Store(paths)
    try:
        with store.write() as tx:
            worker = workers.insert(
                tx, slug="boltz", variant="", revision="r1", mode="resident", host_id="h", epoch=1, created_at=AT
            )
            claim = queue.claim_warm if warm else queue.admit
            attempt = claim(tx, job, worker, 1, AT)
            if not comes_up:
                queue.finish(tx, job, attempt, "give_back", Outcome("interrupted", "it did not come up"), AT)
            reasons.put(tx, "boltz", "", job, "breaker", BROKEN, AT)
    finally:
        store.close()
    os.makedirs(paths.worker(worker))
    Path(paths.worker(worker), "log").write_text(log)
    return worker


def wrote(paths: Paths, attempt: int, log: str) -> None:
    folder = Path(paths.attempt(1, attempt))
    folder.mkdir(parents=True)
    (folder / "log").write_text(log)


@pytest.mark.parametrize("ended", [False, True])
def test_the_log_of_a_job_whose_worker_never_came_up_is_that_workers(ask: Ask, paths: Paths, ended: bool) -> None:
    started(paths, "first traceback\n")
    worker = started(paths, "No module named 'torch'\n")
    started(paths, "")
    if ended:
        assert ask("cancel", "1")[0] == 0
    code, out, err = ask("log", "1")
    assert (code, out) == (0, "No module named 'torch'\n")
    assert err == f"job 1 has no log of its own; this is the start of worker {worker}, which was started for it\n"
    assert ask("log", "1", "--attempt", "1")[1] == "first traceback\n"


def test_a_job_for_which_nobody_wrote_says_so(ask: Ask, paths: Paths) -> None:
    started(paths, "")
    code, out, err = ask("log", "1")
    assert (code, out) == (75, "") and "job 1 is queued and has no log yet" in err
    assert ask("cancel", "1")[0] == 0
    code, out, err = ask("log", "1")
    assert (code, out) == (1, "") and "without a log: no worker wrote for it" in err


def test_an_attempts_own_log_comes_before_the_start_of_a_later_worker(ask: Ask, paths: Paths) -> None:
    started(paths, "loads\n")
    wrote(paths, 1, "answered\n")
    started(paths, "No module named 'torch'\n")
    code, out, err = ask("log", "1")
    assert (code, out) == (0, "answered\n") and "this is that of attempt 1" in err
    assert ask("log", "1", "--attempt", "2")[1] == "No module named 'torch'\n"


def test_what_another_jobs_worker_wrote_while_it_loaded_is_not_shown_for_a_job_that_came_to_it_warm(
    ask: Ask, paths: Paths
) -> None:
    started(paths, "loads for somebody else\n", warm=True, comes_up=True)
    code, out, err = ask("log", "1")
    assert (code, out) == (75, "") and "has no log yet" in err


def test_a_followed_log_shows_each_start_that_failed(
    ask: Ask, paths: Paths, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FOLLOW_S", 0.001)
    started(paths, "first\n")
    turns: list[int] = []

    class Present:
        def __init__(self, _paths: Paths, _again: str) -> None:
            pass

        def check(self, ids: list[int]) -> None:
            turns.extend(ids)
            if len(turns) == 2:
                started(paths, "second\n")
            if len(turns) == 4:
                raise SchedulerDown("enough")

    monkeypatch.setattr(following, "Absence", Present)
    code, out, err = ask("log", "1", "-f")
    assert (code, out) == (6, "first\nsecond\n")
    assert err.count("which was started for it") == 2


def test_the_reason_of_a_broken_provider_names_the_log_where_there_is_one(ask: Ask, paths: Paths) -> None:
    started(paths, "")
    pointer = "; schedq log 1 shows what its worker wrote"
    pages = (("status",), ("status", "1"), ("show", "1"))
    with scheduler(paths):
        for argv in pages:
            assert pointer not in " ".join(ask(*argv)[1].split()), argv
        started(paths, "No module named 'torch'\n")
        for argv in pages:
            told = " ".join(ask(*argv)[1].split())
            assert f"{BROKEN}; at once with schedq providers reset boltz{pointer}" in told, argv
        assert ask("log", "1")[0] == 0


def follows(
    ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch, turns: list[Callable[[], object]]
) -> tuple[int, str, str]:
    """A followed log while these happen one after the other, a look between two of them; then it is given up."""
    monkeypatch.setattr(following, "FOLLOW_S", 0.001)

    class Present:
        def __init__(self, _paths: Paths, _again: str) -> None:
            pass

        def check(self, ids: list[int]) -> None:
            if not turns:
                raise SchedulerDown("enough")
            turns.pop(0)()

    monkeypatch.setattr(following, "Absence", Present)
    return ask("log", "1", "-f")


def tried(paths: Paths, ending: str, kind: str, log: str) -> None:
    """One more attempt that was sent, wrote that and ended so."""
    store = Store(paths)
    with store.write() as tx:
        queue.due(tx, AT)
    store.close()
    started(paths, "", comes_up=True)
    store = Store(paths)
    try:
        with store.write() as tx:
            attempt = queue.row(tx, 1).attempt
            queue.send(tx, 1, attempt, AT)
            reasons.clear(tx, "boltz", "")
            queue.finish(tx, 1, attempt, ending, Outcome(kind, "out of cheese"), AT, not_before_at=AT)
    finally:
        store.close()
    wrote(paths, attempt, log)


def nothing() -> None:
    pass


def test_a_followed_job_that_waits_says_so_once_and_why(
    ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = follows(ask, paths, monkeypatch, [nothing, nothing, nothing])
    assert (code, out) == (6, "") and err.count("-- job 1 waits: ") == 1, err
    assert "no scheduler runs for this queue" in err


def test_every_attempt_is_followed_also_those_that_passed_between_two_looks_and_the_end_is_told(
    ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thrice() -> None:
        for log in ("two\n", "three\n"):
            tried(paths, "retry", "crashed", log)
        tried(paths, "fail", "error", "four\n")

    turns = [lambda: tried(paths, "retry", "crashed", "one\n"), thrice]
    code, out, err = follows(ask, paths, monkeypatch, turns)
    assert (code, out) == (0, "one\ntwo\nthree\nfour\n")
    assert [line for line in err.splitlines() if line.startswith("-- attempt")] == [
        "-- attempt 2", "-- attempt 3", "-- attempt 4",
    ]  # fmt: skip
    assert "the last time: out of cheese" in err and err.endswith("-- job 1 failed: error: out of cheese\n")


def test_a_job_that_ended_before_is_printed_and_left_as_without_follow(ask: Ask, paths: Paths) -> None:
    tried(paths, "fail", "error", "one\n")
    assert ask("log", "1", "-f") == ask("log", "1") == (0, "one\n", "")


def test_one_attempt_alone_is_followed_until_that_one_is_over(
    ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FOLLOW_S", 0.001)
    tried(paths, "retry", "crashed", "one\n")
    assert ask("log", "1", "-f", "--attempt", "1")[:2] == (0, "one\n")


def turned(path: Path, now: str) -> None:
    """The log is full and becomes the older half; the next one begins so."""
    os.replace(path, f"{path}.1")
    path.write_text(now)


def test_a_log_that_turned_over_is_printed_with_its_older_half(ask: Ask, paths: Paths) -> None:
    tried(paths, "fail", "error", "one\n")
    turned(Path(paths.attempt(1, 1), "log"), "two\n")
    assert ask("log", "1") == (0, "one\ntwo\n", "")


def test_a_followed_log_goes_on_when_it_turns_over(ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Path(paths.attempt(1, 1), "log")

    def written(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    def again() -> None:
        written("the rest of two\n"), turned(log, "three\n")

    def twice() -> None:
        turned(log, "four\n"), turned(log, "five\n")

    started(paths, "", comes_up=True)
    wrote(paths, 1, "one, longer than what follows\n")
    turns = [nothing, lambda: turned(log, "two\n"), nothing, again, lambda: written("more\n"), twice, nothing]
    _, out, _ = follows(ask, paths, monkeypatch, turns)
    told = ["one, longer than what follows", "two", "the rest of two", "three", "more", "four", "five"]
    assert out.splitlines() == told


def test_while_a_log_turns_over_it_is_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    log = reading.Log(str(path))
    assert log.pour() == 0
    path.write_text("one\n")
    assert log.pour() == 4
    os.replace(path, f"{path}.1")
    assert log.pour() == 0
    path.write_text("two\n")
    assert log.pour() == 4 and log.pour() == 0
    log.close()
    assert capfd.readouterr().out == "one\ntwo\n"


def test_what_was_turned_over_before_it_could_be_followed_is_said_to_be_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    path.write_text("first\n")
    log = reading.Log(str(path))
    log.pour()
    for text in ("second\n", "third\n"):
        path.rename(f"{path}.1")
        path.write_text(text)
    path.rename(f"{path}.1")
    path.write_text("fourth\n")
    log.pour()
    log.close()
    out, err = capfd.readouterr()
    assert out == "first\nthird\nfourth\n" and err.startswith("lines are missing here") and "log_max_mib" in err
