"""Where one more worker could go on a machine: for each possibility, what it would take from which pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations, islice

from scheduler.model.machine import Machine
from scheduler.model.provider import Provider
from scheduler.model.verdict import Demand
from scheduler.rules.room import fits

MOST = 256
"""Combinations of devices that are looked at; 8 devices give at most 70."""


def demand_of(provider: Provider) -> Demand:
    """What one more worker of this provider would cost. A provider without device demands host memory only."""
    device_gib = provider.vram_gib if provider.policy == "required" else 0.0
    return Demand(provider.slug, provider.variant, provider.policy, device_gib, provider.ram_gib, provider.count)


def given(policy: str, place: Mapping[str, float]) -> tuple[str, ...]:
    """The pools of a place whose devices its worker is given; none for a provider without device."""
    return tuple(pool for pool in place if pool != "host") if policy == "required" else ()


def drivers(pools: Sequence[str], machine: Machine | None) -> str:
    """The versions of the drivers that these pools' devices are on, with commas between; "" = none was told."""
    known = machine.pools if machine is not None else ()
    return ",".join(dict.fromkeys(pool.driver for pool in known if pool.id in pools and pool.driver))


def whole_of(charges: Mapping[str, float], machine: Machine) -> dict[str, float]:
    """All of the pools that something is charged on: nothing of ours starts beside what asked to be alone there."""
    whole = {pool.id: pool.capacity.value or 0.0 for pool in machine.pools if pool.id in charges}
    return {pool: max(gib, whole.get(pool, 0.0)) for pool, gib in charges.items()}


def most_workers(provider: Provider, machine: Machine) -> int:
    """How many workers of a provider may be there at once: what it declares, else one for each device that holds one.

    One on unified memory and for a provider without device. A device whose capacity could not be read counts as none.
    """
    if provider.max_workers or provider.policy != "required":
        return provider.max_workers or 1
    count = max(1, provider.count)
    able = sum(
        pool.kind == "device"
        and (count == 1 or not pool.partial)
        and pool.capacity.value is not None
        and fits((provider.vram_gib or 0.0, pool.reserve_gib), pool.capacity.value)
        for pool in machine.pools
    )
    return max(1, able // count)


def placements(demand: Demand, machine: Machine) -> tuple[Mapping[str, float], ...]:
    """Pool -> GiB for each place, in the machine's order of devices; empty = this machine has no pool for it.

    Unified memory pays both budgets from one pool; its device is one. On discrete devices each device of a worker gives
    the whole device budget, and host memory comes out of `host`; of partial devices a process sees one at most, so that
    a worker of several has none of them. An undeclared device budget counts 0 here; its own gate refuses it.
    """
    kinds = tuple((pool.id, pool.kind, pool.partial) for pool in machine.pools)
    required = demand.policy == "required"
    return _places(required, demand.device_gib or 0.0, demand.host_gib, max(1, demand.count), kinds)


@lru_cache(maxsize=1024)
def _places(
    required: bool, device_gib: float, host_gib: float, count: int, kinds: tuple[tuple[str, str, bool], ...]
) -> tuple[Mapping[str, float], ...]:
    by_kind: dict[str, list[str]] = {}
    for pool, kind, partial in kinds:
        if not (partial and required) or count == 1:
            by_kind.setdefault(kind, []).append(pool)
    shared = by_kind.get("unified")
    host = dict.fromkeys(by_kind.get("host", shared or [])[:1], host_gib)
    if not host or not required:
        return (host,) if host else ()
    if shared:
        return tuple({pool: device_gib + host_gib} for pool in shared) if count == 1 else ()
    chosen = islice(combinations(by_kind.get("device", []), count), MOST)
    return tuple({**dict.fromkeys(devices, device_gib), **host} for devices in chosen)
