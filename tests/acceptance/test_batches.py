"""A night's batch: submitted from a folder, gone on with after some of it failed, and jobs that begin later."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess

from driven import Queue, eventually


def test_a_batch_that_is_submitted_again_runs_what_has_not_succeeded(queue: Queue) -> None:
    queue.provider()
    inputs = queue.folder / "inputs"
    inputs.mkdir()
    for name, body in (("a", {}), ("b", {"wait_for": str(queue.folder / "go"), "fail": True}), ("notes", None)):
        text = "x" if body is None else json.dumps({"say": name, **body})
        (inputs / f"{name}{'.txt' if body is None else '.json'}").write_text(text)
    done = queue("submit", "echo", "inputs", "--batch", "night", "--out", "out/{name}", "--label", "target=x")
    assert (done.code, done.out.split()) == (0, ["1", "2"])
    assert queue("up").code == 0
    (queue.folder / "go").touch()
    assert queue("wait", "--batch", "night", "--timeout", "60s").code == 1
    (inputs / "c.json").write_text('{"say": "c"}')
    again = ("submit", "echo", "inputs", "--batch", "night", "--out", "out/{name}", "--resume")
    told = queue(*again, "--dry-run")
    assert (told.code, told.out.splitlines()[1].split()[:4]) == (0, ["echo", "1", "1", "1"])
    assert re.search(r"(?m)^should end in (under )?\d+s, ", told.err)
    done = queue(*again)
    assert (done.code, done.out.split()) == (0, ["1", "2", "3"])
    assert "batch night: 1 added, 1 opened again, 1 left as they are (1 succeeded, 0 not ended)" in done.err
    assert queue("wait", "1,3", "--timeout", "60s").code == 0
    eventually(lambda: queue.show(2)["state"] == "failed")
    assert [(job["state"], len(job["attempts"])) for job in map(queue.show, (1, 2, 3))] == [
        ("succeeded", 1), ("failed", 2), ("succeeded", 1),
    ]  # fmt: skip
    done = queue("submit", "echo", "inputs/a.json", "--each-after", "night", "--batch", "next")
    assert (done.code, done.out.split()) == (0, ["4", "5", "6"]) and "1 of these will end failed" in done.err
    assert queue("wait", "--batch", "next", "--timeout", "60s").code == 1
    assert [queue.show(each)["state"] for each in (4, 5, 6)] == ["succeeded", "failed", "succeeded"]
    (inputs / "b.json").write_text('{"say": "mended"}')
    done = queue(*again)
    assert done.out.split() == ["1", "2", "3"] and "1 opened again with its request replaced" in done.err
    assert queue("wait", "--batch", "night", "--timeout", "60s").code == 0
    assert (queue("report", "night").code, len(queue.show(2)["attempts"])) == (0, 3)
    assert "mended" in queue("result", "2").out
    assert queue("submit", "echo", "inputs/a.json", "--each-after", "night", "--batch", "next", "--resume").code == 0
    assert queue("wait", "--batch", "next", "--timeout", "60s").code == 0


def test_a_job_begins_when_it_was_told_to(queue: Queue) -> None:
    queue.provider()
    queue.input()
    assert queue("up").code == 0
    assert queue("submit", "echo", "a.json", "--begin", "2h").out == "1\n"
    assert queue("submit", "echo", "a.json", "--begin", "1s").out == "2\n"
    assert queue("wait", "2", "--timeout", "60s").code == 0
    late = queue.show(1)
    assert (late["state"], late["reason"]["ruling"]) == ("queued", "begin")
    assert queue("update", "1", "--begin", "now").code == 0
    assert queue("wait", "1", "--timeout", "60s").code == 0


def test_many_jobs_show_a_bar_on_a_terminal_and_their_ids_alone_on_stdout(queue: Queue) -> None:
    queue.provider()
    row = json.dumps({"provider": "echo", "inline": {"say": "x"}})
    (queue.folder / "jobs.jsonl").write_text(f"{row}\n" * 6000)
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        queue.command("submit", "--from", "jobs.jsonl"), env={**queue.env, "TERM": "xterm"}, cwd=queue.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    ids, _ = child.communicate(timeout=120)
    seen = b""
    try:
        while block := os.read(ours, 1 << 16):
            seen += block
    except OSError:
        pass
    os.close(ours)
    assert child.returncode == 0 and len(ids.split()) == 6000
    assert re.search(rb"\r(checking|queueing) \[[#-]{24}\] [0-9,]+ of 6,000", seen)
    assert seen.endswith(b"\x1b[Knote: no scheduler runs, so nothing starts yet; start it: schedq up\r\n")
