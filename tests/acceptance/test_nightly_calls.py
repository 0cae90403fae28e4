"""What a queue does unasked: calls at their times, batches told when they end; over crashes, and in nobody's way."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from driven import Queue, eventually, words_of
from queues import writing

from scheduler.config import Paths

LONG_AGO = "2026-01-01T22:00:00.000000Z"


def make_due(queue: Queue, at: str = LONG_AGO) -> None:
    """Every schedule was due then, and nobody was there."""
    with writing(Paths(str(queue.home))) as db:
        db.execute("UPDATE schedules SET next_at = ?", (at,))


def schedule(queue: Queue) -> dict[str, Any]:
    (told,) = queue("schedule", "list", "--json").json["schedules"]
    return dict(told)


def finished(queue: Queue) -> dict[str, Any]:
    """The schedule's last run, once it has ended."""
    eventually(lambda: (schedule(queue)["last"] or {}).get("ended_at"))
    return dict(schedule(queue)["last"])


@pytest.fixture
def hook() -> Iterator[tuple[str, threading.Event]]:
    """The address of a webhook that never answers, and whether it was called."""
    over, called = threading.Event(), threading.Event()

    class Hang(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            called.set()
            over.wait(30)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hang)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/T0K3N", called
    over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_missed_call_is_made_once_and_its_batch_is_told_once(queue: Queue, tmp_path: Path) -> None:
    queue.provider()
    queue.input()
    told = tmp_path / "told"
    notify = tmp_path / "notify.sh"
    notify.write_text(f"#!/bin/sh\ncat >> {told}\necho >> {told}\n")
    notify.chmod(0o700)
    queue.env["SCHEDQ_NOTIFY_COMMAND"] = str(notify)
    queue.env["SCHEDQ_AUTO_DOWN"] = "1s"
    assert queue("schedule", "add", "0 22 * * *", "submit", "echo", "a.json", "--batch", "nightly").out == "1\n"
    make_due(queue)
    assert queue("run", "echo", "a.json").code == 0  # its scheduler would go after a second without work
    run = finished(queue)
    assert run["exit_code"] == 0 and run["due_at"] == LONG_AGO and run["text"].split("\n")[0].isdigit()
    eventually(lambda: told.exists() and told.read_text().endswith("\n"))
    body = json.loads(told.read_text())
    assert body["event"] == "batch_ended" and body["batch"] == "nightly" and body["succeeded"] == body["jobs"] == 1
    assert queue("status", "--json").json["scheduler"]["running"], "it stays for its schedule"
    assert queue("restart").code == 0
    assert queue("wait", "--batch", "nightly").code == 0
    assert queue("submit", "echo", "a.json", "--batch", "later").code == 0
    eventually(lambda: told.read_text().count("\n") > 1)
    assert [json.loads(line)["batch"] for line in told.read_text().splitlines()] == ["nightly", "later"]
    assert schedule(queue)["last"]["began_at"] == run["began_at"]
    assert schedule(queue)["next_at"] > datetime.now(UTC).isoformat()
    assert len(queue("status", "--batch", "nightly", "--json").json["jobs"]) == 1


def test_a_call_that_was_cut_off_with_its_scheduler_is_said_and_not_made_again(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input(), "--hold")
    assert queue("schedule", "add", "0 22 * * *", "wait", "1", "--timeout", "10m").code == 0
    make_due(queue)
    assert queue("up").code == 0
    eventually(lambda: schedule(queue)["last"])
    calls = eventually(lambda: [each for each in queue.processes() if "10m" in words_of(each)])
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    os.killpg(os.getpgid(calls[0].pid), signal.SIGKILL)
    assert queue("up").code == 0
    run = finished(queue)
    assert run["exit_code"] is None and run["text"].startswith("cut off: its process was gone")
    assert "cut off" in queue("schedule").out
    assert schedule(queue)["next_at"] > datetime.now(UTC).isoformat()


def test_a_webhook_that_hangs_holds_up_neither_jobs_nor_the_end(
    queue: Queue, hook: tuple[str, threading.Event]
) -> None:
    queue.provider()
    url, called = hook
    queue.env |= {"SCHEDQ_NOTIFY_URL": url, "SCHEDQ_NOTIFY_TIMEOUT": "1h"}
    assert queue("up").code == 0
    queue("submit", "echo", queue.input(), "--batch", "night")
    assert queue("wait", "--batch", "night").code == 0
    assert called.wait(60)
    begun = time.monotonic()
    assert queue("run", "echo", queue.input("b.json", say="again")).code == 0
    assert queue("down").code == 0
    assert time.monotonic() - begun < 10.0
    log = (queue.home / "scheduler.log").read_text()
    journal = b"".join(path.read_bytes() for path in (queue.home / "journal").rglob("*") if path.is_file())
    assert "T0K3N" not in log and b"T0K3N" not in journal and b"T0K3N" not in (queue.home / "queue.db").read_bytes()


def test_a_job_that_begins_later_is_let_go_at_its_time(queue: Queue) -> None:
    queue.provider()
    assert queue("up").code == 0
    done = queue("submit", "echo", queue.input(), "--begin", "3s", "--json")
    assert done.code == 0, done
    (job_id,) = done.json["ids"]
    (job,) = queue("status", str(job_id), "--json").json["jobs"]
    assert job["reason"]["ruling"] == "begin"
    assert queue("wait", str(job_id), "--timeout", "30s").code == 0
    shown = queue("show", str(job_id), "--json").json
    waited = datetime.fromisoformat(shown["started_at"]) - datetime.fromisoformat(shown["submitted_at"])
    assert waited.total_seconds() >= 2.9
