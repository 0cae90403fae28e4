"""The line of `status` on the disk: what the queue's folder takes, by kind, where that is much or the room is short."""

from __future__ import annotations

import os

from scheduler.cli.say import gib, paint, span, wrap
from scheduler.clock import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MUCH_GIB, SHORT = 1.0, 2.0
"""From what size on the queue's folder is worth a line; and how many times the reserve is short of room."""

WORDS = {
    "outputs": "outputs", "attempts": "attempts", "content": "inputs and replies", "database": "database",
    "workers": "workers", "backups": "backups", "logs": "logs",
}  # fmt: skip
GIB = 1 << 30


def lines(whole: dict[str, Any], now: float) -> list[str]:
    """None, or the line. Free is what is free now; what the folder takes is as it was measured last."""
    disk = whole.get("disk") or {}
    usage, reserve_gib = disk.get("usage") or {}, disk.get("reserve_gib") or 0.0
    free_gib = _free_gib(str(whole.get("home") or "/"))
    of = disk.get("of") or "the state folder"
    if of != "the state folder" and disk.get("free_gib") is not None:
        free_gib = min(disk["free_gib"], disk["free_gib"] if free_gib is None else free_gib)
    taken_gib = sum((usage.get("bytes") or {}).values()) / GIB
    short = free_gib is not None and free_gib < SHORT * reserve_gib
    if taken_gib < MUCH_GIB and not short:
        return []
    words = [f"disk: {gib(free_gib)} GiB free"]
    if usage:
        parts = {WORDS[kind]: count / GIB for kind, count in usage["bytes"].items() if kind in WORDS}
        most = sorted((each for each in parts.items() if each[1] >= 0.01), key=lambda each: -each[1])[:4]
        by_kind = f" ({', '.join(f'{word} {gib(size)}' for word, size in most)})" if most else ""
        words.append(f"the queue takes {gib(taken_gib)} GiB{by_kind}, {span(now - seconds(usage['at']))} ago")
    if short:
        start = "nothing starts" if (free_gib or 0.0) < reserve_gib else "nothing starts any more"
        words.append(f"below {gib(reserve_gib)} {start}: schedq prune --older-than 30d --dry-run")
    return ["", *(paint(line, "yellow" if short else "") for line in wrap("; ".join(words), ""))]


def _free_gib(home: str) -> float | None:
    try:
        room = os.statvfs(home)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize / GIB
