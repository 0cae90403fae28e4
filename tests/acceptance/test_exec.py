"""`schedq exec`: any command queues for its room, and keeps what it had: stdin, terminal, signals, exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from driven import Queue, eventually, words_of
from nvml import Card, Stub

READY = "print('ready', flush=True)"


def waits_for(path: Path, then: str = "") -> list[str]:
    """A command that says that it runs, and ends when that file is there."""
    code = f"import os, sys, time\n{READY}\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)\n{then}"
    return [sys.executable, "-c", code]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def code_of(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=60)
    return process.returncode


def seen(queue: Queue, job: int) -> dict[str, Any]:
    """The job as `status` has it; {} while it is not there."""
    return {each["id"]: each for each in queue.status()["jobs"]}.get(job, {})


def state(queue: Queue, job: int) -> str:
    return seen(queue, job).get("state", "")


def keepers(queue: Queue) -> list[psutil.Process]:
    return [each for each in queue.processes() if "--schedq-keeper" in words_of(each)]


@pytest.fixture
def up(queue: Queue) -> Queue:
    assert queue("up").code == 0
    return queue


@pytest.fixture
def card(queue: Queue) -> Queue:
    """One small device that nobody else has: what fills it fills nothing of the machine's."""
    uuid = f"GPU-{os.getpid():08x}-{time.time_ns() % 10**12:012d}"
    stub = Stub(queue.folder).cards([Card(total_gib=8.0, uuid=uuid)]).write()
    queue.env |= stub.env()
    assert queue("up").code == 0
    return queue


# What a command has, and what it answers


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 75", 75), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
)
def test_the_exit_code_is_the_commands_and_a_signal_is_128_more(up: Queue, script: str, code: int) -> None:
    done = up("exec", "--ram", "0.1", "--", "sh", "-c", script)
    assert (done.code, done.out, done.err) == (code, "", "")
    job = eventually(lambda: (found := up.show(1))["state"] in ("succeeded", "failed") and found, what="its end")
    assert job["state"] == ("succeeded" if code == 0 else "failed")  # type: ignore[index]
    assert up("result", "1").json == {"exit_code": code}
    assert not keepers(up)


def test_it_starts_a_scheduler_where_none_runs_as_run_does(queue: Queue) -> None:
    done = queue("exec", "--ram", "0.1", "--", "echo", "hello")
    assert (done.code, done.out) == (0, "hello\n")
    assert "started scheduler" in done.err
    assert queue.status()["scheduler"]["running"]


