"""A provider with a device measured through the whole of it: its driver is a stand-in, and its worker plays the device.

What is written is what the driver told of this worker; where that is not the whole of it, nothing is written.
"""

from __future__ import annotations

import json
import signal
import sys
import tomllib
from pathlib import Path

import pytest
from driven import Queue, eventually
from nvml import Card, Stub

pytestmark = pytest.mark.host_pids

WORKER = """
import os, time
from schedq_worker import serve

def hold(gib):
    path = os.environ["NVML"]
    with open(path + ".base") as file:
        text = file.read()
    with open(path + ".worker", "w") as file:
        file.write(text + "0 compute %d %d\\n" % (os.getpid(), int(gib * (1 << 30))))
    os.replace(path + ".worker", path)

def load():
    hold(3.0)

def predict(model, request, job):
    if not request.get("hidden"):
        hold(float(os.environ["SCHEDQ_CHARGE_DEVICE_GIB"]) - 0.5 if request.get("greedy") else request["gib"])
    held = bytearray(b"x") * (request.get("mib", 0) << 20)
    while "wait_for" in request and not os.path.exists(request["wait_for"]):
        time.sleep(0.05)
    time.sleep(1.0)
    return {"held": len(held)}

serve(load=load if not os.environ.get("HIDDEN") else lambda: None, predict=predict)
"""
MANIFEST = """
slug = "{slug}"
mode = "resident"
[gpu]
policy = "required"
[worker]
python = "{python}"
script = "worker.py"
stop_grace_s = 1
env = {{ NVML = "{nvml}", HIDDEN = "{hidden}" }}
[input]
accept = [".json"]
"""


class Lab:
    """A queue on a machine with one device, and a configuration of its own."""

    def __init__(self, queue: Queue, folder: Path, card: Card) -> None:
        self.queue, self.stub = queue, Stub(folder).cards([card]).write()
        Path(f"{self.stub.path}.base").write_text(self.stub.path.read_text())
        queue.env.update(self.stub.env())
        queue.env["XDG_CONFIG_HOME"] = str(folder / "config")
        self.config = folder / "config" / "schedq" / "config.toml"

    def provide(self, slug: str, *cases: dict[str, object]) -> None:
        """A provider that declares nothing, with these cases."""
        folder = self.queue.manifests / slug
        folder.mkdir()
        hidden = "1" if any(case.get("hidden") for case in cases) else ""
        text = MANIFEST.format(slug=slug, python=sys.executable, nvml=self.stub.path, hidden=hidden)
        for number, case in enumerate(cases):
            (folder / f"{number}.json").write_text(json.dumps(case))
            text += f'[[validation]]\nname = "case{number}"\ninput = "{number}.json"\n'
        (folder / "provider.toml").write_text(text)
        (folder / "worker.py").write_text(WORKER)

    def freed(self) -> None:
        """The worker goes, and the driver shows it no more."""
        self.stub.write()
        eventually(lambda: not self.queue.status()["workers"], within_s=60, what="no worker")
        declare_strangers(self.queue)


def declare_strangers(queue: Queue) -> None:
    """Whatever else holds a model on this machine, and nobody said how much, is no matter here."""
    for other in queue("machine", "--json").json["others"]:
        if other["charge_gib"] is None:
            queue("machine", "declare", str(other["pid"]), "--vram", "0", "--ram", "1")


def states(queue: Queue) -> list[str]:
    return [job["state"] for job in queue.status()["jobs"]]


def test_what_an_undeclared_provider_takes_of_a_card_is_written_unless_it_took_all_or_cannot_be_seen(
    queue: Queue, tmp_path: Path
) -> None:
    lab = Lab(queue, tmp_path, Card(0))
    lab.provide("told", {"gib": 12.0}, {"gib": 30.0, "mib": 100})
    lab.provide("greedy", {"greedy": True, "gib": 0})
    lab.provide("hidden", {"hidden": True})
    assert queue("up").code == 0
    declare_strangers(queue)
    try:
        done = queue("measure", "told", "--write", "--json", timeout=120)
        assert done.code == 0, done
        told = done.json
        assert [case["device_gib"] for case in told["cases"]] == [12.0, 30.0]
        assert told["base"]["device_gib"] == 3.0, "what the first case left behind is no base"
        assert told["budget"]["device"] == 33.0 and 0.1 < told["peak"]["host_gib"] < 0.3
        table = tomllib.loads(lab.config.read_text())["providers"]["told"]
        assert table["vram_budget_gb"] == 33.0 and table["ram_budget_gb"] == told["budget"]["host"]
        assert table["device"] == "NVIDIA H100 80GB HBM3"
        before = lab.config.read_text()
        lab.freed()

        done = queue("measure", "greedy", "--write", timeout=120)
        text = " ".join(done.out.split())
        assert done.code == 1 and "1 case took all the device memory that was given" in done.err, done
        assert "case0 took 78." in text and "XLA_PYTHON_CLIENT_PREALLOCATE" in text, done
        lab.freed()

        done = queue("measure", "hidden", "--write", "--json", timeout=120)
        assert done.code == 1 and "no use of device memory was seen of case0" in done.err, done
        assert done.json["peak"]["device_gib"] is None and done.json["peak"]["host_gib"] > 0
        assert lab.config.read_text() == before
    finally:
        lab.stub.write()
        queue("down", "--now")


def test_on_unified_memory_a_measurement_outlives_its_scheduler_and_ends_with_its_caller(
    queue: Queue, tmp_path: Path
) -> None:
    lab = Lab(queue, tmp_path, Card(0, name="NVIDIA GB10", total_gib=None))
    go_on = tmp_path / "go_on"
    lab.provide("gb10", {"gib": 5.0, "mib": 200, "wait_for": str(go_on)})
    assert queue("up").code == 0
    declare_strangers(queue)
    try:
        assert queue("queue", "pause").code == 0
        waits = queue.start("measure", "gb10", "--write")
        eventually(lambda: states(queue) == ["queued"], what="a case that waits")
        waits.send_signal(signal.SIGINT)
        _, err = waits.communicate(timeout=30)
        assert waits.returncode == 130 and "nothing was written" in err, err
        assert queue.show(1)["state"] == "cancelled" and not lab.config.exists()
        assert queue("queue", "resume").code == 0

        runs = queue.start("measure", "gb10", "--write", "--json")
        eventually(lambda: "running" in states(queue), within_s=60, what="a case that runs")
        assert queue("restart", timeout=90).code == 0
        go_on.touch()
        out, err = runs.communicate(timeout=120)
        told = json.loads(out)
        assert told["cases"][0]["state"] == "succeeded", told
        assert runs.returncode == 1 and "another scheduler took it over in the middle" in err, err
        assert told["peak"] == {"device_gib": None, "host_gib": None} and not lab.config.exists()
        lab.freed()

        done = queue("measure", "gb10", "--write", "--json", timeout=120)
        assert done.code == 0, done
        told = done.json
        assert told["peak"]["device_gib"] == 5.0 and 0.15 < told["peak"]["host_gib"] < 0.5, told
        assert told["base"]["device_gib"] == 3.0, told
        table = tomllib.loads(lab.config.read_text())["providers"]["gb10"]
        assert (table["vram_budget_gb"], table["device"]) == (5.75, "NVIDIA GB10")
    finally:
        lab.stub.write()
        queue("down", "--now")
