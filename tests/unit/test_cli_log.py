"""`schedq log`: what the worker wrote for a job, also when it never came up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import AT, scheduler, submitted

from scheduler.__main__ import answer
from scheduler.cli import reading
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
    def one(*argv: str) -> tuple[int, str, str]:
        code, _fast = answer(list(argv))
        out, err = capfd.readouterr()
        assert "fault of schedq" not in err, err
        return code, out, err

    return one


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
    monkeypatch.setattr(reading, "FOLLOW_S", 0.001)
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

    monkeypatch.setattr(reading, "Absence", Present)
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
