"""Workers outlive their scheduler and their keeper's accidents: adoption, takeover, orphans, and who may speak."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from keepers import FAKE, QUEUE, Yard, until

from scheduler.errors import SchedqError
from scheduler.host.workers import connection, parting, protocol, tree, ward
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.records import own_folder
from scheduler.model.host import Adopt, Alive, Answered, Assignment, Failed, Forgotten, Gone, Replied, Shown


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path / "home")
    yield made
    made.end()


def speak(yard: Yard, *orders: dict[str, Any]) -> list[dict[str, Any]]:
    """What the keeper of worker 1 says: its hello, then one answer per order."""
    control = os.path.join(yard.paths.run, "1.k")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        until(lambda: sock.connect_ex(control) == 0, "the keeper to listen")
        file = sock.makefile("rwb")
        said = [json.loads(file.readline())]
        for order in orders:
            file.write(json.dumps(order).encode() + b"\n")
            file.flush()
            said.append(json.loads(file.readline()))
        return said


def test_an_idle_worker_is_adopted_warm(yard: Yard) -> None:
    first = yard.start()
    yard.restart()
    yard.roster.adopt(yard.row("ready", first))
    again = yard.ear.wait(Answered)
    assert (again.leader_pid, again.leader_started) == (first.leader_pid, first.leader_started)
    reply = yard.send({"do": "echo"})
    yard.ear.wait(Stored)
    assert json.loads(reply.read_bytes())["served"] == 1
    assert yard.stop().exit_code == 0


def test_a_busy_worker_is_adopted_and_its_answer_collected(yard: Yard) -> None:
    first = yard.start()
    done = Path(yard.paths.home) / "done"
    reply = yard.send({"do": "wait_for", "path": str(done)})
    until(lambda: speak(yard)[0]["state"] == "busy", "the request to arrive")
    yard.restart()
    yard.roster.adopt(yard.row("busy", first, assignment=Assignment(7, 1)))
    yard.ear.wait(Answered)
    assert yard.ear.none(Stored)
    done.touch()
    stored = yard.ear.wait(Stored)
    assert (stored.job_id, stored.attempt, stored.reply_path) == (7, 1, str(reply))


def test_an_answer_that_came_while_nobody_listened_is_collected(yard: Yard) -> None:
    first = yard.start()
    done = Path(yard.paths.home) / "done"
    reply = yard.send({"do": "wait_for", "path": str(done)})
    until(lambda: speak(yard)[0]["state"] == "busy", "the request to arrive")
    yard.roster.close()
    done.touch()
    until(reply.exists, "the reply")
    yard.restart()
    yard.roster.adopt(yard.row("busy", first, assignment=Assignment(7, 1)))
    yard.ear.wait(Answered)
    assert yard.ear.wait(Stored).reply_path == str(reply)


def test_an_attempt_that_was_never_sent_is_forgotten(yard: Yard) -> None:
    first = yard.start()
    yard.restart()
    yard.roster.adopt(yard.row("busy", first, assignment=Assignment(7, 2)))
    forgotten = yard.ear.wait(Forgotten)
    assert (forgotten.job_id, forgotten.attempt) == (7, 2)


def test_a_worker_that_ended_meanwhile_is_gone_with_its_reply_and_exit_code(yard: Yard) -> None:
    first = yard.start()
    reply = yard.send({"do": "reply_then_die"})
    yard.roster.close()
    until(lambda: not yard.roster.tree_lives(1), "the worker's end")
    yard.restart()
    yard.roster.adopt(yard.row("busy", first, assignment=Assignment(7, 1)))
    assert yard.ear.wait(Stored).reply_path == str(reply)
    assert yard.ear.wait(Gone).exit_code == 9
    assert [type(e) for e in yard.ear.events] == []


def test_a_worker_of_another_boot_is_gone_and_its_reply_is_not_trusted(yard: Yard) -> None:
    first = yard.start()
    yard.send({"do": "reply_then_die"})
    yard.ear.wait(Gone)
    yard.restart()
    yard.roster.adopt(replace(yard.row("busy", first, assignment=Assignment(7, 1)), boot_id="another"))
    yard.ear.wait(Gone)
    assert yard.ear.none(Stored)


def test_a_keeper_whose_pid_was_never_noted_is_found_by_its_socket(yard: Yard) -> None:
    shown = yard.park()
    yard.shown = replace(shown, keeper_pid=None, keeper_started=None)  # type: ignore[arg-type]
    yard.restart()
    yard.roster.adopt(yard.row("parked"))
    assert yard.ear.wait(Shown).keeper_pid == shown.keeper_pid
    yard.roster.go(1, yard.launch())
    yard.ear.wait(Answered)


def test_a_keeper_that_never_heard_its_go_is_ended(yard: Yard) -> None:
    yard.shown = yard.park()
    yard.restart()
    yard.roster.adopt(yard.row("starting"))
    assert "its keeper says parked" in yard.ear.wait(Gone).why
    assert yard.processes() == []


def test_a_worker_that_was_retiring_is_stopped_by_the_next_scheduler(yard: Yard) -> None:
    first = yard.start()
    yard.restart()
    yard.roster.adopt(yard.row("retiring", first))
    assert yard.ear.wait(Gone).exit_code == 0


def test_a_number_that_another_process_has_by_now_is_not_the_keeper(yard: Yard) -> None:
    first = yard.start()
    os.kill(yard.shown.keeper_pid, signal.SIGKILL)
    yard.ear.wait(Gone)
    yard.restart()
    yard.shown = replace(yard.shown, keeper_pid=os.getpid())
    yard.roster.adopt(yard.row("ready", first))
    assert yard.ear.wait(Gone).exit_code is None


@pytest.mark.parametrize(
    "knobs", [(), ("--grandchild", "daemon"), ("--grandchild", "stubborn", "--ignore-term")], ids=str
)
def test_a_killed_keeper_takes_its_worker_along_and_the_orphans_are_ended(yard: Yard, knobs: tuple[str, ...]) -> None:
    yard.start(*knobs)
    if knobs:
        log = Path(yard.paths.worker(1)) / "log"
        until(lambda: "grandchild" in log.read_text(), "the grandchild")
    os.kill(yard.shown.keeper_pid, signal.SIGKILL)
    assert yard.ear.wait(Gone).exit_code is None
    assert yard.processes() == []
    assert yard.sockets() == []


def test_orphans_of_a_keeper_that_died_unseen_are_ended_at_adoption(yard: Yard) -> None:
    first = yard.start("--grandchild", "daemon")
    log = Path(yard.paths.worker(1)) / "log"
    until(lambda: "grandchild" in log.read_text(), "the grandchild")
    yard.roster.close()
    os.kill(yard.shown.keeper_pid, signal.SIGKILL)
    yard.restart()
    yard.roster.adopt(yard.row("ready", first))
    yard.ear.wait(Gone)
    assert yard.processes() == []


ORPHAN = Adopt(1, "", "", "", "resident", "retiring", "", None, None, None, None)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_keeper_that_no_row_knows_is_found_and_ended(
    yard: Yard, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.start("--grandchild", "plain")
    yard.restart()
    if stopped:
        monkeypatch.setattr(parting, "SLACK_S", -9.8)
        os.kill(yard.shown.keeper_pid, signal.SIGSTOP)
    yard.roster.adopt(ORPHAN)
    assert yard.ear.wait(Gone).exit_code == (None if stopped else 0)
    assert yard.ear.none(Shown)
    assert yard.ear.none(Failed)
    assert yard.processes() == []


def test_marked_processes_that_no_row_and_no_keeper_knows_are_ended(yard: Yard) -> None:
    yard.ids.add(1)
    with subprocess.Popen(["/bin/sleep", "600"], env={tree.MARK: f"{QUEUE}:1"}) as left:
        until(yard.processes, "the process to be seen")
        yard.roster.adopt(ORPHAN)
        yard.ear.wait(Gone)
        assert left.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("adopted", [False, True])
def test_a_keeper_that_does_not_react_is_killed_after_the_grace(
    yard: Yard, adopted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parting, "SLACK_S", 0.3)
    first = yard.start("--grandchild", "daemon")
    os.kill(yard.shown.keeper_pid, signal.SIGSTOP)
    if adopted:
        yard.restart()
        yard.roster.adopt(yard.row("ready", first))
    assert yard.stop(0.2).why == "the test is over"
    assert yard.processes() == []


def test_a_keeper_that_cannot_be_reached_is_killed_when_it_is_to_stop(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parting, "SLACK_S", 0.3)
    first = yard.start()
    yard.restart()
    os.unlink(os.path.join(yard.paths.run, "1.k"))
    yard.roster.adopt(yard.row("ready", first))
    yard.stop(0.2)
    assert yard.processes() == []


@pytest.mark.parametrize("knobs", [(), ("--grandchild", "stubborn", "--ignore-term")], ids=str)
def test_a_keeper_of_another_protocol_is_ended_by_signals(
    yard: Yard, knobs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = yard.start(*knobs)
    yard.restart()
    monkeypatch.setattr(ward, "agreed", lambda _: None)
    yard.roster.adopt(yard.row("ready", first))
    failed = yard.ear.wait(Failed)
    assert "speaks protocol 1, which this schedq does not" in failed.text
    assert failed.alive
    assert yard.stop(0.5).exit_code in ((None, -signal.SIGKILL) if knobs else (-signal.SIGTERM,))
    assert yard.processes() == []


@pytest.mark.parametrize("broken", ["_welcome", "_event", "hear"])
def test_trouble_with_one_worker_is_said_and_it_can_still_be_stopped(
    yard: Yard, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise LookupError("planted")

    monkeypatch.setattr(parting, "SLACK_S", 0.3)
    first = yard.start()
    yard.restart()
    monkeypatch.setattr(connection.Connection if broken == "hear" else ward.Ward, broken, fails)
    yard.roster.adopt(yard.row("ready", first))
    if broken == "_event":
        yard.ear.wait(Answered)
        yard.send({"do": "echo"})
    failed = yard.ear.wait(Failed)
    assert (failed.text, failed.alive) == ("LookupError: planted", True)
    yard.stop(0.2)
    assert yard.processes() == []


def test_a_burial_that_goes_wrong_is_said_of_its_worker_and_tried_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.start()
    right, calls = tree.members, iter([True, False])

    def members(*asked: Any) -> list[tree.Stat]:
        if next(calls, False):
            raise OSError("planted")
        return right(*asked)

    monkeypatch.setattr(parting.tree, "members", members)
    os.kill(yard.shown.keeper_pid, signal.SIGKILL)
    assert yard.ear.wait(Failed).text == "OSError: planted"
    yard.ear.wait(Gone)


STARTER = """
import os, sys
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
import keepers
keepers.QUEUE = {queue!r}
yard = keepers.Yard(Path({home!r}))
answered = yard.start()
yard.send({{"do": "wait_for", "path": {done!r}}})
shown = yard.shown
print(shown.keeper_pid, shown.keeper_started, shown.boot_id, answered.leader_pid, answered.leader_started, flush=True)
sys.stdin.read()
"""


def test_a_worker_goes_on_when_its_scheduler_is_killed(yard: Yard, tmp_path: Path) -> None:
    done, here = tmp_path / "done", Path(__file__).resolve()
    tests, root = str(here.parents[1]), str(here.parents[2])
    code = STARTER.format(tests=tests, root=root, queue=QUEUE, home=yard.paths.home, done=str(done))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid, started, boot, leader, leader_started = starter.stdout.readline().split()
        yard.ids.add(1)
        until(lambda: speak(yard)[0]["state"] == "busy", "the request to arrive")
        starter.kill()
    yard.shown = Shown(1, int(pid), float(started), boot)
    first = Answered(1, int(leader), float(leader_started))
    yard.roster.adopt(yard.row("busy", first, assignment=Assignment(7, 1)))
    assert yard.ear.wait(Answered).leader_pid == int(leader)
    done.touch()
    assert not yard.ear.wait(Stored).no_reply
    assert yard.stop().exit_code == 0


def test_a_parked_keeper_that_nobody_comes_for_leaves(yard: Yard, tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    folder.mkdir()
    control = str(tmp_path / "5.k")
    claim = ["--schedq-keeper", "worker=5", "queue=q", f"control={control}", str(folder)]
    code = (
        f"import sys; sys.path.append({str(Path(__file__).resolve().parents[2])!r})\n"
        f"from scheduler.host.workers import keeping\nkeeping.PARKED_S = 0.2\nkeeping.main({claim!r})"
    )
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code], timeout=20).returncode == 0
    assert "nobody said go" in json.loads((folder / "exit.json").read_text())["why"]
    assert not os.path.exists(control)


def test_a_parked_keeper_whose_scheduler_is_there_and_never_decides_leaves_too(tmp_path: Path) -> None:
    """As one that was stopped at that moment: what is claimed and not spent is nobody's for ever."""
    folder, control = tmp_path / "worker", str(tmp_path / "5.k")
    folder.mkdir()
    claim = ["--schedq-keeper", "worker=5", "queue=q", f"control={control}", str(folder)]
    code = (
        f"import sys; sys.path.append({str(Path(__file__).resolve().parents[2])!r})\n"
        f"from scheduler.host.workers import keeping\nkeeping.PARKED_S = 2.0\nkeeping.main({claim!r})"
    )
    keeper = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    with socket.socket(socket.AF_UNIX) as scheduler:
        until(lambda: os.path.exists(control) or keeper.poll() is not None, "the keeper")
        scheduler.connect(control)
        scheduler.sendall(b'{"op": "hello", "protocol": 1}\n')
        assert keeper.wait(20) == 0
    assert "nobody said go" in json.loads((folder / "exit.json").read_text())["why"]


