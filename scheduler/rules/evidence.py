"""A verdict's evidence as JSON has it: every number that it was made from, so that it can be checked a year later.

A number that JSON has not, or that could not be read, is null; then `..._missing` says why. GiB and seconds.
"""

from __future__ import annotations

import math
from typing import Any

from scheduler.model.machine import Held, Reading
from scheduler.model.verdict import Demand, PoolEvidence, Verdict


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Demand, each pool of the place that the ruling is about with all who hold of it, how many compete, and how many
    places there were."""
    evidence = verdict.evidence
    return {
        "demand": _demand(evidence.demand),
        "placement": [_pool(place) for place in evidence.placement],
        **_reading("accelerators", evidence.accelerators),
        "competing": evidence.competing,
        "holdings_missing": evidence.holdings_missing,
        "places": evidence.places,
    }


def _demand(demand: Demand) -> dict[str, Any]:
    return {
        "slug": demand.slug,
        "variant": demand.variant,
        "policy": demand.policy,
        "device_gib": _number(demand.device_gib),
        "host_gib": _number(demand.host_gib),
        "count": demand.count,
    }


def _pool(place: PoolEvidence) -> dict[str, Any]:
    return {
        "pool": place.pool,
        "kind": place.kind,
        "demand_gib": _number(place.demand_gib),
        **_reading("capacity_gib", place.capacity),
        "capacity_source": place.capacity.source,
        "reserve_gib": _number(place.reserve_gib),
        "charged_gib": _number(place.charged_gib),
        "owed_gib": _number(place.owed_gib),
        **_reading("live_gib", place.live),
        "live_source": place.live.source,
        "live_age_s": _number(place.live.age_s),
        **({"closed": place.closed} if place.closed else {}),
        "held": [_held(each) for each in place.held],
    }


def _held(held: Held) -> dict[str, Any]:
    return {
        "name": held.name,
        "charge_gib": _number(held.charge_gib),
        "used_gib": _number(held.used_gib),
        "owed_gib": _number(held.owed_gib),
    }


def _reading(key: str, reading: Reading) -> dict[str, Any]:
    """The number under its key and, where there is none, why under `..._missing` (without the unit)."""
    value = _number(reading.value)
    why = {f"{key.removesuffix('_gib')}_missing": reading.missing} if value is None and reading.missing else {}
    return {key: value, **why}


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
