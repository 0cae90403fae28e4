"""A command of `schedq exec` before it runs: what signals, a pause, or the end of its scheduler make of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from driven import Queue, eventually, words_of

from scheduler.host.workers import tree

PAUSES = """
import sys, time
from scheduler import attached
say = attached.Attached.say
def pausing(self, **what):
    if "argv" in what:
        time.sleep({pause_s})
    say(self, **what)
attached.Attached.say = pausing
sys.argv = ["schedq", "exec", "--ram", "0.1", "--", "echo", "ran"]
from scheduler.__main__ import main
main()
"""
"""A caller that is held up between starting its keeper and saying what it is to run."""


def state(queue: Queue, job: int) -> str:
    return {each["id"]: each["state"] for each in queue.status()["jobs"]}.get(job, "")


def queued(queue: Queue, job: int = 1) -> None:
    eventually(lambda: state(queue, job) == "queued", what="the command queued")


def runs(queue: Queue) -> bool:
    return bool(queue.status()["scheduler"]["running"])


def held_back(pid: int) -> int:
    """The signals that a process and its threads hold back, as a mask."""
    found = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        lines = Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines()
        found |= next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
    return found


@pytest.fixture
def paused(queue: Queue) -> Queue:
    assert queue("up").code == 0
    assert queue("queue", "pause").code == 0
    return queue


# Signals that the caller ignores


def test_a_signal_that_the_caller_ignores_leaves_it_in_the_queue(paused: Queue) -> None:
    words = " ".join(paused.command("exec", "--ram", "0.1", "--", "echo", "ran"))
    waiting = subprocess.Popen(
        ["sh", "-c", f"trap '' HUP INT; exec {words}"], env=paused.env, cwd=paused.folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    queued(paused)
    for number in (signal.SIGHUP, signal.SIGINT):
        waiting.send_signal(number)
    assert state(paused, 1) == "queued" and waiting.poll() is None
    assert paused("queue", "resume").code == 0
    out, err = waiting.communicate(timeout=60)
    assert (out, waiting.returncode) == ("ran\n", 0), err


def test_one_that_it_does_not_ignore_takes_it_out_with_the_shells_code(paused: Queue) -> None:
    for job, (number, code) in enumerate([(signal.SIGHUP, 129), (signal.SIGTERM, 143)], 1):
        waiting = paused.start("exec", "--ram", "0.1", "--", "true")
        queued(paused, job)
        waiting.send_signal(number)
        _out, err = waiting.communicate(timeout=60)
        assert waiting.returncode == code and "taken out of the queue" in err


# A caller that is held up


def pausing(queue: Queue, pause_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PAUSES.format(pause_s=pause_s)], env=queue.env, cwd=queue.folder, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_caller_that_is_held_up_for_a_moment_still_has_its_command_run(queue: Queue) -> None:
    assert queue("up").code == 0
    out, err = pausing(queue, 1.5).communicate(timeout=60)
    assert out == "ran\n", err
    assert eventually(lambda: queue.show(1)["state"] == "succeeded", what="its end")


def test_one_that_is_held_up_for_long_gives_its_room_back_and_waits_for_its_turn_again(queue: Queue) -> None:
    assert queue("up").code == 0
    caller = pausing(queue, 8.0)

    def given_back() -> dict[str, Any] | None:
        job = queue.show(1) if state(queue, 1) else {"state": ""}
        return job if (job["state"], job.get("attempt")) == ("queued", 1) else None

    job: Any = eventually(given_back, within_s=30.0, what="its claim given back")
    assert job["reason"]["ruling"] == "backoff" and caller.poll() is None, job
    eventually(lambda: not queue.status()["workers"], what="its room given back")
    caller.kill()
    caller.communicate(timeout=30)
    eventually(lambda: queue.show(1)["state"] == "cancelled", what="its end")


# The scheduler's end


def test_a_scheduler_that_was_told_to_go_is_not_started_again_by_a_command_that_waits(paused: Queue) -> None:
    waiting = paused.start("exec", "--ram", "0.1", "--", "echo", "ran")
    queued(paused)
    assert paused("down").code == 0 and paused("queue", "resume").code == 0
    time.sleep(6.0)
    assert not runs(paused) and waiting.poll() is None
    assert paused("up").code == 0
    out, err = waiting.communicate(timeout=60)
    assert (out, waiting.returncode) == ("ran\n", 0), err
    assert "job 1 waits: no scheduler runs for this queue; `schedq up` starts one" in err


def test_one_that_was_killed_is_started_again_and_hears_signals_as_what_it_starts_does(paused: Queue) -> None:
    waiting = paused.start("exec", "--ram", "0.1", "--", "echo", "ran")
    queued(paused)
    os.kill(paused.scheduler_pid(), signal.SIGKILL)
    eventually(lambda: not runs(paused), what="its end")
    eventually(lambda: runs(paused), within_s=60.0, what="another scheduler")
    pid = paused.scheduler_pid()
    assert held_back(pid) == 0
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: (found := tree.stat_of(pid)) is None or found.state == "Z", what="the end of the scheduler")
    waiting.kill()
    waiting.communicate(timeout=30)


def test_a_scheduler_hears_signals_whatever_whoever_started_it_holds_back(queue: Queue) -> None:
    def hold_back() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])

    foreground = subprocess.Popen(
        queue.command("up", "--foreground"), env=queue.env, cwd=queue.folder, preexec_fn=hold_back,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: queue.status()["scheduler"]["running"], what="the scheduler")
    assert "already up" in queue("up").err
    assert held_back(foreground.pid) == 0
    foreground.send_signal(signal.SIGTERM)
    assert foreground.wait(30) == 0


# A scheduler from inside a command


def inside(queue: Queue, script: str) -> subprocess.Popen[str]:
    """A command that runs this with `schedq` at hand, inside of a worker of the queue."""
    schedq = " ".join(queue.command())
    return queue.start("exec", "--ram", "0.1", "--", "bash", "-c", f'schedq() {{ {schedq} "$@"; }}; {script}')


def keepers(queue: Queue) -> list[psutil.Process]:
    return [each for each in queue.processes() if "--schedq-keeper" in words_of(each)]


@pytest.mark.parametrize("verb", ["restart", "up --takeover", "up --foreground --takeover"])
def test_a_scheduler_is_not_replaced_from_inside_a_command_of_its_own(queue: Queue, verb: str) -> None:
    assert queue("up").code == 0
    before = queue.scheduler_pid()
    out, err = inside(queue, f"schedq {verb} 2>&1; echo code=$?").communicate(timeout=60)
    assert "cannot be replaced from here" in out and "worker 1 (exec)" in out and out.endswith("code=3\n"), (out, err)
    assert queue.scheduler_pid() == before
    eventually(lambda: queue.show(1)["state"] == "succeeded", what="the end of the command")
    eventually(lambda: not keepers(queue), what="its keeper gone")


@pytest.mark.parametrize("verb", ["up", "exec --ram 0.1 -- true", "up --foreground", "serve", "down"])
def test_none_is_started_there_either(queue: Queue, verb: str) -> None:
    assert queue("up").code == 0
    gate = queue.folder / "gate"
    caller = inside(queue, f"echo ready; while [ ! -e {gate} ]; do sleep 0.05; done; schedq {verb} 2>&1; echo code=$?")
    assert caller.stdout is not None and caller.stdout.readline() == "ready\n"
    pid = queue.scheduler_pid()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(queue), what="the end of the scheduler")
    gate.touch()
    out, _err = caller.communicate(timeout=60)
    assert "none can be started from here" in out and out.endswith("code=6\n"), out
    assert not runs(queue)
    assert queue("up").code == 0
    eventually(lambda: queue.show(1)["state"] == "succeeded", what="the end of the command")


def test_a_queue_of_its_own_is_a_part_of_the_command_and_ends_with_it(queue: Queue, tmp_path: Path) -> None:
    assert queue("up").code == 0
    own = tmp_path / "own"
    script = f"export SCHEDQ_HOME={own}; schedq up 2>&1; schedq exec --ram 0.05 -- echo ran; schedq down --now"
    out, err = inside(queue, script).communicate(timeout=90)
    assert f"is part of worker 1 of the queue at {queue.home}" in out and out.endswith("ran\n"), (out, err)
    eventually(lambda: queue.show(1)["state"] == "succeeded", what="the end of the command")


# What is stored for a command without a caller


def environments(queue: Queue) -> list[str]:
    return os.listdir(queue.home / "environments")


def test_the_environment_of_a_command_that_the_next_scheduler_sees_end_goes_with_it(queue: Queue) -> None:
    assert queue("up").code == 0
    gate = queue.folder / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    assert queue("exec", "--detach", "--ram", "0.1", "--", "sh", "-c", wait).code == 0
    eventually(lambda: queue.show(1)["state"] == "running", within_s=60.0, what="its start")
    assert queue("restart").code == 0
    assert len(environments(queue)) == 1
    gate.touch()
    assert queue("wait", "1", "--timeout", "30s").code == 0
    eventually(lambda: not environments(queue), what="the end of its environment")
