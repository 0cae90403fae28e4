"""The jobs that were submitted last and meet every filter, newest first, whatever the history (P12).

What leads is as in `filters`; of each stretch of an index that is in the order of ids the last few are taken, so that
a few jobs cost a few rows. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import heapq
import sqlite3
from functools import partial

from scheduler.store import brief, filters, peek
from scheduler.store.brief import AT_ONCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from scheduler.config import Paths

    Filters = dict[str, Any]

COLUMNS = (
    "id", "slug", "variant", "name", "user", "state", "priority", "batch", "attempt", "tries", "submitted_at",
    "started_at", "ended_at", "outcome", "outcome_text", "exit_code", "free_at",
)  # fmt: skip
STATES = tuple(state for _, _, states in filters.PARTS for state in states)
RAN = (
    "SELECT job_id, round(sum((julianday(ended_at) - julianday(sent_at)) * 86400.0), 3) AS ran_s,"
    " max(iif(ended_at IS NULL, sent_at, NULL)) AS sent_at FROM attempts WHERE sent_at IS NOT NULL AND job_id IN ({})"
    " GROUP BY job_id"
)
PROVIDERS = "SELECT DISTINCT slug, variant FROM depth"
EVERYBODY = f"{filters.USERS}SELECT name FROM who WHERE name IS NOT NULL"
BY_ID = " ORDER BY id"


def parts(paths: Paths, given: Filters, most: int | None) -> Iterator[list[dict[str, Any]]]:
    """The jobs that meet every filter (as of peek.ids), ended or not, newest first; `most` of them, None = all.

    In parts of at most peek.AT_ONCE, each read in a snapshot of its own.
    """
    none: list[int] = []
    found = peek.looked(paths, lambda connection: newest(connection, given, most), none)
    for at in range(0, len(found), peek.AT_ONCE):
        yield peek.looked(paths, partial(rows, ids=found[at : at + peek.AT_ONCE]), [])


def labels(paths: Paths, label: str) -> list[str] | None:
    """None if a job has this label, else the first of those that jobs have."""
    none: list[str] | None = []
    return peek.looked(paths, lambda connection: brief.labels(connection, label), none)


def rows(connection: sqlite3.Connection, ids: list[int]) -> list[dict[str, Any]]:
    """These jobs, in that order, each with its labels and what its attempts ran.

    `case`: the validation case that it is, None if it is none. `ran_s`: those that are over, all together; `sent_at`:
    when that which runs was sent.
    """
    found: dict[int, dict[str, Any]] = {}
    for at in range(0, len(ids), AT_ONCE):
        some = ids[at : at + AT_ONCE]
        marks = ",".join("?" * len(some))
        for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE id IN ({marks})", some):
            found[row["id"]] = {**dict(row), "case": None, "labels": [], "ran_s": None, "sent_at": None}
        for job_id, ran_s, sent_at in connection.execute(RAN.format(marks), some):
            if job_id in found:
                found[job_id].update(ran_s=ran_s, sent_at=sent_at)
        for job_id, case in connection.execute(f'SELECT job_id, "case" FROM checks WHERE job_id IN ({marks})', some):
            if job_id in found:
                found[job_id]["case"] = case
        labels = f"SELECT job_id, label FROM labels WHERE job_id IN ({marks}) ORDER BY job_id, label"
        for job_id, label in connection.execute(labels, some):
            found[job_id]["labels"].append(label)
    return [found[each] for each in ids if each in found]


def newest(connection: sqlite3.Connection, given: Filters, most: int | None) -> list[int]:
    """The ids of at most `most` jobs that meet every filter, falling."""
    given = filters.as_counted({key: value for key, value in given.items() if value is not None})
    if most is None:
        asked, values = filters.query(given)
        return [row[0] for row in connection.execute(asked, values)][::-1]
    found: list[int] = []
    for select, values in _stretches(connection, given):
        found += [row[0] for row in connection.execute(f"{select} DESC LIMIT ?", [*values, most])]
    return heapq.nlargest(most, found)


def _stretches(connection: sqlite3.Connection, given: Filters) -> Iterator[tuple[str, list[Any]]]:
    """(SELECT up to the order, its values) of each stretch of the leading index in which the ids rise."""
    rest, values = filters.conditions(given)
    if "batch" in given:
        yield "SELECT id FROM jobs WHERE batch = ? AND batch IS NOT NULL" + rest + BY_ID, [given["batch"], *values]
        return
    if "label" in given:
        yield filters.LABELLED + rest + " ORDER BY labels.job_id", [filters.words(given["label"])[0], *values]
        return
    if "since" in given:
        users = [given["user"]] if "user" in given else [row[0] for row in connection.execute(EVERYBODY)]
        for user in users:
            lead = "user = ? AND submitted_at >= ?"
            yield f"SELECT id FROM jobs WHERE {lead}{rest} ORDER BY submitted_at", [user, given["since"], *values]
        return
    if "outcome" in given or "state" in given or "slug" in given:
        slug, colon, variant = given.get("slug", "").partition(":")
        for of in connection.execute(PROVIDERS).fetchall():
            if (slug and of["slug"] != slug) or (colon and of["variant"] != variant):
                continue
            for lead, leads in _of_provider(given):
                yield f"SELECT id FROM {lead} AND slug = ? AND variant = ?{rest}{BY_ID}", [*leads, *of, *values]
        return
    if "user" in given:
        yield f"SELECT id FROM jobs WHERE user = ?{rest} ORDER BY submitted_at", [given["user"], *values]
        return
    yield f"SELECT id FROM jobs WHERE 1{rest}{BY_ID}", values


def _of_provider(given: Filters) -> Iterator[tuple[str, list[Any]]]:
    """The leading conditions, one for each outcome or each state that is meant."""
    if "outcome" in given:
        for outcome in filters.words(given["outcome"]):
            yield "jobs WHERE outcome = ? AND outcome IS NOT NULL", [outcome]
        return
    meant = filters.words(given["state"]) if "state" in given else STATES
    for table, condition, states in filters.PARTS:
        for state in (each for each in states if each in meant):
            named = condition != filters.QUEUED
            yield f"{table} WHERE {condition}" + " AND state = ?" * named, [state] * named
