"""Whose a device's memory is: what a driver lists, by process and by pool, and what it attributes to nobody.

Pure. A device that belongs to no pool (it is left alone) has tenants too: they compete for the host's memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.host.workers.devices import CUDA, NO_DEVICE, ROCR
from scheduler.model.machine import Charge, Device, Holding, Pool

VISIBLE = {"nvidia": CUDA, "amd": ROCR}
"""By vendor, the variable that says which devices a process may see."""

DEVICE_KINDS = ("device", "unified")
LEAST_GIB = 1 / 1024
"""Less than this, on no process's name, is rounding."""

NOBODY = "unattributed"
MUCH_GIB, MUCH_SHARE = 1.0, 0.02
"""What a driver keeps for itself is less than this; more may be a process that computes and cannot be seen."""


@dataclass(frozen=True)
class Sighting:
    """A process on a pool as drivers list it. `pool` is empty for a device that belongs to none; None = not said."""

    pool: str
    used_gib: float | None
    computes: bool


def pool_of(device: Device, pools: Iterable[Pool]) -> str:
    """The id of the pool that a device's memory is; empty if it belongs to none of them."""
    for pool in pools:
        if pool.id == f"device:{device.id}":
            return pool.id
        if pool.kind == "unified" and (
            device.integrated or device.seen_as == pool.seen_as != "" or device.name == pool.name != ""
        ):
            return pool.id
    return next((pool.id for pool in pools if pool.shared and device.integrated), "")


def takes_devices(pool: Pool) -> bool:
    """Whether what a device holds comes out of this pool, or may."""
    return pool.kind in DEVICE_KINDS or pool.shared


def sightings(devices: Iterable[Device], pools: Sequence[Pool]) -> dict[int, dict[str, Sighting]]:
    """Every process that a driver lists, by pid and pool; on several devices of one pool its figures are summed."""
    found: dict[int, dict[str, Sighting]] = {}
    for device in devices:
        pool = pool_of(device, pools)
        listed: dict[int, Sighting] = {}
        for tenant in device.tenants:
            one = Sighting(pool, tenant.used_gib, tenant.computes)
            before = listed.get(tenant.pid)
            listed[tenant.pid] = one if before is None else _either(before, one)
        for pid, one in listed.items():
            on = found.setdefault(pid, {})
            on[pool] = _both(on[pool], one) if pool in on else one
    return found


def together(pids: Iterable[int], seen: Mapping[int, Mapping[str, Sighting]]) -> dict[str, Sighting]:
    """What several processes hold together, by pool: of those that are listed, and whose figures are said."""
    found: dict[str, Sighting] = {}
    for pid in pids:
        for pool, one in seen.get(pid, {}).items():
            found[pool] = _both(found[pool], one) if pool in found else one
    return found


def places(environment: Mapping[str, str], devices: Sequence[Device], pools: Sequence[Pool]) -> list[str]:
    """The device pools that a process may be on, by what its environment lets it see; all where that is not told."""
    allowed = {device.id for device in devices if _may_see(environment, device, devices)}
    found = []
    for pool in pools:
        if takes_devices(pool):
            here = [device.id for device in devices if pool_of(device, [pool])]
            if not here or allowed & {*here}:
                found.append(pool.id)
    return found


def _may_see(environment: Mapping[str, str], device: Device, devices: Sequence[Device]) -> bool:
    """A word that names no device for certain could mean any of its vendor; what follows an empty one or -1 counts not.

    A number is a device's own only where drivers count by slot: CUDA puts the fastest first unless told otherwise.
    """
    listed = environment.get(VISIBLE.get(device.vendor.lower(), ""))
    if listed is None:
        return True
    alike = [each for each in devices if each.vendor == device.vendor]
    by_slot = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({each.name for each in alike}) == 1
    for word in map(str.strip, listed.split(",")):
        if word in ("", NO_DEVICE):
            return False
        meant = [each.id for each in alike if _is_meant(word, each, by_slot)]
        if not meant or device.id in meant:
            return True
    return False


def _is_meant(word: str, device: Device, by_slot: bool) -> bool:
    if word == device.seen_as:
        return True
    if word.isdecimal():
        return by_slot and device.number == int(word)
    return device.id.startswith(word) or device.seen_as.startswith(word)


