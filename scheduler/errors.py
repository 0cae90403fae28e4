"""Errors that schedq raises on purpose; each knows the exit code that the command line answers with.

Imported by the fast paths (`submit`, `status`): standard library only, and nothing slow of it.
"""

from __future__ import annotations


class SchedqError(Exception):
    """Something asked for cannot be done; the message says what, why in numbers, and what to do next."""

    exit_code = 1


class JobFailed(SchedqError):
    """The job that was waited for ended, and not with success."""

    exit_code = 1


class UsageError(SchedqError):
    """The call itself is wrong: a flag, a parameter, a file that is not there."""

    exit_code = 2


class UnknownProvider(UsageError):
    """No manifest of that name is on the search path."""


class BrokenManifest(UsageError):
    """A manifest was found and cannot be read: another answer than a missing one."""


class Refused(SchedqError):
    """It was understood and is refused for good: nothing was written, there is no id."""

    exit_code = 3


class InvalidInput(Refused):
    """The input is not what the provider accepts: kind, syntax (line, column), or schema (pointer)."""


class NoSuchJob(SchedqError):
    """No job has that id, or that batch, in this queue."""

    exit_code = 4


class NoSuchWorker(SchedqError):
    """No worker that lives has that id, or none is of that provider."""

    exit_code = 4


class AcceleratorAbsent(SchedqError):
    """The provider requires an accelerator and this machine has none."""

    exit_code = 5


class SchedulerDown(SchedqError):
    """What was asked needs a running scheduler, and none runs for this queue."""

    exit_code = 6


class Temporary(SchedqError):
    """Nothing is wrong with the request; the same call may go through later (locked, full, no room now)."""

    exit_code = 75


class WaitTimedOut(SchedqError):
    """The time given was over before the job ended; the job goes on."""

    exit_code = 124


class Interrupted(SchedqError):
    """The person at the terminal interrupted."""

    exit_code = 130


class StoreError(SchedqError):
    """The queue's database cannot be used as it is; it was left untouched."""

    exit_code = 3


class NewerSchema(StoreError):
    """The database was written by a later schedq."""


class OlderSchema(StoreError):
    """The database was written by an earlier schedq and has not been migrated."""


class Corrupt(StoreError):
    """SQLite or our own check found the database damaged."""


class IllegalTransition(SchedqError):
    """An event reached a state that has no edge for it; carries the subject's story."""


class Fenced(SchedqError):
    """A write came with an attempt or an epoch that is no longer the current one; it changed nothing."""


class Displaced(SchedqError):
    """The queue was removed, or another stands in its place: its scheduler has nothing to serve any more."""


class TakenOver(Fenced):
    """A later scheduler has this queue: its higher epoch fences this one for good."""
