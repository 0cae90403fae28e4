"""Facts of this machine for `doctor`: read, never changed, and judged elsewhere (rules.health)."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Sequence

from scheduler.clock import monotonic_s
from scheduler.config import Paths, Settings
from scheduler.host import boot
from scheduler.host.machine import cgroup, processes
from scheduler.host.machine.accelerators import Accelerators, Seen
from scheduler.host.machine.disks import DISK_SHARE
from scheduler.host.machine.meminfo import meminfo
from scheduler.host.machine.snapshot import wanted
from scheduler.host.workers import records, tree
from scheduler.model.machine import GIB, Device
from scheduler.mounts import mount
from scheduler.rules import health
from scheduler.rules.pools import Layout, Memory, layout

SYSTEMD, LINGER = "/run/systemd/system", "/var/lib/systemd/linger"
STA_UNSYNC = 0x40
OLD_S = 31 * 86400.0
"""Folders of workers that are gone for longer are worth a word; until then they have logs that somebody may read."""
SOCKET_MOST, LONGEST_SOCKET = 107, "0000000000.w"


def platform(sqlite: tuple[int, int, int]) -> health.Platform:
    """Kernel and Python; which SQLite it is, who has it loaded says."""
    major, minor, patch = sys.version_info[:3]
    return health.Platform(os.uname().release, (major, minor, patch), sqlite)


def place(paths: Paths, network: Sequence[str], mountinfo: str = "/proc/self/mountinfo") -> health.Place:
    """Where the queue's folder lies. `network` are the filesystems on which a queue can be corrupted."""
    point, kind, options = _mount_of(paths.home, mountinfo)
    try:
        found = os.stat(paths.home)
    except OSError:
        return health.Place(paths.home, point, kind, kind in network, "ro" in options, there=False)
    mode, ours = found.st_mode & 0o777, found.st_uid == os.geteuid()
    return health.Place(paths.home, point, kind, kind in network, "ro" in options, True, ours, mode)


def _mount_of(path: str, mountinfo: str) -> tuple[str | None, str | None, list[str]]:
    """(mount point, filesystem, options) that a path is on; None where it cannot be told."""
    real, best, options = os.path.realpath(path), ("", ""), list[str]()
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            found = mount(line)
            if found is None:
                continue
            point, kind = found[1], found[2]
            under = point == "/" or real == point or real.startswith(point + "/")
            if under and len(point) >= len(best[0]):
                best, options = (point, kind), line.split()[5].split(",")
    return best[0] or None, best[1] or None, options


def disks(places: Sequence[tuple[str, str]], reserve_gib: float) -> list[health.Disk]:
    """The room of each filesystem that these (what for, path) lie on, each filesystem once."""
    found, seen = [], set()
    for what, path in places:
        there = path
        while not os.path.isdir(there) and os.path.dirname(there) != there:
            there = os.path.dirname(there)
        try:
            device, room = os.stat(there).st_dev, os.statvfs(there)
        except OSError:
            found.append(health.Disk(what, path, None))
            continue
        if device in seen:
            continue
        seen.add(device)
        free, whole = (count * room.f_frsize / GIB for count in (room.f_bavail, room.f_blocks))
        kept = min(reserve_gib, whole * DISK_SHARE)
        found.append(health.Disk(what, path, free, whole, kept, room.f_favail if room.f_files else None))
    return found


def sockets(paths: Paths) -> health.Sockets:
    """The folder of sockets."""
    longest = len(os.fsencode(os.path.join(paths.run, LONGEST_SOCKET)))
    try:
        found = os.lstat(paths.run)
    except OSError:
        return health.Sockets(paths.run, longest, SOCKET_MOST, paths.run.startswith(paths.home), False, True)
    private = found.st_uid == os.geteuid() and found.st_mode & 0o170077 == 0o040000
    return health.Sockets(paths.run, longest, SOCKET_MOST, paths.run.startswith(paths.home), True, private)


def login(user: str) -> health.Login:
    """Whether what the user runs stays after the last logout, where systemd could end it."""
    systemd, root = os.path.isdir(SYSTEMD), os.geteuid() == 0
    lingers = None
    if systemd and not root:
        lingers = os.path.exists(os.path.join(LINGER, user)) or boot.lingers(user)
    return health.Login(systemd, user, lingers, root)


