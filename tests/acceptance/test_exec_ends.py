"""What becomes of a command of `schedq exec` when its caller, its scheduler or its keeper dies; `--detach`; `lease`."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from driven import Queue, eventually, lives, words_of

SLOW = ["--", sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]


def keepers(queue: Queue) -> list[psutil.Process]:
    return [each for each in queue.processes() if "--schedq-keeper" in words_of(each)]


def begun(queue: Queue, *words: str, **env: str) -> subprocess.Popen[str]:
    process = queue.start("exec", "--ram", "0.1", *words, **env)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", (line, process.stderr and process.stderr.read())
    return process


def ended(queue: Queue, job: int) -> dict[str, Any]:
    over = ("succeeded", "failed", "cancelled", "timed_out")
    return eventually(lambda: (found := queue.show(job))["state"] in over and found, what=f"the end of job {job}")  # type: ignore[return-value]


def returned(queue: Queue) -> bool:
    return not keepers(queue) and not queue.status()["workers"]


@pytest.fixture
def up(queue: Queue) -> Queue:
    assert queue("up").code == 0
    return queue


def test_a_caller_that_is_killed_takes_its_command_and_its_lease_with_it(up: Queue) -> None:
    caller = begun(up, *SLOW)
    (keeper,) = keepers(up)
    command = keeper.children()[0]
    caller.kill()
    caller.communicate(timeout=30)
    job = ended(up, 1)
    assert job["state"] == "cancelled" and "its caller ended" in job["outcome"]["text"], job
    assert not lives(command)
    eventually(lambda: returned(up), what="the lease back")


def test_a_caller_that_is_killed_while_it_waits_leaves_nothing_in_the_queue(up: Queue) -> None:
    assert up("queue", "pause").code == 0
    waiting = up.start("exec", "--ram", "0.1", "--", "true")
    eventually(lambda: [each for each in up.status()["jobs"] if each["state"] == "queued"], what="the command queued")
    waiting.kill()
    waiting.communicate(timeout=30)
    job = ended(up, 1)
    assert job["state"] == "cancelled" and "has gone" in job["outcome"]["text"], job


def test_ctrl_c_while_it_waits_takes_it_out_of_the_queue(up: Queue) -> None:
    assert up("queue", "pause").code == 0
    waiting = up.start("exec", "--ram", "0.1", "--", "true")
    eventually(lambda: [each for each in up.status()["jobs"] if each["state"] == "queued"], what="the command queued")
    waiting.send_signal(signal.SIGINT)
    _out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 130 and "taken out of the queue" in err
    assert up.show(1)["state"] == "cancelled"


def test_a_command_goes_on_without_its_scheduler_and_the_next_one_has_its_lease(up: Queue) -> None:
    gate = up.folder / "gate"
    code = f"import os, time\nprint('ready', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    caller = begun(up, "--", sys.executable, "-c", code)
    os.kill(up.scheduler_pid(), signal.SIGKILL)
    eventually(lambda: not up.status()["scheduler"]["running"], what="the scheduler's death")
    assert up("up").code == 0
    eventually(lambda: [each["state"] for each in up.status()["workers"]] == ["busy"], what="the lease adopted")
    assert up.status()["pools"][0]["charged_gib"] >= 0.1
    gate.touch()
    caller.communicate(timeout=30)
    assert caller.returncode == 0
    assert ended(up, 1)["state"] == "succeeded"
    eventually(lambda: returned(up), what="the lease back")


def test_a_command_that_ends_while_nobody_works_the_queue_has_ended_for_the_next_scheduler(up: Queue) -> None:
    caller = begun(up, "--", "sh", "-c", "echo ready; read line; exit 6")
    os.kill(up.scheduler_pid(), signal.SIGKILL)
    caller.communicate(timeout=30)  # its stdin is /dev/null
    assert caller.returncode == 6
    eventually(lambda: not keepers(up), what="the keeper gone by itself")
    assert up("up").code == 0
    job = ended(up, 1)
    assert job["state"] == "failed" and job["outcome"]["exit_code"] == 6, job


def test_a_keeper_that_is_killed_takes_the_command_with_it_and_the_call_says_so(up: Queue) -> None:
    caller = begun(up, *SLOW)
    (keeper,) = keepers(up)
    keeper.kill()
    _out, err = caller.communicate(timeout=30)
    assert caller.returncode == 125 and "vanished" in err
    job = ended(up, 1)
    assert job["state"] == "failed" and job["outcome"]["kind"] == "lost", job


def test_cancel_stops_a_command_within_its_grace(up: Queue) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(21)); print('ready', flush=True)"
    caller = begun(up, "--", sys.executable, "-c", f"{code}; time.sleep(600)")
    assert up("cancel", "1").code == 0
    _out, err = caller.communicate(timeout=30)
    assert caller.returncode == 21 and "was stopped: cancelled" in err
    assert ended(up, 1)["state"] == "cancelled"


def test_down_waits_for_a_command_and_down_now_ends_it_for_good(up: Queue) -> None:
    caller = begun(up, *SLOW)
    down = up.start("down")
    assert down.stderr is not None and "waiting for 1 running" in down.stderr.readline()
    assert down.poll() is None and caller.poll() is None
    assert up("down", "--now").code == 0
    down.communicate(timeout=30)
    caller.communicate(timeout=30)
    assert caller.returncode == 143
    job = up.show(1)
    assert job["state"] == "failed" and job["outcome"]["kind"] == "interrupted", job
    assert not keepers(up)


# Without a caller


def test_a_detached_command_is_a_durable_job_with_a_log_and_outputs(queue: Queue) -> None:
    (queue.folder / "sub").mkdir()
    script = 'echo "in $(pwd)"; echo "$MINE" >&2; echo data > "$SCHEDQ_OUT/made.txt"; exit 0'
    done = queue(
        "exec", "--detach", "--ram", "0.1", "--name", "night", "--out", "out/{name}-{id}", "--", "sh", "-c", script,
        MINE="a secret",
    )  # fmt: skip
    assert done.code == 0 and done.out == "1\n", done
    assert queue("wait", "1", "--timeout", "30s").code == 0
    assert queue("log", "1").out == f"in {queue.folder}\na secret\n"
    assert queue("result", "1").json == {"exit_code": 0}
    assert (queue.folder / "out" / "night-1" / "made.txt").read_text() == "data\n"
    assert queue.show(1)["name"] == "night"


def test_a_detached_commands_secrets_are_in_one_file_until_it_has_ended_and_nowhere_else(up: Queue) -> None:
    gate, secret = up.folder / "gate", "TOPSECRET-4711"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3"
    assert up("exec", "--detach", "--ram", "0.1", "--", "sh", "-c", wait, MY_TOKEN=secret).code == 0
    eventually(lambda: up.show(1)["state"] == "running", within_s=60, what="its start")

    def found() -> list[Path]:
        files = [path for path in up.home.rglob("*") if path.is_file() and not path.is_symlink()]
        return [path for path in files if secret.encode() in path.read_bytes()]

    (kept,) = found()
    assert kept.parent == up.home / "environments" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    gate.touch()
    assert up("wait", "1", "--timeout", "30s").code == 1
    assert up("result", "1").json == {"exit_code": 3}
    eventually(lambda: not found(), what="the secret's end")


def test_a_detached_command_outlives_its_caller_and_its_scheduler_and_is_not_run_twice(up: Queue) -> None:
    gate, runs = up.folder / "gate", up.folder / "runs"
    script = f"echo run >> {runs}; while [ ! -e {gate} ]; do sleep 0.05; done"
    assert up("exec", "--detach", "--ram", "0.1", "--", "sh", "-c", script).code == 0
    eventually(runs.exists, within_s=60, what="its start")
    os.kill(up.scheduler_pid(), signal.SIGKILL)
    eventually(lambda: not up.status()["scheduler"]["running"], what="the scheduler's death")
    assert up("up").code == 0
    gate.touch()
    assert up("wait", "1", "--timeout", "30s").code == 0
    assert runs.read_text() == "run\n"


@pytest.mark.parametrize(("policy", "state"), [((), "failed"), (("--on-lost", "hold"), "held")])
def test_a_detached_command_that_vanishes_ends_by_its_policy(up: Queue, policy: tuple[str, ...], state: str) -> None:
    assert up("exec", "--detach", "--ram", "0.1", *policy, "--", "sleep", "600").code == 0
    eventually(lambda: up.show(1)["state"] == "running" and keepers(up), within_s=60, what="its start")
    keepers(up)[0].kill()
    eventually(lambda: up.show(1)["state"] == state, what=state)


def test_a_detached_command_is_run_again_when_lost_only_if_asked(up: Queue) -> None:
    runs = up.folder / "runs"
    script = f"echo run >> {runs}; [ $(wc -l < {runs}) = 2 ] || sleep 600"
    words = ("exec", "--detach", "--ram", "0.1", "--on-lost", "requeue", "--", "sh", "-c", script)
    assert up(*words).code == 0
    eventually(lambda: runs.exists() and keepers(up), within_s=60, what="its start")
    keepers(up)[0].kill()
    eventually(lambda: up.show(1)["state"] in ("queued", "running"), what="its second try")
    assert up.show(1)["state"] != "failed"


def test_a_cancelled_detached_command_leaves_no_environment_and_is_not_requeued(up: Queue) -> None:
    assert up("queue", "pause").code == 0
    assert up("exec", "--detach", "--ram", "0.1", "--", "true").code == 0
    assert len(list((up.home / "environments").iterdir())) == 1
    assert up("cancel", "1").code == 0
    assert list((up.home / "environments").iterdir()) == []
    done = up("requeue", "1")
    assert done.code == 2 and "schedq exec" in done.err, done


# A process that holds the room itself

LEASED = """
import json, os, sys, time
from scheduler.client import Client
from scheduler.errors import Temporary
with Client().lease(ram_gib=0.3, threads=2, name="mine", wait={wait}) as lease:
    print(json.dumps([lease.id, lease.devices, lease.env]), flush=True)
    sys.stdin.readline()
