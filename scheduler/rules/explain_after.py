"""Why a job waits that comes after others: which, how far they are, what it needs of them, what would change it.

In the manner of `explain`, over plain values: a gate is {"id", "name", "state", "need"} or {"batch", "jobs", "open",
"bad", "need"}. Imported by the fast paths: standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

DOES = {
    "queued": "which waits", "held": "which is held", "admitted": "which is being started", "running": "which runs",
    "succeeded": "which has succeeded",
}  # fmt: skip


def after(job_id: int, closed: Sequence[Mapping[str, Any]], more: int, taken_from: Sequence[int]) -> str:
    """The sentence of a job that waits at these gates and at `more`; `taken_from`: whose results its input takes."""
    if not closed:
        return (
            f"its input is being made from {_jobs(taken_from)}"
            if taken_from
            else "everything that it waited for has ended"
        )
    said = [_gate(gate) for gate in closed]
    said += [f"{more} more"] if more else []
    words = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    needs = {gate["need"] for gate in closed}
    one = len(closed) + more == 1 and "batch" not in closed[0]
    wants = "" if needs != {"ok"} else f", and needs {'it' if one else 'all'} to succeed"
    return f"comes after {words}{wants}; {_change(job_id, closed, taken_from)}"


def unmade(taken_from: Sequence[int]) -> str:
    """The sentence of a job whose parents have ended and whose input cannot be made yet; why comes after it."""
    return f"its input cannot be made from {_jobs(taken_from)} yet, and is tried again by itself"


def ended(job_id: int, slug: str, variant: str, name: str, state: str, outcome: str | None, text: str | None) -> str:
    """How a parent ended that did not succeed: `job 7 (esm a) failed: crashed: signal 9`."""
    who = f"job {job_id} ({slug}{f':{variant}' if variant else ''} {name})".replace(" )", ")")
    kind = "" if outcome in (None, state) else f": {outcome}"
    why = "" if not text else f": {text}"
    return f"{who} {state.replace('_', ' ')}{kind}{why}"[:400]


def held(text: str, job_id: int) -> str:
    """The sentence of a job that is held since a parent of it did not succeed; `text` says which, and what mends it."""
    return f"{text}, then schedq release {job_id}; or schedq update {job_id} --after none, where it can go without"


def _gate(gate: Mapping[str, Any]) -> str:
    if "batch" in gate:
        bad = f", {gate['bad']} did not succeed" if gate["bad"] else ""
        return f"batch {gate['batch']} ({gate['open']} of {gate['jobs']} not ended{bad})"
    state = str(gate["state"])
    name = f" ({gate['name']})" if gate["name"] else ""
    return f"job {gate['id']}{name}, {DOES.get(state, f'which {state}')}".replace("_", " ")


def _change(job_id: int, closed: Sequence[Mapping[str, Any]], taken_from: Sequence[int]) -> str:
    for gate in closed:
        if gate.get("state") == "held":
            return f"schedq release {gate['id']} lets that one go"
    if taken_from:
        return f"its input takes what {_jobs(taken_from)} answer{'s' * (len(taken_from) == 1)}"
    return f"schedq update {job_id} --after none lets it go at once"


def _jobs(ids: Sequence[int]) -> str:
    few = ", ".join(map(str, ids[:4])) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")
    return f"job{'s' * (len(ids) != 1)} {few}"
