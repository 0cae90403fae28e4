"""What the control groups above us leave of the machine: memory limits and their use, v1 and v2, and cores.

A limit bounds capacity; limit - (usage - file pages) bounds what is live, for file pages are given back first. Every
group from ours up to the root of what can be seen counts: the tightest is what a worker of ours dies of. Device memory
on unified machines is in no group (E7), so these bound, they never measure.
"""

from __future__ import annotations

import errno
import math
import os
from dataclasses import dataclass

from scheduler.model.machine import GIB, Reading
from scheduler.mounts import mount

V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file")
V2 = ("memory.max", "memory.current", "inactive_file", "active_file")
UNLIMITED = 1 << 60
MOST_DIGITS = 20
"""Every number of the kernel's has fewer."""


@dataclass(frozen=True)
class Bound:
    """One group's limit, and what of it is not in use by anything that must stay. GiB; failed = could not be read."""

    path: str
    limit: Reading
    left: Reading


def memory_bounds(proc: str = "/proc") -> list[Bound]:
    """The limits of every group above us that has one, innermost first. GiB."""
    found = []
    for folder, version in _memory_folders(proc):
        bound = _bound(folder, V2 if version == 2 else V1)
        if bound is not None:
            found.append(bound)
    return found


def again(bounds: list[Bound]) -> list[Bound]:
    """The same groups, read again: cheap enough for ten times a second. One that lost its limit is left out."""
    read = (_bound(b.path, V2 if os.path.basename(b.limit.source) == V2[0] else V1) for b in bounds)
    return [bound for bound in read if bound is not None]


def reclaimable(proc: str = "/proc") -> list[str]:
    """The groups above us, innermost first, of which we may ask that they give memory back."""
    return [folder for folder in _folders(proc, "memory", 2) if os.access(f"{folder}/memory.reclaim", os.W_OK)]


def reclaim(folder: str, gib: float) -> bool:
    """Let a group give so much back, of its file pages alone; whether it gave anything.

    A kernel that cannot leave anonymous memory where it is is only asked where there is no swap that it could go to.
    """
    for words in (f"{int(gib * GIB)} swappiness=0", f"{int(gib * GIB)}"):
        if "swappiness" not in words and _swaps():
            return False
        try:
            with open(f"{folder}/memory.reclaim", "w", encoding="ascii") as file:
                file.write(words)
            return True
        except OSError as error:
            if error.errno != errno.EINVAL:
                return error.errno == errno.EAGAIN  # it gave less than it was asked for
    return False


def _swaps() -> bool:
    return len(_text("/proc/swaps").splitlines()) > 1


def cores(proc: str = "/proc") -> int:
    """How many cores this process may compute on: its affinity, less where a group's quota gives it fewer."""
    count = float(len(os.sched_getaffinity(0)))
    for folder in _folders(proc, "cpu", 2):
        words = _text(f"{folder}/cpu.max").split()
        if len(words) == 2:
            count = min(count, _share(*words))
    for folder in _folders(proc, "cpu", 1):
        quota, period = _text(f"{folder}/cpu.cfs_quota_us").strip(), _text(f"{folder}/cpu.cfs_period_us").strip()
        count = min(count, _share(quota, period))
    return max(1, int(count))


def _share(quota: str, period: str) -> float:
    """Cores that a quota gives; no bound where it is none."""
    given, of = _number(quota), _number(period)
    return given / of if given is not None and of else math.inf


def _memory_folders(proc: str) -> list[tuple[str, int]]:
    return [(folder, version) for version in (2, 1) for folder in _folders(proc, "memory", version)]


def _folders(proc: str, controller: str, version: int) -> list[str]:
    """The folders of our group and every one above it in that hierarchy, innermost first; empty if it is not there."""
    path = None
    for line in _text(f"{proc}/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if (version == 2 and number == "0" and not names) or (version == 1 and controller in names.split(",")):
            path = group
    if path is None:
        return []
    for line in _text(f"{proc}/self/mountinfo").splitlines():
        found = mount(line)
        if found is None:
            continue
        root, point, kind, options = found
        if version == 2 and kind != "cgroup2":
            continue
        if version == 1 and (kind != "cgroup" or controller not in options.split(",")):
            continue
        return _upwards(point, _below(path, root))
    return []


def _below(path: str, root: str) -> str:
    """Our group's path seen from the mount's root; the mount itself when we are not below it."""
    root = root.rstrip("/")
    if root and not (path == root or path.startswith(root + "/")):
        return ""
    inside = path[len(root) :].strip("/")
    return "" if ".." in inside.split("/") else inside


def _upwards(mount: str, inside: str) -> list[str]:
    parts = inside.split("/") if inside else []
    return ["/".join([mount, *parts[:n]]) for n in range(len(parts), -1, -1)]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """A whole number as the kernel writes one; None if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def _bound(folder: str, names: tuple[str, str, str, str]) -> Bound | None:
    """None where the group has no limit: its file is not there (the root's), or says so."""
    limit_file, usage_file, inactive, active = names
    source = f"{folder}/{limit_file}"
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            text = file.read().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        unknown = Reading(None, source, f"{source}: {error.strerror}")
        return Bound(folder, unknown, unknown)
    most = _number(text)
    if text == "max" or (most is not None and most >= UNLIMITED):
        return None
    if most is None:
        unknown = Reading(None, source, f"{source} says {text[:40]!r}, which is no limit of memory")
        return Bound(folder, unknown, unknown)
    limit = Reading(most / GIB, source)
    stat = dict(line.split() for line in _text(f"{folder}/memory.stat").splitlines() if len(line.split()) == 2)
    try:
        used = int(_text(f"{folder}/{usage_file}")) - int(stat[inactive]) - int(stat[active])
    except (ValueError, KeyError):
        missing = f"{folder} limits memory to {most / GIB:.2f} GiB and its use cannot be read"
        return Bound(folder, limit, Reading(None, source, missing))
    return Bound(folder, limit, Reading(max(0.0, (most - used) / GIB), source))
