"""What a prune spares although nobody waits for it: results that are not judged, or that hold a live job's file.

A file above `inputs_copy_max_gib` is named by its path alone; where that lies in the outputs of another job, those are
part of an input.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows

IDS = "SELECT value FROM json_each(:ids)"
FILES = (
    "SELECT id, files AS named FROM jobs INDEXED BY jobs_files WHERE files <> '{}' AND pruned_at IS NULL"
    " AND id > :after AND instr(files, '\"pinned\"')"
)
PINS = "SELECT job_id AS id, pins AS named FROM drafts WHERE job_id > :after AND instr(pins, '\"pinned\"')"
LAST = "SELECT coalesce(max(id), 0) FROM jobs"
LIVE = f"SELECT id FROM jobs WHERE id IN ({IDS}) AND ended_at IS NULL"
UNJUDGED = "SELECT job_id FROM checks WHERE open = 1"

TAKEN = (
    "SELECT j.files, coalesce(d.pins, '{}') AS pins FROM events AS e JOIN jobs AS j ON j.id = e.job_id"
    " LEFT JOIN drafts AS d ON d.job_id = j.id WHERE e.id > :after AND e.event = 'input'"
)
LAST_EVENT = "SELECT coalesce(max(id), 0) FROM events"


class Spared:
    """The jobs to spare, known anew at each look: what came since the last one is added. `results`: their folder."""

    def __init__(self, results: str) -> None:
        self._folders = {folder + os.sep for folder in (results, os.path.realpath(results))}
        self._users: dict[int, set[int]] = {}
        self._last = 0

    def all(self, tx: Connection) -> set[int]:
        """Every job that is to be spared."""
        self._look(tx)
        return self._among(tx, self._users) | {int(row.job_id) for row in rows.found(tx, UNJUDGED)}

    def among(self, tx: Connection, ids: Iterable[int]) -> set[int]:
        """Of these jobs those to be spared."""
        self._look(tx)
        those = list(ids)
        open_ones = rows.found(tx, f"{UNJUDGED} AND job_id IN ({IDS})", {"ids": json.dumps(those)})
        return self._among(tx, those) | {int(row.job_id) for row in open_ones}

    def _look(self, tx: Connection) -> None:
        """What jobs that came since name. One that was there waited for whose outputs it came to name."""
        after = {"after": self._last}
        for row in [*rows.found(tx, FILES, after), *rows.found(tx, PINS, after)]:
            for job_id in self._holding(json.loads(row.named)):
                self._users.setdefault(job_id, set()).add(int(row.id))
        self._last = int(rows.value(tx, LAST))

    def _holding(self, named: Mapping[str, Any]) -> Iterator[int]:
        """The jobs in whose outputs a file lies that is named by its path."""
        for entry in named.values():
            if not isinstance(entry, Mapping) or not entry.get("pinned"):
                continue
            for path in {str(entry["path"]), os.path.realpath(str(entry["path"]))}:
                for folder in self._folders:
                    first = path[len(folder) :].partition(os.sep)[0] if path.startswith(folder) else ""
                    if first.isascii() and first.isdecimal() and len(first) < 19:
                        yield int(first)

    def _among(self, tx: Connection, ids: Iterable[int]) -> set[int]:
        used = [each for each in ids if each in self._users]
        if not used:
            return set()
        users = sorted(set[int]().union(*(self._users[each] for each in used)))
        live = {int(row.id) for row in rows.found(tx, LIVE, {"ids": json.dumps(users)})}
        return {each for each in used if live & self._users[each]}


def taken(tx: Connection, after: int) -> tuple[list[str], int]:
    """(the hashes that inputs which were made, in part or whole, since this event name; the last event there is)."""
    found = list[str]()
    for row in rows.found(tx, TAKEN, {"after": after}):
        for entry in (*json.loads(row.files).values(), *json.loads(row.pins).values()):
            if isinstance(entry, Mapping) and entry.get("sha256"):
                found.append(str(entry["sha256"]))
    return found, last_event(tx)


def last_event(tx: Connection) -> int:
    """The last event that there is, 0 for none."""
    return int(rows.value(tx, LAST_EVENT))
