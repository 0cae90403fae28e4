"""Which pools a machine has: its devices and its own memory, as they were read and as the operator wants it.

Memory is unified where an integrated device has none of its own: there is no such total (E5), or it says the machine's
(within 10 %: some drivers answer so). How large a total is proves nothing by itself: a card of 139 GiB in a machine of
128 is a card. What cannot be told is a pool that admits nothing, with the setting that tells it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.model.machine import Device, Pool, Reading
from scheduler.rules.naming import named, unnamed

ALIKE = 0.10
"""A total this near to the machine's is the machine's own."""
RESERVE_SHARE = 1 / 8
"""No default reserve takes more of a pool than this."""
DISPLAY_GIB = 1.0
"""What stays free on a device that drives a display."""
KINDS = ("host", "unified")
"""Names of pools that are no device's."""
INTEGRATED_AMD = "AMD"
"""The vendor whose integrated devices have a total of their own: what is set apart for them and what they may map."""


@dataclass(frozen=True)
class Memory:
    """The machine's own memory, GiB, each bounded by every control group above us.

    `installed` is the total before any bound; None = the same as `total`.
    """

    total: Reading
    free: Reading
    available: Reading
    installed: Reading | None = None


@dataclass(frozen=True)
class Wanted:
    """What the operator set. GiB.

    `unified` is auto, true or false. `leave_alone` and the keys of `reserves` name devices; `reserves` also knows
    `host` and `unified`. `chosen` are the kinds of pool whose reserve is the operator's own word: it stands as it is.
    """

    unified: str = "auto"
    leave_alone: tuple[str, ...] = ()
    reserves: Mapping[str, float] = field(default_factory=dict)
    reserve_unified_gib: float = 4.0
    reserve_host_gib: float = 2.0
    reserve_device_gib: float = 0.5
    chosen: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Layout:
    """The pools. `count` is how many devices a worker could be given; `devices` are all, those left alone too."""

    pools: tuple[Pool, ...]
    count: Reading
    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()


def layout(devices: Sequence[Device], count: Reading, memory: Memory, ask: Wanted) -> Layout:
    """One `unified` pool, or `host` and a pool for each device that is not left alone.

    `count` is what was seen, failed where a driver errs. With `unified = "true"` there is one pool whatever was seen.
    """
    notes: list[str] = []
    pools: tuple[Pool, ...]
    every = _distinct(devices, notes)
    usable = _not_left_alone(every, ask.leave_alone, notes)
    shared = [device for device in usable if device.integrated]
    own = [device for device in usable if not device.integrated]
    if ask.unified == "true" and (usable or not every):
        given = (shared or own)[:1]
        why = "has no pool of its own: the setting unified = true makes all memory one"
        notes += [f"{_told(device)} {why}" for device in usable if device not in given]
        pools, count = (_unified(given, memory, ask),), Reading(1.0, "setting unified = true")
    elif own or ask.unified == "false":
        why = "there are devices with memory of their own" if own else "the setting is unified = false"
        notes += [f"{_told(device)} is left alone: it is integrated, and {why}" for device in shared]
        pools = (_host(memory, ask), *(_device(device, device.total, every, ask) for device in own))
        count = _counted(count, own, every)
    else:
        pools, given = _integrated(shared, every, memory, ask, notes)
        count = _counted(count, given, every)
    hidden = count.failed and not every and ask.unified == "auto"
    if pools[0].kind == "host" and (hidden or any(device.integrated for device in every)):
        pools = (_shared(pools[0], ask), *pools[1:])
    vendors = list(dict.fromkeys(pool.vendor for pool in pools if pool.kind == "device"))
    if len(vendors) > 1:
        notes.append(
            f"devices of {' and '.join(vendors)}: a provider may be placed on any of them; leave_alone takes those out "
            "that its model cannot use"
        )
    notes += _without_effect(ask.reserves, every, pools)
    notes += [
        f"the reserve of {pool.id} counts as {pool.reserve_gib:.2f} GiB, which is all of it: nothing is started there"
        for pool in pools
        if pool.capacity.value and pool.reserve_gib >= pool.capacity.value
    ]
    return Layout(pools, count, every, tuple(notes))


