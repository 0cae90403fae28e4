"""When jobs are expected to start, and a night that has not happened, as they are asked for on a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driven import Done, Queue, eventually

NIGHT = {
    "capacity_gib": 64.0,
    "reserve_gib": 4.0,
    "providers": {
        "a": {"budget_gib": 40.0, "cold_s": 60.0, "warm_s": 20.0},
        "b": {"budget_gib": 30.0, "cold_s": 30.0, "warm_s": 10.0},
    },
    "jobs": [{"id": n, "slug": "ab"[n % 2], "arrives_s": float(n), "run_s": 10.0} for n in range(1, 9)],
}


def ok(done: Done) -> Done:
    assert done.code == 0, done
    return done


def test_the_plan_says_when_each_job_starts_and_status_says_the_same(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    ok(queue("up"))
    first = ok(queue("submit", "echo", queue.input(say="learned"))).out.split()
    ok(queue("wait", *first))
    ids = [int(ok(queue("submit", "echo", queue.input(say="x", wait_for=str(gate)))).out) for _ in range(4)]
    eventually(lambda: queue.show(ids[0])["state"] == "running")
    eventually(lambda: queue.show(ids[3])["starts_in_s"] is not None)
    planned = ok(queue("plan", "--json")).json["jobs"]
    assert [job["id"] for job in planned] == ids
    assert planned[0]["state"] == "running" and planned[0]["starts_in_s"] is None
    starts = [job["starts_in_s"] for job in planned[1:]]
    assert starts == sorted(starts) and None not in starts
    assert all(job["ends_in_s"] > job["starts_in_s"] for job in planned[1:])
    shown = {job["id"]: job["starts_in_s"] for job in ok(queue("status", "--json")).json["jobs"]}
    for job in planned[1:]:
        assert shown[job["id"]] == pytest.approx(job["starts_in_s"], abs=5.0)
    page = ok(queue("plan")).out
    assert "starts in" in page and all(len(line) <= 80 for line in page.splitlines())
    gate.write_text("go")
    ok(queue("wait", *map(str, ids)))
    assert ok(queue("plan")).out == "nothing runs and nothing waits\n"


def test_without_a_scheduler_the_plan_says_that_nobody_knows(queue: Queue) -> None:
    queue.provider()
    ok(queue("submit", "echo", queue.input(say="x")))
    done = ok(queue("plan"))
    assert "schedq up" in done.err and " ? " in done.out


def test_a_night_is_simulated_from_a_file_or_from_stdin_and_leaves_no_queue(queue: Queue, tmp_path: Path) -> None:
    night = tmp_path / "night.json"
    night.write_text(json.dumps(NIGHT))
    done = ok(queue("simulate", str(night)))
    assert "8 of 2 providers" in done.out and "of the least possible" in done.out
    found = ok(queue("simulate", str(night), "--overtake", "60s", "--json")).json
    assert found["schema_version"] == 1 and len(found["jobs"]) == 8
    assert found["makespan_s"] >= found["lower_bound_s"]
    strictly = ok(queue("simulate", str(night), "--strict", "--json")).json
    assert strictly["cold_starts"] > found["cold_starts"]
    piped = ok(queue("simulate", "-", "--overtake", "60s", "--json", stdin=json.dumps(NIGHT))).json
    assert piped == found
    assert not queue.home.exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["{night}", "--strict", "--overtake", "60s"], 2, "give one of them"),
        (["{night}", "--overtake", "60"], 2, "unit"),
        (["gone.json"], 2, "is not there"),
        (["{folder}"], 2, "is a folder"),
        (["{never}"], 3, "this night cannot end"),
        (["{half}"], 2, "is not JSON"),
        (["{binary}"], 2, "not UTF-8"),
    ],
)
def test_a_night_that_cannot_be_read_is_refused(
    queue: Queue, tmp_path: Path, args: list[str], code: int, said: str
) -> None:
    files = {"night": NIGHT, "never": {**NIGHT, "capacity_gib": 20.0}}
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "half.json").write_text('{"capacity_gib": ')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    places = {name: str(tmp_path / f"{name}.json") for name in (*files, "half", "binary")}
    done = queue("simulate", *(arg.format(folder=tmp_path, **places) for arg in args))
    assert done.code == code and said in done.err and done.out == "", done