def test_a_command_keeps_its_stdin_its_folder_its_environment_and_its_descriptors(up: Queue) -> None:
    reading, writing = os.pipe()
    script = f'cat; pwd; echo "$MINE"; echo over >&{writing}'
    process = subprocess.Popen(
        up.command("exec", "--ram", "0.1", "--", "bash", "-c", f"{script} 2>&1"), cwd=up.folder, text=True,
        env={**up.env, "MINE": "a\nb"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        pass_fds=(writing,),
    )  # fmt: skip
    os.close(writing)
    out, err = process.communicate("one\ntwo\n", timeout=60)
    assert out == f"one\ntwo\n{up.folder}\na\nb\n", err
    with os.fdopen(reading) as said:
        assert said.read() == "over\n"


def test_whoever_reads_its_output_hears_the_end_of_it(up: Queue) -> None:
    left = "(exec >/dev/null 2>&1; sleep 5) & echo said"
    process = up.start("exec", "--ram", "0.1", "--", "sh", "-c", left)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert out == "said\n" and process.returncode == 0
    assert time.monotonic() - began < 4.5
    assert "left 1 process behind" in err and "schedq cancel 1" in err


def test_what_a_command_leaves_behind_keeps_the_charge_until_it_has_gone(up: Queue) -> None:
    gate = up.folder / "gate"
    loop = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    done = up("exec", "--ram", "0.1", "--", "setsid", "-f", "sh", "-c", f"exec >/dev/null 2>&1; {loop}")
    assert done.code == 0, done
    assert state(up, 1) == "running"
    pool = up.status()["pools"][0]
    assert pool["charged_gib"] >= 0.1
    (keeper,) = keepers(up)
    assert any(word.startswith("charge=") and word.strip().endswith(":0.1") for word in words_of(keeper))
    gate.touch()
    eventually(lambda: state(up, 1) == "succeeded", what="the end of its last process")
    eventually(lambda: not keepers(up), what="the end of its keeper")


def test_devices_are_hidden_and_threads_are_set(up: Queue) -> None:
    told = "import json, os; print(json.dumps(dict(os.environ)))"
    env = up("exec", "--ram", "0.1", "--threads", "2", "--", sys.executable, "-c", told).json
    assert env["CUDA_VISIBLE_DEVICES"] == "-1" and env["HIP_VISIBLE_DEVICES"] == "-1"
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "2"
    assert env["SCHEDQ_JOB"] == "1" and env["SCHEDQ_WORKER"].endswith(":1")
    assert env["SCHEDQ_HOME"] == str(up.home)


# What is refused before it queues


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--ram", "0.1", "--", "no-such-command"], 127, "there is no such command on the PATH"),
        (["--ram", "0.1", "--", "./plain"], 126, "it may not be executed"),
        (["--ram", "0.1", "--", "."], 126, "it is a folder"),
        (["--", "true"], 3, "--ram 2"),
        (["--ram", "100000", "--", "true"], 3, "too_big: exec needs 100000 GiB"),
        (["--ram", "a lot", "--", "true"], 2, "must be GiB"),
        (["--ram", "-1", "--", "true"], 2, "must be GiB"),
        (["--ram", "1", "--gpus", "1", "--", "true"], 2, "--vram"),
        (["--ram", "1", "--out", "x", "--", "true"], 2, "--detach"),
        (["--ram", "1"], 2, "COMMAND"),
    ],
)
def test_what_can_never_run_is_said_before_it_queues(up: Queue, words: list[str], code: int, said: str) -> None:
    (up.folder / "plain").write_text("echo no\n")
    eventually(lambda: up.status()["facts_at"], what="the machine on record")
    done = up("exec", *words)
    assert done.code == code and said in done.err and done.out == "", done
    assert up.status()["jobs"] == []


def test_exec_is_no_provider_and_a_manifest_may_not_be_called_so(queue: Queue) -> None:
    done = queue("submit", "exec", queue.input())
    assert done.code == 2 and "schedq exec" in done.err
    queue.provider("exec")
    checked = queue("providers", "check")
    assert checked.code != 0 and "exec" in checked.out + checked.err and "schedq exec" in checked.out + checked.err
    assert queue("submit", "exec", queue.input()).code == 2


# In the queue, in order


def test_a_command_waits_its_turn_and_says_for_what(card: Queue) -> None:
    gate = card.folder / "gate"
    first = card.start("exec", "--vram", "5", "--name", "first", "--", *waits_for(gate))
    assert first_line(first) == "ready"
    second = card.start("exec", "--vram", "5", "--name", "second", "--", "echo", "second")
    eventually(lambda: [each for each in card.status()["jobs"] if each["state"] == "queued"], what="the second waiting")
    reason = eventually(lambda: card.show(2)["reason"], what="its reason")
    assert reason["ruling"] in ("pool_full", "no_room_now"), reason  # type: ignore[index]
    assert second.stderr is not None
    said = second.stderr.readline()
    assert "job 2 waits: " in said and "exec" in said and "5 GiB" in said
    gate.touch()
    out, _err = second.communicate(timeout=60)
    assert out == "second\n" and second.returncode == 0
    assert code_of(first) == 0


def test_no_wait_leaves_with_75_and_the_reason_and_leaves_nothing_queued(card: Queue) -> None:
    gate = card.folder / "gate"
    first = card.start("exec", "--vram", "5", "--", *waits_for(gate))
    assert first_line(first) == "ready"
    done = card("exec", "--no-wait", "--vram", "5", "--", "echo", "no")
    assert done.code == 75 and "no room now" in done.err and "5 GiB" in done.err and done.out == "", done
    assert state(card, 2) == "cancelled"
    assert card("exec", "--no-wait", "--ram", "0.1", "--", "echo", "yes").out == "yes\n"
    gate.touch()
    assert code_of(first) == 0


