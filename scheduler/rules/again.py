"""When somebody who could not be told is told again: after a minute, then twice as long, up to an hour, for a day."""

from __future__ import annotations

FIRST_S, LONGEST_S, GIVEN_UP_S = 60.0, 3600.0, 86400.0


def next_try_s(failures: int, since_s: float, now_s: float) -> float | None:
    """When it is tried again after so many failures in a row, the first of them counted; None if it is given up.

    `since_s` is when it happened. Seconds since the epoch.
    """
    wait_s = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 30))
    return None if now_s + wait_s > since_s + GIVEN_UP_S else now_s + wait_s
