"""An interpreter is asked what it is without anybody waiting, and once for each state of its file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scheduler.host import interpreters
from scheduler.host.interpreters import Answers, Interpreter


class Slow:
    """An interpreter that answers when it is let; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked, self.go, self.done = 0, threading.Event(), threading.Semaphore(0)
        self.answer: Interpreter | str = Interpreter("/opt/python", "3.12.9")

    def __call__(self, path: str) -> Interpreter | str:
        self.asked += 1
        assert self.go.wait(20.0)
        self.done.release()
        return self.answer


def learned(answers: Answers, path: str) -> Interpreter | str:
    """What is known once the thread that asks has ended."""
    for thread in threading.enumerate():
        if thread.name == "schedq-probe":
            thread.join(20.0)
    answer = answers.of(path)
    assert answer is not None
    return answer


def test_an_interpreter_is_asked_once_for_each_state_of_its_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    slow, python = Slow(), tmp_path / "python"
    python.write_text("one")
    answers = Answers(slow)
    assert [answers.of(str(python)) for _ in range(3)] == [None, None, None]
    slow.go.set()
    assert learned(answers, str(python)) == learned(answers, str(python)) == slow.answer
    assert slow.asked == 1
    python.write_text("another")
    assert answers.of(str(python)) is None
    assert learned(answers, str(python)) == slow.answer
    assert slow.asked == 2


def test_a_failure_is_asked_about_again_after_a_while_and_stands_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, python = Slow(), tmp_path / "python"
    python.write_text("one")
    slow.answer = "python: did not answer in 30 s"
    slow.go.set()
    answers = Answers(slow)
    answers.of(str(python))
    assert learned(answers, str(python)) == slow.answer
    assert slow.asked == 1
    monkeypatch.setattr(interpreters, "AGAIN_S", -1.0)
    assert answers.of(str(python)) == slow.answer
    learned(answers, str(python))
    assert slow.asked > 1


def test_an_interpreter_that_is_gone_is_named() -> None:
    assert Answers().of("/nowhere/python") == "/nowhere/python: No such file or directory"
