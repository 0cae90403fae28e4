"""Verbs on the scheduler by many at once, and by one while another works: each ends well, and says what is true."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from driven import Done, Queue, eventually, words_of

PATIENCE_S = 120.0


def over(process: subprocess.Popen[str]) -> Done:
    """What a command answered that was started; it is killed if that takes too long."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args} is still there after {PATIENCE_S:g} s: {out}{err}") from None
    return Done(process.returncode, out, err)


def together(queue: Queue, *calls: list[str]) -> list[Done]:
    """These calls at one time."""
    return [over(process) for process in [queue.start(*words) for words in calls]]


def left(queue: Queue, count: int) -> list[int]:
    """The pids of the schedulers, once they are so many: who found the lock taken is there for an instant."""

    def there() -> list[int]:
        return [process.pid for process in queue.processes() if "serve" in words_of(process)]

    eventually(lambda: len(there()) == count, what=f"{count} schedulers")
    return there()


def busy(queue: Queue) -> str:
    """A scheduler with a job that runs until the file is there that is answered with."""
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input("long.json", wait_for=str(gate)))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    return str(gate)


def draining(queue: Queue) -> tuple[subprocess.Popen[str], str]:
    """A `down` that waits for such a job, and what lets the job end."""
    gate = busy(queue)
    going = queue.start("down")
    eventually(lambda: "going down" in queue("submit", "echo", queue.input("b.json")).err, what="it goes down")
    return going, gate


@pytest.mark.parametrize("verb", ["down", "restart"])
def test_many_who_do_the_same_all_end_well(queue: Queue, verb: str) -> None:
    queue.provider()
    assert queue("run", "echo", queue.input()).code == 0
    for done in together(queue, *[[verb]] * 4):
        assert done.code == 0 and "does not answer" not in done.err, done
    left(queue, 1 if verb == "restart" else 0)


def test_many_who_take_over_a_stopped_scheduler_all_end_with_the_next_one(queue: Queue) -> None:
    queue("up")
    old = queue.scheduler_pid()
    os.kill(old, signal.SIGSTOP)
    for done in together(queue, *[["up", "--takeover"]] * 4):
        assert done.code == 0 and "by hand" not in done.err, done
    assert left(queue, 1) == [queue.scheduler_pid()] and queue.scheduler_pid() != old


def test_a_takeover_of_one_that_answers_has_nothing_to_do(queue: Queue) -> None:
    queue("up")
    before = queue.scheduler_pid()
    done = queue("up", "--takeover")
    assert done.code == 0 and f"already up: scheduler {before}" in done.err, done
    assert queue.scheduler_pid() == before


def test_many_runs_on_a_stopped_scheduler_all_get_their_answer(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input())
    os.kill(queue.scheduler_pid(), signal.SIGSTOP)
    for done in together(queue, *[["run", "echo", queue.input()]] * 3):
        assert done.code == 0 and done.json["said"] == "hello", done
    left(queue, 1)


def test_up_and_run_wait_for_a_scheduler_that_goes_down_and_start_the_next(queue: Queue) -> None:
    queue.provider()
    going, gate = draining(queue)
    old = queue.scheduler_pid()
    up, run = queue.start("up"), queue.start("run", "echo", queue.input("c.json", say="mine"))
    eventually(lambda: any(job["name"] == "c" for job in queue.status()["jobs"]), what="run has queued its job")
    assert queue.scheduler_pid() == old and up.poll() is None and run.poll() is None
    assert up.stderr is not None and "about to go" in up.stderr.readline(), "up says what it waits for"
    Path(gate).touch()
    assert queue("wait", "1", "--timeout", "60s").code == 0
    started, ran = over(up), over(run)
    assert started.code == 0, started
    assert ran.code == 0 and ran.json["said"] == "mine" and "when it has gone, this starts another" in ran.err, ran
    went = over(going)
    assert went.code == 0 or (went.code == 75 and "was started meanwhile" in went.err), went
    assert left(queue, 1) == [queue.scheduler_pid()] and queue.scheduler_pid() != old


def test_a_down_that_a_restart_overtakes_does_not_say_that_it_is_down(queue: Queue) -> None:
    queue.provider()
    going, gate = draining(queue)
    assert queue("restart").code == 0
    done = over(going)
    assert done.code == 75 and "not down: " in done.err and "\ndown" not in done.err, done
    left(queue, 1)
    Path(gate).touch()
    assert queue("wait", "1", "--timeout", "60s").code == 0


def test_a_run_that_waits_when_its_scheduler_is_sent_away_says_so_and_leaves_the_job(queue: Queue) -> None:
    queue.provider()
    queue("up")
    run = queue.start("run", "echo", queue.input(wait_for="/nonexistent"))
    eventually(lambda: [job["state"] for job in queue.status()["jobs"]] == ["running"], what="it runs")
    assert queue("down", "--now").code == 0
    done = over(run)
    assert done.code == 6 and "stays in the queue" in done.err and "schedq up" in done.err, done
    assert queue.show(1)["state"] == "queued" and left(queue, 0) == []


def test_a_scheduler_that_ends_for_want_of_work_leaves_no_run_waiting(queue: Queue) -> None:
    queue.provider(idle=0.2)
    queue.env["SCHEDQ_AUTO_DOWN"] = "1s"
    for _ in range(4):
        done = queue("run", "echo", queue.input(), "--timeout", "60s", timeout=90)
        assert done.code == 0, done
        eventually(lambda: queue.status()["workers"] == [], what="the worker has retired")
