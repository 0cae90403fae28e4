"""Workers under the operator's hand: warmed, pinned, retired, and several of one provider; as a person would see it."""

from __future__ import annotations

import json
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from driven import Queue, eventually
from nvml import Card, Stub
from test_machine import seer

from scheduler import wake
from scheduler.client import Client
from scheduler.store import workers as store_workers
from scheduler.store.engine import Store

SILENT_WORKER = """
import json, os, signal, subprocess, sys, time
from schedq_worker import serve

def load():
    for n in range(int(os.environ.get("WORDS", "0"))):
        print("loading", n, flush=True)
        time.sleep(0.5)
    time.sleep(float(os.environ.get("SILENCE_S", "0")))

def predict(model, request, job):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open(request["say"], "w") as file:
        json.dump([os.getpid(), left.pid], file)
    time.sleep(600)

serve(load=load, predict=predict)
"""


def workers(queue: Queue) -> list[dict[str, Any]]:
    return queue("workers", "list", "--json").json["workers"]


def wishes(queue: Queue) -> list[dict[str, Any]]:
    return queue("workers", "list", "--json").json["wishes"]


def ready(queue: Queue) -> dict[str, Any]:
    """The one worker, once it has nothing to do."""
    return eventually(lambda: next((w for w in workers(queue) if w["state"] == "ready"), None))  # type: ignore[return-value]


def test_a_provider_that_is_warmed_answers_the_first_job_warm(queue: Queue) -> None:
    queue.provider()
    asked = queue("workers", "warm", "echo")
    assert asked.code == 0 and "no scheduler runs here" in asked.err, asked
    assert "no scheduler runs that could start it" in queue("workers").out
    queue("up")
    there = ready(queue)
    assert wishes(queue) == [] and (there["warm_hits"], there["jobs_served"]) == (0, 0)
    done = queue("run", "echo", queue.input(), "--timeout", "30s")
    assert done.code == 0 and done.json["pid"] == there["pid"], done
    assert queue.show("last")["attempts"][0]["warm"] is True
    again = queue("workers", "warm", "echo", "--pin")
    assert again.code == 0 and f"worker {there['id']} is warm and pinned" in again.err, again
    (now,) = workers(queue)
    assert (now["id"], now["warm_hits"], now["jobs_served"], now["pinned"]) == (there["id"], 1, 1, True)


def test_a_pinned_worker_survives_age_and_want_of_room_until_it_is_unpinned(queue: Queue) -> None:
    queue.env["SCHEDQ_RESERVE_HOST_GIB"] = "0.25"
    half = _most_gib(queue) * 0.6
    queue.provider("first", ram=half, idle=1)
    queue.provider("second", ram=half)
    queue("up")
    assert queue("workers", "warm", "first", "--pin").code == 0
    pinned = ready(queue)
    assert pinned["pinned"]
    job = queue("submit", "second", queue.input()).out.strip()
    reason = eventually(lambda: queue.show(job)["reason"])
    assert reason["ruling"] == "pool_full", reason
    eventually(lambda: (ready(queue)["idle_s"] or 0) > 2)
    assert queue.show(job)["state"] == "queued"
    assert "pinned" in queue("workers").out
    assert queue("workers", "unpin", "first").code == 0
    assert queue("wait", job, "--timeout", "30s").code == 0
    assert [w["slug"] for w in workers(queue)] == ["second"]


def _most_gib(queue: Queue) -> float:
    pool = next(pool for pool in queue("machine", "--json").json["pools"] if pool["id"] == "host")
    return min(pool["capacity_gib"] - pool["reserve_gib"], pool["live_gib"])


def test_retire_ends_the_idle_now_and_the_busy_after_its_job(queue: Queue, tmp_path: Path) -> None:
    for slug in ("one", "two"):
        queue.provider(slug)
    assert queue("run", "one", queue.input(), "--timeout", "30s").code == 0
    go = tmp_path / "go"
    job = queue("submit", "two", queue.input("b.json", wait_for=str(go))).out.strip()
    eventually(lambda: queue.show(job)["state"] == "running")
    said = queue("workers", "retire", "--idle")
    assert said.code == 0 and said.err.count("it ends now") == 1, said
    (busy,) = eventually(lambda: [w for w in workers(queue) if w["slug"] == "two"] if len(workers(queue)) == 1 else [])
    assert busy["job_id"] == int(job)
    said = queue("workers", "retire", str(busy["id"]))
    assert said.code == 0 and f"it ends after job {job}" in said.err, said
    page = queue("workers")
    assert f"job {job}" in page.out and "ends after its job" in page.out, page
    assert max(map(len, page.out.splitlines())) <= 80
    next_job = queue("submit", "two", queue.input("c.json")).out.strip()
    assert queue.show(job)["state"] == "running"
    go.touch()
    assert queue("wait", job, next_job, "--timeout", "30s").code == 0
    pids = [queue("result", each, "--pointer", "/pid").out.strip() for each in (job, next_job)]
    assert pids[0] != pids[1]
    assert queue("workers", "retire", str(busy["id"])).code == 4


