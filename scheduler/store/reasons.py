"""Why a provider's waiting jobs do not start now: one row a (slug, variant), written when it changes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.store import events, rows


def put(
    tx: Connection,
    slug: str,
    variant: str,
    job_id: int | None,
    ruling: str,
    text: str,
    at: str,
    evidence: dict[str, Any] | None = None,
) -> None:
    """The first waiting job of this provider, what stands in its way, and every number of that."""
    rows.write(
        tx,
        "INSERT INTO reasons (slug, variant, job_id, ruling, text, at, evidence)"
        " VALUES (:slug, :variant, :job_id, :ruling, :text, :at, :evidence)"
        " ON CONFLICT (slug, variant) DO UPDATE SET job_id = excluded.job_id, ruling = excluded.ruling,"
        " text = excluded.text, at = excluded.at, evidence = excluded.evidence",
        {
            "slug": slug, "variant": variant, "job_id": job_id, "ruling": ruling, "text": text, "at": at,
            "evidence": events.as_text(evidence),
        },
    )  # fmt: skip


def clear(tx: Connection, slug: str, variant: str) -> None:
    """Nothing stands in its way any more."""
    rows.write(tx, "DELETE FROM reasons WHERE slug = :slug AND variant = :variant", {"slug": slug, "variant": variant})


def clear_all(tx: Connection) -> None:
    """Forget every reason: a scheduler that starts finds its own."""
    rows.write(tx, "DELETE FROM reasons")
