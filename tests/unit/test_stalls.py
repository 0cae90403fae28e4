"""What `wait` says of jobs that nothing moves by itself, of those that fail alike, and when somebody stops waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from queues import scheduler, submitted, writing
from terminals import Terminal

from scheduler.cli import stalling, waiting
from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.store import heads, stalls
from scheduler.store.engine import Store

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "scheduler"]
AT = "2026-11-29T12:00:00.000000Z"


@pytest.fixture
def env(tmp_path: Path, paths: Paths) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDQ_") and name != "COLUMNS"}
    return {**kept, "HOME": str(tmp_path), "SCHEDQ_HOME": paths.home, "PYTHONPATH": str(ROOT), "TERM": "xterm"}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "scheduler_runs", lambda _paths: True)


def said(paths: Paths, *ids: int) -> list[str]:
    """What one look at these jobs says."""
    told: list[str] = []
    stalling.Stalls(paths, told.append).look(ids)
    return told


def reason(paths: Paths, ruling: str, text: str, job_id: int = 1) -> None:
    store = Store(paths)
    with store.write() as tx:
        from scheduler.store import rows

        rows.write(
            tx,
            "INSERT INTO reasons (slug, variant, job_id, ruling, text, at)"
            " VALUES ('boltz', '', :id, :ruling, :text, :at)",
            {"id": job_id, "ruling": ruling, "text": text, "at": AT},
        )
    store.close()
    assert heads.__doc__


def test_held_jobs_are_named_together_with_what_lets_them_go(paths: Paths, runs: None) -> None:
    submitted(paths, 4, state="held")
    submitted(paths)
    assert said(paths, 1, 2, 3, 4, 5) == ["waiting for jobs 1-4: held by its operator; schedq release 1-4"]
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'running' WHERE id = 5")
    assert said(paths, 2, 5) == ["waiting for job 2: held by its operator; schedq release 2"]


def test_a_paused_queue_says_what_resumes_it(paths: Paths, runs: None) -> None:
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE queue SET paused_at = ?", (AT,))
    [told] = said(paths, 1)
    assert (
        told.startswith("waiting for job 1: the queue is paused since 2026-11-29 ") and "`schedq queue resume`" in told
    )
    assert told.count("resume") == 1


def test_a_job_that_may_not_begin_yet_says_when_and_what_lets_it(paths: Paths, runs: None) -> None:
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET blocked = 'begin', not_before_at = ?", ("2099-01-01T00:00:00.000000Z",))
    [told] = said(paths, 1)
    assert told.endswith("; schedq update 1 --begin now") and "not to begin before" in told


def test_a_broken_provider_is_told_of_all_that_stand_behind_the_first(paths: Paths, runs: None) -> None:
    submitted(paths, 3)
    reason(paths, "breaker", "boltz failed 2 times in a row; the last error: no weights")
    [told] = said(paths, 2, 3)
    assert told.startswith("waiting for jobs 2-3: boltz failed 2 times in a row") and "schedq providers reset" in told


@pytest.mark.parametrize("ruling", ["busy", "starting", "pool_full", "no_room_now", "cores", "reserved"])
def test_nothing_is_said_of_what_passes_by_itself(paths: Paths, runs: None, ruling: str) -> None:
    submitted(paths, 2)
    reason(paths, ruling, "it will pass")
    assert said(paths, 1, 2) == []


def test_nothing_is_said_of_waiting_ones_while_another_of_them_is_at_work(paths: Paths, runs: None) -> None:
    submitted(paths, 2)
    reason(paths, "breaker", "boltz failed 2 times in a row")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'admitted' WHERE id = 2")
    assert said(paths, 1, 2) == [] and len(said(paths, 1)) == 1


def test_a_look_says_nothing_twice_and_looks_no_oftener_than_it_must(
    paths: Paths, runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(paths, state="held")
    told: list[str] = []
    found, at_s = stalling.Stalls(paths, told.append), [100.0]
    monkeypatch.setattr(stalling, "monotonic_s", lambda: at_s[0])
    for _ in range(3):
        found.look([1])
        at_s[0] += stalling.LOOK_S
    assert len(told) == 1
    monkeypatch.setattr(stalls, "stalls", lambda *_: pytest.fail("looked at once again"))
    at_s[0] -= 1.0
    found.look([1])


def test_wait_on_a_held_job_says_once_what_it_waits_for_where_nobody_looks_too(
    env: dict[str, str], paths: Paths
) -> None:
    submitted(paths, state="held")
    with scheduler(paths):
        done = subprocess.run(
            [*COMMAND, "wait", "1", "--timeout", "1s"], capture_output=True, text=True, env=env, cwd="/"
        )
    assert done.stdout == "" and done.returncode == 124
    assert done.stderr.splitlines()[0] == "waiting for job 1: held by its operator; schedq release 1"


def test_many_that_failed_alike_are_told_one_by_one_at_first_and_then_counted(
    env: dict[str, str], paths: Paths
) -> None:
    submitted(paths, 9)
    submitted(paths, slug="esm")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'failed', outcome = 'error', outcome_text = 'x', ended_at = ?", (AT,))
        db.execute("UPDATE jobs SET outcome = 'refused' WHERE id = 9")
    done = subprocess.run([*COMMAND, "wait", "1-10"], capture_output=True, text=True, env=env, cwd="/")
    assert done.returncode == 1 and done.stderr.splitlines() == [
        *(f"job {n} failed: error: x; schedq show {n}" for n in (1, 2, 3)),
        "job 9 failed: refused: x; schedq show 9",
        "job 10 failed: error: x; schedq show 10",
        "and 5 more of boltz failed (error): jobs 4-8",
    ]  # fmt: skip


def test_on_a_terminal_a_failure_takes_one_line(env: dict[str, str], paths: Paths) -> None:
    submitted(paths, 2)
    with writing(paths) as db:
        db.execute(
            "UPDATE jobs SET state = 'failed', outcome = 'error', outcome_text = ?, ended_at = ?", ("no " * 99, AT)
        )
    terminal = Terminal([*COMMAND, "wait", "1-2"], 60, 24, env=env, cwd="/")
    try:
        assert terminal.ended() == 1
        lines = [line for line in terminal.read().splitlines() if line.startswith("job ")]
        assert len(lines) == 2 and all(line.rstrip().endswith(f".; schedq show {n}") for n, line in enumerate(lines, 1))
        assert max(map(len, map(str.rstrip, lines))) <= 60
    finally:
        terminal.close()


def test_who_stops_waiting_is_told_that_the_jobs_go_on(env: dict[str, str], paths: Paths) -> None:
    submitted(paths, 3)
    with scheduler(paths):
        process = subprocess.Popen([*COMMAND, "wait", "1-3"], stderr=subprocess.PIPE, text=True, env=env, cwd="/")
        with writing(paths) as db:
            db.execute("UPDATE jobs SET state = 'failed', outcome = 'error', ended_at = ? WHERE id = 2", (AT,))
        assert process.stderr is not None and process.stderr.readline().startswith("job 2 failed")
        process.send_signal(2)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == "jobs 1, 3 go on; schedq cancel 1,3 ends them\n"


def test_how_long_it_takes_still_is_told_by_what_the_others_of_these_jobs_took(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that was quick with its example takes what it takes with these."""
    from scheduler.model.plan import Predict
    from scheduler.store import timings, whole_batch

    monkeypatch.setattr(whole_batch, "scheduler_runs", lambda _paths: True)
    submitted(paths, 8)
    store = Store(paths)
    with store.write() as tx:
        for _ in range(40):
            timings.ran(tx, "boltz", "", 0.01)
        heads.set_forecasts(tx, [(Predict("boltz", "", 0.0, 0.01, 1), stamp(now_s()))])
    store.close()
    with writing(paths) as db:
        for n in (1, 2):
            at = stamp(now_s() - 10.0 + 4.0 * n)
            db.execute("UPDATE jobs SET state = 'succeeded', outcome = 'ok', tries = 1, started_at = ?, ended_at = ?"
                       " WHERE id = ?", (stamp(now_s() - 14.0 + 4.0 * n), at, n))  # fmt: skip
    left_s = whole_batch.ends_in_s(paths, [3, 4, 5], [1, 2])
    assert left_s == pytest.approx(12.0, abs=0.1)
    assert (whole_batch.ends_in_s(paths, [3, 4, 5]) or 9.9) < 1.0, "of jobs that belong to nothing the mean is known"
    line = waiting._Line(paths, [1, 2, 3, 4, 5])
    for n in (1, 2):
        line.count(n, "succeeded")
    assert "2/5, about 12s left" in line._told(time.clock_gettime(time.CLOCK_BOOTTIME))
