"""Bytes as they are shown, and as they are typed. Standard library only."""

from __future__ import annotations

import math

from scheduler.errors import UsageError

UNITS = {"": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(count: int) -> str:
    """Bytes as they are shown: `3.21 GiB`, `12.0 MiB`, `4.0 KiB`, `0 B`."""
    for unit, name, decimals in ((1 << 30, "GiB", 2), (1 << 20, "MiB", 1), (1 << 10, "KiB", 1)):
        if count >= unit:
            return f"{count / unit:.{decimals}f} {name}"
    return f"{count} B"


def typed(text: str, flag: str) -> int:
    """What was typed as a size, in bytes: GiB unless it has a unit. UsageError if it is none."""
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:].isalpha() else ""
    try:
        value = float(number.removesuffix(unit))
    except ValueError:
        value = -1.0
    if unit not in UNITS or not 0 <= value < math.inf:
        raise UsageError(f"{flag} {text!r} is no size; write GiB as a number, or with a unit: 100, 100G, 500M, 2T")
    return int(value * UNITS[unit])
