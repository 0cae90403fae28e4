"""Which jobs the words of a call mean that come after something: by id, key, name or batch, in the call or the queue.

Standard library only: imported by the fast paths, if a row comes after something.
"""

from __future__ import annotations

import sqlite3

from scheduler import after
from scheduler.errors import NoSuchJob, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]
    Target = tuple[str, int | str, str]

PARENT = "SELECT id, slug, variant, name, state, outcome, outcome_text, pruned_at FROM jobs WHERE id = ?"
LAST = "SELECT max(id) FROM jobs"
OF_KEY = "SELECT id FROM jobs WHERE key = ? AND key IS NOT NULL AND user = ?"
NEWEST_OF = "SELECT max(id) FROM jobs WHERE batch = ? AND batch IS NOT NULL"


class Meant:
    """What is meant by words of one call. `call`: every row with its id; `own`: the ids of those that are to go in."""

    def __init__(self, connection: sqlite3.Connection, call: list[tuple[int, Row]], own: set[int], user: str) -> None:
        self._connection, self._call, self._own, self._user = connection, call, own, user
        self._named: tuple[dict[str, int], dict[str, list[int]]] | None = None
        self._parents: dict[int, Any] = {}
        self._upto: dict[str, int | None] = {}

    def target(self, job_id: int, row: Row, word: after.Word) -> Target:
        """The job or batch that a word of --after means. NoSuchJob; UsageError where it may mean two things."""
        kind, name, number, need = word
        if kind == "last":
            if self.upto_of("last") is not None:
                raise UsageError(
                    "--after last is the newest job, and there is a batch 'last'; write batch:last for the batch, or"
                    " the job's id"
                )
            return "job", self._last(name), need
        if kind == "id":
            if (own := self._keyed(job_id, name, number, "--after")) is not None:
                return "job", own, need
            if self.parent(number) is None:
                batch = f"; batch:{name} is the batch" if self.upto_of(name) is not None else ""
                raise NoSuchJob(
                    f"--after {number}: there is no job {number} in this queue{batch or '; schedq status lists jobs'}"
                )
            if not name.startswith("job:"):
                self._refuse_two("--after", name, number, batches=True)
            return "job", number, need
        if kind == "name":
            by_key, by_name = self._names()
            if name in by_key and by_key[name] != job_id:
                return "job", by_key[name], need
            there = self.upto_of(name) is not None
            if there and any(each != job_id for each in by_name.get(name, ())):
                raise UsageError(
                    f"--after {name} names a batch and another row of this call; write batch:{name} for the batch, or"
                    " give that row a key of its own and name that"
                )
            if there and (job := self._earlier(name)) is not None:
                raise UsageError(
                    f"--after {name} names a batch, and job {job} has it as its key; write batch:{name} for the batch,"
                    f" job:{job} for the job"
                )
            if not there:
                found = self._by_name(job_id, by_name.get(name, ()), name) or self._earlier(name)
                if found is not None:
                    return "job", found, need
        if self.upto_of(name) is None:
            raise self._missing(name, row)
        return "batch", name, need

    def source(self, job_id: int, row: Row, ref: Row, singles: list[int]) -> int:
        """The job that a $from names."""
        where, name = f"the $from at {ref['at'] or 'the top'}", str(ref["job"])
        if name == "parent":
            if len(singles) != 1:
                named = (
                    f"--after names {len(singles)} jobs by id" if singles else "no --after or --each-after names one"
                )
                raise UsageError(f"{where} means the one job that this comes after, and {named}; give the job's id")
            return singles[0]
        if name == "last":
            return self._last(name)
        digits = name.removeprefix("job:")
        if digits.isdecimal() and digits.isascii() and len(digits) <= 18:
            if (own := self._keyed(job_id, name, int(digits), where)) is not None:
                return own
            if self.parent(int(digits)) is None:
                raise NoSuchJob(f"{where}: there is no job {digits} in this queue; schedq status lists jobs")
            if digits == name:
                self._refuse_two(f"{where}:", name, int(digits), batches=False)
            return int(digits)
        by_key, by_name = self._names()
        if name in by_key and by_key[name] != job_id:
            return by_key[name]
        found = self._by_name(job_id, by_name.get(name, ()), name)
        found = self._earlier(name) if found is None else found
        if found is None:
            known = ", ".join([each for each in (by_key or by_name) if each not in ("", row["key"], row["name"])][:6])
            raise NoSuchJob(
                f"{where} names {name!r}, and no other row of this call and no job of yours has that as its key"
                f" (here are: {known or 'none'}); give an id, last, or parent"
            )
        return found

    def _refuse_two(self, where: str, name: str, number: int, *, batches: bool) -> None:
        """UsageError for an id that is the name of a batch too, or the key of another job of this user."""
        if batches and self.upto_of(name) is not None:
            raise UsageError(
                f"{where} {name} is a job's id, and there is a batch {name!r}; write job:{number} for the job, or"
                f" batch:{name} for the batch"
            )
        other = self._earlier(name)
        if other is not None and other != number:
            raise UsageError(
                f"{where} {name} is a job's id, and job {other} has {name!r} as its key; write job:{number} or"
                f" job:{other}"
            )

    def _keyed(self, job_id: int, name: str, number: int, where: str) -> int | None:
        """The row of this call that has a number as its key, None if none has. UsageError if a job has it as its id."""
        own = self._names()[0].get(name)
        if own is None or own == job_id:
            return None
        if self.parent(number) is not None:
            raise UsageError(
                f"{where}: {name} is a job of this queue, and the key of another row of this call; write job:{name} for"
                " the job, or give that row another key"
            )
        return own

    def _last(self, name: str) -> int:
        found = self._connection.execute(LAST).fetchone()[0]
        if found is None:
            raise NoSuchJob(f"--after {name}: there is no job in this queue yet")
        return int(found)

    def _names(self) -> tuple[dict[str, int], dict[str, list[int]]]:
        """The rows of this call by key, and by name."""
        if self._named is None:
            self._named = {}, {}
            for job_id, row in self._call:
                if row["key"] is not None:
                    self._named[0][row["key"]] = job_id
                self._named[1].setdefault(row["name"], []).append(job_id)
        return self._named

    def _by_name(self, job_id: int, ids: list[int] | tuple[()], name: str) -> int | None:
        others = list(dict.fromkeys(each for each in ids if each != job_id))
        if len(others) > 1:
            raise UsageError(f"{name!r} is the name of {len(others)} other rows of this call; give them keys, name one")
        if not others and ids:
            raise UsageError(f"waits for itself: {name!r} is its own name")
        return others[0] if others else None

    def _earlier(self, key: str) -> int | None:
        found = self._connection.execute(OF_KEY, (key, self._user)).fetchone()
        return None if found is None else int(found[0])

    def upto_of(self, batch: str) -> int | None:
        """The newest job that a batch has by now, None if it has none."""
        if batch not in self._upto:
            self._upto[batch] = self._connection.execute(NEWEST_OF, (batch,)).fetchone()[0]
        return self._upto[batch]

    def _missing(self, name: str, row: Row) -> NoSuchJob:
        from difflib import get_close_matches

        from scheduler.store import brief

        own = row["batch"] == name
        text = f"--after {name}: no job has the batch {name!r} yet" + (", and those of this call are not meant" * own)
        near = get_close_matches(name, brief.batches(self._connection, name) or [], n=1)
        return NoSuchJob(text + (f"; did you mean {near[0]}?" if near else "; submit that first, or give a job's id"))

    def parent(self, job_id: int) -> Any:
        """What PARENT says of a job that is there already, None for one that is not or goes in with this call."""
        if job_id in self._own:
            return None
        if job_id not in self._parents:
            self._parents[job_id] = self._connection.execute(PARENT, (job_id,)).fetchone()
        return self._parents[job_id]
