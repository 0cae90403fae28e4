"""Memory comes back by evidence: what a worker left behind stays charged, is shown, heals, or is written off."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from driven import Queue, eventually, lives, words_of
from nvml import Card, Stub

WORKER = """
import os, subprocess, sys, time
from schedq_worker import serve

CHILD = '''
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = bytearray(64 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
open(sys.argv[1] + ".there", "w").close()
def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
while lives(sys.argv[2]):
    time.sleep(0.01)
until = time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    time.sleep(0.01)
with open(sys.argv[1], "w") as file:
    file.write(repr(time.time()))
'''

def load():
    return None

def predict(model, request, job):
    if "child" in request:
        words = [sys.executable, "-c", CHILD, request["child"], str(os.getpid()), str(request.get("for_s", 8))]
        child = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not os.path.exists(request["child"] + ".there"):
            time.sleep(0.01)
        return {"child": child.pid, "pid": os.getpid(), "at": time.time()}
    return {"pid": os.getpid(), "at": time.time()}

serve(load=load, predict=predict)
"""
MANIFEST = """
slug = "{slug}"
mode = "resident"
[gpu]
policy = "required"
vram_budget_gb = 50.0
[host]
ram_budget_gb = 0.1
[worker]
python = "{python}"
script = "worker.py"
stop_grace_s = 40
idle_timeout_s = 600
[input]
accept = [".json"]
"""
pytestmark = pytest.mark.host_pids
UUID = f"GPU-{os.getpid():08x}-0000-4000-8000-00000000ce11"
"""Of this run alone: keepers of another run would be seen on a device of one name."""

POOL = f"device:{UUID}"


def card(used_gib: float, *compute: tuple[float, ...]) -> Card:
    """The card, of which so much is used, some of it by these processes."""
    return Card(0, uuid=UUID, used_gib=used_gib, compute=compute)


@pytest.fixture
def stub(tmp_path: Path, queue: Queue) -> Stub:
    """One card of 80 GiB, of which its driver has a quarter of a GiB on nobody's name."""
    there = Stub(tmp_path).cards([card(0.25)]).write()
    queue.env.update(there.env())
    queue.env["SCHEDQ_LEAK_AFTER"] = "2s"
    for slug in ("first", "second"):
        folder = queue.manifests / slug
        folder.mkdir()
        (folder / "provider.toml").write_text(MANIFEST.format(slug=slug, python=sys.executable))
        (folder / "worker.py").write_text(WORKER)
    return there


def run(queue: Queue, slug: str, **body: Any) -> dict[str, Any]:
    done = queue("run", slug, queue.input(f"{slug}.json", **body), "--timeout", "60s", timeout=90)
    assert done.code == 0, done
    return done.json


def charged(queue: Queue) -> float:
    return next(pool["charged_gib"] for pool in queue.status()["pools"] if pool["id"] == POOL)


def leaked(queue: Queue) -> list[dict[str, Any]]:
    return [row for row in queue.status()["unreturned"] if row["state"] == "leaked"]


def leak(queue: Queue, stub: Stub) -> dict[str, Any]:
    """A worker that had 30 GiB and ends, and of whose memory 24.56 stay in use on nobody's name; the leaked charge."""
    pid = run(queue, "first")["pid"]
    stub.cards([card(30.25, (pid, 30.0))]).write()
    eventually(lambda: queue.status()["workers"][0]["charges"][0]["used_gib"] == 30.0, what="its use is seen")
    stub.cards([card(24.56)]).write()
    assert queue("workers", "retire", "1").code == 0
    (row,) = eventually(lambda: leaked(queue), what="it is leaked")
    return row


def test_what_is_not_back_is_charged_shown_in_figures_and_heals_by_itself(queue: Queue, stub: Stub) -> None:
    row = leak(queue, stub)
    assert (row["pool"], row["charge_gib"], row["worker_id"]) == (POOL, 50.0, 1) and row["since_at"], row
    assert (
        "24.56 GiB of" in row["text"] and "0.25 were before" in row["text"] and "24.31 GiB are not back" in row["text"]
    )
    eventually(lambda: charged(queue) == 50.0, what="what is not back is on nobody's name, and counts once")
    for verb in (("status",), ("machine",), ("workers",)):
        page = " ".join(queue(*verb).out.split())
        assert "leaked: 24.56 GiB" in page and "24.31 GiB are not back" in page, page
        assert "schedq workers write-off 1" in page, page
    job = queue("submit", "second", queue.input()).out.strip()
    reason = eventually(lambda: (queue.show(job)["reason"] or {}).get("ruling") and queue.show(job)["reason"])
    assert reason["ruling"] == "pool_full" and "its memory leaked" in reason["text"], reason
    stub.cards([card(0.5)]).write()
    assert queue("wait", job, "--timeout", "40s", timeout=60).code == 0
    assert queue.status()["unreturned"] == []


