"""`wait`: a bar for whoever looks at a terminal, plain lines everywhere else, and the answer as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from queues import scheduler, submitted, writing
from terminals import Terminal

from scheduler.config import Paths

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "scheduler"]
AT = "2026-11-29T12:00:00.000000Z"


@pytest.fixture
def env(tmp_path: Path, paths: Paths) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDQ_") and name != "COLUMNS"}
    return {**kept, "HOME": str(tmp_path), "SCHEDQ_HOME": paths.home, "PYTHONPATH": str(ROOT), "TERM": "xterm"}


def end(paths: Paths, job_id: int, state: str) -> None:
    outcome = "ok" if state == "succeeded" else "error"
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = ?, outcome = ?, ended_at = ? WHERE id = ?", (state, outcome, AT, job_id))


@pytest.mark.parametrize("columns", [50, 80])
def test_a_terminal_shows_a_bar_and_in_the_end_what_came_of_all(
    env: dict[str, str], paths: Paths, columns: int
) -> None:
    submitted(paths, 4)
    with scheduler(paths):
        terminal = Terminal([*COMMAND, "wait", "1-4"], columns, 24, env=env, cwd="/")
        try:
            terminal.until(lambda screen: "0%  0/4" in screen)
            end(paths, 1, "succeeded")
            end(paths, 2, "failed")
            screen = terminal.until(lambda screen: "50%  2/4, 1 did not succeed" in screen)
            assert "job 2 failed: error; schedq show 2" in screen
            assert len(max(screen.splitlines(), key=len).rpartition("[")[2]) < columns
            end(paths, 3, "succeeded")
            end(paths, 4, "succeeded")
            assert terminal.ended() == 1
            assert "3 of 4 jobs succeeded, 1 did not; waited" in terminal.read()
            assert not any("4/4" in line or "[#" in line for line in terminal.lines), "the bar is taken away"
        finally:
            terminal.close()


def test_of_one_job_a_terminal_shows_what_that_job_does(env: dict[str, str], paths: Paths) -> None:
    submitted(paths, 1)
    with scheduler(paths):
        terminal = Terminal([*COMMAND, "wait", "1"], env=env, cwd="/")
        try:
            terminal.until(lambda screen: "job 1 waits" in screen)
            with writing(paths) as db:
                told = '{"done": 3, "total": 10, "message": "relaxing"}'
                db.execute("UPDATE jobs SET state = 'running', started_at = ?, progress = ?", (AT, told))
            terminal.until(lambda screen: "[#-----]  30%  job 1 running" in screen and "relaxing" in screen)
            end(paths, 1, "succeeded")
            assert terminal.ended() == 0 and not "".join(terminal.lines).strip()
        finally:
            terminal.close()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_pipe_gets_plain_lines_and_the_same_answer(env: dict[str, str], paths: Paths, words: tuple[str, ...]) -> None:
    submitted(paths, 3)
    for job_id, state in ((1, "succeeded"), (2, "failed"), (3, "succeeded")):
        end(paths, job_id, state)
    done = subprocess.run([*COMMAND, "wait", "1-3", *words], capture_output=True, text=True, env=env, cwd="/")
    assert done.returncode == 1
    if words:
        assert json.loads(done.stdout) == {
            "schema_version": 1,
            "jobs": [{"id": 1, "state": "succeeded"}, {"id": 2, "state": "failed"}, {"id": 3, "state": "succeeded"}],
        }
        assert done.stderr == ""
    else:
        assert (done.stdout, done.stderr) == ("", "job 2 failed: error; schedq show 2\n")


@pytest.mark.parametrize("more", [{"TERM": "dumb"}], ids=str)
def test_a_dumb_terminal_gets_no_bar(env: dict[str, str], paths: Paths, more: dict[str, str]) -> None:
    submitted(paths, 2)
    with scheduler(paths):
        terminal = Terminal([*COMMAND, "wait", "1-2"], env={**env, **more}, cwd="/")
        try:
            end(paths, 1, "succeeded")
            end(paths, 2, "succeeded")
            assert terminal.ended() == 0 and terminal.written == b""
        finally:
            terminal.close()


def test_who_stops_waiting_leaves_no_bar_and_is_told_that_the_jobs_go_on(env: dict[str, str], paths: Paths) -> None:
    submitted(paths, 2)
    with scheduler(paths):
        terminal = Terminal([*COMMAND, "wait", "1-2"], env=env, cwd="/")
        try:
            terminal.until(lambda screen: "0/2" in screen)
            terminal.type(b"\x03")
            assert terminal.ended() == 130
            screen = terminal.read().replace("^C", "")
            assert "jobs 1-2 go on; schedq cancel 1-2 ends them" in screen and "0/2" not in screen
        finally:
            terminal.close()
