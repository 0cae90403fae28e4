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
    "schedule_limit": "12h",
    "notify_command": "",
    "notify_url": "",
    "notify_headers": [],
    "notify_on": ["batch_ended", "breaker_opened"],
    "notify_timeout": "10s",
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
    "schedule_limit": "how long a scheduled call may take before it is ended",
    "notify_command": "a command that is told of events: JSON on stdin, run without a shell",
    "notify_url": "a webhook that is told of events by POST; env:NAME or ${NAME} for secrets",
    "notify_headers": "headers of that POST, like Authorization: Bearer ${TOKEN}",
    "notify_on": "what is told: batch_ended, breaker_opened",
    "notify_timeout": "how long one of the two may take to be told",
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

LEAST = {"schedule_limit": "1s", "notify_timeout": "100ms"}
"""The least of each duration that cannot be any."""

CHOICES = {"unattributed": ("charged", "ours"), "guard": ("on", "off"), "reclaim": ("auto", "files", "off")}
"""What each setting may be that is one of some words."""

TEXTS = ("reclaim_command", "notify_command")
"""Settings that are the words of a command, "" for none."""

SECRET = ("notify_url", "notify_headers", "notify_command")
"""Settings that may hold secrets: what is shown of them never does."""

SOME_OF = {"notify_on": ("batch_ended", "breaker_opened")}
"""Settings that are a list of some of these words."""

EXAMPLES = {
    "leave_alone": ('["GPU-5d1f"]', "GPU-5d1f,card1"), "reserves": ("{ host = 8 }", "host=8,GPU-5d1f=2"),
    "notify_command": ('"notify-send schedq"', "notify-send schedq"),
    "reclaim_command": ('"sudo -n /usr/local/bin/drop-caches"', "sudo -n /usr/local/bin/drop-caches"),
    "notify_url": ('"https://hooks.example.org/${HOOK}"', "https://hooks.example.org/${HOOK}"),
    "notify_headers": ('["Authorization: Bearer ${TOKEN}"]', "Authorization: Bearer ${TOKEN}"),
    "notify_on": ('["batch_ended"]', "batch_ended"),
}  # fmt: skip
"""How a setting is written in a file, and in the environment, whose default says nothing of that."""

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
    if key == "notify_url":
        if origin_of(value) and "@" in str(value).partition("://")[2].partition("/")[0]:
            return "an address without a name before its host: write notify_headers, Authorization: Basic ..."
        why = fault_of_url(str(value)) if origin_of(value) else "none"
        told = f" ({why})" if why != "none" else ""
        return f"an address, https://HOST/PATH, or env:NAME{told}" if value != "" and why else ""
    if key in SOME_OF and not _fault_of_parts(words_of, value):
        known = SOME_OF[key]
        return "" if set(words_of(value)) <= set(known) else f"a list of some of {', '.join(known)}"
    if key == "notify_headers" and not _fault_of_parts(words_of, value):
        named = all(word.partition(":")[0].replace("-", "").isalnum() and ":" in word for word in words_of(value))
        return "" if named else "a list of headers, each Name: value"
    if key in EXAMPLES:
        return _fault_of_parts(words_of if isinstance(default, list) else gib_of, value)
    text = str(value).lower()
    if isinstance(default, bool):
        return "" if text in YES_NO else "true or false"
    if default == "auto":
        return "" if text in ("auto", *YES_NO) else "auto, true or false"
    shortest = LEAST.get(key, "0s")
    try:
        good = duration_s(str(value)) >= duration_s(shortest)
    except UsageError:
        good = False
    return "" if good else f"a duration with its unit, {LEAST.get(key, '0s or 1ms')} to 100 years"


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


def origin_of(url: object) -> str:
    """What may be shown of an address: its scheme and host, `env:NAME`, `${NAME}`; "" for what is no address.

    Path, query and whoever is named before the host may be secrets.
    """
    text = str(url)
    kind, _, name = text.partition(":")
    if kind == "env" and name.isidentifier():
        return text
    if text.startswith("${") and text[2:].partition("}")[0].isidentifier() and "}" in text:
        return text.partition("}")[0] + "}"
    scheme, slashes, rest = text.partition("://")
    host = rest.partition("/")[0].partition("?")[0].partition("#")[0].rpartition("@")[2]
    if scheme.lower() not in ("http", "https") or not slashes or not host or not text.isprintable() or " " in text:
        return ""
    return f"{scheme.lower()}://{host}"


def fault_of_url(text: str) -> str:
    """Why no notice can be sent to an address of http or https, "" if one can; nothing of it is in the answer.

    `env:NAME` and what begins with `${NAME}` is no address before it is looked up.
    """
    if "://" not in text or text.startswith("${"):
        return ""
    from ipaddress import IPv6Address
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        port = parts.port
        if "[" in parts.netloc:
            IPv6Address(parts.netloc.rpartition("@")[2].partition("[")[2].removesuffix(f":{port}").removesuffix("]"))
    except ValueError:
        return "its port must be a number up to 65535" if "[" not in text else "its host is no address of IPv6"
    host = parts.hostname or ""
    if not host or host.startswith(".") or ".." in host:
        return "it has no host"
    if port == 0:
        return "its port must be a number from 1 on"
    try:
        host.encode("idna") if "${" not in host else b""
    except UnicodeError:
        return "its host is no name that can be looked up"
    return ""


def open_part(key: str, value: object) -> object:
    """What may be shown of a setting's value: of one that may hold secrets, where it leads and what it is called."""
    if key not in SECRET or not value:
        return value
    if key == "notify_url":
        return f"{origin_of(value) or '(no address)'}{'' if str(value).startswith('env:') else '/...'}"
    if key == "notify_command":
        first, *others = (list(map(str, value)) if isinstance(value, list) else str(value).split()) or ["..."]
        return f"{first} ..." if others else first
    try:
        return [f"{word.partition(':')[0]}: ..." if ":" in word else "..." for word in words_of(value)]
    except ValueError:
        return "..."


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
