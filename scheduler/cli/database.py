"""`schedq db ...`: check, back up and upgrade the queue's database."""

from __future__ import annotations

import os

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.config import Paths, absolute
from scheduler.errors import Corrupt, OlderSchema, Refused, Temporary, UsageError
from scheduler.store.kept import is_made


def _there(paths: Paths) -> Paths:
    if not is_made(paths):
        raise UsageError(f"there is no queue in {paths.home} yet; schedq submit or schedq up makes one")
    return paths


def check(call: Call) -> int:
    """Say whether the database is whole, or what is not (exit 3)."""
    from scheduler.store import engine

    paths = _there(Paths())
    faults = engine.check(paths)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "database": paths.database, "whole": not faults, "faults": faults}))
    else:
        say.out("\n".join(map(say.plain, faults)) if faults else f"{paths.database} is whole")
    return Corrupt.exit_code if faults else 0


def backup(call: Call) -> int:
    """Write a whole copy and print its path."""
    from scheduler.clock import now_at
    from scheduler.store import engine

    given = call.text("target")
    stamp = now_at().replace(":", "").replace(".", "-")
    if given == "":
        raise UsageError("db backup: TARGET is empty; name the file to write, or leave it out")
    paths = _there(Paths())
    target = absolute(given, "TARGET") if given else os.path.join(paths.backups, f"queue-{stamp}.db")
    if os.path.lexists(target):
        raise Refused(f"{target} exists; a backup takes nothing's place, choose another name")
    if not given:
        os.makedirs(paths.backups, mode=0o700, exist_ok=True)
    elif not os.path.isdir(os.path.dirname(target)):
        raise UsageError(f"{target} cannot be written: there is no folder {os.path.dirname(target)}; make it first")
    try:
        engine.backup(paths, target)
    except OSError as error:
        raise Temporary(
            f"{target} cannot be written: {error.strerror}; the queue is as it was, name a place that you may write to"
        ) from None
    say.out(target)
    return 0


def upgrade(_call: Call) -> int:
    """Bring the schema to this version's. Refused if it is older and a scheduler runs: that must go first."""
    from scheduler import wake
    from scheduler.store import engine, peek

    paths = Paths()
    if wake.scheduler_runs(paths):
        try:
            peek.last_id(paths)
        except OlderSchema:
            raise Refused(
                "the database has an older schema and a scheduler runs; schedq restart upgrades and keeps the workers,"
                " or schedq down first"
            ) from None
        say.note(f"{paths.database} has this version's schema; there is nothing to upgrade")
        return 0
    saved = engine.upgrade(paths)
    say.note(f"{paths.database} has this version's schema" + (f"; as it was: {saved}" if saved else ""))
    return 0
