"""Memory figures as they are shown: two decimals, or as many more as keep what was compared true.

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