print("after", flush=True)
sys.stdin.readline()
"""


def leasing(queue: Queue, wait: bool = True) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LEASED.format(wait=wait)], env=queue.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=queue.folder,
    )  # fmt: skip


def test_a_lease_is_a_block_of_a_python_program(up: Queue) -> None:
    process = leasing(up)
    assert process.stdout is not None and process.stdin is not None
    job, devices, env = json.loads(process.stdout.readline())
    assert job == 1 and devices == [] and env["OMP_NUM_THREADS"] == "2" and env["CUDA_VISIBLE_DEVICES"] == "-1"
    assert up.show(1)["state"] == "running" and up.show(1)["name"] == "mine"
    (keeper,) = keepers(up)
    assert any(word.strip().endswith(":0.3") and word.startswith("charge=") for word in words_of(keeper))
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "after\n"
    assert ended(up, 1)["state"] == "succeeded"
    eventually(lambda: returned(up), what="the lease back")
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


def test_a_lease_ends_with_its_process_and_its_process_with_a_cancelled_lease(up: Queue) -> None:
    process = leasing(up)
    assert process.stdout is not None and process.stdout.readline()
    process.kill()
    process.communicate(timeout=30)
    assert ended(up, 1)["state"] == "cancelled"
    eventually(lambda: returned(up), what="the lease back")
    other = leasing(up)
    assert other.stdout is not None and other.stdout.readline()
    assert up("cancel", "2").code == 0
    other.wait(30)
    other.communicate(timeout=30)
    assert other.returncode == -signal.SIGTERM
    assert ended(up, 2)["state"] == "cancelled"
