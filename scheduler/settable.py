"""What can be set: the default of each setting, what it means, its limits, and whether a value is one of it.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

YES_NO = ("true", "false", "1", "0", "yes", "no")

DEFAULTS: dict[str, object] = {
    "overtake": "15m",
    "strict": False,
    "reserve_unified_gib": 4.0,
    "reserve_host_gib": 2.0,
    "reserve_device_gib": 0.5,
    "reserves": {},
    "unified": "auto",
    "leave_alone": [],
    "unattributed": "charged",
    "guard": "on",
    "reclaim": "auto",
    "reclaim_command": "",
    "leak_after": "20s",
    "leak_margin_gib": 1.0,
    "inputs_copy_max_gib": 2.0,
    "input_max_mib": 64,
    "disk_reserve_gib": 5.0,
    "log_max_mib": 64,
    "journal_max_mib": 32,
    "auto_down": "15m",
    "allow_network_filesystem": False,
}

ABOUT = {
    "overtake": "how long the first in line may be overtaken by jobs that fit",
    "strict": "true: nobody overtakes the first in line",
    "reserve_unified_gib": "GiB left to the machine where all memory is one pool",
    "reserve_host_gib": "GiB of the machine's memory left to the machine",
    "reserve_device_gib": "GiB of each accelerator left free",
    "reserves": "GiB left of one pool each, by name: host, unified or a device",
    "unified": "whether devices share the machine's memory: auto, true or false",
    "leave_alone": "devices that nothing is placed on: id or its beginning, PCI address, number",
    "unattributed": "device use that nobody is listed for: charged as a stranger's, or ours",
    "leak_after": "memory that is not back so long after its worker ended is leaked",
    "leak_margin_gib": "use on nobody's name that a worker may leave on a device; 2 % at least",
    "guard": "on: whoever oversteps its charge while memory runs out is stopped; off",
    "reclaim": "how the file cache is turned into free memory: auto, files or off",
    "reclaim_command": "a command of yours that gives the file cache back, run without a shell",
    "inputs_copy_max_gib": "files an input names are kept with the job up to this size",
    "input_max_mib": "the largest input",
    "disk_reserve_gib": "nothing starts on a disk with less than this free",
    "log_max_mib": "the most that one log may take",
    "journal_max_mib": "the most that the scheduler's journal may take; 0: none is kept",
    "auto_down": "a scheduler that run started ends after this long without work",
    "allow_network_filesystem": "let the queue's folder lie on a network filesystem, at your risk",
}
"""What each setting means, in at most one line."""

LIMITS = {
    "reserve_unified_gib": (0.0, 2.0**30), "reserve_host_gib": (0.0, 2.0**30), "reserve_device_gib": (0.0, 2.0**30),
    "leak_margin_gib": (0.0, 2.0**30),
    "inputs_copy_max_gib": (0.0, 2.0**30), "input_max_mib": (0.000001, 4096.0), "disk_reserve_gib": (0.0, 2.0**30),
    "log_max_mib": (1.0, 2.0**20), "journal_max_mib": (0.0, 2.0**20),
}  # fmt: skip
"""The least and the most of each number, in the unit that its name says."""

CHOICES = {"unattributed": ("charged", "ours"), "guard": ("on", "off"), "reclaim": ("auto", "files", "off")}
"""What each setting may be that is one of some words."""

TEXTS = ("reclaim_command",)
"""Settings that are the words of a command, "" for none."""

EXAMPLES = {"leave_alone": ('["GPU-5d1f"]', "GPU-5d1f,card1"), "reserves": ("{ host = 8 }", "host=8,GPU-5d1f=2")}
"""How a setting with parts is written in a file, and in the environment."""

MOST_RESERVE_GIB = 2.0**30

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
    if key in TEXTS:
        return "" if isinstance(value, str) and _is_command(value) else "a command as one text, quotes closed"
    if key in CHOICES:
        return "" if value in CHOICES[key] else " or ".join(CHOICES[key])
    if key in EXAMPLES:
        return _fault_of_parts(words_of if isinstance(default, list) else gib_of, value)
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


def _is_command(text: str) -> bool:
    import shlex

    try:
        return shlex.split(text) is not None
    except ValueError:
        return False


def _fault_of_parts(parsed: Callable[[object], object], value: object) -> str:
    try:
        parsed(value)
    except ValueError as error:
        return str(error)
    return ""


def words_of(value: object) -> tuple[str, ...]:
    """A list of words, or words with commas between them. ValueError says what it must be."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            raise ValueError("names with commas between them, without brackets and quotes, like GPU-5d1f,0000:41:00.0")
        value = _between_commas(value)
    if not isinstance(value, list):
        raise ValueError("a list of names")
    for each in value:
        number = isinstance(each, int) and not isinstance(each, bool)
        if not (number or (isinstance(each, str) and each.strip() and each.isprintable())):
            raise ValueError(f"a list of names, and {shown(each)} is none")
    return tuple(str(each).strip() for each in value)


def gib_of(value: object) -> dict[str, float]:
    """A table of names and GiB, or `name=GiB` with commas between them. ValueError says what it must be."""
    if isinstance(value, dict):
        return {str(name): _reserve(str(name), number) for name, number in value.items()}
    if not isinstance(value, str):
        raise ValueError("a table of names and GiB")
    found: dict[str, float] = {}
    for each in _between_commas(value):
        name, equals, number = (part.strip() for part in each.rpartition("="))
        if not equals:
            raise ValueError(f"name=GiB, with commas between them, and {shown(each)} is not")
        if name in found:
            raise ValueError(f"one amount for each name, and {name} has two")
        found[name] = _reserve(name, number)
    return found


def _between_commas(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _reserve(name: str, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if 0.0 <= number <= MOST_RESERVE_GIB and name.strip() and not isinstance(value, bool):
        return number
    if name in DEFAULTS:
        raise ValueError(f"a table of names and GiB, and {name} is a setting of its own: write it above [reserves]")
    raise ValueError(f"GiB from 0 to {MOST_RESERVE_GIB:.0f} by name, and {shown(name)} has {shown(value)}")


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
