"""A machine with NVIDIA cards, as far as their driver's library tells: what is shown of it, and who is put where."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driven import Queue, eventually
from nvml import DRIVER_NOT_LOADED, LOST, Card, Stub

SEER_WORKER = """
import os
from schedq_worker import serve

def load():
    if os.path.exists("override"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    return None

def predict(model, request, job):
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "SCHEDQ_CHARGE_DEVICE_GIB")
    return {name: os.environ.get(name) for name in names}

serve(load=load, predict=predict)
"""
MANIFEST = """
slug = "{slug}"
mode = "resident"
[gpu]
policy = "{policy}"
{budget}
count = {count}
[host]
ram_budget_gb = 0.05
[worker]
python = "{python}"
script = "seer.py"
stop_grace_s = 1
idle_timeout_s = 600
[input]
accept = [".json"]
"""
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


@pytest.fixture
def stub(tmp_path: Path, queue: Queue) -> Stub:
    """Two empty cards of 80 GiB that the queue's processes see."""
    there = Stub(tmp_path).cards([Card(0), Card(1)]).write()
    queue.env.update(there.env())
    return there


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody's that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def seer(queue: Queue, slug: str, gib: float | None = None, *, count: int = 1, policy: str = "required") -> Path:
    """A provider that answers with the devices it sees; its folder."""
    folder = queue.manifests / slug
    folder.mkdir()
    budget = "" if gib is None else f"vram_budget_gb = {gib}"
    text = MANIFEST.format(slug=slug, policy=policy, budget=budget, count=count, python=sys.executable)
    (folder / "provider.toml").write_text(text)
    (folder / "seer.py").write_text(SEER_WORKER)
    return folder


def seen(queue: Queue, slug: str) -> dict[str, str]:
    done = queue("run", slug, queue.input(), "--timeout", "40s")
    assert done.code == 0, done
    return done.json


def test_each_worker_is_given_a_card_of_its_own_by_uuid_and_a_provider_without_device_sees_none(
    queue: Queue, stub: Stub
) -> None:
    seer(queue, "first", 50.0)
    seer(queue, "second", 50.0)
    seer(queue, "plain", policy="none")
    one, two = seen(queue, "first"), seen(queue, "second")
    assert one == {**HIDDEN, "CUDA_VISIBLE_DEVICES": Card(0).id, "SCHEDQ_CHARGE_DEVICE_GIB": "50.0"}
    assert two == {**HIDDEN, "CUDA_VISIBLE_DEVICES": Card(1).id, "SCHEDQ_CHARGE_DEVICE_GIB": "50.0"}
    assert seen(queue, "plain") == {**HIDDEN, "SCHEDQ_CHARGE_DEVICE_GIB": None}
    status = queue.status()
    charged = {pool["id"]: pool["charged_gib"] for pool in status["pools"]}
    assert charged == {f"device:{Card(0).id}": 50.0, f"device:{Card(1).id}": 50.0, "host": pytest.approx(0.15)}
    charges = [{each["pool"] for each in worker["charges"]} for worker in status["workers"]]
    assert charges[:2] == [{f"device:{Card(0).id}", "host"}, {f"device:{Card(1).id}", "host"}]


def test_a_worker_of_two_devices_gets_both_or_waits_for_both(queue: Queue, stub: Stub) -> None:
    seer(queue, "pair", 40.0, count=2)
    seer(queue, "single", 60.0)
    assert seen(queue, "single")["CUDA_VISIBLE_DEVICES"] == Card(0).id
    asked = queue("room", "pair", "--json")
    assert asked.code == 75 and asked.json["ruling"] == "pool_full", asked
    (change,) = asked.json["fits_if"]
    assert (change["what"], change["name"], change["gib"]) == ("retire", "single", {f"device:{Card(0).id}": 60.0})
    assert seen(queue, "pair")["CUDA_VISIBLE_DEVICES"] == f"{Card(0).id},{Card(1).id}"
    both = queue("room", "single", "--json")
    assert both.code == 75 and both.json["fits_if"][0]["name"] == "pair", both


@pytest.mark.host_pids
def test_room_tells_yes_never_and_not_now_apart_by_text_and_exit_code(
    queue: Queue, stub: Stub, sleeper: subprocess.Popen[bytes]
) -> None:
    seer(queue, "small", 70.0)
    seer(queue, "huge", 90.0)
    seer(queue, "blank")
    fits = queue("room", "small")
    assert fits.code == 0 and "small fits: 70 GiB beside 0 charged" in fits.out.replace("\n", " "), fits
    never = queue("room", "huge")
    assert never.code == 3 and "the most that it could ever be is 79" in never.out.replace("\n", " "), never
    assert queue("room", "blank").code == 3
    assert queue("room", "smal").code == 2
    taken = Card(0, used_gib=40.0, compute=[(sleeper.pid, 40.0)])
    stub.cards([taken, Card(1, used_gib=30.0, compute=[(sleeper.pid, 30.0)])]).write()
    later = queue("room", "small")
    told = " ".join(later.out.split())
    assert later.code == 75 and f"(pid {sleeper.pid}" in told and "it fits if" in told and "ends" in told, later


