"""A job that one call owns: SIGINT and SIGTERM cancel it, and the call ends as the signal says."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module `signal` costs an import of enum

from scheduler.cli import say
from scheduler.errors import SchedqError, SchedulerDown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scheduler.client import Client

ASKED_TO_STOP = (_signal.SIGINT, _signal.SIGTERM)


class Stopped(BaseException):
    """SIGINT or SIGTERM came while a job was waited for. No other one comes after it until `own` is called again."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def own() -> None:
    """From now on a signal raises Stopped: once, however many come together."""
    for each in ASKED_TO_STOP:
        _signal.signal(each, _stop)


def disown() -> None:
    """From now on a signal ends the process; after one that came already, none does: the job is to be cancelled."""
    for each in ASKED_TO_STOP:
        if _signal.getsignal(each) is _stop:
            _signal.signal(each, _signal.SIG_DFL)


def cancel(client: Client, job_id: int, signum: int) -> int:
    """Cancel the job and wait until it has ended; 128 + the signal that asked for it. Another one spares the wait."""
    say.note(f"cancelling job {job_id}")
    try:
        client.cancel([job_id])
    except SchedqError as error:
        raise type(error)(f"job {job_id} is not cancelled and goes on: {error}; schedq cancel {job_id}") from None
    try:
        own()
        state = client.wait([job_id])[job_id]
        _deafen()
        say.note(f"job {job_id} {state}")
    except SchedulerDown as error:
        say.note(f"schedq: {error}")
    except Stopped:
        say.note(f"job {job_id} is still being cancelled; schedq wait {job_id} tells when it has ended")
    return 128 + signum


def _stop(signum: int, _frame: object) -> None:
    _deafen()
    raise Stopped(signum)


def _deafen() -> None:
    # not SIG_IGN: a signal that came already and finds it would be reported as lost
    for each in ASKED_TO_STOP:
        _signal.signal(each, _unheard)


def _unheard(_signum: int, _frame: object) -> None:
    pass
