"""Whose fault an end is: a job is blamed for what it did, not for a worker that died before, a shutdown, or a disk."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from driven import Queue, eventually, words_of
from mounts import mounted

LEAVES = """
import os, sys, threading, time
from schedq_worker import serve

def waits_for_a_request():
    frame, calls = sys._current_frames()[threading.main_thread().ident], []
    while frame:
        calls.append(frame.f_code.co_name)
        frame = frame.f_back
    return "get" in calls

def leave_when_it_has_replied():
    while not waits_for_a_request():
        time.sleep(0.0005)
    {leave}

def predict(model, request, job):
    with open({ledger!r}, "a") as ledger:
        ledger.write(request["say"] + "\\n")
    threading.Thread(target=leave_when_it_has_replied).start()
    return {{"said": request["say"]}}

serve(load=dict, predict=predict)
"""
LEAVINGS = ["os._exit(0)", "os._exit(3)", "os.kill(os.getpid(), 9)"]


@pytest.mark.parametrize("leave", LEAVINGS, ids=["exit 0", "exit 3", "SIGKILL"])
def test_no_job_pays_for_a_worker_that_ends_just_after_the_reply_before(queue: Queue, leave: str) -> None:
    ledger = queue.folder / "ledger"
    folder = queue.provider(more="[retry]\nbackoff_s = 0.2\nmax_attempts = 1")
    (folder / "echo_worker.py").write_text(LEAVES.format(ledger=str(ledger), leave=leave))
    paths = [queue.input(f"{n}.json", say=f"job {n}") for n in range(1, 7)]
    assert queue("submit", "echo", *paths).code == 0
    queue("up")
    eventually(
        lambda: queue.status()["counts"] == {"succeeded": 6} or queue("providers", "reset", "echo") is None,
        within_s=120, what="all six succeed, each at its first counted try",
    )  # fmt: skip
    assert sorted(ledger.read_text().splitlines()) == [f"job {n}" for n in range(1, 7)], "and none was begun twice"


def keepers(queue: Queue) -> list[psutil.Process]:
    return [process for process in queue.processes() if "--schedq-keeper" in words_of(process)]


@pytest.mark.parametrize("whom", ["keepers", "everybody"])
def test_a_shutdown_of_the_machine_is_a_loss_and_no_crash_of_the_job(queue: Queue, whom: str) -> None:
    """What systemd does at a shutdown: SIGTERM to the scheduler and to whatever else of it is there."""
    queue.provider(more="[retry]\nbackoff_s = 0.1")
    queue("up")
    queue("submit", "echo", queue.input(wait_for=str(queue.folder / "gate")), "--on-lost", "hold")
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 runs")
    there = queue.processes() if whom == "everybody" else keepers(queue)
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    for process in there:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    eventually(lambda: not queue.processes(), what="all of it has ended")
    queue("up")
    job = eventually(lambda: (found := queue.show(1)) and found["state"] != "running" and found, what="it is told")
    assert (job["state"], job["deaths"], job["attempts"][0]["outcome"]) == ("held", 0, "lost"), job
    assert "--on-lost hold" in job["reason"]["text"] and "operator" not in job["reason"]["text"], job
    assert queue("providers", "list", "--json").json["providers"][0]["breaker"] is None


COMMAND = """slug = "tool"
title = "Writes and waits"
mode = "oneshot"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.05
[worker]
command = ["sh", "-c", "touch {began}; while ! test -e {gate}; do sleep 0.05; done; cp {{input}} {{out}}/result.json"]
outputs = ["result.json"]
[input]
accept = [".json"]
"""


@pytest.mark.parametrize("what", ["gone", "broken"])
def test_a_command_that_ended_well_while_nobody_listened_succeeds_though_its_manifest_is_away(
    queue: Queue, what: str
) -> None:
    began, gate = queue.folder / "began", queue.folder / "gate"
    manifest = queue.manifests / "tool" / "provider.toml"
    manifest.parent.mkdir()
    manifest.write_text(COMMAND.format(began=began, gate=gate))
    queue("up")
    queue("submit", "tool", queue.input(say="kept"))
    eventually(began.exists, what="the command runs")
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    manifest.unlink() if what == "gone" else manifest.write_text("slug = [")
    gate.touch()
    eventually(lambda: not [p for p in queue.processes() if "sh" in p.name()], what="the command has ended")
    queue("up")
    assert queue("wait", "1", timeout=60).code == 0, queue.show(1)
    assert queue("result", "1").json["say"] == "kept"
    assert Path(queue.home, "results", "1", "result.json").exists()


def test_a_reset_lets_the_job_go_on_that_waits_for_its_next_try(queue: Queue) -> None:
    licence = queue.folder / "licence"
    folder = queue.provider()
    (folder / "echo_worker.py").write_text(
        "import os\n"
        "from schedq_worker import serve, Later\n"
        "def load():\n"
        f"    if not os.path.exists({str(licence)!r}):\n"
        "        raise Later('no licence is free', retry_after_s=3600)\n"
        "serve(load=load, predict=lambda model, request, job: {'said': request['say']})\n"
    )
    queue("up")
    queue("submit", "echo", queue.input())
    eventually(lambda: (queue.show(1)["reason"] or {}).get("ruling") == "backoff", what="it waits for an hour")
    licence.touch()
    done = queue("providers", "reset", "echo")
    assert done.code == 0 and "1 job that waited for the next try may go on now" in done.err, done
    assert queue("wait", "1", timeout=60).code == 0


def test_three_jobs_that_gave_themselves_too_little_time_do_not_stop_their_provider(queue: Queue) -> None:
    queue.provider(more="[retry]\nmax_attempts = 1")
    queue("up")
    for n in range(3):
        path = queue.input(f"{n}.json", say=f"job {n}", wait_for="/nonexistent")
        assert queue("submit", "echo", path, "--timeout", "1s").code == 0
    queue("wait", "1-3", timeout=60)
    assert [queue.show(job)["state"] for job in (1, 2, 3)] == ["timed_out"] * 3
    assert queue("providers", "list", "--json").json["providers"][0]["breaker"] is None
    assert queue("run", "echo", queue.input("last.json"), timeout=60).code == 0


def test_a_restart_that_the_disk_has_no_room_for_leaves_the_scheduler_that_copes(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        queue = Queue(disk)
        queue.provider()
        assert queue("up").code == 0
        pid = queue.scheduler_pid()
        with suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        done = queue("restart")
        assert done.code == 75 and "make room" in done.err, done
        assert queue.scheduler_pid() == pid
        (disk / "filler").unlink()
        assert queue("run", "echo", queue.input(), timeout=60).code == 0
        assert queue("down", "--now").code == 0


def test_a_disk_without_room_for_another_file_is_a_reason_and_no_failed_start(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", options="size=64m,nr_inodes=600") as disk:
        queue = Queue(disk)
        queue.provider()
        assert queue("up").code == 0
        try:
            filler = disk / "filler"
            filler.mkdir()
            with suppress(OSError):
                for n in range(1000):
                    (filler / str(n)).touch()
            for path in list(filler.iterdir())[:40]:
                path.unlink()
            assert queue("queue", "pause").code == 0
            given = queue("submit", "echo", "-", stdin=json.dumps({"say": "hello"}))
            assert given.code == 0, given
            eventually(
                lambda: any("more files" in note for note in queue.status()["notes"]), within_s=60,
                what="the scheduler has looked at the disk",
            )  # fmt: skip
            assert queue("queue", "resume").code == 0
            eventually(lambda: (queue.show(1)["reason"] or {}).get("ruling") == "disk", within_s=60, what="it waits")
            for path in filler.iterdir():
                path.unlink()
            assert queue("wait", "1", timeout=60).code == 0
            assert queue.show(1)["tries"] == 1
            assert queue("providers", "list", "--json").json["providers"][0]["breaker"] is None
        finally:
            assert queue("down", "--now").code == 0


def test_a_queue_reached_by_a_link_has_a_journal_and_one_scheduler(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.provider()
    real = tmp_path / ("long" * 20)
    real.mkdir()
    queue.home.symlink_to(real)
    try:
        assert queue("up").code == 0
        pid = queue.scheduler_pid()
        assert queue("run", "echo", queue.input()).code == 0
        assert queue("run", "echo", queue.input("b.json"), SCHEDQ_HOME=str(real)).code == 0
        assert "already up" in queue("up", SCHEDQ_HOME=str(real)).err and queue.scheduler_pid() == pid
        assert list(real.glob("journal/*.jsonl"))
        os.kill(pid, signal.SIGKILL)
        done = queue("run", "echo", queue.input("c.json"), SCHEDQ_HOME=str(real), timeout=60)
        assert done.code == 0 and done.json["count"] == 3, "the worker was adopted under the other name"
    finally:
        assert queue("down", "--now").code == 0
    assert queue.processes() == []


def test_outputs_that_the_disk_of_their_destination_had_no_room_for_are_put_there_later_and_not_made_again(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path / "disk", options="size=1m") as disk:
        (tmp_path / "queue").mkdir()
        queue = Queue(tmp_path / "queue")
        folder = queue.provider()
        ledger = tmp_path / "ledger"
        (folder / "echo_worker.py").write_text(
            "import os\n"
            "from schedq_worker import serve\n"
            "def predict(model, request, job):\n"
            f"    open({str(ledger)!r}, 'a').write('made\\n')\n"
            "    (job.out_dir / 'model.cif').write_bytes(b'x' * 700_000)\n"
            "    return {'said': request['say']}\n"
            "serve(load=dict, predict=predict)\n"
        )
        (disk / "filler").write_bytes(b"x" * 600_000)
        queue("up")
        try:
            queue("submit", "echo", queue.input(), "--out", str(disk / "made"))
            job = eventually(
                lambda: (found := queue.show(1)) and (found["reason"] or {}).get("ruling") == "backoff" and found,
                what="the job waits for room",
            )
            assert "could not be put in place" in job["reason"]["text"] and job["tries"] == 0, job
            (disk / "filler").unlink()
            queue("providers", "reset", "echo")
            assert queue("wait", "1", timeout=60).code == 0, queue.show(1)
            assert (disk / "made" / "model.cif").stat().st_size == 700_000
            assert ledger.read_text() == "made\n", "what was computed is not computed again"
        finally:
            assert queue("down", "--now").code == 0
