"""What each provider's breaker remembers: failures in a row, the last error, when it is tried again."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import local_stamp, now_at, seconds, stamp
from scheduler.model.plan import BreakerState
from scheduler.store import incidents, rows

OPENED = "SELECT * FROM breakers WHERE next_try_at IS NOT NULL ORDER BY slug"


def row(tx: Connection, slug: str) -> BreakerState | None:
    """What is remembered of this provider, None if nothing is."""
    found = rows.first(tx, "SELECT * FROM breakers WHERE slug = :slug", {"slug": slug})
    if found is None:
        return None
    return BreakerState(
        failures=found.failures,
        inputs=tuple(json.loads(found.inputs)),
        last_error=found.last_error or "",
        opened_s=seconds(found.opened_at) if found.opened_at else None,
        next_try_s=seconds(found.next_try_at) if found.next_try_at else None,
    )


def put(tx: Connection, slug: str, state: BreakerState | None, at: str | None = None) -> None:
    """Remember this; None or the clean state forgets the provider's failures.

    That it opened, or closed, is written down as an incident of the stamp `at`, now unless given.
    """
    _note(tx, slug, row(tx, slug), state, at or now_at())
    if state is None or state == BreakerState():
        rows.write(tx, "DELETE FROM breakers WHERE slug = :slug", {"slug": slug})
        return
    rows.write(
        tx, "INSERT INTO breakers (slug, failures, inputs, last_error, opened_at, next_try_at)"
        " VALUES (:slug, :failures, :inputs, :last_error, :opened_at, :next_try_at)"
        " ON CONFLICT (slug) DO UPDATE SET failures = excluded.failures, inputs = excluded.inputs,"
        " last_error = excluded.last_error, opened_at = excluded.opened_at, next_try_at = excluded.next_try_at",
        {
            "slug": slug, "failures": state.failures, "inputs": json.dumps(state.inputs),
            "last_error": state.last_error,
            "opened_at": None if state.opened_s is None else stamp(state.opened_s),
            "next_try_at": None if state.next_try_s is None else stamp(state.next_try_s),
        },
    )  # fmt: skip


def _note(tx: Connection, slug: str, was: BreakerState | None, state: BreakerState | None, at: str) -> None:
    """An incident where it opens on failures, or closes; that a provider asked for another time is none."""
    is_open = state is not None and state.next_try_s is not None
    if was is not None and was.next_try_s is not None and was.failures and not is_open:
        text = f"the breaker of {slug} closed"
        incidents.record(tx, incidents.BREAKER_CLOSED, at, text, {"slug": slug}, slug=slug, to_tell=False)
    if state is None or state.next_try_s is None or not state.failures:
        return
    if was is not None and was.next_try_s is not None and was.failures:
        return
    next_try_at = stamp(state.next_try_s)
    body = {"slug": slug, "failures": state.failures, "error": state.last_error, "next_try_at": next_try_at}
    count = "once" if state.failures == 1 else f"{state.failures} times in a row"
    text = f"{slug} failed {count} and is left alone until {local_stamp(seconds(next_try_at))}"
    incidents.record(tx, incidents.BREAKER_OPENED, at, f"{text}: {state.last_error}".rstrip(": "), body, slug=slug)


def opened(tx: Connection) -> list[Any]:
    """The rows of the breakers that are open: slug, failures, last_error, opened_at, next_try_at."""
    return rows.found(tx, OPENED)
