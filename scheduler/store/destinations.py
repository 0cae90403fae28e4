"""Whose a destination is: claimed in the transaction that its job goes in by, one job each.

What is there and may be overwritten is moved aside in that transaction too, and back if the job does not go in.
Standard library only: imported by the fast paths.
"""

from __future__ import annotations

import os
import sqlite3

from scheduler import outputs
from scheduler.config import Paths
from scheduler.errors import Refused, Temporary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLAIMED = "out IS NOT NULL AND state IN ('queued', 'held', 'admitted', 'running', 'succeeded')"
"""The condition of the index jobs_out, word for word: what repeats it looks one up, whatever the history."""

GIVEN_UP = f"UPDATE jobs SET out = NULL WHERE out = ? AND {CLAIMED} AND state = 'succeeded' RETURNING id"
OWNER = f"SELECT id, state FROM jobs WHERE out = ? AND {CLAIMED}"


class Destinations:
    """The destinations of one call's jobs."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.moved: list[tuple[str, str]] = []
        """What was moved aside: each destination, and where what was there lies now."""

    def claim(self, connection: sqlite3.Connection, row: dict[str, Any]) -> list[int]:
        """Refused if the row's destination exists; with `overwrite` the ended jobs that gave it up, by id."""
        out = row["out"]
        owner = connection.execute(OWNER, (out,)).fetchone()
        if owner is not None and owner[1] != "succeeded":
            raise _belongs(out, owner)
        outputs.refuse_kept(out, self._paths.home)
        if not row["overwrite"]:
            if os.path.lexists(out):
                made = f" (job {owner[0]} made it)" if owner else ""
                raise Refused(f"the destination {out} exists{made}; give another --out, or --overwrite it")
            return []
        given_up = [int(found[0]) for found in connection.execute(GIVEN_UP, (out,)).fetchall()]
        moved = outputs.set_aside(out)
        if moved is not None:
            self.moved.append(moved)
        return given_up

    def put_back(self) -> None:
        """Nothing went in: what was moved aside is moved back. Temporary names what could not be, and where it is."""
        left = []
        while self.moved:
            out, aside = self.moved.pop()
            try:
                os.rename(aside, out)
            except OSError as error:
                left.append(f"{aside} is what was at {out} and could not be moved back ({error.strerror})")
        if left:
            raise Temporary(f"nothing was queued, but {'; '.join(left)}; move it back by hand")

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
    return Refused(f"job {owner[0]} ({owner[1]}) has the destination {out}; give another --out, or cancel it")
