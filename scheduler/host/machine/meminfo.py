"""Host memory as the kernel accounts it: /proc/meminfo, and how long others had to wait for it."""

from __future__ import annotations

import errno

from scheduler.model.machine import Reading

FIELDS = ("MemTotal", "MemFree", "MemAvailable")
KIB_PER_GIB = 1 << 20
PRESSURE_PERCENT = 1.0
MOST_DIGITS = 15
"""An exabyte has as many in KiB; more is no memory."""
NO_ACCOUNT = (errno.ENOENT, errno.EOPNOTSUPP)
"""What a kernel answers that was built, or started, without such an account."""


def meminfo(proc: str = "/proc") -> dict[str, Reading]:
    """MemTotal, MemFree and MemAvailable in GiB, each a reading of its own; what is not there is a failed one."""
    path = f"{proc}/meminfo"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError as error:
        return {name: Reading(None, path, f"{path}: {error.strerror}") for name in FIELDS}
    found = {name: Reading(None, f"{path} {name}", f"{path} has no {name}") for name in FIELDS}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if (
            name in found
            and len(words) == 2
            and words[0].isascii()
            and words[0].isdigit()
            and words[1] == "kB"
            and len(words[0]) <= MOST_DIGITS
        ):
            found[name] = Reading(int(words[0]) / KIB_PER_GIB, f"{path} {name}")
    return found


def pressure(proc: str = "/proc") -> tuple[Reading, Reading]:
    """Percent of the last 10 s in which some process waited for memory, and in which all did; two readings.

    Not applicable where the kernel keeps no such account.
    """
    path = f"{proc}/pressure/memory"
    some, full = (f"{path} {kind} avg10" for kind in ("some", "full"))
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = {line.split()[0]: line.split()[1] for line in file if line.strip()}
        values = [float(words[kind].removeprefix("avg10=")) for kind in ("some", "full")]
        if not all(0.0 <= value <= 100.0 for value in values):
            raise ValueError(path)
    except OSError as error:
        missing = "" if error.errno in NO_ACCOUNT else f"{path}: {error.strerror}"
        return Reading(None, some, missing), Reading(None, full, missing)
    except (ValueError, LookupError):
        return Reading(None, some, f"{path} is not understood"), Reading(None, full, f"{path} is not understood")
    return Reading(values[0], some), Reading(values[1], full)


def stalled(some: Reading, full: Reading) -> str:
    """A sentence when processes stalled for memory in the last 10 s; empty when they did not or it cannot be read."""
    if some.value is None or full.value is None or some.value < PRESSURE_PERCENT:
        return ""
    return (
        f"memory pressure: in the last 10 s some process waited for memory {some.value:g} % of the time, all did "
        f"{full.value:g} %"
    )
