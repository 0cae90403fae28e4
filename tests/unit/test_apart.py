"""A child process that is asked again and again, and what becomes of one that hangs, dies, or talks nonsense."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.host.machine import apart
from scheduler.host.machine.apart import Apart

ANSWERS = """
import json, os, sys, time
for line in sys.stdin:
    n = json.loads(line)["n"]
    say = lambda **more: print(json.dumps({"n": n, "pid": os.getpid(), **more}), flush=True)
"""


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Callable[..., Apart]]:
    made: list[Apart] = []

    def open_door(does: str, first_s: float = 20.0, before: str = "") -> Apart:
        script = tmp_path / f"child{len(made)}.py"
        script.write_text(f"{before}\n{ANSWERS}    {does}\n")
        made.append(Apart("the oracle", [sys.executable, "-I", "-S", str(script)], {}, first_s))
        return made[-1]

    yield open_door
    for each in made:
        each.close()


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 20.0
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_child_answers_again_and_again(door: Callable[..., Apart]) -> None:
    oracle = door("say(value=n * 2)")
    first, _ = oracle.ask(20.0)
    second, missing = oracle.ask(20.0)
    assert first and second and missing == ""
    assert (first["value"], second["value"]) == (2, 4) and first["pid"] == second["pid"] == oracle.pid


def test_a_child_that_is_late_is_killed_and_its_silence_stands_until_it_is_asked_again(
    door: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = door("say() if n == 1 else time.sleep(60)")
    answer, _ = oracle.ask(20.0)
    assert answer
    began = time.monotonic()
    assert oracle.ask(0.2)[0] is None
    assert time.monotonic() - began < 10.0
    wait_for(lambda: is_gone(answer["pid"]))
    nothing, missing = oracle.ask(0.2)
    assert nothing is None and oracle.pid is None
    assert missing.startswith("the oracle did not answer in 0.2 s; it is asked again at ")
    assert missing.endswith(time.strftime(" %Z")), "on this machine's own clock"
    now = apart.monotonic_s() + apart.AGAIN_S
    monkeypatch.setattr(apart, "monotonic_s", lambda: now)
    again, missing = oracle.ask(20.0)
    assert again and again["pid"] != answer["pid"] and missing == ""


def test_each_failure_doubles_the_wait_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, now_s, waits = Apart("the oracle", ["/nowhere/python"], {}), [1000.0], []
    monkeypatch.setattr(apart, "monotonic_s", lambda: now_s[0])
    _, missing = oracle.ask(20.0)
    assert "the oracle cannot be asked: /nowhere/python cannot be run: No such file or directory; " in missing
    for _ in range(7):
        before, began_s = oracle.ask(20.0)[1], now_s[0]
        while oracle.ask(20.0)[1] == before:
            now_s[0] += 0.5
        waits.append(now_s[0] - began_s)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    oracle.close()


def test_a_child_that_served_for_a_minute_is_forgiven(
    door: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle, now_s = door("say() if n < 3 else os._exit(7)"), [1000.0]
    monkeypatch.setattr(apart, "monotonic_s", lambda: now_s[0])
    for lived_s, waits_s in ((1.0, 2.0), (1.0, 4.0), (60.0, 2.0)):
        assert oracle.ask(20.0)[0]
        now_s[0] += lived_s
        assert oracle.ask(20.0)[0]
        assert "exit code 7" in oracle.ask(20.0)[1]
        now_s[0] += waits_s - 0.5
        assert oracle.ask(20.0)[0] is None
        now_s[0] += 0.5
    assert oracle.ask(20.0)[0]


def test_a_first_answer_may_take_longer_and_is_passed_over_once_it_is_old(door: Callable[..., Apart]) -> None:
    oracle = door("time.sleep(0.6 if n == 1 else 0); say(value=n)")
    nothing, missing = oracle.ask(0.1)
    assert nothing is None
    assert missing == "the oracle has not given its first answer yet, for which it has 20 s"
    pid = oracle.pid
    answer, _ = oracle.ask(20.0)
    assert answer and answer["value"] == 2 and answer["pid"] == pid


def test_a_first_answer_that_never_comes_is_given_up_on(door: Callable[..., Apart]) -> None:
    oracle = door("time.sleep(60)", first_s=0.3)
    assert "not given its first answer yet" in oracle.ask(0.05)[1]
    pid = oracle.pid
    assert pid
    assert "the oracle gave no first answer in 0.3 s; it is asked again at" in oracle.ask(1.0)[1]
    wait_for(lambda: is_gone(pid))


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("os._exit(3)", "the process that asks it ended with exit code 3"),
        ("os.kill(os.getpid(), 11)", "the process that asks it ended by signal 11 (SIGSEGV)"),
        ("print('hello', flush=True)", "the oracle answered what is no JSON: 'hello'"),
        ("os.write(1, bytes([0xff, 10]))", "the oracle answered what is no JSON: '\\ufffd'"),
        ("print('[' * 100000, flush=True)", "the oracle answered what is no JSON: '[[["),
        ("print('[1]', flush=True)", "the oracle answered JSON that is no object"),
        ("print('{}', flush=True)", "the oracle answered a question that it was not asked"),
        ("print('x' * (6 << 20), flush=True)", "the oracle answered with more than 4 MiB"),
        ("say() if n == 1 else print('{\"n\": 2', end='', flush=True)", "the oracle did not answer in 0.3 s"),
        ('os.write(1, b\'{"n": %d}\\n{"n": %d}\\n\' % (n, n))', "the oracle said more than it was asked"),
    ],
)
def test_what_is_no_answer_is_a_failure_in_words(door: Callable[..., Apart], does: str, why: str) -> None:
    oracle = door(does)
    missing = oracle.ask(20.0)[1] or oracle.ask(0.3)[1]
    assert why in missing and "; it is asked again at " in missing
    assert oracle.pid is None


def test_a_child_that_cannot_be_killed_is_not_given_a_second(
    door: Callable[..., Apart], monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = door("say() if n == 1 else time.sleep(60)")
    answer, _ = oracle.ask(20.0)
    assert answer
    monkeypatch.setattr(apart._Child, "kill", lambda child: None)
    assert "did not answer in 0.05 s" in oracle.ask(0.05)[1]
    now = apart.monotonic_s() + 3600.0
    monkeypatch.setattr(apart, "monotonic_s", lambda: now)
    missing = oracle.ask(20.0)[1]
    assert f"process {answer['pid']}, which asks it, hangs in the kernel and cannot be ended" in missing
    assert oracle.pid is None
    os.kill(answer["pid"], signal.SIGKILL)
    wait_for(lambda: oracle.ask(20.0)[0] is not None)


def test_closing_ends_the_child_and_an_ask_that_is_under_way(door: Callable[..., Apart]) -> None:
    oracle, said = door("say() if n == 1 else time.sleep(60)"), []
    answer, _ = oracle.ask(20.0)
    asking = threading.Thread(target=lambda: said.append(oracle.ask(30.0)))
    asking.start()
    assert answer
    wait_for(oracle._turn.locked)
    oracle.close()
    asking.join(10.0)
    assert is_gone(answer["pid"]) and said and said[0][0] is None
    assert oracle.ask(20.0) == (None, "the oracle is not asked any more: this process is going down")


def test_who_asks_while_another_asks_is_told_so_in_time(door: Callable[..., Apart]) -> None:
    oracle = door("time.sleep(60)")
    asking = threading.Thread(target=lambda: oracle.ask(20.0))
    asking.start()
    wait_for(oracle._turn.locked)
    assert oracle.ask(0.05) == (None, "the oracle is being asked already and has not answered")
    oracle.close()
    asking.join(10.0)


def test_a_child_has_its_own_session_and_none_of_our_descriptors(door: Callable[..., Apart]) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    try:
        oracle = door("say(open=sorted(os.listdir('/proc/self/fd')), session=os.getsid(0))")
        answer, _ = oracle.ask(20.0)
    finally:
        os.close(ours)
        os.close(theirs)
    assert answer and answer["session"] == answer["pid"]
    assert len(answer["open"]) == 4  # its three, and the folder that it lists