@pytest.mark.host_pids
def test_machine_shows_pools_readings_with_source_and_age_strangers_and_what_nobody_is_known_to_use(
    queue: Queue, stub: Stub, sleeper: subprocess.Popen[bytes]
) -> None:
    stub.cards([Card(0, used_gib=45.0, compute=[(sleeper.pid, 40.0)]), Card(1)]).write()
    found = queue("machine", "--json").json
    pools = {pool["id"]: pool for pool in found["pools"]}
    first = pools[f"device:{Card(0).id}"]
    assert (first["capacity_gib"], first["live_gib"], first["charged_gib"]) == (79.5, 34.5, 45.0)
    rows = {row["name"]: row for row in found["others"]}
    assert rows["unattributed"]["charge_gib"] == 5.0
    (stranger,) = [row for row in found["others"] if row["pid"] == sleeper.pid]
    assert (stranger["charge_gib"], stranger["used_gib"], stranger["competes"]) == (40.0, 40.0, True)
    readings = [each for each in found["readings"] if each["pool"] == first["id"]]
    assert {each["what"] for each in readings} >= {"capacity", "free"}
    assert all("NVML" in each["source"] and each["age_s"] >= 0 for each in readings)
    page = queue("machine")
    assert page.code == 0 and "unattributed" in page.out and "2 x NVIDIA H100" in page.out, page
    assert max(map(len, page.out.splitlines())) <= 80


def test_a_lost_card_is_unreadable_and_the_other_one_is_used(queue: Queue, stub: Stub) -> None:
    seer(queue, "first", 50.0)
    stub.fail("nvmlDeviceGetMemoryInfo_v2", LOST, "0").fail("nvmlDeviceGetMemoryInfo", LOST, "0").write()
    assert seen(queue, "first")["CUDA_VISIBLE_DEVICES"] == Card(1).id
    assert "lost" in queue("machine").out


def test_a_driver_that_is_not_loaded_is_not_an_empty_machine(queue: Queue, stub: Stub) -> None:
    seer(queue, "first", 50.0)
    stub.fail("nvmlInit_v2", DRIVER_NOT_LOADED).fail("nvmlInitWithFlags", DRIVER_NOT_LOADED).write()
    asked = queue("room", "first", "--json")
    assert asked.code == 75 and asked.json["ruling"] == "unreadable", asked


def test_a_driver_that_hangs_stalls_nobody_who_needs_no_device(queue: Queue, stub: Stub) -> None:
    seer(queue, "first", 50.0)
    seer(queue, "plain", policy="none")
    stub.hang("nvmlDeviceGetMemoryInfo_v2").hang("nvmlDeviceGetMemoryInfo").write()
    job = queue("submit", "first", queue.input()).out.strip()
    assert seen(queue, "plain")["CUDA_VISIBLE_DEVICES"] == "-1"
    reason = eventually(lambda: queue.show(job)["reason"], within_s=30)
    assert reason["ruling"] == "unreadable" and "answer" in reason["text"], reason
    stub.cards([Card(0)]).write()
    assert queue("wait", job, "--timeout", "90s", timeout=100).code == 0


def test_a_worker_that_chooses_its_own_device_does_not_come_up_and_is_told_why(queue: Queue, stub: Stub) -> None:
    (seer(queue, "stray", 50.0) / "override").touch()
    queue("up")
    job = queue("submit", "stray", queue.input()).out.strip()
    text = eventually(
        lambda: next((e["text"] for e in queue.show(job)["story"] if "sees 0" in (e["text"] or "")), None)
    )
    assert f"it was given {Card(0).id} and sees 0" in str(text)


def test_a_device_that_is_left_alone_gets_nobody(queue: Queue, stub: Stub) -> None:
    seer(queue, "first", 50.0)
    queue.env["SCHEDQ_LEAVE_ALONE"] = Card(0).id
    assert seen(queue, "first")["CUDA_VISIBLE_DEVICES"] == Card(1).id
    queue.env["SCHEDQ_LEAVE_ALONE"] = f"{Card(0).id},{Card(1).id}"
    asked = queue("room", "first", "--json")
    assert asked.code == 3 and asked.json["ruling"] == "no_device", asked


@pytest.mark.host_pids
def test_a_job_says_why_it_waits_and_how_it_was_admitted_newest_first(
    queue: Queue, stub: Stub, sleeper: subprocess.Popen[bytes]
) -> None:
    seer(queue, "first", 50.0)
    full = [Card(n, used_gib=60.0, compute=[(sleeper.pid, 60.0)]) for n in (0, 1)]
    stub.cards(full).write()
    queue("up")
    job = queue("submit", "first", queue.input()).out.strip()
    eventually(lambda: (queue.show(job)["reason"] or {}).get("ruling") == "pool_full")
    stub.cards([Card(0), Card(1)]).write()
    assert queue("wait", job, "--timeout", "40s").code == 0
    told = queue("why", job, "--json").json["decisions"]
    rulings = [each["ruling"] for each in told]
    assert rulings[-1] == "pool_full" and "admit" in rulings[:-1], told
    admitted = told[rulings.index("admit")]
    assert admitted["evidence"]["placement"][0]["demand_gib"] == 50.0
    assert queue("why", "999").code == 4


def test_what_an_operator_declares_opens_the_gate_that_an_unknown_holder_closed(queue: Queue, stub: Stub) -> None:
    seer(queue, "first", 50.0)
    tree = queue.folder / "lab" / "remote" / "mystery" / "resident"
    tree.mkdir(parents=True)
    script = tree / "mystery_resident_worker.py"
    script.write_text("import time\ntime.sleep(600)\n")
    worker = subprocess.Popen([sys.executable, str(script), "--socket", str(queue.folder / "s")])
    try:
        closed = queue("room", "first", "--json")
        assert closed.code == 75 and closed.json["ruling"] == "unknown_holding", closed
        assert closed.json["fits_if"][0]["pid"] == worker.pid and "machine declare" in closed.json["fits_if_text"]
        said = queue("machine", "declare", "mystery", "--vram", "10", "--ram", "1")
        assert said.code == 0, said
        assert queue("room", "first").code == 0
        assert json.loads(queue("room", "first", "--json").out)["evidence"]["placement"][0]["charged_gib"] == 10.0
    finally:
        worker.kill()
        worker.wait()
