"""What an operator does to a running night: pause, drain, hold, requeue, update, reset; and what jobs survive."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from pathlib import Path

import psutil
from driven import Done, Queue, eventually

LOOPS = """
import os, signal, subprocess, sys
from schedq_worker import serve

CHILD = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"

def predict(model, request, job):
    if "loop" not in request:
        return {"pid": os.getpid()}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    with open(request["loop"] + ".part", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(request["loop"] + ".part", request["loop"])
    while True:
        pass

serve(load=lambda: None, predict=predict)
"""

LICENCE = """
import os
from schedq_worker import serve, Later

def predict(model, request, job):
    if not os.path.exists(request["licence"]):
        raise Later("no licence is free", retry_after_s=1)
    return {"said": "hello"}

serve(load=lambda: None, predict=predict)
"""


def gated(queue: Queue, *names: str) -> Path:
    """A running scheduler with jobs 1, 2, ... of `echo` that each wait for one gate; the first of them runs."""
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    for name in names:
        assert queue("submit", "echo", queue.input(f"{name}.json", say=name, wait_for=str(gate))).code == 0
    eventually(lambda: queue.show(1)["state"] == "running", within_s=60, what="job 1 running")
    return gate


def charged(queue: Queue) -> int:
    """How many leases are not released."""
    with sqlite3.connect(f"file:{queue.home / 'queue.db'}?mode=ro", uri=True) as database:
        return int(database.execute("SELECT count(*) FROM leases WHERE state <> 'released'").fetchone()[0])


def slow_to_load(folder: Path) -> None:
    manifest = folder / "provider.toml"
    manifest.write_text(manifest.read_text().replace("env = {", 'env = { ECHO_LOAD_S = "60",'))


def reasons(queue: Queue) -> dict[int, str]:
    """The ruling of every waiting job."""
    return {job["id"]: job["reason"]["ruling"] for job in queue.status()["jobs"] if job["state"] == "queued"}


def ended(queue: Queue, jobs: str) -> Done:
    done = queue("wait", jobs, "--timeout", "30s")
    assert done.code == 0, done
    return done


# The whole queue


def test_a_paused_queue_finishes_what_runs_keeps_its_workers_and_survives_a_restart(queue: Queue) -> None:
    gate = gated(queue, "a", "b", "c")
    said = queue("queue", "pause")
    assert said.code == 0 and "1 running: 1 (echo, a)" in said.err and "resume" in said.err, said
    gate.touch()
    ended(queue, "1")
    assert reasons(queue) == {2: "paused", 3: "paused"}
    assert queue("restart").code == 0
    page = queue("status")
    assert "paused for" in page.out and "schedq queue resume" in page.out, page
    assert [worker["state"] for worker in queue.status()["workers"]] == ["ready"]
    assert reasons(queue) == {2: "paused", 3: "paused"}
    left = queue("wait", "2", "--timeout", "1s")
    assert left.code == 124, left
    assert queue("submit", "echo", queue.input("d.json")).err == (
        "note: the queue is paused, so nothing starts yet; schedq queue resume ends that\n"
    )
    assert queue("queue", "--json").json["state"] == "paused"
    assert queue("queue", "resume").code == 0
    ended(queue, "2-4")
    assert queue("result", "4", "--pointer", "/count").out.strip() == "4"
    assert queue("queue").out.startswith("open\n")


def test_a_pause_during_a_load_gives_the_job_back_uncounted(queue: Queue) -> None:
    slow_to_load(queue.provider())
    queue("up")
    queue("submit", "echo", queue.input())
    eventually(lambda: [w["state"] for w in queue.status()["workers"]] == ["starting"], what="its worker loads")
    assert queue.show(1)["state"] == "admitted"
    assert queue("queue", "pause").code == 0
    eventually(lambda: not queue.status()["workers"], what="the worker is gone")
    job = queue.show(1)
    assert (job["state"], job["tries"], job["reason"]["ruling"]) == ("queued", 0, "paused")
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["interrupted"]
    assert charged(queue) == 0


def test_a_drain_waits_for_what_runs_retires_the_workers_and_takes_nothing_new(queue: Queue) -> None:
    gate = gated(queue, "a", "b")
    late = queue("queue", "drain", "--timeout", "300ms")
    assert late.code == 124 and "waiting for 1 running: 1 (echo, a)" in late.err, late
    assert queue("queue", "--json").json["state"] == "draining"
    draining = queue.start("queue", "drain", "--json")
    assert queue("submit", "echo", queue.input("c.json")).code == 0
    gate.touch()
    out, err = draining.communicate(timeout=30)
    assert draining.returncode == 0 and "drained: nothing runs" in err, err
    assert json.loads(out)["state"] == "drained" and json.loads(out)["counts"] == {"queued": 2, "succeeded": 1}
    assert queue.status()["workers"] == [] and queue.status()["scheduler"]["running"] and charged(queue) == 0
    assert reasons(queue) == {2: "paused", 3: "paused"}
    assert "drained since" in queue.show(2)["reason"]["text"]
    queue("queue", "resume")
    ended(queue, "2-3")


def test_a_drain_that_somebody_resumes_ends_and_says_so(queue: Queue) -> None:
    gated(queue, "a")
    draining = queue.start("queue", "drain")
    eventually(lambda: queue.status()["drained_at"], what="it drains")
    assert queue("queue", "resume").code == 0
    _, err = draining.communicate(timeout=30)
    assert draining.returncode == 75 and "somebody resumed the queue" in err, err


def test_everything_that_changes_the_queue_works_with_the_scheduler_down_and_says_what_follows(queue: Queue) -> None:
    queue.provider()
    assert "the next one starts with the queue paused" in queue("queue", "pause").err
    queue("submit", "echo", queue.input("a.json"), queue.input("b.json"), queue.input("c.json"))
    waits = queue.show(1)["reason"]
    assert waits["ruling"] == "paused" and "schedq queue resume" in waits["text"] and "schedq up" in waits["text"]
    done = queue("queue", "drain")
    assert done.code == 0 and "nothing runs, and no scheduler" in done.err, done
    assert queue("hold", "1-2").code == 0
    assert "no scheduler runs" in queue("release", "1").err
    assert queue("cancel", "3").code == 0
    assert "no scheduler runs" in queue("requeue", "3").err
    assert queue("update", "3", "--priority", "7").code == 0
    queue("up")
    assert {job["id"]: job["reason"]["ruling"] for job in queue.status()["jobs"]} == {
        1: "paused", 2: "held", 3: "paused",
    }  # fmt: skip
    assert queue("queue", "resume").code == 0
    ended(queue, "1,3")
    assert queue.show(3)["started_at"] < queue.show(1)["started_at"]
    assert queue.show(2)["state"] == "held"


# Single jobs


def test_a_held_job_waits_for_release_and_keeps_its_place(queue: Queue) -> None:
    gate = gated(queue, "a", "b", "c")
    assert queue("submit", "echo", queue.input("d.json"), "--hold").err == "note: held until schedq release\n"
    assert queue("hold", "2").err == "job 2: held\n"
    running = queue("hold", "1")
    assert running.code == 2 and running.err == "job 1 is running: hold does nothing there; `schedq cancel` stops it\n"
    assert queue("hold", "2").code == 0
    gate.touch()
    ended(queue, "1,3")
    assert [queue.show(job)["state"] for job in (2, 4)] == ["held", "held"]
    assert queue("release", "--state", "held").err == (
        "job 2: released, queued\njob 4: released, queued\nin all: 2 released\n"
    )
    ended(queue, "2,4")
    assert queue.show(2)["started_at"] < queue.show(4)["started_at"]
    again = queue("release", "2")
    assert again.code == 2 and "job 2 is succeeded" in again.err, again


def test_a_hold_during_a_load_gives_the_job_back_and_the_worker_comes_up_for_the_next(queue: Queue) -> None:
    worker = queue.provider() / "echo_worker.py"
    gate = queue.folder / "loaded"
    waits = f"def load():\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)"
    worker.write_text(worker.read_text().replace("def load():", waits))
    queue("up")
    queue("submit", "echo", queue.input("a.json"))
    eventually(lambda: [w["state"] for w in queue.status()["workers"]] == ["starting"], what="its worker loads")
    assert queue("hold", "1", "--json").json["jobs"] == [
        {"id": 1, "before": "admitted", "state": "held", "refused": None}
    ]
    gate.touch()
    eventually(lambda: [w["state"] for w in queue.status()["workers"]] == ["ready"], what="its worker is there")
    queue("submit", "echo", queue.input("b.json"))
    ended(queue, "2")
    assert queue.show(2)["worker_id"] == 1 and queue.show(1)["state"] == "held"


def test_filters_dry_run_the_question_and_json_are_those_of_cancel(queue: Queue) -> None:
    queue.provider()
    queue("queue", "pause")
    sources = [queue.input(f"{n}.json", say=str(n)) for n in range(22)]
    assert queue("submit", "echo", *sources, "--batch", "night").code == 0
    for verb, before, after in (("hold", "queued", "held"), ("release", "held", "queued")):
        dry = queue(verb, "--batch", "night", "--dry-run")
        assert dry.code == 0 and dry.err == f"would {verb} 22 jobs\n" and len(dry.out.splitlines()) == 22
        asked = queue(verb, "--batch", "night")
        assert asked.code == 2 and "22 jobs" in asked.err and "--yes" in asked.err
        assert queue.show(1)["state"] == before
        done = queue(verb, "--batch", "night", "--yes")
        assert done.code == 0 and f"in all: 22 {'held' if verb == 'hold' else 'released'}" in done.err, done
        assert queue.show(22)["state"] == after
    some = queue("update", "--batch", "night", "--name", "1?", "--priority", "3", "--json")
    assert [job["id"] for job in some.json["jobs"]] == list(range(11, 21))
    assert queue("requeue", "--batch", "night", "--yes").err.startswith("no job matches that can be requeued;")
    assert queue("hold", "--batch", "nihgt").code == 4
    assert (
        queue("hold", "--batch", "night", "--name", "no").err == "no job matches that can be held; nothing was held\n"
    )
    assert queue("hold").code == 2
    absent = queue("hold", "1,99")
    assert absent.code == 4 and "no job 99" in absent.err and queue.show(1)["state"] == "queued"


def test_two_operators_at_once_change_a_job_once(queue: Queue) -> None:
    queue.provider()
    queue("queue", "pause")
    for turn in range(1, 5):
        queue("submit", "echo", queue.input(f"{turn}.json"))
        both = [queue.start("hold", str(turn)), queue.start("cancel", str(turn))]
        texts = [process.communicate(timeout=30)[1] for process in both]
        job = queue.show(turn)
        assert job["state"] == "cancelled" and both[1].returncode == 0, texts
        held = [event["event"] for event in job["story"]].count("hold")
        assert both[0].returncode == (0 if held else 2), texts
        twice = [queue.start("requeue", str(turn)) for _ in range(2)]
        said = [process.communicate(timeout=30)[1] for process in twice]
        assert sorted(process.returncode for process in twice) == [0, 2], said
        assert any("it is in the line already" in text for text in said), said
        assert [event["event"] for event in queue.show(turn)["story"]].count("requeue") == 1


def test_a_priority_moves_a_waiting_job_and_a_running_one_is_told(queue: Queue) -> None:
    gate = gated(queue, "a", "b", "c")
    assert queue("update", "3", "--priority", "5").err == "job 3: --priority 0 -> 5\n"
    again = queue("update", "3", "--priority", "5")
    assert again.code == 0 and again.err == "job 3: changed already, nothing changed\n", again
    assert "changed by its operator: --priority 0 -> 5" in queue("show", "3").out
    told = queue("update", "1", "--priority", "5")
    assert told.code == 2 and "job 1 is running" in told.err, told
    assert queue("update", "1", "--max-attempts", "1").code == 0
    assert queue("update", "1").code == 2
    gate.touch()
    ended(queue, "1-3")
    assert queue.show(3)["started_at"] < queue.show(2)["started_at"]
    over = queue("update", "1", "--max-attempts", "3")
    assert over.code == 2 and "has ended" in over.err, over


def test_a_job_of_another_revision_is_moved_to_the_one_that_is_here_if_its_input_fits(queue: Queue) -> None:
    folder = queue.provider()
    queue("submit", "echo", queue.input("a.json"))
    queue("submit", "echo", queue.input("b.json"), "--param", "loud=true")
    schema = json.loads((folder / "input.schema.json").read_text())
    schema["properties"]["say"]["minLength"] = 99
    (folder / "input.schema.json").write_text(json.dumps(schema))
    queue("up")
    eventually(lambda: queue.show(1)["blocked"] == "revision", what="job 1 waits for its revision")
    assert "schedq update" in queue.show(1)["reason"]["text"]
    refused = queue("update", "1", "--repin")
    assert refused.code == 3 and "/say" in refused.err, refused
    assert queue.show(1)["blocked"] == "revision"
    schema["properties"]["say"]["minLength"] = 2
    (folder / "input.schema.json").write_text(json.dumps(schema))
    assert queue("update", "--slug", "echo", "--repin").code == 0
    ended(queue, "1-2")
    assert queue.show(2)["params"]["loud"] is True


# What jobs say of being tried again


def test_a_job_says_itself_how_often_and_after_what_it_is_tried_again(queue: Queue) -> None:
    queue.provider(more="[retry]\nbackoff_s = 0.1")
    queue("up")
    queue("submit", "echo", queue.input("a.json", die=True), "--max-attempts", "1")
    queue("submit", "echo", queue.input("b.json", fail=True), "--retry-on", "error,lost", "--max-attempts", "3")
    queue("submit", "echo", queue.input("c.json", die=True), "--retry-on", "none")
    queue("wait", "1-3", "--timeout", "60s")
    found = [(job["outcome"]["kind"], len(job["attempts"])) for job in map(queue.show, (1, 2, 3))]
    assert found == [("crashed", 1), ("error", 3), ("crashed", 1)]
    wrong = queue("submit", "echo", queue.input(), "--retry-on", "refused")
    assert wrong.code == 2 and "no_reply" in wrong.err, wrong
    assert queue("submit", "echo", queue.input(), "--on-lost", "shrug").code == 2
    assert queue("submit", "echo", queue.input(), "--max-attempts", "0").code == 2


def test_an_attempt_that_vanished_with_its_keeper_holds_its_job_if_that_was_asked(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input(wait_for=str(gate)), "--on-lost", "hold")
    eventually(lambda: queue.show(1)["state"] == "running", within_s=60, what="job 1 running")
    scheduler = queue.scheduler_pid()
    for process in [each for each in queue.processes() if each.pid != scheduler]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    eventually(lambda: queue.show(1)["state"] == "held", what="job 1 is held")
    assert [attempt["outcome"] for attempt in queue.show(1)["attempts"]] == ["lost"]
    gate.touch()
    queue("release", "1")
    ended(queue, "1")


def test_a_job_that_kills_two_workers_is_quarantined_and_the_next_ones_run(queue: Queue) -> None:
    queue.provider(more="[retry]\nbackoff_s = 0.1\nmax_attempts = 5")
    queue("up")
    queue("submit", "echo", queue.input("a.json", die=True))
    queue("submit", "echo", queue.input("b.json"), queue.input("c.json"))
    ended(queue, "2-3")
    queue("wait", "1", "--timeout", "30s")
    job = queue.show(1)
    assert (job["state"], job["outcome"]["kind"], job["deaths"]) == ("failed", "quarantined", 2)


def test_a_worker_that_asks_for_another_time_is_asked_again_then_and_no_try_is_counted(queue: Queue) -> None:
    (queue.provider() / "echo_worker.py").write_text(LICENCE)
    licence = queue.folder / "licence"
    queue("up")
    queue("submit", "echo", queue.input(licence=str(licence)), "--max-attempts", "1")
    eventually(lambda: queue.show(1)["laters"] >= 2, what="told to come later, twice")
    assert queue.show(1)["tries"] == 0
    licence.touch()
    ended(queue, "1")
    assert queue.show(1)["tries"] == 1


# Workers and providers


def test_a_cancel_stops_whatever_the_worker_does_within_its_grace_and_frees_what_it_held(queue: Queue) -> None:
    (queue.provider() / "echo_worker.py").write_text(LOOPS)
    looping = queue.folder / "looping"
    queue("up")
    queue("submit", "echo", queue.input("a.json", loop=str(looping)))
    queue("submit", "echo", queue.input("b.json"))
    eventually(looping.exists, what="it loops")
    pids = [int(word) for word in looping.read_text().split()]
    assert queue("cancel", "1").err == "job 1: running, its worker is asked to stop\n"
    done = queue("wait", "1", "--timeout", "6s")
    assert done.code == 1, done
    assert queue.show(1)["state"] == "cancelled"
    assert not any(psutil.pid_exists(pid) for pid in pids)
    ended(queue, "2")
    eventually(lambda: charged(queue) == 1, what="one lease is left, the next worker's")
    assert json.loads(queue("result", "2").out)["pid"] not in pids


def test_a_provider_that_is_taken_away_while_its_jobs_wait_says_so_and_goes_on_when_it_is_back(queue: Queue) -> None:
    gate = gated(queue, "a", "b")
    queue.provider("other")
    os.rename(queue.manifests / "echo", queue.folder / "away")
    text = eventually(
        lambda: (queue.show(2)["reason"] or {}).get("ruling") == "not_installed" and queue.show(2)["reason"]["text"],
        what="job 2 says why it waits",
    )
    assert "echo is in no manifest any more; put it back into" in str(text)
    gate.touch()
    ended(queue, "1")
    assert queue("run", "other", queue.input("c.json")).code == 0
    assert queue.show(2)["state"] == "queued"
    os.rename(queue.folder / "away", queue.manifests / "echo")
    ended(queue, "2")


def test_a_broken_provider_that_was_mended_is_tried_again_at_once_when_it_is_reset(queue: Queue) -> None:
    broken = queue.provider() / "broken"
    broken.touch()
    queue("up")
    queue("submit", "echo", queue.input())
    eventually(lambda: (queue.show(1)["reason"] or {}).get("ruling") == "breaker", what="its breaker is open")
    broken.unlink()
    told = queue("providers", "reset", "echo", "--json").json["providers"]
    assert [(row["slug"], row["was"], row["failures"]) for row in told] == [("echo", "open", 2)]
    assert "weights are not there" in told[0]["last_error"] and "tried again in" in told[0]["text"]
    ended(queue, "1")
    assert "echo: was not broken" in queue("providers", "reset", "echo").err
    assert queue("providers", "reset", "ehco").code == 2
