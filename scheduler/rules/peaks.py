"""What a job is charged: what its provider declares, or what jobs of its size were seen to use, whichever is more.

Memory grows with the request (E20: 435 MB for one sequence, 1150 MB for eight), so that peaks are kept by size: one
bucket a doubling. A bucket is charged for once three of its runs were measured, and then the largest of the last fifty:
one run that was odd neither raises a charge by itself nor for ever. A learned peak refuses nobody: what could never be
given is not asked for, the rest is waited for (P6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.model.command import called
from scheduler.model.machine import Machine, is_amount
from scheduler.model.provider import NOTHING, Learned, Provider
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim
from scheduler.rules.placement import demand_of

KEPT_RUNS, LEAST_RUNS = 50, 3
LARGEST_BUCKET = 1023
"""Of a size that no float is above."""

TAUGHT_BY = ("ok", "over_budget")
"""Outcomes whose peaks count: a run that came to its end, or to the end of its memory."""


def bucket_of(size: float | None) -> int:
    """The bucket of a size (bytes, or what `input.size` counts): the exponent of the power of two that holds it."""
    if size is None or not size > 1.0:
        return 0
    return LARGEST_BUCKET if math.isinf(size) else math.ceil(math.log2(size))


def bucket_words(bucket: int) -> str:
    """The sizes of a bucket, as people read them: `513 to 1024`."""
    return "up to 1" if bucket <= 0 else f"{2 ** (bucket - 1) + 1} to {2**bucket}"


def learned_from(runs: Sequence[tuple[float | None, float | None]]) -> Learned:
    """What the runs of one bucket taught, newest last: (device GiB, host GiB) each, None = that part was not seen.

    Nothing of a part that fewer than three of the last fifty runs showed.
    """
    last = runs[-KEPT_RUNS:]
    parts = [[gib for gib in (run[n] for run in last) if is_amount(gib) and gib is not None] for n in (0, 1)]
    device_gib, host_gib = (max(seen) if len(seen) >= LEAST_RUNS else 0.0 for seen in parts)
    counted = max(map(len, parts))
    return Learned(device_gib, host_gib, counted) if counted >= LEAST_RUNS else NOTHING


def demand_for(provider: Provider, learned: Learned, machine: Machine) -> Demand:
    """What a worker for a job of that size costs. An undeclared device budget stays undeclared, whatever was learned.

    What was learned counts up to what the machine's largest pool could give: a job that was accepted is not refused
    for good by a measurement.
    """
    demand = demand_of(provider)
    if not learned.runs:
        return demand
    device_gib, host_gib = demand.device_gib, demand.host_gib
    most_gib = _most_gib(machine, ("host", "unified"))
    if provider.policy == "required" and any(pool.kind == "unified" for pool in machine.pools):
        most_gib = max(0.0, most_gib - (device_gib or 0.0))
    host_gib = max(host_gib, min(learned.host_gib, most_gib))
    if provider.policy == "required" and device_gib is not None:
        most_gib = _most_gib(machine, ("device", "unified"))
        if any(pool.kind == "unified" for pool in machine.pools):
            most_gib = max(0.0, most_gib - host_gib)
        device_gib = max(device_gib, min(learned.device_gib, most_gib))
    if device_gib == demand.device_gib and host_gib == demand.host_gib:
        return demand
    return replace(demand, device_gib=device_gib, host_gib=host_gib)


def _most_gib(machine: Machine, kinds: tuple[str, ...]) -> float:
    """What the largest pool of a kind can give to one worker; without end where one could not be read."""
    there = [pool for pool in machine.pools if pool.kind in kinds]
    if any(pool.capacity.value is None for pool in there):
        return math.inf
    return max((max(0.0, (pool.capacity.value or 0.0) - pool.reserve_gib) for pool in there), default=math.inf)


def charged_as(demand: Demand, charges: Mapping[str, float], host_gib: float | None) -> Demand:
    """The demand that a worker was started on, from what it is charged: of its own, not of whoever waits now."""
    host_gib = demand.host_gib if host_gib is None else host_gib
    if demand.policy != "required":
        return replace(demand, host_gib=charges.get("host", charges.get("unified", host_gib)))
    device_gib = on_device_gib(charges, host_gib)
    return replace(demand, device_gib=demand.device_gib if device_gib is None else device_gib, host_gib=host_gib)


def on_device_gib(charges: Mapping[str, float], host_gib: float) -> float | None:
    """What of a worker's charges is for each of its devices, GiB; of unified memory what is not the host's part."""
    on_device = [gib for pool, gib in charges.items() if pool.startswith("device:")]
    if not on_device and "unified" in charges:
        on_device = [max(0.0, charges["unified"] - host_gib)]
    return min(on_device, default=None)


def lacking(charges: Mapping[str, float], demand: Demand) -> dict[str, float]:
    """What a worker's charges are less than the demand of its next job, by pool, GiB; {} = they suffice.

    The pools are those that it is charged on: it does not move for a job.
    """
    found = {}
    for pool, charged_gib in charges.items():
        if pool == "unified":
            need_gib = demand.host_gib + ((demand.device_gib or 0.0) if demand.policy == "required" else 0.0)
        elif pool.startswith("device:"):
            need_gib = demand.device_gib or 0.0
        else:
            need_gib = demand.host_gib
        if need_gib > charged_gib:
            found[pool] = need_gib - charged_gib
    return found


def beyond(demand: Demand, places: Sequence[Mapping[str, float]] | None) -> Demand:
    """The demand of what a worker lacks: whoever lacks nothing but host memory needs no device for it.

    `places`: what it lacks, by pool; None = it is to be started, and needs all of its demand.
    """
    if places is None or any(pool != "host" for place in places for pool in place):
        return demand
    return replace(demand, policy="none")


def kept_claim(demand: Demand, charges: Mapping[str, float]) -> Claim:
    """What is charged for a worker that does not exist yet, or beyond what one is charged already."""
    host_gib = demand.host_gib if demand.policy == "required" else math.inf
    name = called(demand.slug, demand.variant)
    return Claim(0, name, charges, host_gib)


HEADROOM_GIB = {"device": 0.75, "host": 0.1}
"""What a budget is more than a peak at least: the framework's allocator is capped 0.5 GiB below a device's charge."""

MARGIN = 0.1
"""And as a share of the peak: the next input is not the measured one."""

WASTE, WASTE_GIB = 2.0, 1.0
"""A budget so many times a peak, and so many GiB above it, keeps room from others for nothing."""


def took_all(used_gib: float | None, given_gib: float | None) -> bool:
    """Whether a worker used all of a device that its allocator lets it have: how much it needs is not told by that."""
    return used_gib is not None and given_gib is not None and used_gib >= given_gib - HEADROOM_GIB["device"]


def judged(declared_gib: float | None, used_gib: float) -> str:
    """What a declared budget is beside a measured peak: `undeclared`, `under`, `over` or `fits`."""
    if declared_gib is None:
        return "undeclared"
    if used_gib > declared_gib:
        return "under"
    return "over" if declared_gib > WASTE * used_gib and declared_gib > used_gib + WASTE_GIB else "fits"


def budget_gib(used_gib: float, part: str) -> float:
    """The budget that a measured peak calls for, rounded up to twentieths of a GiB. `part` is device or host."""
    return math.ceil((used_gib + max(HEADROOM_GIB[part], MARGIN * used_gib)) * 20 - 1e-9) / 20