def _distinct(devices: Sequence[Device], notes: list[str]) -> tuple[Device, ...]:
    """Each id once."""
    found: dict[str, Device] = {}
    for device in devices:
        if device.id in found:
            notes.append(f"{_told(device)} was told of twice; the second is left out")
        found.setdefault(device.id, device)
    return tuple(found.values())


def _not_left_alone(devices: tuple[Device, ...], names: Sequence[str], notes: list[str]) -> list[Device]:
    alone: dict[str, str] = {}
    for name in names:
        meant = named(name, devices)
        if not meant:
            notes.append(f"leave_alone = {name!r} has no effect: {unnamed(name, devices)}")
        elif len({device.vendor for device in meant}) > 1:
            each = ", ".join(_told(device) for device in meant)
            notes.append(
                f"leave_alone = {name!r} means several: {each}; name one by its id to leave only that one alone"
            )
        for device in meant:
            alone.setdefault(device.id, name)
    notes += [f"{_told(d)} is left alone: leave_alone names it ({alone[d.id]})" for d in devices if d.id in alone]
    return [device for device in devices if device.id not in alone]


def _integrated(
    shared: list[Device], every: Sequence[Device], memory: Memory, ask: Wanted, notes: list[str]
) -> tuple[tuple[Pool, ...], list[Device]]:
    """(the pools, the devices that a worker could be given) where no usable device has memory of its own."""
    unread = {device.id: why for device in shared if (why := _not_unified(device, memory))}
    ours = [device for device in shared if device.id not in unread]
    if not ours:
        unknown = [_device(d, replace(d.total, value=None, missing=unread[d.id]), every, ask) for d in shared]
        return (_host(memory, ask), *unknown), shared
    for device in shared:
        if device.id in unread:
            notes.append(f"{_told(device)} is left alone: {unread[device.id]}")
        elif device is not ours[0]:
            notes.append(
                f"{_told(device)} shares the machine's memory with {_told(ours[0])}: a worker is given that one"
            )
    return (_unified(ours, memory, ask),), ours[:1]


def _not_unified(device: Device, memory: Memory) -> str:
    """Why an integrated device's memory cannot be told to be the machine's; empty if it is."""
    total, machine = device.total, memory.installed or memory.total
    if total.failed:
        return total.missing
    if total.value is None or device.vendor == INTEGRATED_AMD:
        return ""
    if machine.value is None:
        return (
            f"its {total.value:.2f} GiB cannot be compared with the machine's memory: {machine.missing or 'not read'}"
        )
    if abs(total.value - machine.value) <= ALIKE * machine.value:
        return ""
    return (
        f"it is integrated and says {total.value:.2f} GiB, the machine has {machine.value:.2f}: whose memory that is "
        f'cannot be told; set unified = true if it is the machine\'s, or leave_alone = ["{device.id}"] to do without it'
    )


def _unified(devices: Sequence[Device], memory: Memory, ask: Wanted) -> Pool:
    """All memory as one pool; a worker in it is given the first of the devices."""
    capacity = memory.total
    first = devices[0] if devices else None
    if first is not None and first.integrated and first.vendor == INTEGRATED_AMD and capacity.value is not None:
        mapped = first.total
        if mapped.value is not None and mapped.value < capacity.value:
            capacity = mapped
    reserve_gib = _reserve(ask.reserve_unified_gib, _said("unified", ask), capacity)
    pool = Pool("unified", "unified", capacity, reserve_gib, memory.free, memory.available)
    if first is None:
        return pool
    return replace(
        pool, name=first.name, vendor=first.vendor, seen_as=first.seen_as, partial=first.partial, driver=first.driver
    )


def _host(memory: Memory, ask: Wanted) -> Pool:
    reserve_gib = _reserve(ask.reserve_host_gib, _said("host", ask), memory.total)
    return Pool("host", "host", memory.total, reserve_gib, memory.free, memory.available)


