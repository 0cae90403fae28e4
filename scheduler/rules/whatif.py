"""What would let a demand in, as a sentence: who has to leave, how long it is idle, what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.rules.explain import gib
from scheduler.rules.figures import pool_name
from scheduler.rules.remedy import Change


def fits_if(changes: Sequence[Change]) -> str:
    """What would let it in, as a sentence; "" where nothing is known to."""
    if not changes:
        return ""
    if changes[0].what == "budget":
        most = " and ".join(_pools(change.gib) for change in changes)
        return f"the most that it could ever be is {most}"
    if changes[0].what == "free":
        more = " and ".join(_pools(change.gib, " more") for change in changes)
        return f"it fits when {more} are free, which nothing that is held here would give back"
    return "it fits if " + _and([_changed(change) for change in changes])


def _changed(change: Change) -> str:
    """One change, as the rest of a sentence that begins with `if`."""
    who = f"{change.name} (worker {change.worker_id})" if change.worker_id is not None else change.name
    size = _pools(change.gib) if change.gib else "0 GiB"
    idle = f", idle {_span(change.idle_s)}" if change.idle_s is not None else ""
    match change.what:
        case "retire":
            return f"{who}{idle}, {size}, is retired"
        case "unpin":
            return f"{who}, pinned{idle}, {size}, is unpinned and retired"
        case "wait":
            ended = (
                f"job {change.job_id} has ended" if change.job_id is not None else "it is ready and has nothing to do"
            )
            return f"{who}, {size}, is retired when {ended}"
        case "return":
            return f"the {size} of {who} are back, which it is giving back now"
        case "heal":
            return f"the {size} are back that {who} did not give back when it ended"
    if change.known:
        return f"{who}, {size}, ends"
    declare = f"schedq machine declare {change.pid} --vram G --ram G"
    return f"{who}, whose budget nobody declared, ends ({declare} says what it holds)"


def _pools(gib_by_pool: Mapping[str, float], more: str = "") -> str:
    return " and ".join(f"{gib(amount)} GiB{more} of {pool_name(pool)}" for pool, amount in gib_by_pool.items())


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])}; and {parts[-1]}"


def _span(seconds: float) -> str:
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
