"""Figures as they are shown: memory with two decimals, or as many more as keep what was compared true; times; counts.

Over plain values and without a dataclass, since the everyday verbs show them too.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST, DECIMALS = 2, 9


def figures(parts: Sequence[float], limit: float) -> tuple[list[str], str, str, str]:
    """(parts, their sum, the limit, the sum less the limit) as text: two decimals, or as many more as are honest.

    As shown, the parts add up to the sum, and the sum compares with the limit as the exact numbers do.
    """
    total = math.fsum(parts)
    decimals = next((n for n in range(LEAST, DECIMALS) if _honest(parts, total, limit, n)), DECIMALS)
    above, bound = round(total, decimals), round(limit, decimals)
    return (
        [plain(part, decimals) for part in parts],
        plain(above, decimals),
        plain(bound, decimals),
        plain(above - bound, decimals),
    )


def pool_name(pool_id: str) -> str:
    """A pool as people tell it from others: a device by the first word of its uuid, `GPU-1234abcd`."""
    kind, dash, rest = pool_id.removeprefix("device:").partition("-")
    return f"{kind}-{rest[:8]}" if kind in ("GPU", "MIG") and dash and len(rest) > 8 else pool_id


def _honest(parts: Sequence[float], total: float, limit: float, decimals: int) -> bool:
    above, bound = round(total, decimals), round(limit, decimals)
    adds_up = round(math.fsum(round(part, decimals) for part in parts), decimals) == above
    return adds_up and (above > bound) == (total > limit) and (above < bound) == (total < limit)


def plain(value: float, decimals: int) -> str:
    """A number with at most that many decimals, none that say nothing."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def span(seconds: float | None) -> str:
    """A time span in its two largest units: `45s`, `3m 12s`, `2h 05m`, `3d 04h`; `-` if it is not known."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds + 0.5))
    if whole < 60:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {second:02d}s"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minute:02d}m"
    days, hour = divmod(hours, 24)
    return f"{days}d {hour:02d}h"


def soon(seconds: float) -> str:
    """A time that is still to come, as `span`; one that is over at a glance is `under 1s`, for nothing takes none."""
    return "under 1s" if seconds < 0.5 else span(seconds)


def usual(seconds: float) -> str:
    """How long something usually takes, in a sentence: `14 s`, `under 1 s`."""
    return "under 1 s" if seconds < 0.5 else f"{seconds:.0f} s"


def elapsed(seconds: float | None) -> str:
    """How long something took: below 10 s with decimals, `0.04s`, `3.2s`, else as `span`; `-` if it is not known."""
    if seconds is None or seconds >= 9.95:
        return span(seconds)
    return "<0.01s" if seconds < 0.005 else f"{seconds:.2f}s" if seconds < 0.995 else f"{seconds:.1f}s"


def counted(count: int, noun: str) -> str:
    """A number and what is counted: `1 job`, `3 jobs`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def gib(value: object) -> str:
    """GiB with two decimals, or as many as it takes to tell it from zero; `?` if it is not known."""
    if not isinstance(value, int | float):
        return "?"
    if value and abs(value) < 0.05:
        return f"{value:.3f}"
    return f"{value:.2f}"
