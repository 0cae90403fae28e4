"""Exit 75, "not now, because of something outside": of a command, and of a worker that cannot load yet."""

from __future__ import annotations

from pathlib import Path

from driven import Queue, eventually

COMMAND = """slug = "share"
title = "Reads a share that may not be mounted"
mode = "oneshot"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.05
[worker]
command = ["sh", "-c", "echo try >> {ledger}; test -e {share} || {{ echo the share is not mounted >&2; exit 75; }};\
 cp {{input}} {{out}}/result.json"]
{more}
[retry]
max_attempts = 1
[input]
accept = [".json"]
[output]
result = "result.json"
"""


def command(queue: Queue, more: str = "") -> tuple[Path, Path]:
    """A command that answers 75 until its share is there; the share, and the file that has a line a try."""
    share, ledger = queue.folder / "share", queue.folder / "ledger"
    folder = queue.manifests / "share"
    folder.mkdir()
    (folder / "provider.toml").write_text(COMMAND.format(share=share, ledger=ledger, more=more))
    return share, ledger


def test_a_command_that_exits_75_is_tried_again_later_and_uses_up_no_try(queue: Queue) -> None:
    share, ledger = command(queue)
    queue("up")
    assert queue("submit", "share", queue.input()).code == 0
    job = eventually(
        lambda: (found := queue.show(1)) and found["laters"] >= 1 and found["reason"] and found,
        what="the job waits for the share",
    )
    assert (job["state"], job["tries"], job["reason"]["ruling"]) == ("queued", 0, "backoff"), job
    assert "told to come later once" in job["reason"]["text"] and "not mounted" in job["reason"]["text"], job
    share.touch()
    assert queue("wait", "1", timeout=120).code == 0
    job = queue.show(1)
    assert (job["state"], job["tries"]) == ("succeeded", 1)
    assert len(ledger.read_text().splitlines()) == job["laters"] + 1 == len(job["attempts"])


def test_what_is_told_to_come_later_for_too_long_fails_and_says_so(queue: Queue) -> None:
    command(queue, more="later_for_s = 0.5")
    queue("up")
    assert queue("submit", "share", queue.input()).code == 0
    assert queue("wait", "1", timeout=120).code == 1
    outcome = queue.show(1)["outcome"]
    assert outcome["kind"] == "later_expired" and "not mounted" in outcome["text"], outcome


def test_a_worker_that_exits_75_before_it_is_ready_puts_its_provider_off_without_a_failure(queue: Queue) -> None:
    folder = queue.provider()
    (folder / "echo_worker.py").write_text(
        "import os, sys\n"
        "from schedq_worker import serve, Later\n"
        "def load():\n"
        f"    if not os.path.exists({str(queue.folder / 'licence')!r}):\n"
        "        raise Later('no licence is free', retry_after_s=4)\n"
        "serve(load=load, predict=lambda model, request, job: {'said': request['say']})\n"
    )
    queue.provider("other")
    queue("up")
    assert queue("submit", "echo", queue.input(), queue.input("b.json")).code == 0
    job = eventually(
        lambda: (found := queue.show(1)) and (found["reason"] or {}).get("ruling") == "backoff" and found,
        what="the first job waits for the time that the worker named",
    )
    assert (job["state"], job["tries"], job["laters"]) == ("queued", 0, 0), job
    assert "no licence is free" in job["reason"]["text"], job
    second = queue.show(2)["reason"]
    assert second["ruling"] == "breaker" and "no licence is free" in second["text"], second
    [row] = [each for each in queue("providers", "list", "--json").json["providers"] if each["slug"] == "echo"]
    assert row["breaker"]["failures"] == 0 and row["breaker"]["next_try_at"], row
    assert (
        "put off" in queue("providers", "list").out and "no licence is free" in queue("providers", "show", "echo").out
    )
    assert queue("run", "other", queue.input()).code == 0, "the others go on"
    (queue.folder / "licence").touch()
    assert queue("wait", "1", "2", timeout=120).code == 0
    assert [queue.show(job)["tries"] for job in (1, 2)] == [1, 1]
    assert queue("providers", "list", "--json").json["providers"][0]["breaker"] is None
