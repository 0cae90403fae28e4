"""A worker that takes more than it is charged for, as its owner sees it; and a provider measured, budget and all."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from driven import Queue

EATER = """
import os, resource, time
from schedq_worker import serve

def charged_bytes():
    words = open("/proc/%d/cmdline" % os.getppid()).read().split("\\0")
    return int(float(next(w for w in words if w.startswith("charge=host:")).rpartition(":")[2]) * (1 << 30))

def load():
    return bytearray(b"x") * (40 << 20)

def predict(model, request, job):
    if request.get("capped"):  # as a framework's allocator is capped at its charge
        most = 200 * (1 << 20) + charged_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))
    held = bytearray(b"x") * (request["mib"] << 20)
    time.sleep(0.5)
    return {"held_mib": len(held) >> 20, "charged": charged_bytes() / (1 << 30)}

serve(load=load, predict=predict)
"""

MANIFEST = """
slug = "eater"
mode = "resident"
[gpu]
policy = "none"
[host]
ram_budget_gb = {ram}
[worker]
python = "{python}"
script = "eater.py"
stop_grace_s = 2
[input]
accept = [".json"]
[[validation]]
name = "large"
input = "large.json"
[[validation]]
name = "small"
input = "small.json"
"""


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    made = Queue(tmp_path)
    made.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return made


def eater(queue: Queue, ram: float) -> None:
    folder = queue.manifests / "eater"
    folder.mkdir()
    (folder / "provider.toml").write_text(MANIFEST.format(ram=ram, python=sys.executable))
    (folder / "eater.py").write_text(EATER)
    (folder / "large.json").write_text(json.dumps({"mib": 160, "about": "larger by its bytes, too" * 4}))
    (folder / "small.json").write_text(json.dumps({"mib": 20}))


def asked(queue: Queue, name: str, **body: object) -> str:
    path = queue.folder / name
    path.write_text(json.dumps(body))
    return str(path)


def test_a_job_that_runs_out_of_its_charge_is_tried_once_more_alone_behind_the_others(queue: Queue) -> None:
    eater(queue, 0.1)
    big, others = asked(queue, "big.json", mib=500, capped=True), [asked(queue, f"{n}.json", mib=10) for n in range(3)]
    ids = [int(queue("submit", "eater", path).out) for path in (big, *others)]
    assert queue("up").code == 0
    try:
        waited = queue("wait", *map(str, ids))
        assert waited.code == 0, waited
        shown = queue.show(ids[0])
        assert [each["outcome"] for each in shown["attempts"]] == ["over_budget", "ok"]
        told = shown["attempts"][0]["outcome_text"]
        assert "MemoryError" in told and "of 0.1 GiB charged" in told and "GiB free" in told
        ended = [queue.show(job)["ended_at"] for job in ids]
        assert ended[0] == max(ended), "behind everything else of its priority"
        reply = queue("result", str(ids[0])).json
        assert reply["held_mib"] == 500 and reply["charged"] > 0.6, "with what its pool can give"
    finally:
        queue("down", "--now")


def test_a_provider_that_declares_too_much_is_measured_and_its_budget_written_beside_what_the_file_says(
    queue: Queue,
) -> None:
    eater(queue, 100_000.0)
    config = queue.folder / "config" / "schedq" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('# mine\novertake = "10m"  # patience\n\n[providers.eater]\nidle_timeout_s = 5  # soon\n')
    assert queue("up").code == 0
    try:
        refused = queue("submit", "eater", asked(queue, "a.json", mib=10))
        assert refused.code == 3, refused
        done = queue("measure", "eater", "--write", "--json", timeout=120)
        assert done.code == 0, done
        told = done.json
        assert [case["name"] for case in told["cases"]] == ["small", "large"], "smallest first"
        small, large = (case["host_gib"] for case in told["cases"])
        assert 0.05 < small < 0.15 < large < 0.35
        assert 0.03 < told["base"]["host_gib"] < small
        assert told["judged"] == {"host": "over"} and large < told["budget"]["host"] < 0.6
        text = config.read_text()
        assert text.startswith(
            '# mine\novertake = "10m"  # patience\n\n[providers.eater]\nidle_timeout_s = 5  # soon\n'
        )
        assert tomllib.loads(text)["providers"]["eater"]["ram_budget_gb"] == told["budget"]["host"]
        assert queue("submit", "eater", asked(queue, "a.json", mib=10)).code == 0, "it fits by now"
        shown = queue("providers", "show", "eater")
        assert "config.toml [providers.eater] (" in shown.out and "at most in 2 cases" in shown.out
    finally:
        queue("down", "--now")


def test_what_is_learned_is_shown_beside_what_is_declared_and_can_be_forgotten(queue: Queue) -> None:
    eater(queue, 0.1)
    inputs = [asked(queue, f"{n}.json", mib=160 + n) for n in range(3)]
    assert queue("submit", "eater", *inputs).code == 0
    assert queue("up").code == 0
    try:
        assert queue("wait", "1-3").code == 0
        listed = next(p for p in queue("providers", "list", "--json").json["providers"] if p["slug"] == "eater")
        assert listed["ram_gib"] == 0.1 and listed["learned"][0]["runs"] == 3
        assert listed["learned"][0]["host_gib"] == pytest.approx(0.22, abs=0.08)
        assert "too little" in listed["misdeclared"]["host"]
        assert "too little" in queue("providers", "check", "eater").out
        assert "in the last 3 runs" in queue("providers", "show", "eater").out
        assert "too little" in " ".join(queue("providers", "list").out.split())
        assert queue("measure", "eater", "--reset", "--json").json["forgotten"] == 3
        listed = next(p for p in queue("providers", "list", "--json").json["providers"] if p["slug"] == "eater")
        assert listed["learned"] == [] and listed["misdeclared"] == {}
    finally:
        queue("down", "--now")


def test_a_provider_without_a_validation_case_cannot_be_measured(queue: Queue) -> None:
    queue.provider("echo")
    done = queue("measure", "echo")
    assert done.code == 2 and "[[validation]]" in done.err
    assert not queue.home.exists() or queue.status()["jobs"] == []