def test_requests_that_race_a_retire_are_all_answered(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCHEDQ_HOME", "SCHEDQ_MANIFESTS", "SCHEDQ_ENVS"):
        monkeypatch.setenv(name, queue.env[name])
    queue.provider()
    queue("up")
    chance = random.Random(5)
    with Client(queue.home) as client, closing(Store(client.paths)) as store:
        jobs = []
        for n in range(30):
            jobs.append(client.submit("echo", {"say": str(n)}))
            time.sleep(chance.uniform(0.0, 0.3))
            with store.write() as tx:
                for row in store_workers.live(tx):
                    store_workers.ask_to_retire(tx, row.id, "the operator asked")
            wake.nudge(client.paths)
        assert set(client.wait(jobs, timeout_s=90).values()) == {"succeeded"}
        assert [client.result(job)["said"] for job in jobs] == [str(n) for n in range(30)]
        assert all(client.status(job)["tries"] == 1 for job in jobs)
        assert len({client.result(job)["pid"] for job in jobs}) > 1


def test_what_can_never_be_warm_is_refused_and_what_does_not_come_up_is_given_up_with_the_reason(queue: Queue) -> None:
    folder = queue.provider(more="[retry]\nbackoff_s = 0.2")
    queue.provider("huge", ram=1e6)
    queue("up")
    never = queue("workers", "warm", "huge")
    assert never.code == 3 and "too_big" in never.err, never
    assert queue("workers", "warm", "ekko").code == 2
    (folder / "broken").touch()
    assert queue("workers", "warm", "echo").code == 0
    (gone,) = eventually(lambda: [w for w in wishes(queue) if w["dropped_at"]], within_s=120)  # type: ignore[misc]
    assert "its start failed 2 times" in gone["reason"]["text"] and "weights" in gone["reason"]["text"]
    assert "is given up" in queue("workers").out
    assert queue("workers", "warm", "echo", "--remove").code == 0
    assert wishes(queue) == []


def test_two_cards_share_a_night_of_one_provider(
    queue: Queue,
) -> None:
    there = Stub(queue.folder).cards([Card(0), Card(1)]).write()
    queue.env.update(there.env())
    folder = seer(queue, "night", 50.0)
    text = folder / "seer.py"
    slow = "import time; time.sleep(0.5)\n    names = ("
    text.write_text(text.read_text().replace("names = (", slow))
    jobs = queue("submit", "night", *[queue.input(f"{n}.json") for n in range(24)]).out.split()
    queue("up")
    assert queue("wait", *jobs, "--timeout", "60s", timeout=70).code == 0
    cards = [queue("result", job, "--pointer", "/CUDA_VISIBLE_DEVICES").out.strip().strip('"') for job in jobs]
    assert {Card(0).id, Card(1).id} == set(cards)
    assert min(cards.count(Card(n).id) for n in (0, 1)) >= 6
    assert {each["device"] for each in workers(queue)} == {f"device:{Card(n).id}" for n in (0, 1)}


def test_a_request_without_a_sign_of_life_is_stopped_with_everything_that_it_started(
    queue: Queue, tmp_path: Path
) -> None:
    (queue.provider(more="request_timeout_s = 1") / "echo_worker.py").write_text(SILENT_WORKER)
    queue("up")
    pids = tmp_path / "pids"
    job = queue("submit", "echo", queue.input(say=str(pids))).out.strip()
    done = queue("wait", job, "--timeout", "40s")
    assert done.code == 1 and queue.show(job)["state"] == "timed_out", done
    assert "no sign of life for request_timeout_s = 1 s" in queue.show(job)["outcome"]["text"]
    assert not any(psutil.pid_exists(pid) for pid in json.loads(pids.read_text()))
    assert workers(queue) == []
    assert sum(pool["charged_gib"] for pool in queue.status()["pools"] if pool["id"] == "host") == 0


def test_a_start_may_take_as_long_as_it_says_something_and_no_longer(queue: Queue) -> None:
    for slug, words, silence_s in (("talks", 8, 0), ("silent", 0, 600)):
        more = f'start_timeout_s = 2\n[worker.env]\nWORDS = "{words}"\nSILENCE_S = "{silence_s}"'
        folder = queue.provider(slug, more=more)
        text = (folder / "provider.toml").read_text()
        (folder / "provider.toml").write_text("\n".join(li for li in text.splitlines() if not li.startswith("env = ")))
        (folder / "echo_worker.py").write_text(SILENT_WORKER)
    assert queue("workers", "warm", "talks", "silent").code == 0
    queue("up")
    there = ready(queue)
    assert there["slug"] == "talks"
    gone = eventually(lambda: next((w for w in wishes(queue) if w["dropped_at"]), None), within_s=90)
    assert "no sign of life for start_timeout_s = 2 s" in gone["reason"]["text"]  # type: ignore[index]
    assert [w["slug"] for w in workers(queue)] == ["talks"]