def leftover(devices: Iterable[Device], pools: Sequence[Pool]) -> dict[str, float]:
    """GiB in use on each device pool that its driver attributes to no process; a unified pool has no such figure."""
    found = {}
    for device in devices:
        pool = pool_of(device, [pool for pool in pools if pool.kind == "device"])
        in_use = device.in_use.value
        if not pool or in_use is None:
            continue
        listed = sightings([device], pools).values()
        left_gib = in_use - math.fsum(one.used_gib or 0.0 for on in listed for one in on.values())
        if left_gib > 0:
            found[pool] = left_gib
    return found


def taken_for_ours(
    holdings: Iterable[Holding], left: Mapping[str, float], pools: Iterable[str]
) -> tuple[list[Holding], dict[str, float]]:
    """What is on nobody's name on these pools as use of this queue's own workers there whose use no driver tells.

    Up to their charges; what stays beyond that is nobody's still.
    """
    rest, found, ours = dict(left), [], set(pools)
    for holding in holdings:
        charges = list(holding.charges)
        for at, charge in enumerate(charges):
            if holding.worker_id is not None and charge.used_gib is None and charge.pool in ours & rest.keys():
                used_gib = min(charge.charge_gib or 0.0, rest[charge.pool])
                rest[charge.pool] -= used_gib
                charges[at] = replace(charge, used_gib=used_gib)
        found.append(replace(holding, charges=tuple(charges)))
    return found, rest


def only_ours(holdings: Iterable[Holding], devices: Iterable[Device], pids: Mapping[int, int]) -> list[str]:
    """The device pools on which a driver lists this queue's own workers and nobody else; `pids`: process -> holding.

    What is used there without a figure for each (WSL, some virtual devices) is theirs.
    """
    own = {holding.pid for holding in holdings if holding.worker_id is not None}
    return [
        f"device:{device.id}"
        for device in devices
        if device.tenants
        and not device.tenants_missing
        and all(pids.get(each.pid) in own and each.used_gib is None for each in device.tenants)
    ]


def told_of_nobody(holdings: Iterable[Holding], devices: Iterable[Device]) -> list[str]:
    """A sentence for each device on which much is on nobody's name: whose it may be, and the setting for that."""
    much = {
        charge.pool: charge.charge_gib or 0.0
        for each in holdings
        if not each.pid and each.competes is None
        for charge in each.charges
    }
    told = []
    for device in devices:
        gib = much.get(f"device:{device.id}")
        if gib is not None:
            lists = "does not tell all that its processes hold" if device.tenants else "lists no process"
            told.append(
                f"{gib:.2f} GiB of {device.id} are on nobody's name and charged as a stranger's: its driver {lists} (a "
                'container?); if this queue has the device to itself, set unattributed = "ours"'
            )
    return told


def unattributed(left: Mapping[str, float], devices: Iterable[Device]) -> list[Holding]:
    """A row for each device pool with memory on nobody's name; where it is much, nobody knows whether it competes."""
    found = []
    for device in devices:
        pool = f"device:{device.id}"
        gib = left.get(pool, 0.0)
        if gib > LEAST_GIB:
            is_much = gib > max(MUCH_GIB, (device.total.value or 0.0) * MUCH_SHARE)
            charge = Charge(pool, gib, gib, "device")
            found.append(Holding(NOBODY, 0, "", (charge,), competes=None if is_much else False))
    return found


def competing(holdings: Iterable[Holding], devices: Iterable[Device]) -> int | None:
    """How many processes on any device compete for memory that is being reclaimed, this queue's own workers left out.

    None = that cannot be told, since a driver does not say who is on a device, or attributes much to nobody.
    """
    holdings = list(holdings)
    if any(device.tenants_missing for device in devices) or any(each.competes is None for each in holdings):
        return None
    return sum(each.competes is True for each in holdings)


def _either(one: Sighting, other: Sighting) -> Sighting:
    """A process that one device lists twice."""
    used = [each.used_gib for each in (one, other) if each.used_gib is not None]
    return Sighting(one.pool, max(used, default=None), one.computes or other.computes)


def _both(one: Sighting, other: Sighting) -> Sighting:
    used = [each.used_gib for each in (one, other) if each.used_gib is not None]
    return Sighting(one.pool, math.fsum(used) if used else None, one.computes or other.computes)
