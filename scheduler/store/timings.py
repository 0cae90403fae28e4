"""What loading and running took so far: counts and means by (slug, variant), in seconds."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.model.command import EXEC
from scheduler.store import rows

RECENT = 50
"""A new figure weighs at least 1/50, so that a mean follows a machine that changed."""


def loaded(tx: Connection, slug: str, variant: str, load_s: float) -> None:
    """A worker answered `load_s` seconds after it was let go. A command loads nothing."""
    if slug == EXEC:
        return
    _add(tx, slug, variant, "loads", "load_s", load_s)


def ran(tx: Connection, slug: str, variant: str, run_s: float) -> None:
    """A request was answered well, `run_s` seconds after it was sent. All commands have one mean."""
    _add(tx, slug, "" if slug == EXEC else variant, "runs", "run_s", run_s)


def known(tx: Connection) -> dict[tuple[str, str], Any]:
    """Rows with loads, load_s, runs, run_s by (slug, variant); a mean is of use where its count is above 0."""
    return {(row.slug, row.variant): row for row in rows.found(tx, "SELECT * FROM timings")}


def _add(tx: Connection, slug: str, variant: str, count: str, mean: str, value: float) -> None:
    rows.write(
        tx,
        f"INSERT INTO timings (slug, variant, {count}, {mean}) VALUES (:slug, :variant, 1, :value)"
        f" ON CONFLICT (slug, variant) DO UPDATE SET {count} = {count} + 1,"
        f" {mean} = {mean} + (excluded.{mean} - {mean}) / min({count} + 1, {RECENT})",
        {"slug": slug, "variant": variant, "value": value},
    )