def test_a_keeper_speaks_first_and_obeys_only_who_said_hello(yard: Yard) -> None:
    yard.shown = yard.park()
    hello, refused = speak(yard, {"op": "status"})
    assert (hello["hello"], hello["protocol"], hello["state"]) == ("schedq-keeper", 1, "parked")
    assert refused == {"re": "status", "ok": False, "error": "say hello with your protocol number first"}
    assert speak(yard, {"op": "hello", "protocol": 0})[1]["ok"]
    assert "speaks protocols 1 and 0" in speak(yard, {"op": "hello", "protocol": 2})[1]["error"]


def test_orders_that_make_no_sense_are_answered_and_change_nothing(yard: Yard) -> None:
    yard.start()
    hello = {"op": "hello", "protocol": 1}
    assert "go came to a keeper that is ready" in speak(yard, hello, {"op": "go"})[2]["error"]
    assert "no order 'dance'" in speak(yard, hello, {"op": "dance"})[2]["error"]
    assert speak(yard, hello, {"op": "attach", "job": 1, "attempt": 1})[2]["is"] == "unknown"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.path.join(yard.paths.run, "1.k"))
        sock.sendall(b"\xff\xfe no JSON\n[]\n")
        file = sock.makefile("rb")
        file.readline()
        assert [json.loads(file.readline())["ok"] for _ in range(2)] == [False, False]
    yard.send({"do": "echo"})
    assert not yard.ear.wait(Stored).no_reply


