"""What a worker or its keeper said, made fit to be stored and shown: text that prints, numbers that are finite."""

from __future__ import annotations

import math
from typing import Any

from scheduler.model.host import Answered, Progressed

TEXT_MAX = 500
"""Characters of a message that are kept."""


def plain_text(said: object) -> str:
    """Printable text of at most 500 characters; "" for what is no text and no number."""
    if not isinstance(said, str | int | float):
        return ""
    text = str(said)[: 4 * TEXT_MAX].encode(errors="replace").decode()
    return "".join(c if c.isprintable() else " " for c in text).strip()[:TEXT_MAX]


def finite(said: object) -> float | None:
    """A number that is one; None for anything else."""
    if not isinstance(said, int | float) or isinstance(said, bool):
        return None
    try:
        return said if math.isfinite(said) else None
    except OverflowError:
        return None


def named(said: object) -> dict[str, str]:
    """A mapping of names to texts, as `versions` is; empty for anything else."""
    return {plain_text(key): plain_text(value) for key, value in said.items()} if isinstance(said, dict) else {}


def answered(worker_id: int, said: dict[str, Any]) -> Answered:
    """A worker's first answer, as its keeper tells it."""
    versions, device = named(said.get("versions")), plain_text(said.get("device"))
    return Answered(worker_id, said["leader_pid"], said["leader_started"], versions, device)


def progressed(worker_id: int, said: dict[str, Any]) -> Progressed:
    """How far an attempt says it is."""
    done, total, text = finite(said["done"]), finite(said["total"]), plain_text(said.get("message") or "")
    return Progressed(worker_id, said["job"], said["attempt"], done, total, text)
