"""A call of `schedq exec`: the signals that it hears, and what it leaves with when its command is taken back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.cli.commanding import NotRun, _Foreground
from scheduler.cli.signals import PASSED, Signals
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.store import turns


@pytest.fixture
def quiet() -> Iterator[None]:
    """Some signals are ignored, as `nohup` and a script's background have it."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGUSR1)}
    yield
    for number, how in before.items():
        signal.signal(number, how)


def test_signals_are_read_instead_of_heard_and_who_sent_them_is_known() -> None:
    signals = Signals()
    try:
        assert set(PASSED) <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)  # a thread that does not hold it would take it
        assert signals.read() == [(signal.SIGUSR2, False)]
    finally:
        signals.close()
    assert not set(PASSED) & signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_signal_that_is_ignored_stays_so(quiet: None) -> None:
    signals = Signals()
    try:
        held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert signal.SIGTERM in held and not {signal.SIGHUP, signal.SIGUSR1} & held
        for number in (signal.SIGHUP, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        assert signals.read() == []
    finally:
        signals.close()


class Queue:
    """A client whose job is in a state when it is cancelled, and has ended when it is asked for."""

    def __init__(self, before: str) -> None:
        self.before = before
        self.paths = Paths("/nowhere")

    def cancel(self, ids: list[int]) -> list[tuple[int, str, str]]:
        return [(ids[0], self.before, self.before if self.before == "running" else "cancelled")]

    def status(self, _id: int) -> dict[str, Any]:
        return {"id": 1, "state": "cancelled", "outcome": {"kind": "cancelled", "text": "asked by me"}}


def call(before: str) -> _Foreground:
    made = _Foreground.__new__(_Foreground)
    made.client, made.job_id, made.instead = Queue(before), 1, None  # type: ignore[assignment]
    made.call = SimpleNamespace(ended=None, left="cancelled")  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(("before", "gave_up"), [("queued", True), ("admitted", True), ("running", False)])
def test_what_is_taken_back_before_it_began_ends_as_was_asked(before: str, gave_up: bool) -> None:
    made = call(before)
    assert made._gave_up(130) is gave_up
    assert made._code() == 130
    made = call(before)
    assert made._gave_up(Temporary("no room now")) is gave_up
    with pytest.raises(Temporary, match="no room now"):
        made._code()


def test_what_somebody_else_took_back_was_not_run() -> None:
    with pytest.raises(NotRun, match="asked by me; the command was not run"):
        call("queued")._code()


class Sent:
    """A call whose command was sent to its keeper: `began` once it is heard that it runs, `said` what it was told."""

    def __init__(self, began: bool) -> None:
        self.began: dict[str, int] = {}
        self.starts, self.said = began, []  # type: bool, list[dict[str, Any]]

    def step(self) -> None:
        self.began = {"started": 5} if self.starts else {}

    def say(self, **what: Any) -> None:
        self.said.append(what)


def sent(monkeypatch: pytest.MonkeyPatch, state: str, *, began: bool = False) -> tuple[_Foreground, Sent]:
    made, there = call(state), Sent(began)
    came = [[(int(signal.SIGINT), True)], [], []]
    made.call, made.came, made.had_terminal = there, [], False  # type: ignore[assignment]
    made.signals = SimpleNamespace(read=lambda: came.pop(0))  # type: ignore[assignment]
    monkeypatch.setattr(turns, "look", lambda paths, job: SimpleNamespace(state=made.client.before))  # type: ignore[attr-defined]
    return made, there


def test_a_signal_that_comes_with_the_word_that_the_command_runs_is_the_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, there = sent(monkeypatch, "running", began=True)
    assert made._pass_on() is None and made.instead is None
    assert there.said == [{"signal": signal.SIGINT, "terminal": True}]


def test_one_that_comes_while_the_command_is_about_to_begin_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    made, there = sent(monkeypatch, "running")
    assert made._pass_on() is None and made.instead is None and there.said == []
    there.began = {"started": 5}
    assert made._pass_on() is None
    assert there.said == [{"signal": signal.SIGINT, "terminal": False}] and made.came == []


def test_it_takes_a_command_back_that_waits_for_its_turn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, there = sent(monkeypatch, "running")
    assert made._pass_on() is None
    made.client.before = "queued"  # type: ignore[attr-defined]
    assert made._pass_on() == 130 and there.said == []
