"""What a job comes after, what its input takes, and what comes after it: lines of its page."""

from __future__ import annotations

from scheduler.rules.figures import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

SHOWN = 6


def fields(row: Row) -> list[tuple[str, str]]:
    """(field, what is said) of the parents of a job, of its draft, and of its children, as far as it has them."""
    told = []
    parents, children = row.get("parents") or [], row.get("children") or {"count": 0, "jobs": []}
    if parents:
        told.append(("after", _few([_parent(each) for each in parents], len(parents))))
    draft = row.get("draft")
    if draft:
        takes = [f"job {ref['job']} {ref.get('file') or ref.get('pointer') or '(all of it)'}" for ref in draft["refs"]]
        there = f"{draft['pinned']} of {len(takes)} there" if draft["pinned"] else "not there yet"
        told.append(("input of", _few(takes, len(takes)) + ("" if draft["made_at"] else f" ({there})")))
    if children["count"]:
        jobs = [f"{each['id']} {each['state'].replace('_', ' ')}" for each in children["jobs"]]
        told.append(("children", f"{counted(children['count'], 'job')}: {_few(jobs, children['count'])}"))
    return told


def _parent(gate: Row) -> str:
    need = ", any end" if gate["need"] == "any" else ""
    if "batch" in gate:
        left = f"{gate['open']} of {gate['jobs']} not ended" if gate["open"] else f"all {gate['jobs']} ended"
        bad = f", {gate['bad']} did not succeed" if gate["bad"] else ""
        return f"batch {gate['batch']} ({left}{bad}{need})"
    return f"job {gate['id']} ({str(gate['state'] or 'gone').replace('_', ' ')}{need})"


def _few(words: list[str], count: int) -> str:
    return ", ".join(words[:SHOWN]) + (f" and {count - SHOWN} more" if count > SHOWN else "")
