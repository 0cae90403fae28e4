"""When a job may begin at the earliest, as people write it: `22:00`, `2h`, `2026-11-29T22:00`, `now`.

Imported by the fast paths: standard library only, and a calendar only when such a moment is given.
"""

from __future__ import annotations

from scheduler.clock import now_s, stamp
from scheduler.errors import UsageError
from scheduler.settable import LONGEST_S, duration_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

TAKES = "a time of day like 22:00 (the next one), a duration like 2h (from now), or a date like 2026-11-29T22:00"


def begins_at(text: str, what: str = "--begin", at_s: float | None = None) -> str | None:
    """The stamp of a moment that is still to come at `at_s` (now unless given); None for `now`.

    A time of day or a date without its zone (`Z`, `+02:00`) is this machine's own; of an hour that comes twice the
    first that is still to come counts. UsageError: it is none, past, in an hour that the clock skips, or out of bounds.
    """
    at_s = now_s() if at_s is None else at_s
    word = text.strip()
    if word == "now":
        return None
    if word[-1:].isalpha() and word[-1:] not in "Zz":
        try:
            wait_s = duration_s(word, what)
        except UsageError as error:
            raise error if "out of bounds" in str(error) else UsageError(_refusal(text, what)) from None
        return stamp(at_s + wait_s) if wait_s else None
    try:
        moment_s = _next(word, what, at_s) if word[1:2] == ":" or word[2:3] == ":" else _of_date(word, what, at_s)
    except (ValueError, OverflowError, OSError):
        raise UsageError(_refusal(text, what)) from None
    if moment_s <= at_s:
        raise UsageError(f"{what} {_short(text)!r} is past; write a moment to come, or leave it out to begin at once")
    if moment_s - at_s > LONGEST_S:
        raise UsageError(f"{what} {_short(text)!r} is out of bounds; at most 100 years from now")
    return stamp(moment_s)


def _refusal(text: str, what: str) -> str:
    return f"{what} {_short(text)!r} is no moment; it takes {TAKES}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:20]}... ({len(text)} characters)"


def _next(word: str, what: str, at_s: float) -> float:
    """When it is so late next on this machine's clock. ValueError for what is no time of day."""
    from datetime import datetime, time, timedelta

    clock = time.fromisoformat(f"0{word}" if word[1:2] == ":" else word)
    if clock.tzinfo is not None:
        raise ValueError(word)
    today = datetime.fromtimestamp(at_s).date()
    for days in (0, 1, 2):
        local = datetime.combine(today + timedelta(days=days), clock)
        found = [each for each in _moments(local) if each > at_s]
        if found:
            _refuse_skipped(local, what)
            return found[0]
    raise ValueError(word)


def _of_date(word: str, what: str, at_s: float) -> float:
    """The moment of a date with its time, or of its midnight. ValueError for what is none."""
    from datetime import datetime

    if word.count("-") < 2:
        raise ValueError(word)
    moment = datetime.fromisoformat(word[:-1] + "Z" if word[-1:] == "z" else word)
    if moment.tzinfo is not None:
        return moment.timestamp()
    _refuse_skipped(moment, what)
    found = _moments(moment)
    return next((each for each in found if each > at_s), found[-1])


def _moments(local: datetime) -> list[float]:
    """The moments that this machine's clock shows a local time at: one, or two where an hour comes twice."""
    return sorted({local.replace(fold=fold).timestamp() for fold in (0, 1)})


def _refuse_skipped(local: datetime, what: str) -> None:
    """UsageError for a local time that this machine's clock never shows, with the one that it shows instead."""
    from datetime import datetime

    shown = datetime.fromtimestamp(local.timestamp())
    if shown.replace(fold=0) != local:
        raise UsageError(
            f"{what}: {local:%H:%M} does not exist on {local:%Y-%m-%d} here, the clock goes forward over it; write"
            f" {max(shown, local):%H:%M}, or give the zone, like {local:%Y-%m-%dT%H:%M}Z"
        )
