"""When the pools are worth a row of the record: once a minute while something is going on, and when much changed.

The picture of a night is drawn from these rows. At their most frequent they are one every five seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EVERY_S, SOONEST_S = 60.0, 5.0
SHARE, LEAST_GIB = 0.02, 0.25
"""A change of so much of a pool's capacity, and of so many GiB at least, is a large one."""

CHARGE_GIB = 0.05
"""A change of what is charged: a worker came or went."""

KEPT_S = 30 * 86400.0
FIGURES = ("used_gib", "live_gib")


def figures_of(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each pool of a snapshot (as `status` has it) with what is kept of it, GiB.

    `used_gib` is what this queue's workers were seen to use there, None = of none of them it could be read. A pool
    of which a figure is not known has no row.
    """
    workers = [used for used in (facts.get("used_gib") or {}).values() if isinstance(used, Mapping)]
    found = []
    for pool in facts.get("pools") or []:
        if any(pool.get(name) is None for name in ("capacity_gib", "reserve_gib", "charged_gib")):
            continue
        used = [each[pool["id"]] for each in workers if each.get(pool["id"]) is not None]
        found.append(
            {
                "pool": pool["id"], "capacity_gib": pool["capacity_gib"], "reserve_gib": pool["reserve_gib"],
                "charged_gib": pool["charged_gib"], "used_gib": sum(used) if used or not workers else None,
                "live_gib": pool.get("live_gib"),
            }
        )  # fmt: skip
    return found


def is_due(before: Sequence[Mapping[str, Any]], pools: Sequence[Mapping[str, Any]], since_s: float) -> bool:
    """Whether the pools are to be kept again, `since_s` seconds after they were as `before`."""
    if since_s >= EVERY_S:
        return True
    if since_s < SOONEST_S:
        return False
    known = {each["pool"]: each for each in before}
    if known.keys() != {each["pool"] for each in pools}:
        return True
    return any(_moved(known[each["pool"]], each) for each in pools)


def _moved(before: Mapping[str, Any], pool: Mapping[str, Any]) -> bool:
    if abs(before["charged_gib"] - pool["charged_gib"]) >= CHARGE_GIB:
        return True
    least_gib = max(LEAST_GIB, SHARE * pool["capacity_gib"])
    pairs = [(before[name], pool[name]) for name in FIGURES]
    return any((a is None) != (b is None) or (a is not None and abs(a - b) >= least_gib) for a, b in pairs)
