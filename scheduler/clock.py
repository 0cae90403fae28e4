"""The only place that reads a clock. Wall time is for people and for the record, monotonic time for waiting.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import time


def now_s() -> float:
    """Wall time: seconds since the epoch, UTC."""
    return time.time()


def cpu_s() -> float:
    """Seconds of processor time that this process took so far, all of its threads together."""
    return time.process_time()


def monotonic_s() -> float:
    """Seconds on a clock that never goes back and counts suspended time too (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def stamp(at_s: float) -> str:
    """An instant as it is stored and shown: `2026-11-29T21:04:05.123456Z`; sorts as text."""
    whole = int(at_s // 1)
    micros = min(999_999, int((at_s - whole) * 1e6))
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{micros:06d}Z"


def local(at_s: float) -> str:
    """An instant on this machine's own clock, for people: `29 Nov 22:41`, always of that length."""
    return time.strftime("%d %b %H:%M", time.localtime(at_s))


def local_second(at_s: float) -> str:
    """The time of day of an instant on this machine's own clock: `22:41:07`."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def local_stamp(at_s: float) -> str:
    """An instant on this machine's own clock with its zone, for people: `2026-11-29 22:41:07 CET`."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at_s)).rstrip()


def local_day(at_s: float) -> str:
    """The date of an instant on this machine's own clock: `2026-11-29`."""
    return time.strftime("%Y-%m-%d", time.localtime(at_s))


def now_at() -> str:
    """This instant as a stored stamp."""
    return stamp(now_s())


def seconds(at: str) -> float:
    """The instant of a stored stamp, in seconds since the epoch. ValueError if it is not one."""
    day, marked, rest = at.removesuffix("Z").partition("T")
    whole, _, micros = rest.partition(".")
    year, month, date = map(int, day.split("-"))
    hour, minute, second = map(int, whole.split(":"))
    if not marked or not (1 <= month <= 12 and 1 <= date <= 31 and hour < 24 and minute < 60 and second <= 60):
        raise ValueError(f"{at!r} is no stamp")
    # Days since 1970 of the proleptic Gregorian calendar, its years counted from March. By hand, because
    # calendar and strptime cost the fast paths 4 ms.
    year, shifted = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * shifted + 2) // 5 + date - 719469
    return days * 86400 + hour * 3600 + minute * 60 + second + (float("0." + micros) if micros else 0.0)


class SystemClock:
    """The real clock, as the loop is given it; the simulator gives another."""

    def now_s(self) -> float:
        """Wall time, seconds since the epoch."""
        return now_s()

    def monotonic_s(self) -> float:
        """Seconds for deadlines and idleness."""
        return monotonic_s()

    def sleep(self, for_s: float) -> None:
        """Let time pass."""
        time.sleep(for_s)
