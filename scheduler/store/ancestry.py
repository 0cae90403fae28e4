"""Who comes after whom, as people ask: the parents of a job and its children. Standard library only."""

from __future__ import annotations

import json
import sqlite3

from scheduler.rules import explain_after
from scheduler.store.gates import CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SAID, SHOWN = 3, 20
"""Gates that a reason names, and relatives that `show` lists."""

GATES = (
    "SELECT g.parent_id, g.batch, g.upto_id, g.need, g.jobs, g.open, g.bad, p.slug, p.variant, p.name, p.state"
    " FROM waits w JOIN gates g ON g.id = w.gate_id LEFT JOIN jobs p ON p.id = g.parent_id WHERE w.job_id = ?"
)
CLOSED_GATES = f"{GATES} AND {CLOSED} ORDER BY g.id LIMIT ?"
HOW_MANY = "SELECT count(*) FROM waits w JOIN gates g ON g.id = w.gate_id WHERE w.job_id = ?"
REFS = "SELECT refs, put_off FROM drafts WHERE job_id = ? AND made_at IS NULL"
AT = (
    "SELECT id FROM gates WHERE parent_id = :id AND parent_id IS NOT NULL"
    " UNION ALL SELECT id FROM gates WHERE batch = :batch AND upto_id >= :id AND batch IS NOT NULL"
)
CHILDREN = (
    f"SELECT DISTINCT j.id, j.slug, j.variant, j.name, j.state FROM waits w JOIN jobs j ON j.id = w.job_id"
    f" WHERE w.gate_id IN ({AT}) ORDER BY w.job_id LIMIT {SHOWN}"
)
HOW_MANY_CHILDREN = f"SELECT count(DISTINCT job_id) FROM waits WHERE gate_id IN ({AT})"


def reason(connection: sqlite3.Connection, job_id: int) -> tuple[str, bool, bool]:
    """(why a job waits that comes after others, whether a parent is still missing, whether its input was put off)."""
    found = connection.execute(CLOSED_GATES, (job_id, SAID)).fetchall()
    count = (
        connection.execute(f"{HOW_MANY} AND {CLOSED}", (job_id,)).fetchone()[0] if len(found) == SAID else len(found)
    )
    refs = connection.execute(REFS, (job_id,)).fetchone()
    taken_from = list(dict.fromkeys(ref["job"] for ref in json.loads(refs[0]))) if refs is not None else []
    closed = [_gate(row) for row in found]
    text = explain_after.after(job_id, closed, count - len(found), taken_from)
    put_off = not closed and refs is not None and bool(refs[1])
    if put_off:
        text = f"{explain_after.unmade(taken_from)}: {refs[1]}"
    return text, bool(closed), put_off


def parents(connection: sqlite3.Connection, job_id: int) -> list[dict[str, Any]]:
    """What a job comes after, the first 20: jobs as {"id", "slug", "variant", "name", "state", "need"}, batches as
    {"batch", "upto_id", "jobs", "open", "bad", "need"}."""
    rows = connection.execute(f"{GATES} ORDER BY g.id LIMIT ?", (job_id, SHOWN)).fetchall()
    return [_gate(row) for row in rows]


def children(connection: sqlite3.Connection, job_id: int, batch: str | None) -> dict[str, Any]:
    """Who comes after a job, by itself or as one of its batch: {"count", "jobs": the first 20}."""
    which = {"id": job_id, "batch": batch}
    rows = connection.execute(CHILDREN, which).fetchall()
    count = len(rows) if len(rows) < SHOWN else connection.execute(HOW_MANY_CHILDREN, which).fetchone()[0]
    return {"count": count, "jobs": [dict(row) for row in rows]}


def _gate(row: sqlite3.Row) -> dict[str, Any]:
    if row["parent_id"] is not None:
        return {"id": row["parent_id"], **{key: row[key] for key in ("slug", "variant", "name", "state", "need")}}
    return {"batch": row["batch"], **{key: row[key] for key in ("jobs", "upto_id", "open", "bad", "need")}}
