"""A job that a call owns: however many signals come, it is cancelled once, and the exit code is that of the first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from scheduler.cli import owning
from scheduler.client import Client
from scheduler.errors import SchedulerDown, Temporary


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The signal handlers of the test process are put back."""
    before = {each: signal.getsignal(each) for each in owning.ASKED_TO_STOP}
    yield
    for each, how in before.items():
        signal.signal(each, how)


class Asked:
    """A queue that notes what it is asked, and sends signals at the given moments."""

    def __init__(self, *, at_cancel: tuple[int, ...] = (), at_wait: tuple[int, ...] = (), fails: Any = None) -> None:
        self.at_cancel, self.at_wait, self.fails = at_cancel, at_wait, fails
        self.cancelled: list[int] = []

    def cancel(self, ids: list[int]) -> None:
        """As a client does."""
        _raise(self.at_cancel)
        if isinstance(self.fails, Temporary):
            raise self.fails
        self.cancelled += ids

    def wait(self, ids: list[int]) -> dict[int, str]:
        """As a client does."""
        _raise(self.at_wait)
        if self.fails is not None:
            raise self.fails
        return dict.fromkeys(ids, "cancelled")


def _raise(signals: tuple[int, ...]) -> None:
    for each in signals:
        signal.pthread_kill(threading.get_ident(), each)


def stopped(*signals: int) -> int:
    """The signal that a call which owns a job is stopped by, when these arrive before it runs on."""
    owning.own()
    signal.pthread_sigmask(signal.SIG_BLOCK, owning.ASKED_TO_STOP)
    _raise(signals)
    with pytest.raises(owning.Stopped) as caught:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, owning.ASKED_TO_STOP)
        threading.Event().wait(5.0)
    return caught.value.signum


def cancel(queue: Asked, signum: int) -> int:
    return owning.cancel(cast(Client, queue), 7, signum)


def test_two_signals_at_once_cancel_the_job_once() -> None:
    first = stopped(signal.SIGINT, signal.SIGTERM)
    queue = Asked(at_cancel=(signal.SIGTERM, signal.SIGINT))
    assert cancel(queue, first) == 128 + first
    assert queue.cancelled == [7]


def test_another_signal_spares_the_wait_and_says_that_it_is_still_being_cancelled(
    capfd: pytest.CaptureFixture[str],
) -> None:
    queue = Asked(at_wait=(signal.SIGTERM, signal.SIGINT))
    assert cancel(queue, stopped(signal.SIGINT)) == 130
    assert queue.cancelled == [7]
    assert "job 7 is still being cancelled; schedq wait 7" in capfd.readouterr().err


def test_a_signal_after_the_job_has_ended_ends_the_process_again() -> None:
    owning.own()
    owning.disown()
    assert [signal.getsignal(each) for each in owning.ASKED_TO_STOP] == [signal.SIG_DFL, signal.SIG_DFL]


def test_a_signal_that_came_already_is_not_followed_by_one_that_kills() -> None:
    stopped(signal.SIGTERM)
    owning.disown()
    assert signal.SIG_DFL not in [signal.getsignal(each) for each in owning.ASKED_TO_STOP]


def test_a_job_that_could_not_be_cancelled_is_said_to_go_on() -> None:
    with pytest.raises(Temporary, match="job 7 is not cancelled and goes on: the disk is full; schedq cancel 7"):
        cancel(Asked(fails=Temporary("the disk is full")), signal.SIGTERM)


def test_where_no_scheduler_runs_the_wait_for_it_ends_with_its_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert cancel(Asked(fails=SchedulerDown("no scheduler runs")), signal.SIGTERM) == 143
    assert "no scheduler runs" in capfd.readouterr().err
