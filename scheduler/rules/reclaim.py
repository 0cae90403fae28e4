"""When the file cache alone stands in the way, and how much of it: what `Reclaim` is asked for.

While somebody competes for reclaim only free memory counts, and a machine that has read large files has next to none:
without this it would wait for ever beside tens of GiB that anybody could have. And where devices share the machine's
memory, a framework is told what is free as all that there is (E6): the cache is given back before such a start, also
when nobody competes.
"""

from __future__ import annotations

import math

from scheduler.model.machine import Machine
from scheduler.model.verdict import PoolEvidence, Verdict
from scheduler.rules import explain
from scheduler.rules.room import fits

HOST_KINDS = ("host", "unified")
Cache = tuple[str, float]
"""A pool, and the GiB of free memory that its file cache has to give."""

MARGIN_GIB = 0.25
"""Asked for beyond what lacks: freed pages wait in lists of their own, and are not read as free at once (E28)."""


def refusal(verdict: Verdict, machine: Machine) -> tuple[tuple[str, str | Verdict] | None, Cache | None]:
    """(ruling and why a start has to wait, None if it may come; what the cache is to give for it)."""
    cache = lacking(verdict, machine)
    if cache is not None:
        return ("no_room_now", explain.clearing(verdict, *cache)), cache
    return (None if verdict.admit else (verdict.ruling, verdict)), None


def lacking(verdict: Verdict, machine: Machine) -> Cache | None:
    """What the cache has to give for this start; None where it stands in no one's way.

    Also None where nobody could do it now, so that what was of no use keeps nobody waiting.
    """
    if machine.reclaim not in ("ready", "running") or verdict.ruling not in ("no_room_now", "admit"):
        return None
    if verdict.admit and not (verdict.evidence.demand.device_gib or 0.0) > 0:
        return None
    found = None
    for place in verdict.evidence.placement:
        if verdict.admit and place.kind != "unified":
            continue
        short_gib = _short_gib(place, machine)
        if short_gib is None:
            return None
        if short_gib > 0:
            found = place.pool, short_gib + MARGIN_GIB
    return found


def _short_gib(place: PoolEvidence, machine: Machine) -> float | None:
    """What lacks of free memory while enough is available, 0 where nothing lacks; None if the cache is no help."""
    asked = (place.owed_gib, place.demand_gib, place.reserve_gib)
    pool = machine.pool(place.pool)
    if place.closed or pool is None:
        return None
    if place.kind not in HOST_KINDS:
        return 0.0 if fits(asked, place.live.value or 0.0) else None
    free, available = pool.free.value, pool.available.value
    if free is None or available is None or not fits(asked, available):
        return None
    return 0.0 if fits(asked, free) else math.fsum((*asked, -free))
