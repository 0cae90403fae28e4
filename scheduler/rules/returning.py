"""Whether the memory of a worker that is gone is back: by evidence, never because time passed (P3).

Device memory comes back up to several seconds after its process is gone (E9), and sometimes not at all. So a charge
stays until nothing of the worker lives, its driver lists none of its processes, and, where the driver gives totals, no
more is on nobody's name than before the worker was started. What of a host's memory a process held is back with the
process: what per-cpu lists keep off MemFree for a while (E28) is no leak.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from scheduler.model.machine import Device, Machine
from scheduler.rules.figures import figures, plain, pool_name

SHARE = 0.02
"""Of a device, the part that its driver may keep more than before without being a leak."""


def unreturned(
    pool_id: str,
    before_gib: float | None,
    machine: Machine,
    *,
    listed: Collection[int] = (),
    on_device: bool = True,
    tells: Collection[str] = (),
    margin_gib: float = 1.0,
) -> str:
    """What of a worker's memory is not back on one pool, in words with figures; "" = it is back.

    Asked when nothing of the worker lives any more. `before_gib`: what was on nobody's name before it was started, None
    = there were no totals. `listed`: pids of its own that a driver was seen to list. `on_device`: it was given a device
    of this pool. `tells`: the devices whose driver has told who is on them: it not doing so now is no answer (P4).
    """
    if machine.holdings_missing:
        return f"it cannot be told who holds memory: {machine.holdings_missing}"
    if not pool_id.startswith("device:"):
        sharing = [device for device in machine.devices if device.integrated] if on_device or listed else []
        return next(filter(None, (_listing(device, listed, tells) for device in sharing)), "")
    device = machine.device(pool_id)
    if device is None:
        why = machine.accelerators.missing or "it is not among this machine's devices any more"
        return f"{pool_name(pool_id)} cannot be looked at: {why}"
    return _listing(device, listed, tells) or _on_nobody(device, pool_id, before_gib, machine, margin_gib)


def _listing(device: Device, listed: Collection[int], tells: Collection[str]) -> str:
    if device.tenants_missing:
        return f"it cannot be told who is on {pool_name(device.id)}: {device.tenants_missing}" * (device.id in tells)
    ghosts = [tenant for tenant in device.tenants if tenant.pid in listed]
    if not ghosts:
        return ""
    gib = math.fsum(tenant.used_gib or 0.0 for tenant in ghosts)
    who = ", ".join(str(tenant.pid) for tenant in ghosts[:4])
    word = "process" if len(ghosts) == 1 else "processes"
    return f"the driver of {pool_name(device.id)} still lists its {word} {who} with {plain(gib, 2)} GiB"


def _on_nobody(device: Device, pool_id: str, before_gib: float | None, machine: Machine, margin_gib: float) -> str:
    """More on nobody's name than before, the driver's own margin and what living workers may hold unseen left out."""
    if device.in_use.failed:
        return f"what is used of {pool_name(device.id)} cannot be read: {device.in_use.missing}"
    nobodys_gib = machine.nobodys_gib(pool_id)
    if nobodys_gib is None or before_gib is None:
        return ""
    margin_gib = max(margin_gib, SHARE * (device.total.value or 0.0))
    blind = device.tenants_missing or any(tenant.used_gib is None for tenant in device.tenants)
    unseen_gib = _unseen_gib(pool_id, machine) if blind else 0.0
    parts, _, now, missing = figures((before_gib, unseen_gib), nobodys_gib)
    if nobodys_gib <= math.fsum((before_gib, unseen_gib, margin_gib)):
        return ""
    beside = f" and {parts[1]} may be of workers that no driver lists" if unseen_gib else ""
    return (
        f"{now} GiB of {pool_name(device.id)} are on nobody's name, {parts[0]} were before it was started{beside}: "
        f"{missing.removeprefix('-')} GiB are not back"
    )


def _unseen_gib(pool_id: str, machine: Machine) -> float:
    """The charges of this queue's living workers on a pool whose use of it no driver tells."""
    parts = (holding.parts.get(pool_id) for holding in machine.ours.values())
    return math.fsum(part.charge_gib or 0.0 for part in parts if part is not None and not part.seen)
