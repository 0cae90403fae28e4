"""Gates as the scheduler moves who waits at them: let through, failed, held; and drafts once their input is made.

Every statement takes many jobs at once, at most as many as it is told. `at` is a stamp.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from scheduler.errors import Fenced, Refused, StoreError, Temporary, UsageError
from scheduler.model.states import JOB, JOB_ENDED, advance
from scheduler.rules import circles, explain_after, shellwords
from scheduler.store import events, gates, rows
from scheduler.store.gates import AGAIN, CLOSED

WAITS = "j.state = 'queued' AND j.blocked = 'after' AND j.behind IS NULL"
OPEN_DRAFT = "EXISTS (SELECT 1 FROM drafts d WHERE d.job_id = j.id AND d.made_at IS NULL)"
SHUT_OUT = f"EXISTS (SELECT 1 FROM waits o JOIN gates g ON g.id = o.gate_id WHERE o.job_id = j.id AND {CLOSED})"
AT_GATE = "FROM waits w CROSS JOIN jobs j ON j.id = w.job_id WHERE w.gate_id = :gate AND w.job_id > :past"
PAGE = "ORDER BY w.job_id LIMIT :most"

CHANGED = (
    "SELECT id, parent_id, batch, upto_id, need, open, bad FROM gates WHERE changed = 1"
    " AND id NOT IN (SELECT value FROM json_each(:but)) ORDER BY id LIMIT :most"
)
SETTLED = "UPDATE gates SET changed = 0 WHERE id = :gate"
MAY_GO = f"SELECT j.id {AT_GATE} AND {WAITS} AND NOT {SHUT_OUT} AND NOT {OPEN_DRAFT} {PAGE}"
MAY_FAIL = (
    f"SELECT j.id, j.state, j.on_parent {AT_GATE} AND ({WAITS} OR (j.state = 'held' AND j.on_parent = 'fail')) {PAGE}"
)
TO_MAKE = f"SELECT j.id {AT_GATE} AND j.state IN ('queued', 'held') AND {OPEN_DRAFT} {PAGE}"
AMONG = "id IN (SELECT value FROM json_each(:ids))"
GO = (
    "UPDATE jobs SET blocked = iif(not_before_at > :at, 'begin', NULL),"
    f" not_before_at = iif(not_before_at > :at, not_before_at, NULL), free_at = :at"
    f" WHERE {AMONG} AND state = 'queued'"
)
FAIL = (
    "UPDATE jobs SET state = :state, blocked = NULL, not_before_at = NULL, head_since_at = NULL, ended_at = :at,"
    f" outcome = :kind, outcome_text = :text WHERE {AMONG} AND state = :was"
)
HOLD = f"UPDATE jobs SET state = :state, blocked = NULL, head_since_at = NULL WHERE {AMONG} AND state = :was"
TELL = "INSERT INTO events (at, job_id, event, text) SELECT :at, value, :event, :text FROM json_each(:ids)"
WHO = "id, slug, variant, name, state, outcome, outcome_text"
PARENT = f"SELECT {WHO} FROM jobs WHERE id = :id"
BAD_ONE = (
    f"SELECT {WHO} FROM jobs WHERE batch = :batch AND batch IS NOT NULL AND id <= :upto"
    " AND state IN ('failed', 'cancelled', 'timed_out', 'refused') ORDER BY id LIMIT 1"
)
LOOK_AGAIN = (
    "UPDATE gates SET changed = 1 WHERE open = 0 AND id IN (SELECT w.gate_id FROM drafts d"
    " JOIN waits w ON w.job_id = d.job_id WHERE d.made_at IS NULL)"
)
IS_OPEN = (
    "SELECT j.id, j.state, j.blocked, j.behind FROM drafts d JOIN jobs j ON j.id = d.job_id"
    " WHERE d.job_id = :id AND d.made_at IS NULL AND j.state IN ('queued', 'held')"
)
PINS = "UPDATE drafts SET pins = json_patch(pins, :pins), made_at = :made_at, put_off = '' WHERE job_id = :id"
PUT_OFF = "UPDATE drafts SET put_off = :text WHERE job_id = :id AND made_at IS NULL RETURNING job_id"
BROKEN_OF = (
    "SELECT g.id, g.parent_id, g.batch, g.upto_id, g.bad FROM waits w JOIN gates g ON g.id = w.gate_id"
    " WHERE w.job_id = :id AND g.need = 'ok' AND g.bad > 0 ORDER BY g.id LIMIT 1"
)
GONE = "submit it anew, after what is there"
"""What mends a job whose parent did not succeed and is not in the queue any more."""

REFS_OF = "SELECT refs FROM drafts WHERE job_id = :id AND made_at IS NULL"
UNTIE = (
    "DELETE FROM waits WHERE job_id = :id AND gate_id NOT IN (SELECT id FROM gates WHERE need = 'ok'"
    " AND parent_id IS NOT NULL AND parent_id IN (SELECT value FROM json_each(:taken)))"
)
EDGES = (
    "SELECT w.job_id, g.parent_id FROM waits AS w JOIN gates AS g ON g.id = w.gate_id"
    " WHERE w.job_id IN (SELECT value FROM json_each(:ids)) AND g.parent_id IN (SELECT value FROM json_each(:ids))"
)
IS_SHUT_OUT = f"SELECT 1 FROM jobs j WHERE j.id = :id AND {SHUT_OUT}"


def changed(tx: Connection, most: int, but: Collection[int] = ()) -> list[Any]:
    """The gates that changed since they were looked at, but those: id, parent_id, batch, upto_id, need, open, bad."""
    return rows.found(tx, CHANGED, {"most": most, "but": json.dumps(list(but))})


def settle(tx: Connection, gate_id: int) -> None:
    """Everybody at this gate is where they belong."""
    rows.write(tx, SETTLED, {"gate": gate_id})


@contextmanager
def apart(tx: Connection) -> Iterator[None]:
    """What is written in here is undone by an error, and nothing else of the transaction."""
    rows.write(tx, "SAVEPOINT apart")
    try:
        yield
    except BaseException:
        if tx.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
            rows.write(tx, "ROLLBACK TO apart")
            rows.write(tx, "RELEASE apart")
        raise
    rows.write(tx, "RELEASE apart")


def concerns_one(error: Exception) -> bool:
    """Whether an error is of what was being written alone: not of the database, the disk or the scheduler's place."""
    database = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return not database and not isinstance(error, Fenced | Temporary | StoreError)


