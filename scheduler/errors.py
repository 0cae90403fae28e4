"""Errors that schedq raises on purpose; each knows the exit code that the command line answers with.

Imported by the fast paths (`submit`, `status`): standard library only, and nothing slow of it.
"""

from __future__ import annotations


class SchedqError(Exception):
    """Something asked for cannot be done; the message says what, why in numbers, and what to do next."""

    exit_code = 1
    faults: tuple[tuple[int, str, SchedqError], ...] = ()
    """Of a call of many rows: the index of each that cannot be queued, what it was given as, what is wrong with it."""


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


class BatchTaken(Refused):
    """The batch was to be a new one, and has jobs by now."""


class InvalidInput(Refused):
    """The input is not what the provider accepts: kind, syntax (line, column), or schema (pointer)."""


class NoSuchJob(SchedqError):
    """No job has that id, or that batch, in this queue."""

    exit_code = 4


class Pruned(SchedqError):
    """The job is there, and what was asked of it was taken away to make room."""

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


class DiskFull(Temporary):
    """The disk of the queue took no more."""


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


LINE = "line "
"""How the place of a row of a file begins; its number follows."""

LISTED = 20
"""Bad rows of one call that its error names; all of them stand in its `faults`."""


def all_of(faults: list[tuple[int, str, SchedqError]], count: int, noun: str = "inputs") -> SchedqError:
    """One error for every row of a call that cannot be queued: (index, what it was given as, why) of each.

    What is wrong with several of them alike is said once. Its exit code is that of a wrong call if one of them is one,
    else that of the first.
    """
    if count == 1:
        _, where, only = faults[0]
        return type(only)(f"{where}: {only}") if where.startswith(LINE) and where not in str(only) else only
    faults = sorted(faults, key=lambda each: each[0])
    alike: dict[str, list[str]] = {}
    for _, where, error in faults:
        alike.setdefault(str(error), []).append(where)
    said = [
        f"  {text}" if places[0] in text else f"  {_places(places, count)}: {text}" for text, places in alike.items()
    ]
    lines = [f"{len(faults)} of {count} {noun} cannot be queued, so none was:", *said[:LISTED]]
    if len(said) > LISTED:
        lines.append(f"  and {sum(map(len, list(alike.values())[LISTED:]))} more")
    wrong = any(isinstance(error, UsageError) for _, _, error in faults)
    made = (UsageError if wrong else type(faults[0][2]))("\n".join(lines))
    made.faults = tuple(faults)
    return made


def _places(places: list[str], count: int) -> str:
    """The rows of which the same is said."""
    if len(places) == count:
        return f"all {count}"
    return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
