"""Workers' rows: one a keeper, from before it is parked until no process of its tree is left; never reused."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.errors import Fenced
from scheduler.model.states import LATE, SAME, SAYS, WORKER, advance
from scheduler.store import events, rows

COLUMNS = frozenset(
    {
        "device", "env_hash", "boot_id", "keeper_pid", "keeper_started", "leader_pid", "leader_started", "ready_at",
        "idle_since_at", "gone_at", "jobs_served", "retire_after", "why", "exit_code", "pinned", "versions",
        "warm_hits", "overdue_at",
    }
)  # fmt: skip
"""What may change with an event; the rest is said at `insert`."""

OF = "SELECT id FROM jobs WHERE worker_id = :id AND worker_id IS NOT NULL AND state IN ('admitted', 'running')"
LIVE = "SELECT * FROM workers WHERE state <> 'gone' ORDER BY id"


def insert(
    tx: Connection,
    *,
    slug: str,
    variant: str,
    revision: str,
    mode: str,
    host_id: str,
    epoch: int,
    created_at: str,
    device: str | None = None,
    driver: str | None = None,
    env_hash: str | None = None,
    host_gib: float | None = None,
    alone: bool = False,
) -> int:
    """A worker that is about to be parked, and its id.

    `host_gib` is the part of its charges that is host memory. `alone`: it is charged all that its pool can give.
    """
    done = rows.write(
        tx, "INSERT INTO workers (slug, variant, revision, mode, host_id, epoch, device, driver, env_hash, state,"
        " created_at, host_gib, alone) VALUES (:slug, :variant, :revision, :mode, :host_id, :epoch, :device, :driver,"
        " :env_hash, 'parked', :created_at, :host_gib, :alone)",
        {
            "slug": slug, "variant": variant, "revision": revision, "mode": mode, "host_id": host_id, "epoch": epoch,
            "device": device, "driver": driver, "env_hash": env_hash, "created_at": created_at, "host_gib": host_gib,
            "alone": int(alone),
        },
    )  # fmt: skip
    return int(done.lastrowid)


def row(tx: Connection, worker_id: int) -> Any:
    """The worker's row, None if there is none."""
    return rows.first(tx, "SELECT * FROM workers WHERE id = :id", {"id": worker_id})


def live(tx: Connection) -> list[Any]:
    """The rows of all workers that are not gone, by id."""
    return rows.found(tx, LIVE)


def move(tx: Connection, worker_id: int, event: str, at: str, **columns: Any) -> str:
    """Apply one event: the worker's state afterwards, or `late` for a reply that it is too late for.

    `columns` are stored with it (not if it is late). A busy worker that is to retire keeps its `why` as
    `retire_after`. IllegalTransition carries the worker's story.
    """
    found = rows.first(tx, "SELECT state FROM workers WHERE id = :id", {"id": worker_id})
    if found is None:
        raise Fenced(f"worker {worker_id} has no row in this queue; nothing was changed")
    cell = advance(WORKER, found.state, event, lambda: events.story(tx, worker_id=worker_id))
    if cell == LATE:
        events.record(tx, at, worker_id=worker_id, event="late", text=f"{event} of a worker that is {found.state}")
        return LATE
    state = found.state if cell in (SAME, SAYS) else cell
    if event == "retire" and found.state == "busy":
        columns["retire_after"] = columns.pop("why", None) or "asked to"
    change(tx, worker_id, found.state, state=state, **columns)
    if state != found.state:
        events.record(tx, at, worker_id=worker_id, event=event, text=str(columns.get("why") or ""))
    return str(state)


def change(tx: Connection, worker_id: int, expected: str, *, state: str, **columns: Any) -> None:
    """Compare-and-set of the state, with columns; Fenced if the worker is not in the state that was expected."""
    unknown = columns.keys() - COLUMNS
    if unknown:
        raise TypeError(f"a worker's {min(unknown)} does not change with an event")
    values = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in columns.items()}
    terms = "".join(f", {name} = :{name}" for name in values)
    done = rows.write(
        tx,
        f"UPDATE workers SET state = :state{terms} WHERE id = :id AND state = :expected",
        {**values, "state": state, "id": worker_id, "expected": expected},
    )
    if done.rowcount != 1:
        raise Fenced(f"worker {worker_id} is no longer {expected}; nothing was changed")


def measured(tx: Connection, worker_id: int, *, host_gib: float | None = None, bucket: int | None = None) -> None:
    """Keep which part of its charges is the host's, and the bucket of the largest job that it served; None = as was."""
    rows.write(
        tx,
        "UPDATE workers SET host_gib = coalesce(:host_gib, host_gib), bucket = coalesce(:bucket, bucket)"
        " WHERE id = :id",
        {"host_gib": host_gib, "bucket": bucket, "id": worker_id},
    )


def retire_after(tx: Connection, worker_id: int, why: str) -> None:
    """Let the worker finish what it does and then go; `why` is shown."""
    rows.write(
        tx, "UPDATE workers SET retire_after = :why WHERE id = :id AND state <> 'gone'", {"why": why, "id": worker_id}
    )


def ask_to_retire(tx: Connection, worker_id: int, why: str, *, idle: bool = False) -> tuple[str, int | None]:
    """An operator wants a worker gone: (what becomes of it, the job that is bound to it).

    `now`, `after` its job; or nothing was done: it is `coming` up for a job, `going` already, `gone`, or, where only an
    `idle` one was meant, `busy`. Only the mark is written: the scheduler ends it by that, in a plan that sends it
    nothing more, so that a request that arrives meanwhile is either sent whole or waits.
    """
    found = row(tx, worker_id)
    if found is None or found.state == "gone":
        return "gone", None
    job_id = rows.value(tx, OF, {"id": worker_id})
    if found.state == "retiring":
        return "going", job_id
    if found.state in ("parked", "starting") and job_id is not None:
        return "coming", job_id
    if idle and job_id is not None:
        return "busy", job_id
    done = rows.write(
        tx,
        "UPDATE workers SET retire_after = coalesce(retire_after, :why), pinned = 0 WHERE id = :id AND state = :state",
        {"why": why, "id": worker_id, "state": found.state},
    )
    if done.rowcount != 1:
        raise Fenced(f"worker {worker_id} is no longer {found.state}; nothing was changed")
    return ("now" if job_id is None else "after"), job_id


def pin(tx: Connection, worker_id: int, *, pinned: bool) -> bool:
    """Keep a worker from eviction and age, or no longer; False if it is on its way out."""
    done = rows.write(
        tx,
        "UPDATE workers SET pinned = :pinned WHERE id = :id AND state NOT IN ('retiring', 'gone')"
        " AND (retire_after IS NULL OR NOT :pinned)",
        {"pinned": int(pinned), "id": worker_id},
    )
    return bool(done.rowcount)