def look_again(tx: Connection) -> None:
    """Look again at the gates of those whose input is still to be made: whose turn it is, is kept nowhere."""
    rows.write(tx, LOOK_AGAIN)


def let_through(tx: Connection, gate_id: int, at: str, past: int, most: int) -> list[int]:
    """Let those behind `past` into the line who wait for nothing else; the first `most` of them, by id."""
    ids = [row.id for row in rows.found(tx, MAY_GO, {"gate": gate_id, "past": past, "most": most})]
    if ids:
        rows.write(tx, GO, {"ids": json.dumps(ids), "at": at})
    return ids


def to_make(tx: Connection, gate_id: int, past: int, most: int) -> list[int]:
    """Those behind `past` whose input is still to be made, by id."""
    return [row.id for row in rows.found(tx, TO_MAKE, {"gate": gate_id, "past": past, "most": most})]


def broken(tx: Connection, gate: Any, at: str, past: int, most: int) -> list[tuple[int, str]]:
    """Fail those at a broken gate, or hold who asked for that; (id, state) of each that moved, at most `most`."""
    found = rows.found(tx, MAY_FAIL, {"gate": gate.id, "past": past, "most": most})
    if not found:
        return []
    why, moved = _why(tx, gate), []  # type: tuple[str, str], list[tuple[int, str]]
    groups: dict[tuple[str, str], list[int]] = {}
    for row in found:
        groups.setdefault((row.state, row.on_parent), []).append(row.id)
    for (state, on_parent), ids in groups.items():
        if on_parent == "hold":
            cell = _hold(tx, ids, state, ". ".join(why), at)
        else:
            cell = fail(tx, ids, state, "parent_failed", why[0], at)
        moved += [(job_id, cell) for job_id in ids]
    return moved


def fail(tx: Connection, ids: list[int], was: str, kind: str, text: str, at: str) -> str:
    """End waiting jobs that cannot start any more; their state then. `kind` and `text` are their outcome."""
    state = advance(JOB, was, "parent_failed")
    said = json.dumps(ids)
    rows.write(tx, FAIL, {"ids": said, "was": was, "state": state, "at": at, "kind": kind, "text": text})
    rows.write(tx, TELL, {"ids": said, "at": at, "event": "parent_failed", "text": f"{kind}: {text}"})
    return state


def _hold(tx: Connection, ids: list[int], was: str, text: str, at: str) -> str:
    state, said = advance(JOB, was, "park"), json.dumps(ids)
    rows.write(tx, HOLD, {"ids": said, "was": was, "state": state})
    rows.write(tx, TELL, {"ids": said, "at": at, "event": "park", "text": text})
    return state


def _why(tx: Connection, gate: Any) -> tuple[str, str]:
    """(which parent did not succeed and how it ended, what mends that)."""
    if gate.parent_id is not None:
        parent = rows.first(tx, PARENT, {"id": gate.parent_id})
        if parent is None:
            return f"job {gate.parent_id} did not succeed, and its row was removed", GONE
        return explain_after.ended(*parent), f"schedq requeue {parent.id} tries it again"
    first = rows.first(tx, BAD_ONE, {"batch": gate.batch, "upto": gate.upto_id})
    many = f"{gate.bad} job{'s' * (gate.bad != 1)} of batch {gate.batch} did not succeed"
    if first is None:
        return f"{many}, and the rows of those were removed", GONE
    return (
        f"{many}, the first is {explain_after.ended(*first)}",
        f"schedq requeue {shellwords.option('--batch', gate.batch)} tries them again",
    )


