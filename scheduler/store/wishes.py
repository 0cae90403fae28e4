"""What an operator wants warm: one row a (slug, variant), from the wish until a worker is there.

A wish that was dropped stays, with the reason, until the next one for the same provider: `workers` shows it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.store import events, rows

MOST_FAILURES = 2
"""Starts that may fail before a wish is dropped: as many in a row open a provider's breaker."""

OPEN = "SELECT slug, variant, pinned FROM wishes WHERE dropped_at IS NULL ORDER BY at, slug, variant"
ALL = "SELECT * FROM wishes ORDER BY at, slug, variant"
THIS = " WHERE slug = :slug AND variant = :variant AND dropped_at IS NULL"


def put(tx: Connection, slug: str, variant: str, at: str, user: str, *, pinned: bool = False) -> None:
    """Want a worker of this provider. A wish that is open already stays as old as it is, and may gain the pin."""
    rows.write(
        tx,
        "INSERT INTO wishes (slug, variant, at, user, pinned) VALUES (:slug, :variant, :at, :user, :pinned)"
        " ON CONFLICT (slug, variant) DO UPDATE SET pinned = max(excluded.pinned, iif(dropped_at IS NULL, pinned, 0)),"
        " at = iif(dropped_at IS NULL, at, excluded.at), user = excluded.user, dropped_at = NULL, failures = 0,"
        " ruling = '', text = ''",
        {"slug": slug, "variant": variant, "at": at, "user": user, "pinned": int(pinned)},
    )


def wanted(tx: Connection) -> list[Any]:
    """(slug, variant, pinned) of every open wish, the oldest first."""
    return rows.found(tx, OPEN)


def shown(tx: Connection) -> list[Any]:
    """Every wish, open or dropped, the oldest first."""
    return rows.found(tx, ALL)


def postpone(tx: Connection, slug: str, variant: str, ruling: str, text: str) -> None:
    """What an open wish waits for; written when it changes."""
    rows.write(
        tx,
        "UPDATE wishes SET ruling = :ruling, text = :text" + THIS + " AND (ruling, text) <> (:ruling, :text)",
        {"slug": slug, "variant": variant, "ruling": ruling, "text": text},
    )


def meet(tx: Connection, slug: str, variant: str, worker_id: int, at: str) -> bool:
    """A worker of it is there: it is pinned if that was wished, and the wish is over; whether there was one."""
    wish = rows.first(tx, "SELECT * FROM wishes" + THIS, {"slug": slug, "variant": variant})
    if wish is None:
        return False
    if wish.pinned:
        rows.write(tx, "UPDATE workers SET pinned = 1 WHERE id = :id AND state <> 'gone'", {"id": worker_id})
    take_back(tx, slug, variant)
    events.record(tx, at, worker_id=worker_id, event="warm", text=f"{wish.user} wanted it warm")
    return True


def drop(tx: Connection, slug: str, variant: str, why: str, at: str) -> None:
    """An open wish that cannot be met is over; `why` stays and is shown."""
    rows.write(
        tx,
        "UPDATE wishes SET dropped_at = :at, ruling = 'dropped', text = :why" + THIS,
        {"slug": slug, "variant": variant, "why": why, "at": at},
    )


def failed(tx: Connection, slug: str, variant: str, text: str, at: str) -> bool:
    """A start of this provider failed: its open wish is tried once more, then dropped. Whether there was one."""
    wish = rows.first(tx, "SELECT failures FROM wishes" + THIS, {"slug": slug, "variant": variant})
    if wish is None:
        return False
    count = wish.failures + 1
    rows.write(
        tx,
        "UPDATE wishes SET failures = :count, ruling = 'failed', text = :text" + THIS,
        {"slug": slug, "variant": variant, "count": count, "text": f"its start failed: {text}"},
    )
    if count >= MOST_FAILURES:
        drop(tx, slug, variant, f"its start failed {count} times; the last error: {text}", at)
    return True


def take_back(tx: Connection, slug: str, variant: str) -> bool:
    """Want it no longer; whether there was a wish, open or dropped."""
    done = rows.write(
        tx, "DELETE FROM wishes WHERE slug = :slug AND variant = :variant", {"slug": slug, "variant": variant}
    )
    return bool(done.rowcount)