def test_a_leak_outlives_its_scheduler_and_the_next_one_sees_it_heal(queue: Queue, stub: Stub) -> None:
    leak(queue, stub)
    down = queue("down", timeout=60)
    assert down.code == 0 and "50.0 GiB on" in down.err and "(leaked) stay charged" in down.err, down
    assert [row["state"] for row in queue.status()["unreturned"]] == ["leaked"]
    queue("up")
    job = queue("submit", "second", queue.input()).out.strip()
    eventually(lambda: (queue.show(job)["reason"] or {}).get("ruling") == "pool_full", what="it waits")
    stub.cards([card(0.25)]).write()
    assert queue("wait", job, "--timeout", "40s", timeout=60).code == 0


def test_an_operator_writes_off_what_is_leaked_and_that_is_recorded(queue: Queue, stub: Stub) -> None:
    run(queue, "first")
    early = queue("workers", "write-off", "1")
    assert early.code == 2 and "it is not gone" in early.err, early
    queue("workers", "retire", "1")
    eventually(lambda: not queue.status()["workers"], what="it is gone")
    leak_of_next(queue, stub)
    assert queue("workers", "write-off", "99").code == 4
    assert queue("workers", "write-off", "2", "--pool", "host").code == 2
    done = queue("workers", "write-off", "2", "--json")
    assert done.code == 0 and done.json["written_off"] == [{"pool": POOL, "charge_gib": 50.0}], done
    again = queue("workers", "write-off", "2")
    assert again.code == 2 and "no leaked charge" in again.err, again
    assert queue.status()["unreturned"] == []
    from scheduler.config import Paths
    from scheduler.store.connection import open_reader

    connection = open_reader(Paths(str(queue.home)))
    try:
        told = connection.execute("SELECT text FROM events WHERE event = 'lease released' AND worker_id = 2").fetchall()
    finally:
        connection.close()
    assert any("written off by" in text and "24.31 GiB are not back" in text for (text,) in told), told
    assert queue("room", "second").code == 0, "what is on nobody's name is charged as that, and the rest is free"


def leak_of_next(queue: Queue, stub: Stub) -> None:
    run(queue, "first")
    stub.cards([card(24.56)]).write()
    queue("workers", "retire", "2")
    eventually(lambda: leaked(queue), what="it is leaked")


def test_a_child_that_holds_memory_eight_seconds_after_its_parents_exit_keeps_the_charge(
    queue: Queue, stub: Stub
) -> None:
    ended = queue.folder / "child.ended"
    held = run(queue, "first", child=str(ended), for_s=8)
    job = queue("submit", "second", queue.input("b.json")).out.strip()
    eventually(lambda: not psutil.pid_exists(held["pid"]), what="the worker itself has gone, to make room")
    parent_gone = time.time()
    while not ended.exists():
        held_gib, state = charged(queue), queue.show(job)["state"]
        if not ended.exists():
            assert held_gib >= 50.0 and state == "queued"
        time.sleep(0.2)
    assert queue("wait", job, "--timeout", "40s", timeout=60).code == 0
    child_gone = float(ended.read_text())
    assert child_gone - parent_gone > 7.0
    story = queue.show(job)["story"]
    admitted = [event["at"] for event in story if event["event"] == "admit"]
    assert admitted and stamp_s(admitted[0]) >= child_gone, story


def test_a_child_whose_keeper_was_killed_keeps_the_charge_until_it_is_ended(queue: Queue, stub: Stub) -> None:
    ended = queue.folder / "child.ended"
    held = run(queue, "first", child=str(ended), for_s=300)
    child = psutil.Process(held["child"])
    assert os.getsid(child.pid) == child.pid
    os.kill(keeper_of(queue), signal.SIGSTOP)
    os.kill(keeper_of(queue), signal.SIGKILL)
    while lives(child):
        seen = charged(queue)
        assert seen >= 50.0 or not lives(child)
    eventually(lambda: charged(queue) < 50.0, what="the charge is back when the child has gone")
    assert not ended.exists(), "it did not leave by itself: its TERM was ignored, and it was killed"


def test_an_orphan_that_is_found_at_start_up_keeps_its_charge_until_its_memory_is_back(
    queue: Queue, stub: Stub
) -> None:
    ended = queue.folder / "child.ended"
    held = run(queue, "first", child=str(ended), for_s=300)
    stub.cards([card(30.25, (held["pid"], 30.0))]).write()
    eventually(lambda: queue.status()["workers"][0]["charges"][0]["used_gib"] == 30.0, what="its use is seen")
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    os.kill(keeper_of(queue), signal.SIGKILL)
    stub.cards([card(30.25, (held["pid"], 30.0))]).write()
    assert queue("up").code == 0
    eventually(lambda: not psutil.pid_exists(held["child"]), what="the orphan is ended")
    (row,) = eventually(lambda: leaked(queue), what="its driver lists it still")
    assert f"still lists its process {held['pid']}" in row["text"], row
    stub.cards([card(0.25)]).write()
    eventually(lambda: not queue.status()["unreturned"], what="it is back")


def keeper_of(queue: Queue) -> int:
    return next(p.pid for p in queue.processes() if "--schedq-keeper" in words_of(p))


def stamp_s(text: str) -> float:
    from scheduler.clock import seconds

    return seconds(text)