def blocked_again(tx: Connection, job_id: int) -> str | None:
    """What blocks a job that comes into the line again: `after` while it waits for others or for its input."""
    found = rows.value(tx, f"SELECT {AGAIN} FROM jobs WHERE id = :id", {"id": job_id})
    return None if found is None else str(found)


def look_at(tx: Connection, job_id: int) -> None:
    """Its gates are looked at in the next turn, where they have been decided already."""
    rows.write(tx, gates.LOOK_AGAIN, {"id": job_id})


def refuse_broken(tx: Connection, job_id: int) -> None:
    """Refused if a parent that had to succeed did not: the job would only fail again."""
    gate = rows.first(tx, BROKEN_OF, {"id": job_id})
    if gate is not None:
        why, mends = _why(tx, gate)
        raise Refused(
            f"job {job_id} comes after a job that did not succeed: {why}. {mends}; schedq update {job_id} --after none"
            " lets this one go without, unless its input takes that one's result"
        )


def untie(tx: Connection, job_id: int, at: str) -> str:
    """Let a waiting job come after nobody; what was changed in words, "" if it did so already.

    What its input takes results of it goes on waiting for: Refused if that is all. UsageError if it has left the line.
    """
    job = rows.first(tx, "SELECT id, state, blocked, behind FROM jobs WHERE id = :id", {"id": job_id})
    if job.state not in ("queued", "held"):
        raise UsageError(f"job {job_id} is {job.state}: what it comes after counts only while it waits")
    draft = rows.first(tx, REFS_OF, {"id": job_id})
    taken = sorted({ref["job"] for ref in json.loads(draft.refs)}) if draft is not None else []
    done = rows.write(tx, UNTIE, {"id": job_id, "taken": json.dumps(taken)}).rowcount
    if not done and taken:
        named = ", ".join(map(str, taken))
        raise Refused(f"the input of job {job_id} takes the result of job {named}, and cannot be made without it")
    if not done:
        return ""
    if job.state == "queued" and job.blocked == "after" and job.behind is None and blocked_again(tx, job_id) is None:
        rows.write(tx, GO, {"ids": json.dumps([job_id]), "at": at})
    text = "--after none" + (f", but for job {', '.join(map(str, taken))}, whose result it takes" if taken else "")
    events.record(tx, at, job_id=job_id, event="update", text=text)
    return text


def pin(
    tx: Connection, job_id: int, pins: dict[str, Any], columns: dict[str, Any] | None, data: bytes | None, at: str
) -> str:
    """Keep what a draft took so far; with `columns`, the input that was made of it, and let the job go on.

    `data`: its bytes, None where they are a piece of the content, which is in its place.
    What became of it: "" if it does not wait for its input any more, `pinned`, `made`, or `through`: it is in the line.
    """
    job = rows.first(tx, IS_OPEN, {"id": job_id})
    if job is None:
        return ""
    rows.write(tx, PINS, {"id": job_id, "pins": json.dumps(pins), "made_at": at if columns is not None else None})
    if columns is None:
        if pins:
            events.record(tx, at, job_id=job_id, event="input", text=f"took {len(pins)} of what it is made of")
        return "pinned"
    values = {
        **columns, "input": data,
        **{key: json.dumps(columns[key], ensure_ascii=False, separators=(",", ":")) for key in ("params", "files")},
    }  # fmt: skip
    terms = ", ".join(f"{name} = :{name}" for name in values)
    rows.write(tx, f"UPDATE jobs SET {terms} WHERE id = :id", {**values, "id": job_id})
    text = f"{columns['input_name']}, {columns['input_bytes']} bytes, sha256 {columns['input_sha256'][:16]}"
    events.record(tx, at, job_id=job_id, event="input", text=text)
    waits = job.state == "queued" and job.blocked == "after" and job.behind is None
    if not waits or rows.value(tx, IS_SHUT_OUT, {"id": job_id}) is not None:
        return "made"
    rows.write(tx, GO, {"ids": json.dumps([job_id]), "at": at})
    return "through"


def refuse(tx: Connection, job_id: int, kind: str, text: str, at: str) -> str:
    """End a job whose input cannot be made; its state then, "" if it does not wait for that any more.

    Also one with --on-parent hold: its parents succeeded, and trying them again would not change what they left.
    """
    job = rows.first(tx, IS_OPEN, {"id": job_id})
    if job is None or job.state in JOB_ENDED:
        return ""
    return fail(tx, [job_id], job.state, kind, text, at)


def put_off(tx: Connection, job_id: int, text: str) -> bool:
    """Keep why a draft cannot be made yet; whether it still waits."""
    return bool(rows.write(tx, PUT_OFF, {"id": job_id, "text": text}).fetchall())


def parents_first(tx: Connection, ids: Sequence[int]) -> list[int]:
    """These jobs in their order, but each behind those of them that it comes after."""
    edges: dict[int, list[int]] = {}
    for row in rows.found(tx, EDGES, {"ids": json.dumps(list(ids))}):
        edges.setdefault(row.job_id, []).append(row.parent_id)
    return circles.parents_first(ids, edges)
