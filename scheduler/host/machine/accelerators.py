"""Every accelerator of this machine, of every vendor, in one fixed order; and how many there are.

A vendor's driver is asked only where there is a sign of it. A sign and a driver that errs is a failed count: there may
be a device more than is seen. What kind of memory a device has does not change while it is there, so a driver that
stops answering leaves the devices that it told of, each without live figures, instead of an emptier machine.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from scheduler.host.machine.cards import NVIDIA, Cards, cards, jetson
from scheduler.host.machine.probe import WITHIN_S, Probe
from scheduler.model.machine import Device, Reading

NVIDIA_DEVICE = re.compile(r"nvidia(\d+|ctl|-uvm)|nvhost-gpu|dxg")
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_FOLDERS = (
    "/usr/lib/*-linux-gnu*", "/usr/lib64", "/usr/lib", "/lib/*-linux-gnu*", "/usr/local/nvidia/lib*",
    "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
)  # fmt: skip
BOARD = "device tree"
LOOKED = "/proc/driver, /dev, /sys/class/drm, the driver's library"


class Driver(Protocol):
    """A vendor's driver, read in a process of its own, so that a call that hangs can be cut off.

    `notes` are the last read's: what is there and is not used.
    """

    notes: tuple[str, ...]

    def read(self) -> tuple[tuple[Device, ...], str]:
        """(devices, why none could be read)."""

    def close(self) -> None:
        """End that process."""


@dataclass(frozen=True)
class Seen:
    """What there is. `count` is how many devices: 0.0 = looked and found none, failed = a driver errs, or hangs."""

    devices: tuple[Device, ...]
    count: Reading
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Look:
    """One look at the kernel's files. `discrete`: a card of NVIDIA is beside a board's own device."""

    signs: tuple[str, ...]
    found: Cards
    board: tuple[Device, ...]
    discrete: bool


class Accelerators:
    """Reads them again and again. `root` is where /proc, /sys, /dev and /usr are looked for; seconds."""

    def __init__(self, root: str = "/", within_s: float = WITHIN_S, nvidia: Callable[[], Driver] | None = None) -> None:
        self.root = root
        self._files: Probe[_Look] = Probe("the cards in sysfs", within_s)
        self._open = nvidia or partial(_nvidia, within_s)
        self._driver: Driver | None = None
        self._known: dict[str, tuple[Device, ...]] = {}
        """What each source told last."""

    def read(self) -> Seen:
        """Every device now. Blocks for two deadlines at most: the kernel's files', then NVIDIA's."""
        errs: list[str] = []
        notes: list[str] = []
        look = self._files.ask(lambda: _look(self.root))
        if look is None:
            errs.append(self._files.missing)
            found, board = (self._lost(source, self._files.missing) for source in ("sysfs", BOARD))
        else:
            errs += [look.found.missing] if look.found.missing else []
            notes += look.found.notes
            found, board = self._told("sysfs", look.found.devices, look.found.missing), self._told(BOARD, look.board)
        theirs, missing = self._of_nvidia(look)
        if missing and board and not theirs and look is not None and not look.discrete:
            notes.append(f"{board[0].name} is known from its device tree alone: {missing}")
        elif missing:
            errs.append(missing)
        notes += self._driver.notes if self._driver is not None else ()
        devices = _ordered((*found, *(theirs or board)))
        return Seen(devices, _count(devices, errs), tuple(notes))

    def close(self) -> None:
        """End what was started; a read that hangs is left to hang alone."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _of_nvidia(self, look: _Look | None) -> tuple[tuple[Device, ...], str]:
        """(what NVIDIA's driver tells, why it does not); nothing at all where no sign of it is left."""
        if look is not None and not look.signs:
            self.close()
            self._known.pop(NVIDIA, None)
        elif self._driver is None and look is not None:
            self._driver = self._open()
        if self._driver is None:
            return (), ""
        devices, missing = self._driver.read()
        if not missing:
            return self._told(NVIDIA, devices), ""
        signs = "; ".join(look.signs) if look is not None else NVIDIA
        return self._lost(NVIDIA, missing), f"{signs}: {missing}"

    def _told(self, source: str, devices: tuple[Device, ...], missing: str = "") -> tuple[Device, ...]:
        """The devices as they are. What can be read no more is told as it was: a total, a device if some are `missing`.

        So one reading that fails never turns unified memory into a device's own, or back.
        """
        before = {device.id: device for device in self._known.get(source, ())}
        steady = [_steady(device, before.get(device.id)) for device in devices]
        if missing:
            here = {device.id for device in devices}
            steady += [device for device in self._lost(source, missing) if device.id not in here]
        self._known[source] = tuple(steady)
        return self._known[source]

    def _lost(self, source: str, why: str) -> tuple[Device, ...]:
        """What a source told last, without its live figures."""
        gone = Reading(None, source, why)
        return tuple(
            replace(device, free=gone, used=gone, tenants=(), tenants_missing=why)
            for device in self._known.get(source, ())
        )


def _steady(device: Device, before: Device | None) -> Device:
    if before is None or before.total.failed or not device.total.failed:
        return device
    return replace(device, total=before.total, integrated=before.integrated)


def _nvidia(within_s: float) -> Driver:
    from scheduler.host.machine.nvidia import Nvidia

    return Nvidia(within_s)


def _look(root: str) -> _Look:
    found = cards(root)
    board = jetson(root)
    signs = tuple(_nvidia_signs(root, found.nvidia))
    return _Look(signs, found, (board,) if board else (), board is not None and _on_pci(root))


def _count(devices: tuple[Device, ...], errs: list[str]) -> Reading:
    if errs:
        return Reading(None, LOOKED, "; ".join(errs))
    vendors = dict.fromkeys(device.vendor for device in devices)
    each = [f"{sum(device.vendor == vendor for device in devices)} {vendor}" for vendor in vendors]
    return Reading(float(len(devices)), ", ".join(each) or LOOKED)


def _ordered(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """By vendor, then PCI address, then number."""
    return tuple(
        sorted(devices, key=lambda d: (d.vendor, d.slot.lower(), d.number if d.number is not None else -1, d.id))
    )


def _nvidia_signs(root: str, shown: tuple[str, ...] = ()) -> list[str]:
    """One line of all that points at NVIDIA's driver; `shown` are its cards in sysfs. Empty = no sign."""
    signs = []
    if os.path.isdir(os.path.join(root, "proc/driver/nvidia")):
        signs.append("/proc/driver/nvidia")
    try:
        names = sorted(name for name in os.listdir(os.path.join(root, "dev")) if NVIDIA_DEVICE.fullmatch(name))
    except OSError:
        names = []
    signs += [f"/dev/{name}" for name in names[:2]]
    signs += shown
    path = os.environ.get("PATH", os.defpath) if root == "/" else os.path.join(root, "usr/bin")
    if not signs and shutil.which("nvidia-smi", path=path):
        signs.append("nvidia-smi")
    if not signs and any(_libraries(root)):
        signs.append(LIBRARY)
    return [f"NVIDIA ({', '.join(signs)})"] if signs else []


def _libraries(root: str) -> list[str]:
    folders = [os.path.join(root, folder.lstrip("/")) for folder in LIBRARY_FOLDERS]
    if root == "/":
        folders += [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return [path for folder in folders for path in glob.glob(os.path.join(folder, LIBRARY))]


def _on_pci(root: str) -> bool:
    """Whether a card of NVIDIA is on the PCI bus: beside a board's own device, its driver must answer for it."""
    for folder in glob.glob(os.path.join(root, "sys/bus/pci/devices/*")):
        try:
            with open(f"{folder}/vendor") as vendor, open(f"{folder}/class") as kind:
                if vendor.read().strip().lower() == "0x10de" and kind.read().strip().lower().startswith("0x03"):
                    return True
        except OSError:
            continue
    return False