def test_commands_and_jobs_stand_in_one_line(card: Queue) -> None:
    card.provider(ram=0.1)
    gate, order = card.folder / "gate", card.folder / "order"
    first = card.start("exec", "--vram", "5", "--", *waits_for(gate))
    assert first_line(first) == "ready"
    add = lambda word: ["sh", "-c", f"echo {word} >> {order}"]  # noqa: E731
    later = card.start("exec", "--vram", "5", "--name", "low", "--priority", "-5", "--", *add("low"))
    eventually(lambda: state(card, 2) == "queued", what="the low one waiting")
    sooner = card.start("exec", "--vram", "5", "--name", "high", "--priority", "5", "--", *add("high"))
    eventually(lambda: state(card, 3) == "queued", what="the high one waiting")
    assert [each["id"] for each in card("plan", "--json").json["jobs"]] == [1, 3, 2]
    gate.touch()
    assert [code_of(each) for each in (first, later, sooner)] == [0, 0, 0]
    assert order.read_text().split() == ["high", "low"]


# Devices


def test_a_command_sees_the_devices_that_it_was_given_and_no_other(queue: Queue, tmp_path: Path) -> None:
    stub = Stub(tmp_path).cards([Card(number=0, total_gib=8.0), Card(number=1, total_gib=8.0)]).write()
    queue.env |= stub.env()
    assert queue("up").code == 0
    gate = queue.folder / "gate"
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'], flush=True)"
    wait = f"import time\n{show}\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    first = queue.start("exec", "--vram", "6", "--ram", "0.1", "--", sys.executable, "-c", wait)
    given, order = first_line(first).split()
    assert order == "PCI_BUS_ID" and given in (Card(number=0).id, Card(number=1).id)
    other = queue("exec", "--vram", "6", "--ram", "0.1", "--", sys.executable, "-c", show, CUDA_VISIBLE_DEVICES="7")
    assert other.code == 0 and other.out.split()[0] in (Card(number=0).id, Card(number=1).id), other
    assert other.out.split()[0] != given
    both = queue("exec", "--no-wait", "--vram", "6", "--gpus", "2", "--", sys.executable, "-c", show)
    assert both.code == 75 and "exec needs" in both.err, both
    gate.touch()
    first.communicate(timeout=60)
    both = queue("exec", "--vram", "6", "--gpus", "2", "--", sys.executable, "-c", show)
    assert set(both.out.split()[0].split(",")) == {Card(number=0).id, Card(number=1).id}, both
    never = queue("exec", "--vram", "9", "--", "true")
    assert never.code == 3 and "too_big" in never.err, never


# Alone


def test_an_exclusive_command_is_beside_no_other_worker_of_its_queue(up: Queue) -> None:
    gate, other = up.folder / "gate", up.folder / "other"
    first = up.start("exec", "--ram", "0.1", "--", *waits_for(gate))
    assert first_line(first) == "ready"
    alone = up.start("exec", "--exclusive", "--ram", "0.2", "--", *waits_for(other))
    eventually(lambda: (seen(up, 2).get("reason") or {}).get("ruling") == "busy", what="its reason")
    assert "asked to be alone" in up.show(2)["reason"]["text"]
    gate.touch()
    assert first_line(alone) == "ready"
    (worker,) = up.status()["workers"]
    assert sum(each["charge_gib"] for each in worker["charges"]) > 0.2
    beside = up("exec", "--no-wait", "--ram", "0.001", "--", "true")
    assert beside.code == 75 and "no room now" in beside.err, beside
    other.touch()
    alone.communicate(timeout=60)
    first.communicate(timeout=60)
    assert (first.returncode, alone.returncode) == (0, 0)
    assert up("exec", "--ram", "0.1", "--", "echo", "after").out == "after\n"