def test_another_user_is_not_let_in(yard: Yard, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    yard.park()
    control = os.path.join(yard.paths.run, "1.k")
    until(lambda: os.path.exists(control) and os.stat(control).st_mode & 0o777 == 0o600, "the keeper's own socket")
    assert os.stat(yard.paths.run).st_mode & 0o777 == 0o700
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        folder = os.open(yard.paths.run, os.O_RDONLY | os.O_DIRECTORY)
        os.fchmod(folder, 0o755)
        os.chmod(control, 0o666)
        os.fchdir(folder)
        os.setresuid(65534, 65534, 65534)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("1.k")
            theirs.sendall(sock.recv(100) or b"hung up")
        os._exit(0)
    theirs.close()
    said = ours.recv(100)
    ours.close()
    os.waitpid(child, 0)
    os.chmod(yard.paths.run, 0o700)
    assert said in (b"hung up", b"")


def test_a_request_that_did_not_arrive_whole_was_never_asked(yard: Yard) -> None:
    yard.start()
    reply = os.path.join(yard.paths.home, "r.json")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.path.join(yard.paths.run, "1.k"))
        file = sock.makefile("rwb")
        file.readline()
        order = {"op": "send", "job": 9, "attempt": 1, "reply_path": reply, "log_path": "", "length": 1000}
        for line in ({"op": "hello", "protocol": 1}, order):
            file.write(json.dumps(line).encode() + b"\n")
        file.write(b'{"op": "predict", "request": {"do": "ec')
        file.flush()
        file.readline()
        assert json.loads(file.readline()) == {"re": "send", "ok": True, "job": 9, "attempt": 1}
        file.close()
    until(lambda: speak(yard)[0]["state"] == "ready", "the keeper to see the cut")
    assert not os.path.exists(reply)
    assert speak(yard, {"op": "hello", "protocol": 1}, {"op": "attach", "job": 9, "attempt": 1})[2]["is"] == "unknown"
    yard.send({"do": "echo"})
    assert not yard.ear.wait(Stored).no_reply


