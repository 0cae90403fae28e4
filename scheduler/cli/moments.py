"""A moment in the past, as people write it: `12h` (that long ago), `20:00` (the last one), `2026-11-29T20:00`."""

from __future__ import annotations

from scheduler.clock import now_s, stamp
from scheduler.errors import UsageError

TAKES = "a duration like 12h (that long ago), a time of day like 20:00 (the last one), or a date like 2026-11-29T20:00"


def since(text: str, what: str = "--since", at_s: float | None = None) -> str:
    """The stamp of a moment that has passed by `at_s` (now unless given).

    A time of day or a date without its zone (`Z`, `+02:00`) is this machine's own. UsageError: it is none, is out of
    bounds, or lies ahead.
    """
    at_s = now_s() if at_s is None else at_s
    word = text.strip()
    if word[-1:].isalpha() and word[-1:] not in "Zz":
        return stamp(at_s - _duration_s(word, what))
    try:
        moment_s = _last(word, at_s) if word[2:3] == ":" or word[1:2] == ":" else _of_date(word)
    except (ValueError, OverflowError, OSError):
        raise UsageError(_refusal(text, what)) from None
    if moment_s > at_s:
        raise UsageError(f"{what} {_short(text)!r} lies ahead; it takes {TAKES}")
    return stamp(max(0.0, moment_s))


def _duration_s(word: str, what: str) -> float:
    from scheduler.settable import duration_s

    try:
        return duration_s(word, what)
    except UsageError as error:
        raise error if "out of bounds" in str(error) else UsageError(_refusal(word, what)) from None


def _refusal(text: str, what: str) -> str:
    return f"{what} {_short(text)!r} is no moment; it takes {TAKES}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:20]}... ({len(text)} characters)"


def _last(word: str, at_s: float) -> float:
    """When it was last so late on this machine's clock. ValueError for what is no time of day."""
    from datetime import datetime, time, timedelta

    clock = time.fromisoformat(word.zfill(len(word) + 1) if word[1:2] == ":" else word)
    if clock.tzinfo is not None:
        raise ValueError(word)
    today = datetime.fromtimestamp(at_s)
    walls = [datetime.combine(today.date() - timedelta(days=days), clock) for days in (0, 1)]
    found = [wall.replace(fold=fold).timestamp() for wall in walls for fold in (1, 0)]  # a time may come twice
    return max((each for each in found if each <= at_s), default=found[-1])


def _of_date(word: str) -> float:
    """The moment of a date, with a time or without. ValueError for what is none."""
    from datetime import datetime

    if word.count("-") < 2:
        raise ValueError(word)
    return datetime.fromisoformat(word[:-1] + "Z" if word[-1:] == "z" else word).timestamp()
