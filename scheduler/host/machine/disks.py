"""The disks that jobs write to: the queue's own, and those that destinations asked for lie on. Each look has its time.

A disk that hangs (a share whose server is gone) is a failed reading of that one alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.config import Paths, Settings
from scheduler.host.machine.probe import WITHIN_S, Probe
from scheduler.model.machine import GIB, Disk, nearest

DISK_SHARE = 0.02
LEAST_FILES = 256
"""How many files a disk must take yet: a worker and its attempt need about twenty."""
MOST = 64
"""So many destinations are looked at; beyond that the ones that came first."""


@dataclass(frozen=True)
class Room:
    """GiB free and in all of the disk that a path is on, how many more files it takes (None: nobody counts them);
    `folder` is what of the path is there, `device` tells disks apart.
    """

    free_gib: float
    whole_gib: float
    files: int | None
    folder: str
    device: int


def room_of(path: str) -> Room:
    """The room of the disk that a path is on, whether or not it is there. OSError."""
    folder = path
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    room, device = os.statvfs(folder), os.stat(folder).st_dev
    files = room.f_favail if room.f_files else None
    return Room(room.f_bavail * room.f_frsize / GIB, room.f_blocks * room.f_frsize / GIB, files, folder, device)


class Disks:
    """The disks of one queue. `watch` may be called from any thread, the rest from the sampler's."""

    def __init__(self, home: str, settings: Settings, within_s: float = WITHIN_S) -> None:
        paths = Paths(home)
        self._own = (
            ("the state folder", home), ("jobs' work", paths.jobs), ("results", paths.results),
            ("stored inputs", paths.content),
        )  # fmt: skip
        self._settings, self._within_s = settings, within_s
        self._state: Probe[list[Disk]] = Probe("the disk of the state folder", within_s)
        self._lock = threading.Lock()
        self._wanted: tuple[str, ...] = ()
        self._known: dict[str, Disk] = {}
        self._probes: dict[str, Probe[Disk]] = {}

    def watch(self, folders: Sequence[str]) -> bool:
        """Look at these from now on, and at no others beside the queue's own; whether there is a new one among them."""
        wanted = tuple(sorted(set(folders)))[:MOST]
        with self._lock:
            if wanted == self._wanted:
                return False
            self._wanted, known = wanted, self._known
        return any(nearest(known, folder) is None for folder in wanted)

    def own(self) -> tuple[Disk, str]:
        """The tightest of the queue's own disks, and what is to be noted of it."""
        found = self._state.ask(self._look)
        if not found:
            kept_gib = self._settings.number("disk_reserve_gib")
            return Disk("the state folder", None, kept_gib, self._state.missing), self._state.missing
        tightest = min(found, key=lambda disk: (disk.free_gib or 0.0) - disk.reserve_gib)
        return tightest, tightest.missing

    def _look(self) -> list[Disk]:
        seen: set[int] = set()
        found = []
        for what, path in self._own:
            room = room_of(path)
            if room.device not in seen:
                seen.add(room.device)
                found.append(self._disk(what, room))
        return found

    def destinations(self) -> dict[str, Disk]:
        """The disks of the destinations that are watched, by folder: as it was asked for, and what of it is there."""
        with self._lock:
            wanted = self._wanted
        self._probes = {path: self._probes.get(path) or Probe(f"the disk of {path}", self._within_s) for path in wanted}
        found: dict[str, Disk] = {}
        for path, probe in self._probes.items():
            box: list[str] = []
            disk = probe.ask(lambda path=path, box=box: self._at(path, box))  # type: ignore[misc]
            kept_gib = self._settings.number("disk_reserve_gib")
            found[path] = disk or Disk("its destination", None, kept_gib, probe.missing)
            if disk is not None and box:
                found[box[0]] = disk
        with self._lock:
            self._known = found
        return found

    def _at(self, path: str, there: list[str]) -> Disk:
        room = room_of(path)
        there.append(room.folder)
        return self._disk("its destination", room)

    def _disk(self, what: str, room: Room) -> Disk:
        """The smaller of the setting and 2 % of the disk is kept."""
        kept_gib = min(self._settings.number("disk_reserve_gib"), room.whole_gib * DISK_SHARE)
        if room.files is not None and room.files < LEAST_FILES:
            note = f"the disk of {what} has room for {room.files} more files: it counts as full"
            return Disk(what, 0.0, kept_gib, note)
        return Disk(what, room.free_gib, kept_gib)