def test_a_scheduler_that_does_not_read_blocks_no_worker(yard: Yard) -> None:
    yard.start()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(os.path.join(yard.paths.run, "1.k"))
        deaf.sendall(b'{"op": "hello", "protocol": 1}\n')
        for job in range(3):
            yard.send({"do": "print_mib", "mib": 8, "progress": 200}, job=job)
            assert not yard.ear.wait(Stored).no_reply


def test_a_closed_roster_leaves_no_thread_and_no_descriptor(yard: Yard) -> None:
    before = len(os.listdir("/proc/self/fd"))
    yard.start()
    yard.restart()
    assert len(os.listdir("/proc/self/fd")) == before
    assert sum(t.name == "schedq-roster" for t in threading.enumerate()) == 1


def test_orders_for_a_worker_that_is_not_there_are_answered(yard: Yard) -> None:
    yard.roster.stop(99, 1.0, "why not")
    failed = yard.ear.wait(Failed, 99)
    assert (failed.text, failed.alive) == ("worker 99 has no keeper", False)


def test_a_folder_of_sockets_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    own_folder(str(tmp_path / "good"))
    (tmp_path / "open").mkdir(mode=0o755)
    os.chmod(tmp_path / "open", 0o755)
    with pytest.raises(SchedqError, match="mode 0755"):
        own_folder(str(tmp_path / "open"))
    (tmp_path / "link").symlink_to(tmp_path / "good")
    with pytest.raises(SchedqError, match="0700"):
        own_folder(str(tmp_path / "link"))


