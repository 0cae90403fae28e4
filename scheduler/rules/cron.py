"""When a cron line is due: five fields as cron has them, in a time zone, daylight saving time included.

A line names times of the wall clock. One that the clock skips is due once, right after the hour that is skipped; one
that comes twice is due at its first. A line with `*` for its hour goes by the hours that pass: it is due in both, and
not in one that is skipped.
Weekdays are cron's (0 and 7 are Sunday), and where both day of month and weekday are restricted, either is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from scheduler.errors import UsageError

FIELDS = ("minute", "hour", "day of month", "month", "weekday")
LEAST, MOST = (0, 0, 1, 1, 0), (59, 23, 31, 12, 7)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMES: tuple[tuple[str, ...], ...] = ((), (), (), MONTHS, WEEKDAYS)
DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""The most days that each month has."""

MEANT = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
FARTHEST = timedelta(days=9 * 366)
"""No line that is ever due waits longer: from 29 February 2096 it is eight years to the next one."""

EXAMPLE = 'like "0 22 * * *" (every day at 22:00)'


@dataclass(frozen=True)
class Line:
    """A cron line that was read: the values of each field, None where it is `*`; `either`: day or weekday is enough."""

    text: str
    values: tuple[tuple[int, ...] | None, ...]
    either: bool


def read(text: str) -> Line:
    """The line that a text is. UsageError with the field and why: it cannot be read, or is never due."""
    words = text.split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in MEANT:
            raise UsageError(f"cron {text!r}: it is none of {', '.join(MEANT)}")
        words = MEANT[words[0]].split()
    if len(words) != len(FIELDS):
        what = f"{len(words)} field{'' if len(words) == 1 else 's'}"
        raise UsageError(
            f"cron {text!r} has {what} and needs 5: minute, hour, day of month, month, weekday; write it as one word,"
            f" in quotes, {EXAMPLE}"
        )
    values = tuple(_field(text, at, word) for at, word in enumerate(words))
    days, months, weekdays = values[2:]
    either = days is not None and weekdays is not None and words[2][0] != "*" and words[4][0] != "*"
    if days is not None and not either:
        most = max(DAYS[month - 1] for month in months or range(1, 13))
        if min(days) > most:
            named = [MONTHS[month - 1].capitalize() for month in months or ()]
            which = f"of {', '.join(named)} none has more than" if len(named) > 1 else f"{named[0]} has at most"
            raise UsageError(f"cron {text!r} is never due: its day of month is {words[2]}, and {which} {most} days")
    return Line(text, values, either)


def _field(text: str, at: int, word: str) -> tuple[int, ...] | None:
    """The values of one field, in order; None for all."""
    if word == "*":
        return None
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if not (span == "*" or span) or (slash and not (step.isascii() and step.isdigit() and 0 < int(step[:9]) < 100)):
            raise _wrong(text, at, part)
        if span == "*":
            low, high = LEAST[at], MOST[at] - (at == 4)
        else:
            low = _value(text, at, first, part)
            high = _value(text, at, last, part) if dash else low
            if slash and not dash:
                raise _wrong(text, at, part, f"a step needs a range: {first}-{MOST[at]}/{step}")
        if low > high:
            ends = (NAMES[at][-1], NAMES[at][0]) if first.isalpha() else (MOST[at] - (at == 4), LEAST[at])
            halves = f"{first}-{ends[0]},{ends[1]}-{last}"
            raise _wrong(text, at, part, f"it goes backwards; write {halves}")
        found.update(range(low, high + 1, int(step) if slash else 1))
    return tuple(sorted({0 if at == 4 and value == 7 else value for value in found}))


def _value(text: str, at: int, word: str, part: str) -> int:
    if word.lower() in NAMES[at]:
        return NAMES[at].index(word.lower()) + LEAST[at]
    if not (word.isascii() and word.isdigit() and len(word) < 5):
        raise _wrong(text, at, part)
    if not LEAST[at] <= int(word) <= MOST[at]:
        raise _wrong(text, at, part, f"{word} is not from {LEAST[at]} to {MOST[at]}")
    return int(word)


