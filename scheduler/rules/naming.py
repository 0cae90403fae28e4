"""Which devices an operator means by a name: an id or its beginning, a PCI address, `cardN`, a number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scheduler.model.machine import Device

LEAST = 4
"""Characters of an id, after its `GPU-` or `MIG-`, that a beginning must have; fewer could be any device."""
KINDS = ("gpu-", "mig-")
SLOT = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def named(name: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices that `name` means, in their order; empty = none. All of them where it means several."""
    said = name.strip().lower().removeprefix("device:")
    return tuple(device for device in devices if _means(said, device))


def unnamed(name: str, devices: Sequence[Device]) -> str:
    """Why a name means no device, in words that end with those that would."""
    said = name.strip().lower().removeprefix("device:")
    there = ", ".join(device.id for device in devices) or "none"
    if said and any(device.id.lower().startswith(said) for device in devices):
        return f"too little of an id; write {LEAST} characters or more after its GPU- or MIG-; there are: {there}"
    return f"no device is named so; there are: {there}"


def _means(said: str, device: Device) -> bool:
    if said.isascii() and said.isdigit():
        return device.number == int(said)
    if re.fullmatch(r"card\d+", said):
        return f"({said})" in device.name.lower().split()
    place = _place(said)
    if place is not None:
        return place in (_place(device.slot.lower()), _place(device.id.lower()))
    own = device.id.lower()
    if said == own:
        return True
    after = next((said.removeprefix(kind) for kind in KINDS if said.startswith(kind)), said)
    return len(after) >= LEAST and own.startswith(said)


def _place(text: str) -> tuple[int, str] | None:
    """(domain, bus:device.function) of a PCI address, with or without its domain; None if it is none."""
    found = SLOT.fullmatch(text)
    return (int(found[1] or "0", 16), found[2]) if found else None