def test_what_a_keeper_said_before_it_left_is_heard(yard: Yard) -> None:
    for worker_id in range(1, 6):
        yard.start(worker_id=worker_id)
        yard.send({"do": "reply_then_die"}, job=worker_id, worker_id=worker_id)
        assert not yard.ear.wait(Stored, worker_id).no_reply
        assert yard.ear.wait(Gone, worker_id).exit_code == 9


def test_what_a_worker_says_while_it_loads_is_a_sign_of_life_and_later_is_none(yard: Yard, tmp_path: Path) -> None:
    until_told = "while [ ! -e {} ]; do echo loading; sleep 0.1; done; exec {} {} --socket $1"
    yard.shown = yard.park()
    script = until_told.format(tmp_path / "go", sys.executable, FAKE)
    environ = {"PATH": os.environ["PATH"]}
    yard.roster.go(1, Launch(["/bin/sh", "-c", script, "sh", "{socket}"], environ, "/", "resident"))
    yard.ear.wait(Alive)
    yard.ear.wait(Alive)
    (tmp_path / "go").touch()
    yard.ear.wait(Answered)
    yard.ear.events.clear()
    yard.send({"do": "sleep", "s": 1.1})  # a sign of life is told once a second at most
    yard.ear.wait(Stored)
    yard.send({"do": "echo", "print": "a word, and no progress"}, job=8)
    yard.ear.wait(Stored)
    until(lambda: os.path.getsize(os.path.join(yard.paths.attempt(8, 1), "log")), "the word")
    yard.send({"do": "echo"}, job=9)
    yard.ear.wait(Stored)
    assert yard.ear.none(Alive)


def cut(yard: Yard, then: Callable[[ward.Ward], None]) -> None:
    """Lose the connection to the keeper of worker 1, and do something before it can come again."""

    def act() -> None:
        found = yard.roster._wards[1]
        assert found.connection.sock is not None
        found.connection.sock.shutdown(socket.SHUT_RDWR)
        found.connection._listen(selectors.EVENT_READ)
        then(found)

    yard.roster._do(1, act)


@pytest.mark.parametrize("knobs", [(), ("--legacy",)], ids=str)
def test_a_request_that_is_given_while_the_connection_is_lost_is_sent_and_not_forgotten(
    yard: Yard, knobs: tuple[str, ...]
) -> None:
    yard.start(*knobs)
    cut(yard, lambda _: None)
    reply = yard.send({"do": "echo"})
    yard.ear.wait(Stored)
    assert json.loads(reply.read_bytes())["echo"] == {"do": "echo"}
    assert yard.ear.none(Forgotten)