def _wrong(text: str, at: int, part: str, why: str = "") -> UsageError:
    names = f", {NAMES[at][0]} to {NAMES[at][-1]}" if NAMES[at] else ""
    takes = f"it takes {LEAST[at]} to {MOST[at]}{names}, *, lists (1,2), ranges (1-5) and steps (*/2)"
    return UsageError(f"cron {text!r}: {FIELDS[at]} {part!r}: {why or takes}")


def next_after(line: Line, zone: tzinfo, after: datetime) -> datetime | None:
    """When the line is due first after an aware instant, in its zone; None if not within nine years."""
    every_hour = line.values[1] is None
    best: datetime | None = None
    for wall in _walls(line, _wall(after, zone) - _turned(zone, after)):
        if every_hour and _is_skipped(wall, zone):
            continue
        first, *others = _instants(wall, zone)
        for instant in (first, *others) if every_hour else (first,):
            if instant > after and (best is None or instant < best):
                best = instant
        if best is not None and first >= best:
            break
    return None if best is None else best.astimezone(zone)


def skipped(line: Line, zone: tzinfo, after: datetime, within: timedelta = timedelta(days=400)) -> datetime | None:
    """The first wall time that the line names and the clock skips, naive; None if there is none, or it is hourly."""
    if line.values[1] is None:
        return None
    day, end = after, after + within
    while day < end:
        later = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            for wall in _walls(line, _wall(day, zone) - timedelta(minutes=1)):
                if wall > _wall(later, zone):
                    break
                if _is_skipped(wall, zone):
                    return wall
        day = later
    return None


def made_up(wall: datetime, zone: tzinfo) -> datetime:
    """When a wall time that the clock skips is made up, in the zone."""
    return _instants(wall, zone)[0].astimezone(zone)


def _wall(at: datetime, zone: tzinfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _turned(zone: tzinfo, at: datetime) -> timedelta:
    """By how much the clock was or will be turned within a day of that; nothing on most days."""
    offsets = [(at + timedelta(days=days)).astimezone(zone).utcoffset() or timedelta() for days in (-1, 1)]
    return abs(offsets[0] - offsets[1])


def _is_skipped(wall: datetime, zone: tzinfo) -> bool:
    return wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall


def _instants(wall: datetime, zone: tzinfo) -> list[datetime]:
    """The instants, UTC, at which clocks show this; the moment right after, where none does."""
    early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if not _is_skipped(wall, zone):
        return [early] if early == late else [early, late]
    low, high = min(early, late), max(early, late)  # the clock is turned after the one, and by the other
    turned = high.astimezone(zone).utcoffset()
    while (seconds := int((high - low).total_seconds())) > 1:
        middle = low + timedelta(seconds=seconds // 2)
        low, high = (low, middle) if middle.astimezone(zone).utcoffset() == turned else (middle, high)
    return [high]


def _walls(line: Line, after: datetime) -> Iterator[datetime]:
    """The wall times, naive, that the line names after that, in order."""
    from apscheduler.triggers.cron import CronTrigger

    minute, hour, day, month, weekday = (None if each is None else _listed(each) for each in line.values)
    if line.values[4] is not None:
        weekday = _listed(tuple((value - 1) % 7 for value in line.values[4]))  # the trigger's week begins on Monday
    days = [(day, None), (None, weekday)] if line.either else [(day, weekday)]
    end = after.replace(tzinfo=UTC) + FARTHEST
    triggers = [
        CronTrigger(
            month=month or "*", day=of_month or "*", day_of_week=of_week or "*", hour=hour or "*", minute=minute or "*",
            second="0", timezone=UTC, end_date=end,
        )
        for of_month, of_week in days
    ]  # fmt: skip
    at = after.replace(tzinfo=UTC)
    while True:
        at += timedelta(microseconds=1)
        found = [each for each in (trigger.get_next_fire_time(None, at) for trigger in triggers) if each is not None]
        if not found:
            return
        at = min(found)
        yield at.replace(tzinfo=None)


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