def kernel(proc: str = "/proc") -> health.Kernel:
    """What the kernel allows and hides."""
    bounds = cgroup.memory_bounds(proc)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    total, free = _swap(proc)
    return health.Kernel(
        processes.hidden(proc),
        tuple((bound.path, bound.limit.value, bound.limit.missing) for bound in bounds),
        total, None if total is None or free is None else total - free, _count(soft), _count(hard), None,
    )  # fmt: skip


def _count(limit: int) -> int:
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def _swap(proc: str) -> tuple[float | None, float | None]:
    """(GiB of swap, GiB of it that are free)."""
    found: dict[str, float] = {}
    with open(f"{proc}/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in ("SwapTotal", "SwapFree"):
                found[name] = int(rest.split()[0]) / (1 << 20)
    return found.get("SwapTotal"), found.get("SwapFree")


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_char * 256),
    ]  # fmt: skip


def synchronised() -> bool | None:
    """Whether the kernel knows the clock to be held to another one; None if it does not tell."""
    told = _Timex()
    try:
        if ctypes.CDLL(None).adjtimex(ctypes.byref(told)) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return not told.status & STA_UNSYNC


def clock(ahead_s: float | None) -> health.Clock:
    """The clock; `ahead_s`: how far the newest stamp of the queue lies ahead of it."""
    return health.Clock(monotonic_s(), ahead_s, synchronised())


def devices(settings: Settings, within_s: float) -> tuple[list[health.Card], list[str], str]:
    """(each device with its class, what drivers could not tell, why there is none), by a child process of its own."""
    accelerators = Accelerators(within_s=within_s)
    try:
        seen: Seen = accelerators.read()
    finally:
        accelerators.close()
    info = meminfo()
    memory = Memory(info["MemTotal"], info["MemFree"], info["MemAvailable"], info["MemTotal"])
    laid = layout(seen.devices, seen.count, memory, wanted(settings))
    errors = [seen.count.missing] if seen.count.failed else []
    return [_card(each, laid) for each in laid.devices], errors, f"no accelerator ({seen.count.source})"


def _card(device: Device, laid: Layout) -> health.Card:
    pool = next((each for each in laid.pools if each.id == f"device:{device.id}"), None)
    notes = [note for note in laid.notes if note.startswith(device.id)]
    name = device.name or device.id
    if pool is not None and pool.capacity.value is not None:
        source = pool.capacity.source
        return health.Card(name, device.slot, "own", pool.capacity.value, f"its driver tells the total: {source}")
    if pool is not None:
        return health.Card(name, device.slot, "unknown", None, pool.capacity.missing)
    if device.integrated and laid.pools and laid.pools[0].kind == "unified" and not notes:
        total = device.total.value
        why = (
            "integrated, and its driver has no total" if total is None else "integrated, and its total is the machine's"
        )
        return health.Card(name, device.slot, "unified", None, why)
    return health.Card(name, device.slot, "left_alone", device.total.value, notes[0] if notes else "")


def leftovers(paths: Paths, queue_id: str, older_than_s: float = OLD_S) -> list[tuple[str, str]]:
    """What dead processes left in the queue's folder: (what, where), as rules.health names it."""
    found = [("a socket that nobody serves", path) for path in records.dead_sockets(paths)]
    living: tree.Living | None = None
    for path in records.old_folders(paths, older_than_s):
        living = living or tree.Living(queue_id)
        if not living.has(path, int(os.path.basename(path))):
            found.append(("a folder of a worker that is gone", path))
    for folder in (paths.results, paths.jobs, paths.content, paths.workers, paths.backups):
        names = _names(folder)
        found += [("half-removed by a prune that was killed", os.path.join(folder, n)) for n in names if n[:8] == AWAY]
    found += [
        ("a file that was half copied", os.path.join(paths.content, name))
        for name in _names(paths.content)
        if name.startswith(".staged-") and not os.path.exists(f"/proc/{name.split('-')[1]}")
    ]
    found += [
        ("a backup that was not finished", os.path.join(paths.backups, name))
        for name in _names(paths.backups)
        if ".part-" in name and not os.path.exists(f"/proc/{name.rpartition('-')[2]}")
    ]
    return found


AWAY = ".pruned-"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
