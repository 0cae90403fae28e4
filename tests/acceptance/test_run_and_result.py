"""`run` owns its job; `result`, `log`, `wait` and `cancel` answer for it afterwards."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time

import pytest
from driven import Queue, eventually

from scheduler.client import Client


def running(queue: Queue, job: int = 1) -> None:
    def states() -> dict[int, str]:
        return {each["id"]: each["state"] for each in queue.status()["jobs"]}

    eventually(lambda: states().get(job) == "running", what=f"job {job} running")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_run_cancels_its_job_and_waits_for_that(queue: Queue, signum: int, code: int) -> None:
    queue.provider()
    queue("up")
    run = queue.start("run", "echo", queue.input(wait_for="/nonexistent"))
    running(queue)
    run.send_signal(signum)
    out, err = run.communicate(timeout=30)
    assert run.returncode == code
    assert out == "" and "job 1" in err
    assert queue.show(1)["state"] == "cancelled"


def test_a_hangup_of_run_leaves_its_job(queue: Queue) -> None:
    queue.provider()
    queue("up")
    gate = queue.folder / "gate"
    run = queue.start("run", "echo", queue.input(wait_for=str(gate)))
    running(queue)
    run.send_signal(signal.SIGHUP)
    run.communicate(timeout=30)
    assert queue.show(1)["state"] == "running"
    gate.touch()
    assert queue("wait", "1", "--timeout", "30s").code == 0


def test_a_run_that_takes_too_long_leaves_its_job_and_the_key_finds_it_again(queue: Queue) -> None:
    queue.provider()
    queue("up")
    gate = queue.folder / "gate"
    source = queue.input(say="slow", wait_for=str(gate))
    left = queue("run", "echo", source, "--timeout", "500ms", "--key", "k", "--out", "out/{name}")
    assert left.code == 124 and "schedq wait 1" in left.err and left.out == "", left
    gate.touch()
    found = queue("run", "echo", source, "--key", "k", "--out", "out/{name}")
    assert found.code == 0 and "job 1\n" in found.err and found.json["said"] == "slow", found
    once_more = queue("run", "echo", source, "--key", "k", "--out", "out/{name}")
    assert once_more.code == 0 and once_more.json["count"] == 1, once_more


def test_a_result_goes_to_a_file_whole_or_in_part(queue: Queue) -> None:
    queue.provider()
    done = queue("run", "echo", queue.input("beta.json", say="x", write="model.pdb"))
    assert done.code == 0, done
    assert queue("result", "last").json == done.json
    assert queue("result", "last", "--pointer", "/text", "-o", "part.pdb").code == 0
    assert (queue.folder / "part.pdb").read_bytes() == b"ATOM      1\n"
    assert queue("result", "last", "-o", "all/").code == 0
    assert json.loads((queue.folder / "all" / "beta.result.json").read_text()) == done.json
    assert (queue.folder / "all" / "beta" / "model.pdb").read_text() == "DATA\n"
    wrong = queue("result", "last", "--pointer", "/nothing")
    assert wrong.code == 2 and "said" in wrong.err and wrong.out == ""


def test_a_result_that_is_not_there_yet_is_temporary_and_a_failed_ones_says_why(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input(fail=True))
    early = queue("result", "1")
    assert early.code == 75 and "queued" in early.err, early
    queue("up")
    assert queue("wait", "1", "--timeout", "30s").code == 1
    late = queue("result", "1")
    assert late.code == 1 and "cannot do that" in late.err and "schedq log 1" in late.err, late


def test_a_followed_log_shows_what_is_written_and_ends_with_the_job(queue: Queue) -> None:
    queue.provider()
    queue("up")
    gate = queue.folder / "gate"
    queue("submit", "echo", queue.input(say="hello", wait_for=str(gate)))
    follow = queue.start("log", "1", "-f")
    running(queue)
    gate.touch()
    out, _err = follow.communicate(timeout=30)
    assert follow.returncode == 0 and "answered hello" in out


def test_wait_is_told_of_the_end_at_once(queue: Queue) -> None:
    queue.provider()
    queue("up")
    gate = queue.folder / "gate"
    queue("submit", "echo", queue.input(wait_for=str(gate)))
    running(queue)
    wait = queue.start("wait", "1")
    time.sleep(0.5)  # past its first look into the queue; the next would come 5 s later
    gate.touch()
    wait.communicate(timeout=4)
    assert wait.returncode == 0


def test_cancel_by_filter_says_how_many_and_asks_above_20(queue: Queue) -> None:
    queue.provider()
    sources = [queue.input(f"{n}.json", say=str(n)) for n in range(22)]
    assert queue("submit", "echo", *sources, "--batch", "night").code == 0
    dry = queue("cancel", "--batch", "night", "--dry-run")
    assert dry.code == 0 and len(dry.out.splitlines()) == 22
    asked = queue("cancel", "--batch", "night")
    assert asked.code == 2 and "22 jobs" in asked.err and "--yes" in asked.err
    assert queue("cancel", "--batch", "night", "--name", "1?").code == 0
    assert len(queue("status", "--batch", "night", "--state", "cancelled", "--json").json["jobs"]) == 10
    done = queue("cancel", "--batch", "night", "--yes")
    assert done.code == 0 and "12 cancelled" in done.err, done
    ended = queue("cancel", "1")
    assert "cancelled already" in ended.err


def test_a_provider_that_is_not_installed_is_accepted_with_a_word(queue: Queue) -> None:
    folder = queue.provider()
    text = (folder / "provider.toml").read_text()
    (folder / "provider.toml").write_text(text.replace(queue.command()[0], "/nonexistent/python"))
    done = queue("submit", "echo", queue.input())
    assert done.code == 0 and done.out == "1\n" and "not installed" in done.err, done
    ran = queue("run", "echo", queue.input())
    assert ran.code == 1 and "not installed" in ran.err and "nothing was queued" in ran.err, ran


def test_an_overwritten_destination_is_moved_aside_and_the_new_outputs_take_its_place(queue: Queue) -> None:
    queue.provider()
    source = queue.input(write="model.pdb")
    assert queue("run", "echo", source, "--out", "there").code == 0
    (queue.folder / "there" / "mark").touch()
    assert queue("run", "echo", source, "--out", "there").code == 3
    assert queue("run", "echo", source, "--out", "there", "--overwrite").code == 0
    assert (queue.folder / "there" / "model.pdb").exists() and not (queue.folder / "there" / "mark").exists()
    aside = list(queue.folder.glob("there.before-*"))
    assert len(aside) == 1 and (aside[0] / "mark").exists()


def test_a_stopped_scheduler_is_named_and_taken_over(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input())
    pid = queue.scheduler_pid()
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    told = queue("up")
    assert told.code == 75 and str(pid) in told.err and "--takeover" in told.err, told
    taken = queue("up", "--takeover")
    assert taken.code == 0 and queue.scheduler_pid() != pid, taken
    assert queue("run", "echo", queue.input()).json["count"] == 2


def test_the_second_warm_request_of_a_client_is_ten_times_faster(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = queue.provider() / "echo_worker.py"
    worker.write_text(worker.read_text().replace('float(os.environ.get("ECHO_LOAD_S", "0"))', "1.0"))
    for name, value in queue.env.items():
        monkeypatch.setenv(name, value)
    assert queue("up").code == 0
    took = []
    with Client() as client:
        for n in range(6):
            before = time.perf_counter()
            job = client.submit("echo", {"say": str(n)})
            assert client.wait([job], timeout_s=30) == {job: "succeeded"}
            assert client.result(job, "/said") == str(n)
            took.append(time.perf_counter() - before)
    assert sorted(took[1:])[2] < took[0] / 10, took


def test_a_result_takes_the_place_of_nothing_unless_it_is_told_to(queue: Queue) -> None:
    queue.provider()
    first = queue("run", "echo", queue.input("beta.json", say="one", write="model.pdb"))
    assert queue("run", "echo", queue.input("beta.json", say="two", write="model.pdb")).code == 0
    assert queue("result", "1", "-o", "all/").code == 0
    for target in ("all/", "all/beta.result.json"):
        taken = queue("result", "2", "-o", target)
        assert taken.code == 3 and "--overwrite" in taken.err, taken
    assert json.loads((queue.folder / "all" / "beta.result.json").read_text())["said"] == "one"
    assert queue("result", "2", "-o", "all/", "--overwrite").code == 0
    assert json.loads((queue.folder / "all" / "beta.result.json").read_text())["said"] == "two"
    assert list((queue.folder / "all").glob("beta.before-*"))
    assert queue("result", "1", "-o", "-").json == first.json
    assert queue("result", "1", "-o", "/dev/stdout").json == first.json


def test_outputs_that_a_later_job_overwrote_are_not_given_out_as_the_first_ones(queue: Queue) -> None:
    queue.provider()
    source = queue.input(write="model.pdb")
    assert queue("run", "echo", source, "--out", "there").code == 0
    assert queue("run", "echo", source, "--out", "there", "--overwrite").code == 0
    assert "overwritten by job 2" in " ".join(queue("show", "1").out.split())
    assert "overwritten by job 2" in queue("result", "1").err
    refused = queue("result", "1", "-o", "copy/")
    assert refused.code == 3 and "job 2" in refused.err and not (queue.folder / "copy" / "a").exists(), refused


def test_wait_says_why_a_job_failed(queue: Queue) -> None:
    queue.provider()
    queue("up")
    queue("submit", "echo", queue.input(fail=True))
    done = queue("wait", "1", "--timeout", "30s")
    assert done.code == 1 and "cannot do that" in done.err and "schedq show 1" in done.err, done


def test_cancel_of_a_batch_that_has_ended_has_nothing_to_do(queue: Queue) -> None:
    queue.provider()
    queue("up")
    queue("submit", "echo", queue.input("a.json"), queue.input("b.json"), "--batch", "x")
    assert queue("wait", "1-2", "--timeout", "30s").code == 0
    none = queue("cancel", "--batch", "x")
    assert (none.code, none.err) == (0, "no job matches that can be cancelled; nothing was cancelled\n"), none
    assert queue("cancel", "1").code == 2


def test_run_says_why_its_job_waits(queue: Queue) -> None:
    queue.provider()
    queue("up")
    queue("submit", "echo", queue.input(wait_for="/nonexistent"))
    running(queue)
    left = queue("run", "echo", queue.input("b.json"), "--timeout", "7s")
    assert left.code == 124 and "job 2 waits: " in left.err, left
    assert left.err.count("waits: ") == 1 and "after 7 s" in left.err, left
    queue("cancel", "1-2")


def test_a_log_is_that_of_the_last_attempt_that_has_one(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input())
    with sqlite3.connect(queue.home / "queue.db") as database:
        database.execute("UPDATE jobs SET attempt = 2 WHERE id = 1")
    database.close()
    shown = queue("log", "1")
    assert shown.code == 0 and "answered hello" in shown.out and "attempt 1" in shown.err, shown
    asked = queue("log", "1", "--attempt", "2")
    assert asked.code == 75 and "attempt 1 has one" in asked.err, asked


def test_install_of_what_needs_nothing_says_so(queue: Queue) -> None:
    queue.provider()
    done = queue("install", "echo")
    assert done.code == 0 and "nothing to install" in done.err, done


def test_a_folder_of_manifests_that_the_scheduler_does_not_know_is_named(queue: Queue) -> None:
    queue.provider()
    queue("up")
    assert "does not look into" not in queue("submit", "echo", queue.input()).err
    more = queue.folder / "more"
    more.mkdir()
    told = queue("submit", "echo", queue.input(), SCHEDQ_MANIFESTS=f"{queue.manifests}:{more}")
    assert told.code == 0 and f"does not look into {more}; `schedq restart`" in told.err, told


def test_a_result_for_a_place_that_cannot_be_made_is_a_wrong_call(queue: Queue) -> None:
    queue.provider()
    queue("run", "echo", queue.input())
    (queue.folder / "file").touch()
    done = queue("result", "1", "-o", "file/inside/")
    assert done.code == 2 and "cannot be made" in done.err, done


def test_a_destination_that_became_impossible_fails_the_job_once_and_its_result_can_still_be_had(queue: Queue) -> None:
    queue.provider()
    gate = queue.folder / "gate"
    source = queue.input(say="kept", write="a.pdb", wait_for=str(gate))
    assert queue("submit", "echo", source, "--out", "od/x").code == 0
    (queue.folder / "od").write_text("a file by now")
    gate.touch()
    queue("up")
    assert queue("wait", "1", "--timeout", "60s").code == 1
    shown = queue.show(1)
    assert (shown["state"], shown["outcome"]["kind"], shown["attempt"]) == ("failed", "error", 1), shown
    assert "od/x: Not a directory" in shown["outcome"]["text"]
    done = queue("result", "1", "--pointer", "/said")
    assert (done.code, done.out) == (0, "kept\n") and "cannot be put at" in done.err, done
    assert (queue.home / "jobs" / "1" / "1" / "out" / "a.pdb").read_text() == "DATA\n"
