"""A request goes in, a real answer comes out, whatever happens to the scheduler in between."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
from driven import Queue, eventually


def test_run_starts_a_scheduler_and_prints_the_workers_reply(queue: Queue) -> None:
    queue.provider()
    done = queue("run", "echo", queue.input(say="hi"))
    assert done.code == 0, done
    assert done.json["said"] == "hi"
    assert "job 1" in done.err


def test_the_second_request_is_answered_by_the_worker_that_is_warm(queue: Queue) -> None:
    queue.provider()
    first = queue("run", "echo", queue.input(say="one")).json
    second = queue("run", "echo", queue.input(say="two")).json
    assert second["pid"] == first["pid"]
    assert second["count"] == 2


def test_submit_prints_the_id_and_nothing_else_and_says_that_no_scheduler_runs(queue: Queue) -> None:
    queue.provider()
    done = queue("submit", "echo", queue.input())
    assert done.code == 0, done
    assert done.out == "1\n"
    assert "schedq up" in done.err
    status = queue("status", "--json")
    assert status.json["jobs"][0]["reason"]["ruling"] == "scheduler_down"
    assert status.json["scheduler"]["running"] is False


def test_a_job_submitted_with_the_scheduler_down_is_answered_after_up(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input(say="later"))
    assert queue("up").code == 0
    assert queue("wait", "1", "--timeout", "30s").code == 0
    assert queue("result", "1", "--pointer", "/said").out == "later\n"


def test_a_string_result_comes_out_raw(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input())
    assert queue("result", "last", "--pointer", "/text").out == "ATOM      1\n"


def test_sigkill_of_the_scheduler_loses_nothing_and_the_busy_worker_goes_on(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input("a.json", say="busy", wait_for=str(gate)))
    queue("submit", "echo", queue.input("b.json", say="queued"))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    worker = queue.status()["workers"][0]["pid"]
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    gate.touch()
    eventually(lambda: (queue.home / "jobs/1/1.json").exists(), what="the keeper stored the reply")
    assert queue("up").code == 0
    assert queue("wait", "1", "2", "--timeout", "30s").code == 0
    first, second = queue("result", "1").json, queue("result", "2").json
    assert first["said"] == "busy" and second["said"] == "queued"
    assert first["pid"] == second["pid"] == worker
    assert (first["count"], second["count"]) == (1, 2)
    assert queue.show(1)["attempt"] == 1


def test_sigkill_while_it_runs_and_up_before_the_answer_adopts_the_busy_worker(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input(say="busy", wait_for=str(gate)))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    assert queue("up").code == 0
    assert queue.show(1)["state"] == "running"
    gate.touch()
    assert queue("wait", "1", "--timeout", "30s").code == 0
    assert queue("result", "1").json["count"] == 1


def test_a_second_up_says_that_one_runs(queue: Queue) -> None:
    assert queue("up").code == 0
    pid = queue.scheduler_pid()
    again = queue("up")
    assert again.code == 0
    assert "already" in again.err and str(pid) in again.err
    assert queue.scheduler_pid() == pid


def test_down_leaves_no_process_socket_or_lock(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input())
    assert queue.processes()
    done = queue("down")
    assert done.code == 0, done
    assert queue.processes() == []
    assert list((queue.home / "run").iterdir()) == []
    assert list((queue.home / "workers").iterdir()) == [] or all(
        not name.name.endswith(".tmp") for name in (queue.home / "workers").rglob("*")
    )
    assert queue("up").code == 0


def test_down_waits_for_what_runs_and_down_now_gives_it_back_uncounted(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    queue("up")
    queue("submit", "echo", queue.input(wait_for=str(gate)))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    assert queue("down", "--now").code == 0
    shown = queue.show(1)
    assert shown["state"] == "queued"
    assert queue.processes() == []
    gate.touch()
    queue("up")
    assert queue("wait", "1", "--timeout", "30s").code == 0


def test_restart_keeps_the_worker_warm(queue: Queue) -> None:
    queue.provider()
    first = queue("run", "echo", queue.input()).json
    before = queue.scheduler_pid()
    assert queue("restart").code == 0
    assert queue.scheduler_pid() != before
    assert queue("run", "echo", queue.input()).json["pid"] == first["pid"]


def test_cancel_of_a_running_job_stops_a_worker_that_ignores_term(queue: Queue) -> None:
    queue.provider()
    queue("up")
    queue("submit", "echo", queue.input(stubborn=True, wait_for="/nonexistent"))
    eventually(lambda: queue.show(1)["state"] == "running", what="job 1 running")
    worker = psutil.Process(queue.status()["workers"][0]["pid"])
    assert queue("cancel", "1").code == 0
    assert queue("wait", "1", "--timeout", "30s").code == 1
    assert queue.show(1)["outcome"]["kind"] == "cancelled"
    eventually(lambda: not worker.is_running(), what="the worker is gone")


def test_a_refusal_an_error_and_a_death_are_told_apart(queue: Queue) -> None:
    queue.provider()
    refused = queue("run", "echo", queue.input("r.json", refuse=True))
    failed = queue("run", "echo", queue.input("f.json", fail=True))
    died = queue("run", "echo", queue.input("d.json", die=True), timeout=120)
    assert refused.code == 3 and "no residues" in refused.err, refused
    assert failed.code == 1 and "cannot do that" in failed.err, failed
    assert died.code == 1 and "SIGKILL" in died.err, died
    kinds = [queue.show(n)["outcome"]["kind"] for n in (1, 2, 3)]
    assert kinds == ["refused", "error", "quarantined"]
    assert queue("run", "echo", queue.input()).code == 0


def test_outputs_arrive_whole_at_their_destination_with_the_record_of_the_job(queue: Queue) -> None:
    queue.provider()
    source = queue.input("beta.json", write="model.pdb")
    done = queue("run", "echo", source, "--out", "results/{name}")
    assert done.code == 0, done
    made = queue.folder / "results" / "beta"
    assert (made / "model.pdb").read_text() == "DATA\n"
    facts = json.loads((made / "job.json").read_text())
    assert facts["name"] == "beta" and facts["attempt"] == 1
    again = queue("submit", "echo", source, "--out", "results/{name}")
    assert again.code == 3 and "results/beta" in again.err, again


def test_the_log_of_a_job_is_what_its_worker_printed_while_it_ran(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input(say="first"))
    queue("run", "echo", queue.input(say="second"))
    assert "answered second" in queue("log", "2").out
    assert "answered first" not in queue("log", "2").out


def test_an_idle_worker_is_retired_after_its_time(queue: Queue) -> None:
    queue.provider(idle=0.5)
    queue("run", "echo", queue.input())
    eventually(lambda: queue.status()["workers"] == [], what="the idle worker retired")
    pool = queue.status()["pools"][0]
    assert pool["charged_gib"] == pool["others_gib"]


def test_a_parameter_reaches_the_worker_and_the_record(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input(), "--param", "loud=true")
    assert queue.show(1)["params"] == {"loud": True, "stubborn": False}


def test_one_bad_input_of_three_queues_nothing(queue: Queue) -> None:
    queue.provider()
    good, bad = queue.input("g.json"), queue.folder / "bad.json"
    bad.write_text('{"say": 1}')
    done = queue("submit", "echo", good, str(bad), good)
    assert done.code == 3 and "/say" in done.err and done.out == "", done
    assert queue.status()["jobs"] == []


def test_a_provider_that_cannot_load_opens_its_breaker_and_others_go_on(queue: Queue) -> None:
    broken = queue.provider("broken")
    (broken / "broken").touch()
    queue.provider("echo")
    queue("up")
    queue("submit", "broken", queue.input("b.json"))
    assert queue("run", "echo", queue.input("g.json")).code == 0
    told = eventually(
        lambda: [j for j in queue.status()["jobs"] if (j["reason"] or {}).get("ruling") == "breaker"],
        what="the breaker is the reason",
    )
    assert "weights are not there" in told[0]["reason"]["text"]  # type: ignore[index]
    assert queue.show(1)["state"] == "queued"


def test_what_can_never_fit_is_refused_with_the_numbers(queue: Queue) -> None:
    queue.provider("huge", ram=100000)
    queue("up")
    done = queue("submit", "huge", queue.input())
    assert done.code == 3 and "100000" in done.err and done.out == "", done


def test_odd_paths_work(queue: Queue, tmp_path: Path) -> None:
    queue.provider()
    odd = tmp_path / "a b\n#?%25 ü"
    odd.mkdir()
    source = odd / "in put.json"
    source.write_text('{"say": "odd"}')
    done = queue("run", "echo", str(source), SCHEDQ_HOME=str(odd / "home"))
    assert done.code == 0 and done.json["said"] == "odd", done
    assert queue("down", SCHEDQ_HOME=str(odd / "home")).code == 0
