"""Which ended jobs may be pruned, and what their rows say from then on. Found by indexes, oldest end first.

A pruned job keeps its row, its attempts, labels, verdict and draft (by which a batch that is submitted once more knows
it); its input, reply and events go. What is live is looked at again in the transaction that marks a job: one that was
opened again meanwhile stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows
from scheduler.store.gates import PINNED

IDS = "SELECT value FROM json_each(:ids)"
BY_END = "jobs INDEXED BY jobs_unpruned WHERE ended_at IS NOT NULL AND pruned_at IS NULL"
OF_BATCH = "jobs INDEXED BY jobs_batch WHERE batch = :batch AND batch IS NOT NULL AND ended_at IS NOT NULL"
WITH_ROWS = "jobs INDEXED BY jobs_ended WHERE ended_at IS NOT NULL"

BRIEFLY = (
    "SELECT j.id, j.slug, j.variant, j.name, j.state, j.outcome, j.ended_at, j.pruned_at, j.files,"
    " iif(j.input IS NULL AND j.input_bytes > 0 AND j.pruned_at IS NULL, j.input_sha256, NULL) AS input_sha256,"
    " iif(j.pruned_at IS NULL, j.input_bytes, 0) AS input_bytes, r.destination,"
    " iif(r.reply IS NULL, r.sha256, NULL) AS reply_sha256,"
    " iif(r.reply IS NULL AND r.sha256 IS NULL, 0, r.bytes) AS reply_bytes"
    f" FROM jobs AS j LEFT JOIN results AS r ON r.job_id = j.id WHERE j.id IN ({IDS}) ORDER BY j.ended_at, j.id"
)
ENDED = f"id IN ({IDS}) AND ended_at IS NOT NULL AND ended_at <= :until"
"""Those that are as they were chosen: one that was opened again, and has ended since, has a result that is wanted."""

OF_THOSE = f"job_id IN ({IDS})"
PARTS = ("attempts", "results", "victims", "waits", "drafts", "checks", "labels")
"""Tables that hold rows of a job beside its own, but its events."""

INPUT_USED = (
    "SELECT 1 AS found FROM jobs WHERE input_sha256 = :sha256 AND input IS NULL AND input_bytes > 0"
    " AND pruned_at IS NULL LIMIT 1"
)
REPLY_USED = "SELECT 1 AS found FROM results WHERE sha256 = :sha256 AND reply IS NULL AND sha256 IS NOT NULL LIMIT 1"
INPUTS = "SELECT input_sha256 FROM jobs WHERE input IS NULL AND input_bytes > 0 AND pruned_at IS NULL"
REPLIES = "SELECT sha256 FROM results WHERE reply IS NULL AND sha256 IS NOT NULL"
FILES = (
    "SELECT id, files FROM jobs INDEXED BY jobs_files WHERE files <> '{}' AND pruned_at IS NULL AND id > :after"
    " ORDER BY id"
)
LIVE = (
    "EXISTS (SELECT 1 FROM waits AS w JOIN jobs AS j ON j.id = w.job_id WHERE w.gate_id = g.id AND j.ended_at IS NULL)"
)
LIVE_PARENTS = f"SELECT DISTINCT g.parent_id AS id FROM gates AS g WHERE g.parent_id IS NOT NULL AND {LIVE}"
LIVE_BATCHES = (
    f"SELECT g.batch AS batch, max(g.upto_id) AS upto_id FROM gates AS g WHERE g.batch IS NOT NULL{{}} AND {LIVE}"
    " GROUP BY g.batch"
)
MEMBERS = (
    "SELECT m.id FROM ({}) AS l JOIN jobs AS m INDEXED BY jobs_batch ON m.batch = l.batch AND m.batch IS NOT NULL"
    " AND m.id <= l.upto_id"
)
ALL_NEEDED = f"{LIVE_PARENTS} UNION {MEMBERS.format(LIVE_BATCHES.format(''))}"
THEIR_BATCHES = f" AND g.batch IN (SELECT batch FROM jobs WHERE id IN ({IDS}))"
NEEDED_OF = (
    f"{LIVE_PARENTS} AND g.parent_id IN ({IDS})"
    f" UNION {MEMBERS.format(LIVE_BATCHES.format(THEIR_BATCHES))} AND m.id IN ({IDS})"
)
"""Whom live jobs come after: single ones, and members of a batch; of these ids, or of all."""


@dataclass(frozen=True)
class Chosen:
    """What is pruned of: those that ended before `before_at` (a stamp), meet `where` (batch, slug, outcome: words).

    `keep`: so many of them that ended last stay, None = none for that reason. `rows`: the rows go too, also of those
    that were pruned. `logs`: the logs alone go.
    """

    before_at: str | None = None
    keep: int | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    rows: bool = False
    logs: bool = False


def _from(chosen: Chosen) -> tuple[str, dict[str, Any]]:
    """FROM and WHERE of those that are meant, but the ones to keep; and the values in it."""
    where, values = chosen.where, dict[str, Any]()
    if where.get("batch") is not None:
        text, values["batch"] = OF_BATCH + " AND pruned_at IS NULL" * (not chosen.rows), where["batch"]
    else:
        text = WITH_ROWS if chosen.rows else BY_END
    if chosen.logs:
        text += " AND logs_pruned_at IS NULL"
    if where.get("slug"):
        slug, colon, variant = str(where["slug"]).partition(":")
        text += " AND +slug = :slug" + " AND +variant = :variant" * bool(colon)
        values |= {"slug": slug, "variant": variant}
    if where.get("outcome"):
        text += " AND +outcome IN (SELECT value FROM json_each(:outcomes))"
        values["outcomes"] = json.dumps(list(where["outcome"]))
    if chosen.before_at is not None:
        text, values["before_at"] = text + " AND ended_at < :before_at", chosen.before_at
    return text, values


def newest(tx: Connection, chosen: Chosen) -> tuple[str, int] | None:
    """(end, id) of the last that may go, those to keep left out; None if none may."""
    text, values = _from(Chosen(where=chosen.where, rows=chosen.rows, logs=False))
    found = rows.first(
        tx, f"SELECT ended_at, id FROM {text} ORDER BY ended_at DESC, id DESC LIMIT 1 OFFSET :keep",
        {**values, "keep": chosen.keep or 0},
    )  # fmt: skip
    return None if found is None else (found.ended_at, found.id)


def page(
    tx: Connection, chosen: Chosen, last: tuple[str, int], after: tuple[str, int], most: int
) -> list[tuple[str, int]]:
    """(end, id) of the next that are meant, oldest first: behind `after`, up to `last`."""
    text, values = _from(chosen)
    found = rows.found(
        tx,
        f"SELECT ended_at, id FROM {text} AND (ended_at, id) > (:after_at, :after_id)"
        " AND (ended_at, id) <= (:last_at, :last_id) ORDER BY ended_at, id LIMIT :most",
        {
            **values, "after_at": after[0], "after_id": after[1], "last_at": last[0], "last_id": last[1], "most": most,
        },
    )  # fmt: skip
    return [(row.ended_at, row.id) for row in found]


def briefly(tx: Connection, ids: Iterable[int]) -> list[Any]:
    """What of each of these jobs is to be known to prune it, oldest end first; a hash only where the piece is kept
    by content.
    """
    return rows.found(tx, BRIEFLY, {"ids": json.dumps(list(ids))})


def needed(tx: Connection) -> set[int]:
    """Ended jobs that a live one waits for; a job whose draft names the results of another waits for it."""
    return {int(row.id) for row in rows.found(tx, ALL_NEEDED)}


def waited_for(tx: Connection, ids: Iterable[int]) -> set[int]:
    """Of these jobs those that a live one waits for."""
    return {int(row.id) for row in rows.found(tx, NEEDED_OF, {"ids": json.dumps(list(ids))})}


def prune(tx: Connection, ids: Iterable[int], at: str, results: str, until: str) -> list[int]:
    """Mark these jobs as pruned; those that were, and are not live. `results` is the folder of our own destinations.

    `until`: the end of the last that was chosen. A destination of the user's own stays in the record. What lies in
    files goes after the commit.
    """
    raw = rows.write(
        tx,
        f"UPDATE jobs SET pruned_at = :at, input = NULL WHERE {ENDED} AND pruned_at IS NULL RETURNING id",
        {"at": at, "ids": json.dumps(list(ids)), "until": until},
    )
    done = [int(row[0]) for row in raw.fetchall()]
    those = {"ids": json.dumps(done)}
    rows.write(
        tx,
        "UPDATE results SET reply = NULL, sha256 = NULL,"
        f" destination = iif(destination = :results || '/' || job_id, NULL, destination) WHERE {OF_THOSE}",
        {**those, "results": results},
    )
    rows.write(tx, f"DELETE FROM events WHERE {OF_THOSE} AND job_id IS NOT NULL", those)
    rows.write(tx, f"UPDATE drafts SET pins = '{{}}' WHERE {OF_THOSE}", those)
    return done


def prune_logs(tx: Connection, ids: Iterable[int], at: str, until: str) -> list[int]:
    """Mark the logs of these jobs as pruned; those that are not live, and ended until then."""
    asked = f"UPDATE jobs SET logs_pruned_at = :at WHERE {ENDED} AND pruned_at IS NULL RETURNING id"
    values = {"at": at, "ids": json.dumps(list(ids)), "until": until}
    return [int(row[0]) for row in rows.write(tx, asked, values).fetchall()]


def remove(tx: Connection, ids: Iterable[int], until: str) -> list[int]:
    """Take the rows of these jobs away, with all that belongs to them; those that ended until then, and are not live.

    Triggers keep depth and batches right. A gate that nobody waits at any more goes with its job.
    """
    there = rows.found(tx, f"SELECT id FROM jobs WHERE {ENDED}", {"ids": json.dumps(list(ids)), "until": until})
    done = [int(row.id) for row in there]
    those = {"ids": json.dumps(done)}
    gates = [row.gate_id for row in rows.found(tx, f"SELECT DISTINCT gate_id FROM waits WHERE {OF_THOSE}", those)]
    for table in PARTS:
        rows.write(tx, f"DELETE FROM {table} WHERE {OF_THOSE}", those)
    rows.write(tx, f"DELETE FROM events WHERE {OF_THOSE} AND job_id IS NOT NULL", those)
    rows.write(
        tx,
        f"DELETE FROM gates WHERE (id IN (SELECT value FROM json_each(:gates))"
        f" OR (parent_id IN ({IDS}) AND parent_id IS NOT NULL))"
        " AND NOT EXISTS (SELECT 1 FROM waits WHERE gate_id = gates.id)",
        {**those, "gates": json.dumps(gates)},
    )
    rows.write(tx, f"DELETE FROM jobs WHERE id IN ({IDS})", those)
    return done


def leftover(tx: Connection, ids: Iterable[int]) -> list[int]:
    """Of the jobs whose folders are there those that were pruned: by their mark, or their row is gone.

    An id that this database never gave is nobody's leftover.
    """
    asked = (
        "SELECT value AS id FROM json_each(:ids) AS e LEFT JOIN jobs AS j ON j.id = e.value"
        " WHERE j.pruned_at IS NOT NULL"
        " OR (j.id IS NULL AND e.value <= (SELECT seq FROM sqlite_sequence WHERE name = 'jobs'))"
    )
    return [int(row.id) for row in rows.found(tx, asked, {"ids": json.dumps(list(ids))})]


def file_users(tx: Connection, after: int = 0) -> tuple[list[str], int]:
    """(the hashes that jobs behind this id name as files of theirs, one for each naming; the last such id)."""
    found, last = list[str](), after
    for row in rows.found(tx, FILES, {"after": after}):
        found += hashes_of(row.files)
        last = int(row.id)
    return found, last


def hashes_of(files: str) -> list[str]:
    """What the text of a job's files keeps by content."""
    return [str(entry["sha256"]) for entry in json.loads(files).values() if not entry.get("pinned")]


