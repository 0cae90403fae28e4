"""Signals that end a process, as an exception: what it has begun in the world is then undone on the way out."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scheduler.errors import Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """One of the signals that end a process came."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def interrupted(self, what: str) -> Interrupted:
        """The same as an error of ours, with the exit code that shells know: 128 + the signal."""
        error = Interrupted(f"ended by {signal.Signals(self.signum).name}: {what}")
        error.exit_code = 128 + self.signum
        return error


@contextmanager
def raised() -> Iterator[None]:
    """Within, the first such signal raises Ended and those after it are not heard; one that is ignored stays so."""
    before = {each: signal.getsignal(each) for each in ENDING}
    heard = [each for each, how in before.items() if how is not signal.SIG_IGN]

    def end(signum: int, _frame: object) -> None:
        for each in heard:
            signal.signal(each, lambda _signum, _frame: None)
        raise Ended(signum)

    for each in heard:
        signal.signal(each, end)
    try:
        yield
    except Ended:
        raise  # on the way out of the process: nothing more is heard
    except BaseException:
        _put_back(before, heard)
        raise
    else:
        _put_back(before, heard)


def _put_back(before: Mapping[signal.Signals, Any], heard: list[signal.Signals]) -> None:
    for each in heard:
        signal.signal(each, before[each] or signal.SIG_DFL)
