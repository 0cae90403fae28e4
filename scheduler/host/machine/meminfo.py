"""Host memory as the kernel accounts it: /proc/meminfo, and how long others had to wait for it."""

from __future__ import annotations

from scheduler.model.machine import Reading

FIELDS = ("MemTotal", "MemFree", "MemAvailable")
KIB_PER_GIB = 1 << 20
PRESSURE_PERCENT = 1.0


def meminfo(proc: str = "/proc") -> dict[str, Reading]:
    """MemTotal, MemFree and MemAvailable in GiB, each a reading of its own; what is not there is a failed one."""
    path = f"{proc}/meminfo"
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except OSError as error:
        return {name: Reading(None, path, f"{path}: {error.strerror}") for name in FIELDS}
    found = {name: Reading(None, f"{path} {name}", f"{path} has no {name}") for name in FIELDS}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name in found and len(words) == 2 and words[0].isdigit() and words[1] == "kB":
            found[name] = Reading(int(words[0]) / KIB_PER_GIB, f"{path} {name}")
    return found


def pressure_note(proc: str = "/proc") -> str:
    """A sentence when processes stalled for memory in the last 10 s; empty when they did not or it cannot be read."""
    try:
        with open(f"{proc}/pressure/memory") as file:
            words = {line.split()[0]: line.split()[1] for line in file if line.strip()}
        some, full = (float(words[kind].removeprefix("avg10=")) for kind in ("some", "full"))
    except (OSError, ValueError, LookupError):
        return ""
    if some < PRESSURE_PERCENT:
        return ""
    return (
        f"memory pressure: in the last 10 s some process waited for memory {some:g} % of the time, all did {full:g} %"
    )
