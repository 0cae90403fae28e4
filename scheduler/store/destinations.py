"""Whose a destination is: claimed in the transaction that its job goes in by, one job each.

What is there and may be overwritten is moved aside in that transaction too, and back if the job does not go in. Each
move is noted beside the database first, durably: of a submitter that was killed, whoever writes next moves it back.
Standard library only: imported by the fast paths.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler import outputs
from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.errors import Refused, Temporary
from scheduler.store.folders import sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLAIMED = "out IS NOT NULL AND state IN ('queued', 'held', 'admitted', 'running', 'succeeded')"
"""The condition of the index jobs_out, word for word: what repeats it looks one up, whatever the history."""

BELOW = f"SELECT id, state, out FROM jobs WHERE out > ? AND out < ? AND {CLAIMED} AND state <> 'succeeded' LIMIT 1"
"""A job that has not ended, and whose destination begins with what lies between the two."""

GIVEN_UP = f"UPDATE jobs SET out = NULL WHERE out = ? AND {CLAIMED} AND state = 'succeeded' RETURNING id"
OWNER = f"SELECT id, state FROM jobs WHERE out = ? AND {CLAIMED}"

TAKEN_BY = (
    "SELECT j.id, j.state FROM gates AS g CROSS JOIN waits AS w ON w.gate_id = g.id JOIN drafts AS d ON"
    " d.job_id = w.job_id JOIN jobs AS j ON j.id = w.job_id WHERE g.parent_id = ? AND g.parent_id IS NOT NULL"
    " AND d.made_at IS NULL AND j.state IN ('queued', 'held') LIMIT 1"
)
"""A waiting job whose input is still to be made, and comes after this one: it may take its outputs."""


class Destinations:
    """The destinations of one call's jobs."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.moved: list[tuple[str, str]] = []
        """What was moved aside: each destination, and where what was there lies now."""
        self._kept = outputs.Kept(paths.home)
        self._outs: set[str] = set()
        self._above: set[str] = set()
        """Destinations of this call, and the folders that they lie in: those are nobody's destination."""

    def claim(self, connection: sqlite3.Connection, row: dict[str, Any], job_id: int) -> list[int]:
        """Refused if the row's destination exists, or lies in or holds that of a job that has not ended; with
        `overwrite` the ended jobs that gave it up, by id.

        `job_id` is what the row's job gets when it goes in.
        """
        self.refuse(connection, row)
        if not row["overwrite"]:
            return []
        out = row["out"]
        given_up = [int(found[0]) for found in connection.execute(GIVEN_UP, (out,)).fetchall()]
        moved = outputs.set_aside(out, lambda aside: _note(self._paths, job_id, out, aside))
        if moved is not None:
            self.moved.append(moved)
            crashpoint("aside.moved")
        return given_up

    def refuse(self, connection: sqlite3.Connection, row: dict[str, Any]) -> None:
        """The same refusals, and nothing is written."""
        out = row["out"]
        owner = connection.execute(OWNER, (out,)).fetchone()
        if owner is not None and owner[1] != "succeeded":
            raise _belongs(out, owner)
        self._kept.refuse(out)
        self._refuse_nested(connection, out)
        if row["overwrite"] and owner is not None:
            taken = connection.execute(TAKEN_BY, (owner[0],)).fetchone()
            if taken is not None:
                raise Refused(
                    f"the destination {out} cannot be overwritten: job {taken[0]} ({taken[1]}) takes its input from"
                    f" what job {owner[0]} left there, and has not taken it yet; wait for that, or give another --out"
                )
        if not row["overwrite"] and os.path.lexists(out):
            made = f" (job {owner[0]} made it)" if owner else ""
            raise Refused(f"the destination {out} exists{made}; give another --out, or --overwrite it")

    def _refuse_nested(self, connection: sqlite3.Connection, out: str) -> None:
        """Whichever of two that lie in one another is put in place first is in the other's way.

        One look-up a folder that no destination of this call lies in yet, and one of what lies below.
        """
        if out in self._above:
            raise Refused(f"the destination of another job of this call lies in {out}; give each a folder of its own")
        folder, free = os.path.dirname(out), []
        while folder not in self._above and folder != "/":
            if folder in self._outs:
                raise Refused(f"{out} lies in {folder}, which is the destination of another job of this call")
            owner = connection.execute(OWNER, (folder,)).fetchone()
            if owner is not None and owner[1] != "succeeded":
                raise _nested(out, owner, f"lies in {folder}")
            free.append(folder)
            folder = os.path.dirname(folder)
        found = connection.execute(BELOW, (f"{out}/", f"{out}0")).fetchone()  # 0 comes next after /
        if found is not None:
            raise _nested(out, found, f"holds {found[2]}")
        self._above.update(free)
        self._outs.add(out)

    def put_back(self) -> None:
        """Nothing went in: what was moved aside is moved back. Temporary names what could not be, and where it is."""
        left = []
        while self.moved:
            out, aside = self.moved.pop()
            try:
                os.rename(aside, out)
            except OSError as error:
                left.append(f"{aside} is what was at {out} and could not be moved back ({error.strerror})")
        self.settled()
        if left:
            raise Temporary(f"nothing was queued, but {'; '.join(left)}; move it back by hand")

    def settled(self) -> None:
        """What was moved aside is where it belongs, the jobs are in the queue or it is back: the note is done with."""
        _forget(self._paths)

    def refusal(
        self, connection: sqlite3.Connection, rows: list[dict[str, Any]], error: sqlite3.IntegrityError
    ) -> Exception:
        """What an INSERT that broke a rule means: the job or the row that has a destination already, else the error."""
        if "jobs.out" not in str(error):
            return error
        seen: set[str] = set()
        for out in (row["out"] for row in rows if row["out"] is not None):
            found = connection.execute(OWNER, (out,)).fetchone()
            if found is not None:
                return _belongs(out, found)
            if out in seen:
                return Refused(f"two jobs of this call have the destination {out}; put {{id}} or {{name}} into --out")
            seen.add(out)
        return error