def _shared(host: Pool, ask: Wanted) -> Pool:
    """Host memory that an integrated device takes its own from, or one may that cannot be seen: the larger reserve."""
    said = [gib for gib in (_said("host", ask), _said("unified", ask)) if gib is not None]
    default_gib = max(ask.reserve_host_gib, ask.reserve_unified_gib)
    reserve_gib = _reserve(default_gib, max(said) if said else None, host.capacity)
    return replace(host, shared=True, reserve_gib=reserve_gib)


def _device(device: Device, total: Reading, every: Sequence[Device], ask: Wanted) -> Pool:
    """One device's own memory. A figure that the driver has none of is failed here: nothing is known to fit."""
    if total.value is None and not total.missing:
        total = _failed(total, (
            "its driver has no such figure, and it is not known to be integrated: whose memory it uses cannot be told; "
            f'set unified = true if it is the machine\'s, or leave_alone = ["{device.id}"] to do without it'
        ))  # fmt: skip
    free = device.free
    if total.value is None:
        free = free if free.failed else _failed(free, total.missing)
    elif free.value is None and not free.missing:
        free = _failed(free, "its driver tells its total and not what is free")
    default_gib = DISPLAY_GIB if device.display else ask.reserve_device_gib
    reserve_gib = _reserve(default_gib, _asked(device, every, ask), total)
    return Pool(
        f"device:{device.id}", "device", total, reserve_gib, free, free, device.name, device.vendor, device.seen_as,
        device.partial, driver=device.driver,
    )  # fmt: skip


def _said(kind: str, ask: Wanted) -> float | None:
    """What the operator reserves of the machine's memory; None if that is left to the default."""
    own_gib = ask.reserve_unified_gib if kind == "unified" else ask.reserve_host_gib
    return ask.reserves.get(kind, own_gib if kind in ask.chosen else None)


def _asked(device: Device, every: Sequence[Device], ask: Wanted) -> float | None:
    """What the operator reserves on this device: the most, if several names mean it."""
    names = [name for name in ask.reserves if name not in KINDS and device in named(name, every)]
    if names:
        return max(ask.reserves[name] for name in names)
    return ask.reserve_device_gib if "device" in ask.chosen else None


def _reserve(default_gib: float, asked_gib: float | None, capacity: Reading) -> float:
    """A default is at most an eighth of the pool; the operator's own word stands, up to all of it."""
    if asked_gib is None:
        return default_gib if capacity.value is None else min(default_gib, capacity.value * RESERVE_SHARE)
    return max(0.0, asked_gib if capacity.value is None else min(asked_gib, capacity.value))


def _counted(count: Reading, usable: Sequence[Device], every: Sequence[Device]) -> Reading:
    """How many a worker could be given; failed stays failed: there may be one more than was seen."""
    if count.failed or len(usable) == len(every):
        return count if count.failed or count.value == len(usable) else replace(count, value=float(len(usable)))
    if not usable:
        return replace(count, value=0.0, source=f"each of the {len(every)} that are there is left alone")
    return replace(
        count, value=float(len(usable)), source=f"{len(every)} are there, {len(every) - len(usable)} left alone"
    )


def _without_effect(reserves: Mapping[str, float], every: Sequence[Device], pools: Sequence[Pool]) -> list[str]:
    kinds = {pool.kind for pool in pools}
    notes = []
    for name in reserves:
        if name in KINDS:
            if name not in kinds:
                notes.append(
                    f"reserves.{name} has no effect: this machine's pools are {', '.join(p.id for p in pools)}"
                )
        elif not named(name, every):
            notes.append(f"reserves.{name} has no effect: {unnamed(name, every)}")
    return notes


def _failed(reading: Reading, why: str) -> Reading:
    return replace(reading, value=None, missing=why)


def _told(device: Device) -> str:
    return f"{device.id} ({device.name})" if device.name else device.id
