"""The one comparison that every decision about memory rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable

SLACK_GIB = 1.0 / (1 << 20)
"""1 KiB: plain sums of budgets refuse one exact fit in six; less than any allocation that matters."""


def fits(parts_gib: Iterable[float], room_gib: float) -> bool:
    """Whether the parts, summed exactly, are at most the room. GiB. What is no finite number never fits."""
    parts = list(parts_gib)
    if not all(map(math.isfinite, (*parts, room_gib))):
        return False
    return math.fsum(parts) <= room_gib + SLACK_GIB
