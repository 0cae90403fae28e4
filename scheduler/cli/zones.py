"""Time zones by name, and instants as the clock of a zone shows them."""

from __future__ import annotations

import warnings
import zoneinfo
from datetime import UTC, datetime

from scheduler.errors import UsageError


def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """The zone of that name. UsageError, with the nearest, if there is none."""
    try:
        if name in zoneinfo.available_timezones():
            return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        pass
    raise UsageError(f"--zone {name[:60]!r}: there is no such time zone{_near(name)}")


def _near(name: str) -> str:
    import difflib

    known = {each.lower(): each for each in sorted(zoneinfo.available_timezones())}
    city = {each.rpartition("/")[2]: each for each in known}
    word = name.lower().replace(" ", "_")
    near = difflib.get_close_matches(word, known, n=1) or [
        city[each] for each in difflib.get_close_matches(word.rpartition("/")[2], city, n=1)
    ]
    return f"; did you mean {known[near[0]]}?" if near else "; names are like Europe/Berlin, America/New_York or UTC"


def machine_zone() -> str:
    """The name of the machine's own zone. UsageError if nothing here tells it."""
    import tzlocal

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name = tzlocal.get_localzone_name()
        zone_of(name)
    except Exception:
        raise UsageError("nothing here tells this machine's time zone; say it: --zone Europe/Berlin") from None
    return str(name)


def shown(at_s: float, zone: str) -> str:
    """An instant, seconds since the epoch, as the clock of a zone shows it: `Mon 2026-11-30 22:00 +01:00`."""
    try:
        local = datetime.fromtimestamp(at_s, UTC).astimezone(zoneinfo.ZoneInfo(zone))
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        local = datetime.fromtimestamp(at_s, UTC)
    offset = local.strftime("%z")
    seconds = local.strftime(":%S") if local.second else ""
    return f"{local.strftime('%a %Y-%m-%d %H:%M')}{seconds} {offset[:3]}:{offset[3:5]}"


def iso(at_s: float, zone: str) -> str:
    """The same for programs: ISO 8601 with the offset."""
    try:
        return datetime.fromtimestamp(at_s, UTC).astimezone(zoneinfo.ZoneInfo(zone)).isoformat()
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return datetime.fromtimestamp(at_s, UTC).isoformat()
