"""A reading that may hang."""

from __future__ import annotations

import threading
import time

import pytest

from scheduler.host.machine.probe import Probe


def test_an_answer_is_an_answer() -> None:
    probe: Probe[int] = Probe("it")
    assert probe.ask(lambda: 7) == 7 and probe.missing == ""


def test_a_source_that_raises_is_missing_with_its_reason() -> None:
    def read() -> int:
        raise PermissionError("not for you")

    probe: Probe[int] = Probe("it")
    assert probe.ask(read) is None and "PermissionError: not for you" in probe.missing


def test_a_source_that_hangs_is_given_up_on_asked_once_and_used_again_when_it_recovers() -> None:
    probe, asked, release = Probe[int]("it", within_s=0.05), [], threading.Event()

    def hang() -> int:
        asked.append(1)
        release.wait(20.0)
        return 1

    assert probe.ask(hang) is None and probe.missing == "it did not answer in 0.05 s"
    began = time.monotonic()
    assert probe.ask(hang) is None and "still hangs" in probe.missing
    assert time.monotonic() - began < 0.04
    assert len(asked) == 1
    release.set()
    deadline = time.monotonic() + 10.0
    while (found := probe.ask(lambda: 2)) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert found == 2 and probe.missing == ""


@pytest.mark.parametrize("empty", [0, "", (), False])
def test_an_answer_that_is_false_is_still_an_answer(empty: object) -> None:
    probe: Probe[object] = Probe("it")
    assert probe.ask(lambda: empty) == empty and probe.missing == ""