def test_an_answer_that_came_while_the_connection_was_lost_is_collected(yard: Yard, tmp_path: Path) -> None:
    yard.start()
    reply = yard.send({"do": "wait_for", "path": str(tmp_path / "done")})
    until(lambda: speak(yard)[0]["state"] == "busy", "the request to arrive")

    def meanwhile(_: ward.Ward) -> None:
        (tmp_path / "done").touch()
        until(reply.exists, "the reply")

    cut(yard, meanwhile)
    yard.ear.wait(Stored)


def test_a_worker_that_answered_while_the_connection_was_lost_is_ready(yard: Yard) -> None:
    yard.shown = yard.park()
    yard.roster.go(1, yard.launch("--bind-after-s", "0.3"))
    until(lambda: speak(yard)[0]["state"] == "starting", "the start")
    cut(yard, lambda _: until(lambda: speak(yard)[0]["state"] == "ready", "the answer"))
    yard.ear.wait(Answered)


def test_a_warm_worker_of_the_older_protocol_is_sent_the_request_itself_after_a_restart(yard: Yard) -> None:
    first = yard.start("--legacy")
    yard.restart()
    yard.roster.adopt(yard.row("ready", first))
    reply = yard.send({"do": "echo"})
    yard.ear.wait(Stored)
    assert json.loads(reply.read_bytes())["echo"] == {"do": "echo"}


@pytest.mark.parametrize("letters", ["\u00e4" * (12 << 20), "\u00e4" * (34 << 20)], ids=["fits", "too long"])
def test_a_request_is_refused_with_numbers_only_if_no_worker_could_read_it(yard: Yard, letters: str) -> None:
    yard.start()
    reply = yard.send({"do": "big", "bytes": 1, "text": letters})
    if len(letters) < 13 << 20:
        assert not yard.ear.wait(Stored, deadline_s=60).no_reply
        assert json.loads(reply.read_bytes())["got"] > 6 * len(letters)
    else:
        outcome = yard.ear.wait(Replied, deadline_s=60).outcome
        assert outcome.kind == "refused"
        assert re.search(r"one line of 713\d{5} bytes and a worker reads at most 67108864", outcome.text)
        yard.send({"do": "echo"}, job=8)
        yard.ear.wait(Stored)
    assert yard.stop().exit_code == 0


def test_half_a_character_in_a_request_passes_however_long_it_is() -> None:
    assert json.loads(connection.written({"a": "\ud800"})) == {"a": "\ud800"}
    assert len(connection.written({"a": "\ud800" + "\u00e4" * (12 << 20)})) > protocol.LINE_LIMIT


def test_the_logs_of_attempts_keep_to_the_limit_that_is_sent(yard: Yard) -> None:
    yard.start()
    yard.send({"do": "print_mib", "mib": 3}, log_max=1 << 20)
    yard.ear.wait(Stored)
    folder = Path(yard.paths.attempt(7, 1))
    assert sum(path.stat().st_size for path in folder.glob("log*")) <= 1 << 20


def test_a_death_is_told_with_what_was_said_in_its_own_attempt_alone(yard: Yard) -> None:
    first = yard.start()
    yard.send({"do": "echo", "print": "ValueError: of the job before"}, job=7)
    yard.ear.wait(Stored)
    yard.send({"do": "exit", "code": 9}, job=8)
    gone = yard.ear.wait(Gone)
    assert gone.exit_code == 9 and gone.text == ""
    assert first.leader_pid


def test_an_adopted_worker_that_dies_is_told_with_the_words_of_its_attempt(yard: Yard) -> None:
    first = yard.start()
    yard.send({"do": "echo", "print": "ValueError: of the job before"}, job=7)
    yard.ear.wait(Stored)
    done = Path(yard.paths.home) / "done"
    yard.send({"do": "wait_for", "path": str(done), "print": "in this one"}, job=8)
    words = Path(yard.paths.attempt(8, 1)) / "log"
    until(lambda: words.exists() and "in this one" in words.read_text(), "the attempt to write")
    yard.restart()
    yard.roster.adopt(yard.row("busy", first, assignment=Assignment(8, 1)))
    yard.ear.wait(Answered)
    os.kill(first.leader_pid, signal.SIGKILL)
    gone = yard.ear.wait(Gone)
    assert gone.exit_code == -9 and gone.text == "in this one"
