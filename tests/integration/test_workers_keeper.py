"""A worker under its keeper: started, asked, stopped; and whatever it does wrong, an answer and nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import QUEUE, Yard, until

from scheduler.host.workers import spawn, tree
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.protocol import claim_of
from scheduler.host.workers.records import sweep
from scheduler.model.host import Answered, Charged, Failed, Gone, Progressed


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path / "home")
    yield made
    made.end()


def reply_of(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes()))


def gone_without_trace(yard: Yard) -> None:
    assert yard.processes() == []
    assert yard.sockets() == []
    assert not [name for _, _, names in os.walk(yard.paths.home) for name in names if name.endswith(".tmp")]


def test_a_parked_keeper_shows_its_charge_to_everyone_and_spends_nothing(yard: Yard) -> None:
    shown = yard.park(charges={"device:GPU-1": 28.0, "host": 6.1})
    claim = claim_of(tree.argv_of(shown.keeper_pid))
    assert claim is not None
    assert (claim["worker"], claim["slug"], claim["queue"], claim["lease"]) == ("1", "fake", QUEUE, "unified:34")
    assert claim["charge"] == "device:GPU-1:28.0 host:6.1"
    assert tree.below(shown.keeper_pid) == []
    assert yard.roster.tree_lives(1)
    with open(f"/proc/{shown.keeper_pid}/environ", "rb") as file:
        assert b"HOME=" not in file.read()
    assert yard.stop(0.0).exit_code is None
    gone_without_trace(yard)


def test_a_charge_that_changes_is_told_once_everyone_can_read_it(yard: Yard) -> None:
    shown = yard.park(charges={"device:GPU-1": 28.0, "host": 6.1})
    for gib in (31.123456789012345, 28.0, 1e-7):
        yard.roster.charge(1, {"device:GPU-1": gib, "host": 6.1})
        assert yard.ear.wait(Charged).charges == {"device:GPU-1": gib, "host": 6.1}
        claim = claim_of(tree.argv_of(shown.keeper_pid))
        assert claim is not None and claim["charge"] == f"device:GPU-1:{gib!r} host:6.1"
    yard.roster.charge(1, {"unified": 9.0})
    assert "argv has no charge on unified" in yard.ear.wait(Failed).text


def test_a_worker_answers_is_asked_and_is_stopped_and_nothing_is_left(yard: Yard) -> None:
    answered = yard.start()
    assert answered.versions == {"fake": "1"}
    assert tree.is_alive(answered.leader_pid, answered.leader_started)
    reply = yard.send({"do": "echo", "n": 5, "progress": 3})
    stored = yard.ear.wait(Stored)
    assert (stored.job_id, stored.attempt, stored.reply_path, stored.no_reply) == (7, 1, str(reply), False)
    assert reply_of(reply)["echo"]["n"] == 5
    assert reply.stat().st_mode & 0o777 == 0o600
    assert yard.stop().exit_code == 0
    gone_without_trace(yard)


def test_progress_comes_before_the_reply_and_the_last_line_is_told(yard: Yard) -> None:
    yard.start()
    done = Path(yard.paths.home) / "done"
    yard.send({"do": "wait_for", "path": str(done), "progress": 5000})
    seen = yard.ear.wait(Progressed)
    assert seen.total == 5000
    while seen.done != 5000:
        seen = yard.ear.wait(Progressed)
    assert sum(isinstance(e, Progressed) for e in yard.ear.events) < 50
    done.touch()
    yard.ear.wait(Stored)


def test_one_worker_serves_many_requests_one_at_a_time(yard: Yard) -> None:
    yard.start()
    for job in range(20):
        reply = yard.send({"do": "echo"}, job=job)
        yard.ear.wait(Stored)
        assert reply_of(reply)["served"] == job + 1
    yard.send({"do": "sleep", "s": 0.5}, job=30)
    yard.send({"do": "echo"}, job=31)
    assert "busy" in yard.ear.wait(Failed).text


def test_a_legacy_worker_gets_the_request_itself(yard: Yard) -> None:
    yard.start("--legacy")
    reply = yard.send({"do": "echo", "sequences": ["MKV"]})
    yard.ear.wait(Stored)
    assert reply_of(reply)["echo"] == {"do": "echo", "sequences": ["MKV"]}
    assert yard.stop().exit_code == 0


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"do": "die"}, "without a reply"),
        ({"do": "exit", "code": 3}, "without a reply"),
        ({"do": "die_mid_reply"}, "within its reply"),
        ({"do": "die_mid_reply", "bytes": 200_000}, "within its reply"),
        ({"do": "partial"}, "within its reply"),
        ({"do": "nothing"}, "without a reply"),
        ({"do": "noise"}, "cannot be used"),
        ({"do": "bad_utf8"}, "cannot be used"),
        ({"do": "bad_utf8", "bytes": 200_000}, "cannot be used"),
        ({"do": "array"}, "not a JSON object"),
    ],
    ids=str,
)
def test_a_reply_that_is_none_is_stored_as_no_reply_with_the_reason(
    yard: Yard, request_: dict[str, Any], said: str
) -> None:
    yard.start()
    reply = yard.send(request_)
    stored = yard.ear.wait(Stored)
    assert stored.no_reply
    found = reply_of(reply)
    assert (found["ok"], found["no_reply"]) == (False, True)
    assert said in found["error"]
    assert not Path(f"{reply}.tmp").exists()


NEST = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize("line", ['{"ok": true, "a": %s}', '{"event": "progress", "done": %s}'])
def test_a_line_that_is_nested_too_deep_is_no_reply_and_the_worker_stays(yard: Yard, line: str) -> None:
    answered = yard.start()
    reply = yard.send({"do": "raw", "line": line % NEST})
    assert yard.ear.wait(Stored).no_reply
    assert "nested too deep" in reply_of(reply)["error"]
    yard.send({"do": "echo"}, job=8)
    assert not yard.ear.wait(Stored).no_reply
    assert tree.is_alive(answered.leader_pid, answered.leader_started)


def test_an_answer_to_the_ping_that_is_nested_too_deep_is_none(yard: Yard) -> None:
    yard.park()
    yard.roster.go(1, yard.launch("--deep"))
    log = Path(yard.paths.worker(1)) / "log"
    until(lambda: "hung up" in log.read_text(), "the answer to be read")
    assert yard.stop(0.5).exit_code == -signal.SIGTERM
    assert yard.ear.none(Answered)


@pytest.mark.parametrize("depth", [5000, 960, 980])
def test_an_order_that_is_nested_deep_is_answered(yard: Yard, depth: int) -> None:
    yard.start()
    deep = "[" * depth + "]" * depth
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(os.path.join(yard.paths.run, "1.k"))
        file = sock.makefile("rwb")
        file.readline()
        file.write(b'{"op": "hello", "protocol": 1}\n')
        file.write(f'{{"op": "attach", "job": {deep}, "attempt": {deep}}}\n{{"op": "status"}}\n'.encode())
        file.flush()
        said = [json.loads(file.readline())["ok"] for _ in range(3)]
    assert said == [True, False, True]


def test_progress_that_cannot_be_stored_is_made_fit_for_it(yard: Yard) -> None:
    yard.start()
    line = r'{"event": "progress", "done": NaN, "total": 1e999, "message": "a\ud800\u001b[1mb"}'
    yard.send({"do": "raw", "line": line, "then_echo": True})
    seen = yard.ear.wait(Progressed)
    assert (seen.done, seen.total, seen.message) == (None, None, "a? [1mb")
    assert not yard.ear.wait(Stored).no_reply


def test_a_word_of_progress_that_is_too_long_to_be_read_is_not_taken_for_the_reply(yard: Yard) -> None:
    yard.start()
    line = '{ "event": "progress", "message": "' + "x" * 300_000 + '"}'
    reply = yard.send({"do": "raw", "line": line, "then_echo": True})
    assert not yard.ear.wait(Stored).no_reply
    assert reply_of(reply)["ok"]


@pytest.mark.parametrize("then", [{}, {"then_exit": 9}], ids=str)
def test_a_whole_reply_waits_for_room_on_the_disk_and_wins(yard: Yard, then: dict[str, int]) -> None:
    answered = yard.start()
    done = Path(yard.paths.home) / "done"
    reply = yard.send({"do": "wait_for", "path": str(done), "progress": 1, **then})
    yard.ear.wait(Progressed)
    keeper, limit = yard.shown.keeper_pid, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (0, limit[1]))
    with socket.socket(socket.AF_UNIX) as sock, sock.makefile("rb") as file:
        sock.settimeout(20)
        sock.connect(os.path.join(yard.paths.run, "1.k"))
        sock.sendall(b'{"op": "hello", "protocol": 1}\n')
        done.touch()
        waits = 0
        while waits < 5:  # longer than the end of its connection, and its own, are waited for
            waits += json.loads(file.readline()).get("event") == "waiting"
    assert yard.ear.none(Stored)
    assert tree.is_alive(answered.leader_pid, answered.leader_started) != bool(then)
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, limit)
    assert not yard.ear.wait(Stored).no_reply
    assert reply_of(reply)["found"] == str(done)
    assert (yard.ear.wait(Gone) if then else yard.stop()).exit_code == then.get("then_exit", 0)
    gone_without_trace(yard)


@pytest.mark.parametrize(("how", "code"), [({"do": "die"}, -9), ({"do": "exit", "code": 5}, 5)])
def test_the_exit_status_of_a_worker_that_dies_is_known(yard: Yard, how: dict[str, Any], code: int) -> None:
    yard.start()
    yard.send(how)
    yard.ear.wait(Stored)
    assert yard.ear.wait(Gone).exit_code == code
    gone_without_trace(yard)


@pytest.mark.parametrize(
    ("knobs", "what", "untaken"),
    [(["--says-taken"], "die", True), (["--says-taken"], "take_and_die", False), ([], "die", False)],
)
def test_an_attempt_was_not_begun_only_if_its_worker_promised_to_say_so_and_did_not(
    yard: Yard, knobs: list[str], what: str, untaken: bool
) -> None:
    yard.start(*knobs)
    yard.send({"do": what})
    stored = yard.ear.wait(Stored)
    assert (stored.no_reply, stored.untaken) == (True, untaken)
    assert yard.ear.wait(Gone).begun == (stored.job_id, stored.attempt)


def test_a_reply_that_was_given_before_death_wins(yard: Yard) -> None:
    yard.start()
    reply = yard.send({"do": "reply_then_die"})
    assert not yard.ear.wait(Stored).no_reply
    assert reply_of(reply)["last"] is True
    assert yard.ear.wait(Gone).exit_code == 9


def test_a_reply_and_a_death_that_are_seen_at_once_are_a_reply(yard: Yard) -> None:
    answered = yard.start()
    done = Path(yard.paths.home) / "done"
    reply = yard.send({"do": "wait_for", "path": str(done), "then_exit": 9, "progress": 1})
    yard.ear.wait(Progressed)
    os.kill(yard.shown.keeper_pid, signal.SIGSTOP)
    done.touch()
    until(lambda: not tree.is_alive(answered.leader_pid, answered.leader_started), "the worker's death")
    os.kill(yard.shown.keeper_pid, signal.SIGCONT)
    assert not yard.ear.wait(Stored).no_reply
    assert reply_of(reply)["found"] == str(done)
    assert yard.ear.wait(Gone).exit_code == 9


def test_a_worker_that_says_it_leaves_is_sent_nothing_more(yard: Yard) -> None:
    yard.start()
    yard.send({"do": "exiting"})
    stored = yard.ear.wait(Stored)
    assert stored.exiting and not stored.no_reply
    assert yard.ear.wait(Gone).exit_code == 4


@pytest.mark.parametrize("code", [3, 5, 75])
def test_an_exit_before_ready_is_told_with_the_last_line_of_the_log(yard: Yard, code: int) -> None:
    yard.park()
    yard.roster.go(1, yard.launch("--say", "no licence for this model", "--exit", str(code)))
    gone = yard.ear.wait(Gone)
    assert (gone.exit_code, gone.text) == (code, "no licence for this model")
    assert yard.ear.none(Answered)


@pytest.mark.parametrize(
    ("argv", "cwd", "code"), [("/no/such", "/", 127), ("/etc/passwd", "/", 126), ("/bin/true", "/nope", 127)]
)
def test_what_cannot_be_executed_says_so_in_the_log(yard: Yard, argv: str, cwd: str, code: int) -> None:
    yard.park()
    yard.roster.go(1, Launch([argv], {}, cwd))
    gone = yard.ear.wait(Gone)
    assert gone.exit_code == code
    assert gone.text.startswith(f"schedq: cannot run {argv} in {cwd}: ")


STOPS = [
    (),
    ("--ignore-term", "--hush"),
    ("--grandchild", "plain"),
    ("--grandchild", "stubborn", "--ignore-term", "--hush"),
    ("--grandchild", "daemon"),
    ("--late-free-s", "30", "--hush"),
]


@pytest.mark.parametrize("knobs", STOPS, ids=str)
def test_a_stop_ends_the_whole_tree_in_its_grace_whatever_the_worker_does(yard: Yard, knobs: tuple[str, ...]) -> None:
    yard.start(*knobs)
    if "daemon" in knobs or "stubborn" in knobs:
        log = Path(yard.paths.worker(1)) / "log"
        until(lambda: "grandchild" in log.read_text(), "the grandchild")
    before = time.monotonic()
    yard.stop(0.6)
    assert time.monotonic() - before < 0.6 + 2.0
    gone_without_trace(yard)


@pytest.mark.parametrize("knobs", [("--never-bind",), ("--never-answer",), ("--bind-after-s", "60")], ids=str)
def test_a_worker_that_never_answers_is_never_ready_and_can_be_stopped(yard: Yard, knobs: tuple[str, ...]) -> None:
    yard.park()
    yard.roster.go(1, yard.launch("--say", "up", *knobs))
    log = Path(yard.paths.worker(1)) / "log"
    until(lambda: "up" in log.read_text(), "its first line")
    assert yard.stop(0.5).exit_code == -signal.SIGTERM
    assert yard.ear.none(Answered)
    gone_without_trace(yard)


def test_a_slow_bind_is_waited_for(yard: Yard) -> None:
    assert yard.start("--bind-after-s", "0.4")


def test_a_busy_worker_that_is_stopped_answers_with_no_reply(yard: Yard) -> None:
    yard.start()
    reply = yard.send({"do": "sleep", "s": 600})
    yard.roster.stop(1, 1.0, "cancelled")
    assert yard.ear.wait(Stored).exit_code == -signal.SIGTERM
    assert reply_of(reply)["no_reply"]
    assert yard.ear.wait(Gone).why == "cancelled"


def test_a_late_reply_within_the_grace_is_kept(yard: Yard) -> None:
    yard.start("--ignore-term")
    done = Path(yard.paths.home) / "done"
    reply = yard.send({"do": "wait_for", "path": str(done)})
    yard.roster.stop(1, 10.0, "time is over")
    done.touch()
    assert not yard.ear.wait(Stored).no_reply
    assert reply_of(reply)["ok"]
    yard.roster.stop(1, 0.0, "now")
    yard.ear.wait(Gone)


def test_gone_is_told_when_the_last_grandchild_has_gone_and_not_before(yard: Yard) -> None:
    answered = yard.start("--grandchild", "stubborn")
    log = Path(yard.paths.worker(1)) / "log"
    until(lambda: "grandchild" in log.read_text(), "the grandchild")
    os.kill(answered.leader_pid, signal.SIGKILL)
    until(lambda: not tree.is_alive(answered.leader_pid, answered.leader_started), "the leader's death")
    assert yard.ear.none(Gone)
    assert yard.roster.tree_lives(1)
    assert yard.ear.wait(Gone).exit_code == -9
    gone_without_trace(yard)


def test_somebody_elses_socket_is_not_taken_for_an_answer(yard: Yard) -> None:
    yard.park()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(yard.paths.run, "1.w"))
        listener.listen(8)
        yard.roster.go(1, yard.launch("--never-bind"))
        log = Path(yard.paths.worker(1)) / "log"
        until(lambda: f"is served by pid {os.getpid()}" in log.read_text(), "the note")
        assert yard.ear.none(Answered)
    yard.stop(0.0)


def test_a_line_of_64_mib_passes_both_ways_and_the_keeper_stays_small(yard: Yard) -> None:
    yard.start()
    size = (64 << 20) - 200
    reply = yard.send({"do": "big", "bytes": size, "pad": "p" * size})
    assert not yard.ear.wait(Stored, deadline_s=60).no_reply
    assert reply.stat().st_size > size
    assert reply_of(reply)["got"] > size
    with open(f"/proc/{yard.shown.keeper_pid}/status") as file:
        peak_kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    assert peak_kib < 16 << 10


def test_a_reply_of_more_than_64_mib_is_refused_and_the_worker_goes_on(yard: Yard) -> None:
    yard.start()
    reply = yard.send({"do": "big", "bytes": (64 << 20) + 1})
    assert yard.ear.wait(Stored, deadline_s=60).no_reply
    assert "longer than 67108864 bytes" in reply_of(reply)["error"]
    yard.send({"do": "echo"}, job=8)
    assert not yard.ear.wait(Stored).no_reply


def test_the_log_is_bounded_however_much_the_worker_prints(yard: Yard) -> None:
    yard.start("--noise-mib", "20", log_max=1 << 20)
    yard.send({"do": "print_mib", "mib": 20})
    yard.ear.wait(Stored, deadline_s=60)
    folder = Path(yard.paths.worker(1))
    assert (folder / "log").stat().st_size + (folder / "log.1").stat().st_size <= 1 << 20


def test_what_is_printed_while_an_attempt_runs_is_in_its_own_log(yard: Yard) -> None:
    yard.start("--say", "loading")
    yard.send({"do": "echo", "print": "step one of job 7"})
    yard.ear.wait(Stored)
    own = Path(yard.paths.attempt(7, 1)) / "log"
    assert own.read_text() == "step one of job 7\n"
    assert (Path(yard.paths.worker(1)) / "log").read_text() == "loading\nstep one of job 7\n"


def test_secrets_reach_the_worker_and_no_file(yard: Yard) -> None:
    yard.start(env={"MSA_KEY": "s3cr3t-value"})
    reply = yard.send({"do": "env"})
    yard.ear.wait(Stored)
    assert reply_of(reply)["env"]["MSA_KEY"] == "s3cr3t-value"
    reply.unlink()
    for folder, _, names in os.walk(yard.paths.home):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                assert b"s3cr3t-value" not in Path(path).read_bytes(), path
    assert b"s3cr3t" not in Path(f"/proc/{yard.shown.keeper_pid}/cmdline").read_bytes()


def test_a_workers_environment_is_what_was_built_and_the_mark(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "1")
    yard.start()
    reply = yard.send({"do": "env"})
    yard.ear.wait(Stored)
    assert set(reply_of(reply)["env"]) - {"LC_CTYPE"} == {"PATH", "SCHEDQ_WORKER"}
    assert reply_of(reply)["env"]["SCHEDQ_WORKER"] == f"{QUEUE}:1"


def test_a_worker_is_killed_before_others_when_memory_runs_out(yard: Yard) -> None:
    answered = yard.start()
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(Path(f"/proc/{answered.leader_pid}/oom_score_adj").read_text()) == min(1000, own + 500)
    assert tree.stat_of(answered.leader_pid).session == answered.leader_pid  # type: ignore[union-attr]


def test_a_oneshot_is_ready_at_once_and_runs_one_command_per_request(yard: Yard, tmp_path: Path) -> None:
    yard.park(mode="oneshot")
    yard.roster.go(1, Launch([], {"PATH": os.environ["PATH"]}, str(tmp_path), "oneshot"))
    assert yard.ear.wait(Answered).leader_pid == 0
    for job, code in ((7, 0), (8, 3)):
        out = Path(yard.paths.attempt(job, 1)) / "out"
        out.mkdir(parents=True)
        script = f"echo said {job}; echo '{{\"a\": 1}}' > {out}/result.json; exit {code}"
        reply = yard.send({}, job=job, argv=["/bin/sh", "-c", script])
        assert yard.ear.wait(Stored).exit_code == code
        assert reply_of(reply) == {"oneshot": True, "exit_code": code, "result": {"a": 1}}
        assert (out.parent / "log").read_text() == f"said {job}\n"
    assert yard.stop().exit_code == 3
    gone_without_trace(yard)


def test_a_oneshots_reply_waits_for_all_that_the_command_started(yard: Yard, tmp_path: Path) -> None:
    yard.park(mode="oneshot")
    yard.roster.go(1, Launch([], {"PATH": os.environ["PATH"]}, str(tmp_path), "oneshot", stop_grace_s=0.3))
    yard.ear.wait(Answered)
    reply = yard.send({}, argv=["/bin/sh", "-c", "(trap '' TERM; sleep 600 & wait; wait) & exit 0"])
    yard.ear.wait(Stored)
    assert reply_of(reply)["exit_code"] == 0
    assert tree.members(QUEUE, 1) == []


def test_a_oneshot_command_that_is_stopped_says_by_what(yard: Yard, tmp_path: Path) -> None:
    yard.park(mode="oneshot")
    yard.roster.go(1, Launch([], {"PATH": os.environ["PATH"]}, str(tmp_path), "oneshot"))
    yard.ear.wait(Answered)
    reply = yard.send({}, argv=[sys.executable, "-c", "import time; time.sleep(600)"])
    yard.roster.stop(1, 1.0, "cancelled")
    yard.ear.wait(Gone)
    assert reply_of(reply)["exit_code"] == -signal.SIGTERM


def write(text: str) -> str:
    return f"printf %s {shlex.quote(text)} > result.json"


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (write('{"a": 1,\n "b" 2}'), "is not JSON: Expecting ':' delimiter: line 2 column 6"),
        (write("{bad"), "is not JSON"),
        (write("[1]"), "is JSON and not an object"),
        (write('{"a": NaN}'), "cannot be used: Out of range float values are not JSON compliant"),
        (write('{"a": ' + "[" * 5000 + "]" * 5000 + "}"), "nested too deep"),
        (write('{"a": ' + "[" * 985 + "]" * 985 + "}"), ""),
        ("head -c 1100000 /dev/zero > result.json", "is longer than 1048576 bytes"),
        ("mkfifo result.json", "cannot be read: it is not a regular file"),
        ("mkdir result.json", "cannot be read: it is not a regular file"),
        ("ln -s /dev/zero result.json", "cannot be read: it is not a regular file"),
    ],
)
def test_whatever_a_command_leaves_as_its_result_it_ends_and_its_reply_says_what_is_wrong(
    yard: Yard, make: str, wrong: str
) -> None:
    yard.park(mode="oneshot")
    yard.roster.go(1, Launch([], {"PATH": os.environ["PATH"]}, "/", "oneshot"))
    yard.ear.wait(Answered)
    out = Path(yard.paths.attempt(7, 1)) / "out"
    out.mkdir(parents=True)
    reply = yard.send({}, argv=["/bin/sh", "-c", f"cd {out} && {make}"])
    assert yard.ear.wait(Stored).exit_code == 0
    found = reply.read_text()
    assert wrong in found and ('"result":' in found) == (not wrong)
    assert yard.stop().exit_code == 0
    gone_without_trace(yard)


def test_a_worker_whose_answer_to_the_ping_is_broken_is_asked_again(yard: Yard) -> None:
    assert yard.start("--broken-pings", "3")


PLANTED = """
import sys
sys.path.append({root!r})
from scheduler.host.workers import keeping
def broken(*_, **__): raise RuntimeError("planted")
setattr(keeping.Keeper, {step!r}, broken)
keeping.main(sys.argv)
"""


@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("oneshot", "pump"), ("oneshot", "write_exit"), ("oneshot", "end_tree"), ("resident", "pump"),
        ("resident", "write_exit"), ("resident", "hear_last"), ("resident", "end_tree"),
    ],
)  # fmt: skip
def test_a_step_of_a_keeper_that_goes_wrong_keeps_no_worker_from_its_end(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, step: str
) -> None:
    keeper = tmp_path / "keeper.py"
    keeper.write_text(PLANTED.format(root=str(Path(spawn.KEEPER).parents[3]), step=step))
    monkeypatch.setattr(spawn, "KEEPER", str(keeper))
    yard.park(mode=mode)
    if mode == "oneshot":
        yard.roster.go(1, Launch([], {"PATH": os.environ["PATH"]}, "/", "oneshot"))
        yard.ear.wait(Answered)
        yard.send({}, argv=["/bin/sh", "-c", "exit 3"])
        assert yard.ear.wait(Stored).exit_code == 3
        yard.stop()
    else:
        yard.roster.go(1, yard.launch())
        yard.ear.wait(Answered)
        yard.send({"do": "exit", "code": 3})
        yard.ear.wait(Gone)
    assert "planted" in (Path(yard.paths.worker(1)) / "log").read_text()
    gone_without_trace(yard)


def test_a_reply_is_stored_although_its_worker_removed_its_own_folder_and_that_worker_is_ended_then(yard: Yard) -> None:
    yard.start()
    shutil.rmtree(yard.paths.worker(1))
    reply = yard.send({"do": "echo"})
    assert not yard.ear.wait(Stored).no_reply
    assert reply_of(reply)["ok"]
    yard.roster.close()
    until(lambda: not yard.processes(), "the keeper to leave")


def test_a_queue_may_be_moved_and_linked_to_from_where_it_was_while_its_workers_run(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")
    yard = Yard(tmp_path / "home")
    try:
        yard.start()
        (tmp_path / "disk").rename(tmp_path / "other")
        (tmp_path / "home").unlink()
        (tmp_path / "home").symlink_to("other")
        reply = yard.send({"do": "echo"})
        assert not yard.ear.wait(Stored).no_reply and reply_of(reply)["ok"]
        assert yard.stop().exit_code == 0
    finally:
        yard.end()


def test_a_keeper_whose_queue_was_removed_ends_its_worker_and_makes_nothing_anew(yard: Yard) -> None:
    yard.start()
    yard.send({"do": "sleep", "s": 600})
    shutil.rmtree(yard.paths.home)
    yard.roster.close()
    until(lambda: not yard.processes(), "the keeper to leave")
    assert not os.path.exists(yard.paths.home)


def test_a_keeper_whose_queue_was_replaced_ends_its_worker_and_touches_nothing_of_the_other(yard: Yard) -> None:
    yard.start()
    yard.send({"do": "sleep", "s": 600})
    home = Path(yard.paths.home)
    home.rename(home.with_name("away"))
    theirs = {"workers/1/exit.json": "{}", "workers/1/log": "", "run/1.k": "", "run/1.w": "", "jobs/7/1.json": ""}
    for name, text in theirs.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    yard.roster.close()
    until(lambda: not yard.processes(), "the keeper to leave")
    left = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert left == theirs
    assert json.loads((home.with_name("away") / "workers" / "1" / "exit.json").read_text())["why"]


def test_send_and_reply_take_little_more_than_the_worker_itself(yard: Yard) -> None:
    yard.start()
    took = []
    for job in range(50):
        before = time.perf_counter()
        yard.send({"do": "echo"}, job=100 + job)
        yard.ear.wait(Stored)
        took.append(time.perf_counter() - before)
    assert sorted(took)[len(took) // 2] < 0.02


def test_a_keeper_that_cannot_take_its_lock_leaves_and_says_why(yard: Yard) -> None:
    import fcntl

    os.makedirs(yard.paths.worker(1))
    lock = os.open(yard.paths.worker(1), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yard.park()
        gone = yard.ear.wait(Gone)
        assert gone.exit_code is None
        assert "is held by another keeper" in gone.text
    finally:
        os.close(lock)


def test_a_sweep_takes_what_the_dead_left_and_nothing_of_the_living(yard: Yard) -> None:
    yard.start()
    for name in ("9.k", "9.w"):
        Path(yard.paths.run, name).touch()
    for worker in ("9", "1"):
        folder = Path(yard.paths.workers, worker)
        folder.mkdir(exist_ok=True)
        (folder / "exit.json.tmp").touch()
    removed = sweep(yard.paths)
    assert sorted(os.path.basename(path) for path in removed) == ["9.k", "9.w", "exit.json.tmp"]
    assert sorted(yard.sockets()) == ["1.k", "1.w"]
    sweep(yard.paths, older_than_s=-1.0)
    assert os.listdir(yard.paths.workers) == ["1"]
    Path(yard.paths.worker(1), "exit.json.tmp").unlink()
    assert yard.stop().exit_code == 0
