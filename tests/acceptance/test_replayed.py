"""A real run leaves a journal, and the planner decides it again the same: also after a crash and after a reboot."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import replay
from driven import Done, Queue, eventually
from queues import writing

from scheduler.config import Paths


def replayed(queue: Queue) -> Done:
    done = subprocess.run(
        [sys.executable, replay.__file__, str(queue.home / "journal")], capture_output=True, text=True, cwd="/"
    )
    return Done(done.returncode, done.stdout, done.stderr)


def told(queue: Queue) -> set[str]:
    """Every instruction and event of the journal, by name."""
    turns = [turn.told for turn in replay.turns(queue.home / "journal")]
    return {each["is"] for turn in turns for kind in ("events", "instructions") for each in turn.get(kind, ())}


def test_a_night_with_a_crash_can_be_replayed_from_what_it_left(queue: Queue) -> None:
    queue.provider("one", idle=0.5)
    queue.provider("two")
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "one", queue.input("a.json", say="MKTAYIAK"), queue.input("b.json", fail=True))
    queue("submit", "two", queue.input("c.json", wait_for=str(gate)), queue.input("d.json", die=True))
    eventually(lambda: queue.show(3)["state"] == "running", what="job 3 runs")
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    gate.touch()
    queue("up")
    queue("wait", "1-4", "--timeout", "60s")
    assert queue("run", "one", queue.input("e.json", say="after the crash")).code == 0
    eventually(
        lambda: not [each for each in queue.status()["workers"] if each["slug"] == "one"],
        what="the idle one was retired",
    )
    assert queue("down").code == 0
    done = replayed(queue)
    assert done.code == 0 and "the same instructions" in done.out, done
    assert told(queue) >= {"Shown", "Answered", "Replied", "Gone", "Returned", "Asked",
                           "Start", "Go", "Send", "Retire"}  # fmt: skip
    files = sorted((queue.home / "journal").iterdir())
    assert [file.name for file in files] == ["00000001-000001.jsonl", "00000002-000001.jsonl"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((queue.home / "journal").stat().st_mode) == 0o700
    assert not any(b"MKTAYIAK" in file.read_bytes() or b"cannot do that" in file.read_bytes() for file in files)


def test_who_wants_no_journal_has_none(queue: Queue) -> None:
    queue.provider()
    assert queue("run", "echo", queue.input(), SCHEDQ_JOURNAL_MAX_MIB="0").code == 0
    assert not (queue.home / "journal").exists()


def test_after_a_reboot_the_night_goes_on_and_the_status_and_the_log_say_so(queue: Queue) -> None:
    """As a power cut leaves it: no process, a socket and locks on nothing, and rows of another boot."""
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    assert "anew" not in queue("status").out
    queue("submit", "echo", queue.input("a.json", wait_for=str(gate)), queue.input("b.json"))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 runs")
    for process in queue.processes():
        process.kill()
    eventually(lambda: not queue.status()["scheduler"]["running"], what="the lock is free")
    with writing(Paths(str(queue.home))) as connection:
        connection.execute("UPDATE schedulers SET boot_id = 'the boot before'")
        connection.execute("UPDATE workers SET boot_id = 'the boot before'")
    gate.touch()
    assert queue("up").code == 0
    assert queue("wait", "1-2", "--timeout", "60s").code == 0
    assert [attempt["outcome"] for attempt in queue.show(1)["attempts"]] == ["lost", "ok"]
    assert [attempt["outcome"] for attempt in queue.show(2)["attempts"]] == ["ok"]
    assert queue.status()["scheduler"]["rebooted"]
    assert "the first since the machine was started anew" in queue("status").out
    assert "the machine was started anew" in Path(queue.home, "scheduler.log").read_text()
    assert replayed(queue).code == 0
    assert queue("restart").code == 0
    assert not queue.status()["scheduler"]["rebooted"]
    assert queue("down").code == 0 and queue.processes() == []
