"""What goes wrong around a running night, and what is left of it afterwards: nothing lost, nobody else stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import psutil
from driven import Queue, eventually


def test_a_large_input_that_vanished_from_the_store_ends_its_own_job_only(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input("big.json", padding="x" * 100_000))
    queue("submit", "echo", queue.input("small.json"))
    for kept in (queue.home / "content").rglob("*"):
        if kept.is_file():
            kept.unlink()
    queue("up")
    assert queue("wait", "2", "--timeout", "30s").code == 0
    eventually(lambda: queue.show(1)["state"] == "failed", what="job 1 failed")
    assert queue.show(1)["outcome"]["kind"] == "input_changed"


def test_a_manifest_that_breaks_while_a_job_runs_takes_no_answer_away_and_the_others_wait(queue: Queue) -> None:
    manifest = queue.provider() / "provider.toml"
    whole, gate = manifest.read_text(), queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input("a.json", wait_for=str(gate)))
    queue("submit", "echo", queue.input("b.json"))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    manifest.write_text("slug = ")
    eventually(lambda: "broken" in (queue.show(2)["reason"] or {}).get("text", ""), what="job 2 says why it waits")
    gate.touch()
    assert queue("wait", "1", "--timeout", "30s").code == 0
    assert queue.show(2)["state"] == "queued"
    manifest.write_text(whole)
    assert queue("wait", "2", "--timeout", "30s").code == 0


def test_a_command_that_cannot_be_started_fails_its_job_and_down_leaves_nothing(queue: Queue) -> None:
    folder = queue.manifests / "nowhere"
    folder.mkdir()
    (folder / "provider.toml").write_text(
        'slug = "nowhere"\nmode = "oneshot"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        '[worker]\ncommand = ["/nonexistent/program", "{input}"]\n[retry]\nmax_attempts = 1\n'
    )
    done = queue("run", "nowhere", queue.input(), timeout=60)
    assert done.code == 1, done
    assert "/nonexistent/program" in done.err + queue("log", "1").out, done
    assert queue("down").code == 0
    assert queue.processes() == []


def test_a_command_needs_no_interpreter_of_ours(queue: Queue) -> None:
    folder = queue.manifests / "copy"
    folder.mkdir()
    (folder / "provider.toml").write_text(
        'slug = "copy"\nmode = "oneshot"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        '[worker]\ncommand = ["/bin/cp", "{input}", "{out}/copied.json"]\noutputs = ["copied.json"]\n'
    )
    done = queue("run", "copy", queue.input(), "--out", "made")
    assert done.code == 0, done
    assert sorted(path.name for path in (queue.folder / "made").iterdir()) == ["copied.json", "job.json"]


def test_killing_keeper_and_worker_while_nobody_watches_loses_the_attempt_and_not_the_job(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input(wait_for=str(gate)))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    scheduler = queue.scheduler_pid()
    others = [process for process in queue.processes() if process.pid != scheduler]
    os.kill(scheduler, signal.SIGKILL)
    for process in others:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ends with the one before
            process.send_signal(signal.SIGKILL)
    gate.touch()
    queue("up")
    assert queue("wait", "1", "--timeout", "60s").code == 0
    assert [attempt["outcome"] for attempt in queue.show(1)["attempts"]] == ["lost", "ok"]


def test_a_wake_address_that_a_cleaner_took_is_bound_anew(queue: Queue, tmp_path: Path) -> None:
    queue.provider()
    queue("up")
    (queue.home / "run" / "wake").unlink()
    eventually(lambda: (queue.home / "run" / "wake").exists(), within_s=30, what="the address is there again")
    assert queue("down").code == 0


def test_a_queue_that_was_removed_takes_its_scheduler_and_its_workers_with_it(queue: Queue) -> None:
    queue.provider()
    assert queue("run", "echo", queue.input()).code == 0
    old = queue.processes()
    log = (queue.home / "scheduler.log").open()
    shutil.rmtree(queue.home)
    eventually(lambda: not any(process.is_running() for process in old), within_s=40, what="all of it has ended")
    assert "was removed, or another queue stands there by now" in log.read()
    log.close()
    assert not queue.home.exists()


def test_a_queue_made_anew_on_the_same_path_is_not_touched_by_what_served_the_old_one(queue: Queue) -> None:
    queue.provider()
    assert queue("run", "echo", queue.input()).code == 0
    old = queue.processes()
    shutil.rmtree(queue.home)
    assert queue("run", "echo", queue.input(), timeout=90).code == 0
    eventually(lambda: not any(process.is_running() for process in old), within_s=40, what="the old ones have ended")
    pid = queue.scheduler_pid()
    assert queue("run", "echo", queue.input(), timeout=90).code == 0
    assert queue.scheduler_pid() == pid and queue.status()["scheduler"]["running"]
    assert [job["state"] for job in (queue.show(1), queue.show(2))] == ["succeeded", "succeeded"]
    assert queue("db", "check").code == 0
    assert queue("down").code == 0
    assert queue.processes() == []


def test_a_scheduler_whose_lock_was_removed_ends_and_the_next_one_goes_on_with_its_workers(queue: Queue) -> None:
    queue.provider()
    assert queue("run", "echo", queue.input()).code == 0
    old = psutil.Process(queue.scheduler_pid())
    shutil.rmtree(queue.home / "lock")
    eventually(lambda: not old.is_running(), within_s=40, what="the old one has ended")
    done = queue("run", "echo", queue.input(), timeout=90)
    assert done.code == 0 and done.json["count"] == 2, done