def piece_users(tx: Connection) -> list[str]:
    """The hashes of inputs and replies that are kept by content, and what drafts have pinned; one a naming."""
    found = [str(row[0]) for statement in (INPUTS, REPLIES) for row in rows.write(tx, statement).fetchall()]
    return [*found, *_pinned(tx)]


def _pinned(tx: Connection) -> list[str]:
    pins = (value for row in rows.found(tx, PINNED) for value in json.loads(row.pins).values())
    return [str(each["sha256"]) for each in pins if isinstance(each, Mapping) and each.get("sha256")]


def unused(tx: Connection, hashes: Iterable[str], named: set[str]) -> list[str]:
    """Those that no job names, as input or reply, nor by what is known already (`named`): files, what drafts took."""
    return [
        each
        for each in hashes
        if each not in named
        and rows.first(tx, INPUT_USED, {"sha256": each}) is None
        and rows.first(tx, REPLY_USED, {"sha256": each}) is None
    ]


def gone_workers(tx: Connection, ids: Iterable[int], before_at: str) -> list[int]:
    """Of these workers those that went before then; one without a row went at some time, if its id was given."""
    asked = (
        "SELECT e.value AS id FROM json_each(:ids) AS e LEFT JOIN workers AS w ON w.id = e.value"
        " WHERE (w.state = 'gone' AND w.gone_at < :before_at)"
        " OR (w.id IS NULL AND e.value <= (SELECT seq FROM sqlite_sequence WHERE name = 'workers'))"
    )
    return [int(row.id) for row in rows.found(tx, asked, {"ids": json.dumps(list(ids)), "before_at": before_at})]


def old_rows(tx: Connection, before_at: str, most: int) -> int:
    """Take away rows of no job that are older: samples, incidents that were told, events of workers that are gone.

    At most about `most` of each kind; how many that was. 0 = none is left.
    """
    values = {"before_at": before_at, "most": most}
    done = rows.write(
        tx,
        "DELETE FROM samples WHERE (at, host_id, pool) IN"
        " (SELECT at, host_id, pool FROM samples WHERE at < :before_at ORDER BY at LIMIT :most)",
        values,
    ).rowcount
    done += rows.write(
        tx,
        "DELETE FROM incidents WHERE id IN (SELECT id FROM incidents WHERE at < :before_at"
        " AND (sent_at IS NOT NULL OR next_try_at IS NULL) ORDER BY at LIMIT :most)",
        values,
    ).rowcount
    done += rows.write(
        tx,
        "DELETE FROM events WHERE id IN (SELECT e.id FROM workers AS w JOIN events AS e ON e.worker_id = w.id"
        " AND e.worker_id IS NOT NULL WHERE w.state = 'gone' AND w.gone_at < :before_at AND e.job_id IS NULL"
        " LIMIT :most)",
        values,
    ).rowcount
    return int(done)