def _belongs(out: str, owner: tuple[int, str]) -> Refused:
    if owner[1] == "succeeded":
        return Refused(
            f"job {owner[0]} (succeeded) has the destination {out}, though nothing is there; --overwrite takes it over,"
            " or give another --out"
        )
    return Refused(f"job {owner[0]} ({owner[1]}) has the destination {out}; give another --out, or cancel it")


def _nested(out: str, owner: tuple[int, str], how: str) -> Refused:
    return Refused(
        f"the destination {out} {how}, where job {owner[0]} ({owner[1]}) puts its outputs, whole or not at all; give"
        " another --out, or cancel it"
    )


def restore(connection: sqlite3.Connection, paths: Paths) -> None:
    """Move back what submitters that were killed before their commit had moved aside, and say so in the log.

    Inside the turnstile, outside a transaction. Nothing is raised for what cannot be moved back: it is said, with both
    places, and not tried again.
    """
    for out, aside in reversed(_left_aside(connection, paths)):
        if not os.path.lexists(aside):
            continue  # it was noted, and the move not made
        text = f"what was at {out} lies at {aside}: a submit was killed while it overwrote it"
        try:
            if os.path.lexists(out):
                said = f"{text}, and something else is there by now; both stay where they are"
            else:
                os.rename(aside, out)
                said = f"what was at {out} is back there: a submit was killed while it overwrote it, nothing was queued"
        except OSError as error:
            said = f"{text}, and it cannot be moved back ({error.strerror}); move it back by hand"
        import logging  # the fast paths have no time for it

        logging.getLogger("schedq").warning("%s", said if said.isprintable() else ascii(said))
    _forget(paths)


def faults(connection: sqlite3.Connection, paths: Paths) -> list[str]:
    """What submitters that were killed left aside, a sentence each. Inside the turnstile."""
    return [
        f"destination: what was at {out} lies at {aside}, since a submit was killed while it overwrote it;"
        " the next schedq up or schedq submit moves it back"
        for out, aside in _left_aside(connection, paths)
        if os.path.lexists(aside)
    ]


def _note(paths: Paths, job_id: int, out: str, aside: str) -> None:
    """Write down a move that is about to be made, durable on return."""
    import json

    is_new = not os.path.lexists(paths.asides)
    fd = os.open(paths.asides, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(json.dumps({"id": job_id, "out": out, "aside": aside}).encode() + b"\n")
        file.flush()
        os.fsync(fd)
    if is_new:
        sync(paths.home)
    crashpoint("aside.noted")


def _forget(paths: Paths) -> None:
    """Take the note away; one that stays is of what is settled, and says nothing to who reads it."""
    try:
        os.unlink(paths.asides)
    except OSError:
        pass


def _left_aside(connection: sqlite3.Connection, paths: Paths) -> list[tuple[str, str]]:
    """(destination, where what was there lies) of each noted move whose job never went in, in the order of the moves.

    An id that the queue has given is of a job that went in, whatever became of it. The last of the moves may not have
    been made; a line that was cut short is of one that was not.
    """
    try:
        with open(paths.asides, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    import json

    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
    last_id, left = found[0] if found else 0, []
    for line in lines:
        try:
            noted = json.loads(line)
            job_id, out, aside = int(noted["id"]), str(noted["out"]), str(noted["aside"])
        except (ValueError, KeyError, TypeError):
            continue
        if job_id > last_id:
            left.append((out, aside))
    return left
