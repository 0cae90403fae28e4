"""Validation cases through a real scheduler: judged apart from whether they ran, in workers of their own if asked."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest
from driven import Queue, eventually

SHA256 = hashlib.sha256(b"DATA\n").hexdigest()
CASES = f"""
[[validation]]
name = "says hello"
input = "a.json"
expect = {{ "/said" = "hello", "/input_bytes" = {{ value = 15, abs = 1 }}, "/count" = {{ min = 1 }} }}
[[validation]]
name = "says bye"
input = "a.json"
expect = {{ "/said" = "bye", "/confidence/iptm" = {{ min = 0.5 }} }}
[[validation]]
name = "writes"
input = "w.json"
[validation.expect.files]
"*.pdb" = {{ min_bytes = 5, sha256 = "{SHA256}" }}
"*.cif" = false
[[validation]]
name = "fails"
input = "f.json"
"""


@pytest.fixture
def echo(queue: Queue) -> Path:
    folder = queue.provider(more="")
    for name, body in {"a": {}, "w": {"write": "x.pdb"}, "f": {"fail": True}}.items():
        (folder / f"{name}.json").write_text(json.dumps({"say": "hello", **body}))
    with open(folder / "provider.toml", "a") as file:
        file.write(CASES)
    return folder


def keep_first(folder: Path) -> None:
    """Leave one case in the manifest."""
    manifest = folder / "provider.toml"
    manifest.write_text(manifest.read_text().partition('[[validation]]\nname = "says bye"')[0])


def test_cases_are_judged_apart_from_whether_they_ran_and_what_cannot_run_is_in_the_batch(
    queue: Queue, echo: Path
) -> None:
    huge = queue.provider("huge", ram=1e6)
    (huge / "a.json").write_text('{"say": "x"}')
    with open(huge / "provider.toml", "a") as file:
        file.write('[[validation]]\nname = "one"\ninput = "a.json"\n')
    done = queue("validate", "echo", "huge", "--wait", "--batch", "night", "--timeout", "60s")
    assert done.code == 1, done
    assert done.out.endswith("5 cases of 2 providers: 2 passed, 1 failed, 1 refused, 1 did not run\n")
    assert '/said: expected "bye", found "hello"' in done.out
    assert "failed: error: ValueError: cannot do that" in done.out and "too_big: huge needs" in done.out
    text = queue("show", "2").out
    assert "verdict    failed" in text and "/confidence/iptm: expected at least 0.5, found nothing at" in text
    shown = queue.show(2)
    assert shown["state"] == "succeeded" and shown["check"]["verdict"] == "failed"
    assert [each["place"] for each in shown["check"]["faults"]] == ["/said", "/confidence/iptm"]
    assert queue.show(1)["check"]["verdict"] == queue.show(3)["check"]["verdict"] == "passed"
    assert queue.show(4)["check"]["verdict"] is None and queue.show(5)["state"] == "refused"

    again = queue("validate", "echo", "--wait", "--json", "--timeout", "60s").json
    assert (again["passed"], again["failed"], again["refused"], again["did_not_run"]) == (2, 1, 0, 1)
    assert queue.show(6)["attempts"][0]["worker_id"] == queue.show(1)["attempts"][0]["worker_id"]


def test_a_fresh_case_has_a_worker_that_served_nothing_and_serves_nothing_after_it(queue: Queue, echo: Path) -> None:
    first = queue("run", "echo", queue.input()).json
    assert first["count"] == 1
    keep_first(echo)
    eventually(lambda: queue("providers", "check", "echo").code == 0)
    done = queue("validate", "echo", "--fresh", "--repeat", "2", "--wait", "--timeout", "60s")
    assert done.code == 0 and "2 cases of 1 provider: 2 passed, 0 failed" in done.out, done
    replies = [queue("result", job).json for job in ("2", "3")]
    assert [each["count"] for each in replies] == [1, 1]
    last = queue("run", "echo", queue.input()).json
    assert last["count"] == 1 and len({each["pid"] for each in (first, *replies, last)}) == 4


def test_what_was_answered_with_no_scheduler_left_to_judge_it_is_judged_by_the_next(queue: Queue, echo: Path) -> None:
    gate = queue.folder / "gate"
    (echo / "a.json").write_text(json.dumps({"say": "hello", "wait_for": str(gate)}))
    keep_first(echo)
    assert queue("up").code == 0
    assert queue("validate", "echo").code == 0
    eventually(lambda: queue.show(1)["state"] == "running")
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    gate.touch()
    eventually(lambda: not queue.status()["scheduler"]["running"])
    assert queue.show(1)["check"]["verdict"] is None
    assert queue("up").code == 0
    eventually(lambda: queue.show(1)["check"]["verdict"] is not None)
    assert queue.show(1)["check"]["verdict"] == "failed"
    assert [each["place"] for each in queue.show(1)["check"]["faults"]] == ["/input_bytes"]
