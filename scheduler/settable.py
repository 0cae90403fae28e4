"""What can be set: the default of each setting, what it means, its limits, and whether a value is one of it.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler.errors import UsageError

YES_NO = ("true", "false", "1", "0", "yes", "no")

DEFAULTS: dict[str, object] = {
    "overtake": "15m",
    "strict": False,
    "reserve_unified_gib": 4.0,
    "reserve_host_gib": 2.0,
    "reserve_device_gib": 0.5,
    "unified": "auto",
    "inputs_copy_max_gib": 2.0,
    "input_max_mib": 64,
    "disk_reserve_gib": 5.0,
    "log_max_mib": 64,
    "auto_down": "15m",
    "allow_network_filesystem": False,
}

ABOUT = {
    "overtake": "how long the first in line may be overtaken by jobs that fit",
    "strict": "true: nobody overtakes the first in line",
    "reserve_unified_gib": "GiB left to the machine where all memory is one pool",
    "reserve_host_gib": "GiB of the machine's memory left to the machine",
    "reserve_device_gib": "GiB of each accelerator left free",
    "unified": "whether devices share the machine's memory: auto, true or false",
    "inputs_copy_max_gib": "files an input names are kept with the job up to this size",
    "input_max_mib": "the largest input",
    "disk_reserve_gib": "nothing starts on a disk with less than this free",
    "log_max_mib": "the most that one log may take",
    "auto_down": "a scheduler that run started ends after this long without work",
    "allow_network_filesystem": "let the queue's folder lie on a network filesystem, at your risk",
}
"""What each setting means, in at most one line."""

LIMITS = {
    "reserve_unified_gib": (0.0, 2.0**30), "reserve_host_gib": (0.0, 2.0**30), "reserve_device_gib": (0.0, 2.0**30),
    "inputs_copy_max_gib": (0.0, 2.0**30), "input_max_mib": (0.000001, 4096.0), "disk_reserve_gib": (0.0, 2.0**30),
    "log_max_mib": (1.0, 2.0**20),
}  # fmt: skip
"""The least and the most of each number, in the unit that its name says."""

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

SHORTEST_S, LONGEST_S = 0.001, 100 * 365.25 * 86400.0
"""A millisecond and a hundred years: what a duration may be."""


def duration_s(text: str, what: str = "duration") -> float:
    """A duration with its unit (`90s`, `2h`, `1h30m`) in seconds: 0 or 1 ms to 100 years. UsageError without a unit."""
    rest, total, found = text.strip(), 0.0, False
    while rest:
        end = 0
        while end < len(rest) and rest[end] in "0123456789.":
            end += 1
        unit_end = end
        while unit_end < len(rest) and rest[unit_end].isalpha():
            unit_end += 1
        unit = rest[end:unit_end]
        if end == 0 or unit not in UNITS_S:
            found = False
            break
        try:
            total += float(rest[:end]) * UNITS_S[unit]
        except ValueError:
            found = False
            break
        rest, found = rest[unit_end:], True
    short = text if len(text) <= 40 else f"{text[:20]}... ({len(text)} characters)"
    if not found:
        raise UsageError(f"{what} {short!r} is not a duration; write a number with its unit, like 90s, 15m or 2h")
    if total != 0.0 and not SHORTEST_S <= total <= LONGEST_S:
        raise UsageError(f"{what} {short!r} is out of bounds; between 1ms and {LONGEST_S / 86400:.0f}d (100 years)")
    return total


def needed(key: str, value: object, default: object) -> str:
    """What the value of a setting must be, in words; empty if it is that."""
    if key in LIMITS:
        least, most = LIMITS[key]
        try:
            good = least <= float(str(value)) <= most
        except ValueError:
            good = False
        unit = {"gib": "GiB", "mib": "MiB"}[key.rpartition("_")[2]]
        return "" if good else f"a number of {unit} from {f'{least:f}'.rstrip('0').rstrip('.')} to {most:.0f}"
    text = str(value).lower()
    if isinstance(default, bool):
        return "" if text in YES_NO else "true or false"
    if default == "auto":
        return "" if text in ("auto", *YES_NO) else "auto, true or false"
    try:
        duration_s(str(value))
    except UsageError:
        return "a duration with its unit, 0s or 1ms to 100 years"
    return ""


def shown(value: object) -> str:
    """A value as a configuration file has it, cut after 60 characters."""
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"


def nearest(name: str, known: list[str]) -> str:
    """The known name that is meant, as the end of a sentence; all of them if none is near."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known)) or 'none'}"
