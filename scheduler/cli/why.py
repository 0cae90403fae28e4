"""`schedq why`: every decision on one job so far, newest first, each with the numbers that it was made from."""

from __future__ import annotations

from scheduler.cli import ids, reading, say, stamps
from scheduler.cli.fast import Call
from scheduler.clock import now_s, seconds
from scheduler.config import Paths
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

SHOWN = 50
"""Decisions on the page; `--json` has all."""


def why(call: Call) -> int:
    """Print why a job waits, or how it was admitted, and what was decided before. NoSuchJob."""
    paths = Paths()
    found = peek.decisions(paths, ids.one(call.text("id") or "", paths))
    if call.flag("json"):
        say.out(say.document(found))
        return 0
    if found["decisions"] and found["decisions"][0]["ruling"] == "breaker":
        found["decisions"][0]["text"] = _with_log(found, paths)
    say.out("\n".join(page(found, now_s())))
    return 0


def page(found: Row, now: float) -> list[str]:
    """The page of peek.decisions, 80 columns; `now` in seconds since the epoch."""
    name = f"{found['slug']}:{found['variant']}" if found["variant"] else found["slug"]
    lines = [
        say.paint(f"job {found['id']}", "bold")
        + f"  {say.plain(name)}  {say.cut(str(found['name']), 40)}  {found['state'].replace('_', ' ')}"
    ]
    made = found["decisions"]
    if not made:
        return [*lines, *say.wrap(f"nothing was decided on it; schedq show {found['id']} tells what happened", "")]
    told = [each for at, each in enumerate(made) if not _again(each, made[at - 1] if at else None)]
    for decision in told[:SHOWN]:
        ago = f"{say.span(now - seconds(decision['at']))} ago"
        lines += ["", f"{stamps.local(decision['at'])}  {ago:<14}  {say.paint(decision['ruling'], _colour(decision))}"]
        lines += say.wrap(stamps.locally(decision["text"]), " " * 4)
    if len(told) > SHOWN:
        lines += ["", f"and {len(told) - SHOWN} earlier; schedq why {found['id']} --json has all"]
    return lines


def _again(decision: Row, newer: Row | None) -> bool:
    """Whether it says no more than the one after it: one wait told twice in a second."""
    return newer is not None and all(
        decision[key] == newer[key] or (key == "at" and decision[key][:19] == newer[key][:19])
        for key in ("at", "ruling", "worker_id")
    )


def _colour(decision: Row) -> str:
    return "green" if decision["ruling"] == "admit" else "yellow"


def _with_log(found: Row, paths: Paths) -> str:
    """The sentence of a broken provider, and which verb shows what its worker wrote."""
    reason = found["decisions"][0]
    return reading.why({**peek.job(paths, found["id"]), "reason": reason}, paths)
