"""Accelerators that the kernel's own files tell of: AMD's and Intel's cards, NVIDIA's Jetson boards; every card.

A card that only drives a display (no compute driver on it) is none, and a note says so. What a vendor's driver does not
tell is a failed reading with what to do about it, never a guess.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from scheduler.host.machine.kfd import Node, Nodes, tenants, topology
from scheduler.host.machine.sysfs import bytes_in, listed, text
from scheduler.model.machine import Device, Reading

AMD, INTEL, NVIDIA = "AMD", "Intel", "NVIDIA"
VENDORS = {"0x10de": NVIDIA, "0x1002": AMD, "0x8086": INTEL}
SLOT = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
INTEL_INTEGRATED = re.compile(r"0000:00:02\.[0-7]")
INTEL_DRIVERS = ("i915", "xe")
JETSON = re.compile(r"tegra|jetson|orin|xavier|thor", re.IGNORECASE)
INTEGRATED_GFX = frozenset((
    70000, 70003, 70005, 80001, 80100, 90002, 90009, 90012, 100103, 100303, 100305, 100306, 110003, 110500, 110501,
    110502, 110503,
))  # fmt: skip
"""Instruction sets that only AMD's integrated devices have, as LLVM's table of processors tells (gfx90c is 90012)."""
SOCKETS = ("0x74a0",)
"""AMD devices whose own memory is the machine's too, one part a socket (MI300A)."""
NOT_ON_INTEGRATED = ("board_info", "mem_busy_percent", "pcie_bw")
"""Files that amdgpu makes for cards alone, never for an integrated device."""


@dataclass(frozen=True)
class Card:
    """One `cardN` of sysfs. `slot` is its PCI address, "" = it has none; `driver` "" = none is bound.

    `model` is its PCI device id, like 0x744c.
    """

    name: str
    folder: str
    vendor: str
    model: str
    slot: str
    driver: str
    display: bool


@dataclass(frozen=True)
class Cards:
    """What was found. `nvidia` names cards of NVIDIA that its own driver answers for; `missing` what is unreadable."""

    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()
    nvidia: tuple[str, ...] = ()
    missing: str = ""


def cards(root: str = "/") -> Cards:
    """Every card of a vendor of accelerators, as the kernel's files tell of it; `root` is where these lie."""
    folder = os.path.join(root, "sys/class/drm")
    found = _Amd(root)
    devices: list[Device] = []
    notes: list[str] = []
    nvidia: list[str] = []
    missing: list[str] = []
    for card in _cards(folder, missing):
        if card.vendor == AMD:
            device, note = found.device(card)
        elif card.vendor == INTEL:
            device, note = _intel(card)
        elif card.driver == "nouveau":
            device, note = (
                None,
                f"NVIDIA {card.name} {card.slot} only drives a display: nouveau, its driver, cannot compute",
            )
        else:
            nvidia.append(card.name)
            continue
        devices += [device] if device else []
        notes += [note] if note else []
    return Cards(tuple(devices), (*notes, *found.notes()), tuple(nvidia), "; ".join([*missing, *found.missing()]))


def jetson(root: str = "/") -> Device | None:
    """The integrated device of a Jetson board, which no PCI bus shows; None elsewhere. OSError if unreadable.

    It has no memory of its own: there are no such totals.
    """
    folder = os.path.join(root, "proc/device-tree")
    model, compatible = text(f"{folder}/model"), text(f"{folder}/compatible")
    words = [word for word in (*compatible.split("\0"), model) if word]
    nvidia = any("nvidia" in word.lower() for word in words)
    if not nvidia or not any(JETSON.search(word) for word in words):
        return None
    nothing = Reading(None, "device tree")
    return Device(
        id="jetson", vendor=NVIDIA, name=model or "Jetson", total=nothing, free=nothing, used=nothing, integrated=True,
        number=0, seen_as="0",
        tenants_missing="which processes use a Jetson's device stands in the kernel's debugfs alone, for root",
    )  # fmt: skip


def _cards(folder: str, missing: list[str]) -> list[Card]:
    """The cards of the three vendors in the order of their PCI addresses; display adapters of others are none."""
    found = []
    names = listed(folder)
    for name in [name for name in names if re.fullmatch(r"card\d+", name)]:
        device = f"{folder}/{name}/device"
        try:
            vendor = VENDORS.get(text(f"{device}/vendor").lower())
            if vendor is None:
                continue
            slot, model = _slot(device), text(f"{device}/device").lower()
            driver = (
                os.path.basename(os.path.realpath(f"{device}/driver")) if os.path.lexists(f"{device}/driver") else ""
            )
            ports = [f"{folder}/{port}/status" for port in names if port.startswith(f"{name}-")]
            display = any(text(port) == "connected" for port in ports)
        except OSError as error:
            missing.append(f"{name}: {error.filename or device}: {error.strerror}")
            continue
        found.append(Card(name, device, vendor, model, slot, driver, display))
    return sorted(found, key=lambda card: (card.slot, len(card.name), card.name))


def _slot(device: str) -> str:
    for line in text(f"{device}/uevent").splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME":
            return value.strip().lower()
    last = os.path.basename(os.path.realpath(device))
    return last if SLOT.fullmatch(last) else ""


def _named(card: Card) -> str:
    """What people know a card by: the product's name where sysfs has one, and always `cardN`."""
    try:
        product = text(f"{card.folder}/product_name")
    except OSError:
        product = ""
    fallback = f"{card.vendor} device {card.model.removeprefix('0x')}".rstrip()
    return f"{product or fallback} ({card.name})"


def _intel(card: Card) -> tuple[Device | None, str]:
    if INTEL_INTEGRATED.fullmatch(card.slot) or card.driver not in INTEL_DRIVERS or not card.slot:
        return None, f"Intel {card.name} {card.slot} is taken as a display adapter: nothing is started on it"
    why = (
        f"Intel's driver {card.driver} tells no memory figures in sysfs: how much {card.name} has and how much of it "
        f'is free cannot be read; leave_alone = ["{card.slot}"] takes it out'
    )
    unknown = Reading(None, f"sysfs {card.name}", why)
    return Device(
        id=card.slot, vendor=INTEL, name=_named(card), total=unknown, free=unknown, used=unknown, tenants_missing=why,
        display=card.display, slot=card.slot,
    ), ""  # fmt: skip


class _Amd:
    """AMD's cards of one look at the machine."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.compute = os.path.exists(os.path.join(root, "dev/kfd"))
        self.nodes: Nodes | None = None

    def missing(self) -> list[str]:
        """What of the compute driver could not be read, where there is a card that it matters to."""
        return [f"AMD: {self.nodes.missing}"] if self.nodes is not None and self.nodes.missing else []

    def notes(self) -> list[str]:
        """What stands in the way of every card."""
        path = os.path.join(self.root, "dev/kfd")
        if self.nodes is None or not self.nodes.nodes or os.access(path, os.R_OK | os.W_OK):
            return []
        return [f"{path} may not be opened by this user: a worker sees no AMD device; add the user to its group"]

    def device(self, card: Card) -> tuple[Device | None, str]:
        """The card as a device, or a note why it is none."""
        if not self.compute:
            return None, f"AMD {card.name} {card.slot} only drives a display: there is no /dev/kfd to compute through"
        self.nodes = topology(self.root) if self.nodes is None else self.nodes
        here = [node for node in self.nodes.nodes if node.slot == card.slot]
        if not here:
            if self.nodes.missing:
                return None, ""
            why = "it is not among the devices given to this container" if self.nodes.hidden else "it cannot compute"
            return None, f"AMD {card.name} {card.slot} is left out: the compute driver does not list it, {why}"
        node = here[0]
        unique = f"GPU-{node.unique:016x}" if node.unique and len(here) == 1 else ""
        device = Device(
            id=unique or card.slot, vendor=AMD, name=_named(card), total=Reading(None, ""), free=Reading(None, ""),
            used=Reading(None, ""), display=card.display, slot=card.slot, number=node.index,
            seen_as=unique or str(node.index), driver=self._driver(),
        )  # fmt: skip
        if len(here) > 1:
            return _unread(device, (
                f"{card.name} is divided into {len(here)} partitions, whose memory is not read apart: set it to one "
                f'(compute partition SPX), or take it out with leave_alone = ["{card.slot}"]'
            )), ""  # fmt: skip
        return self._measured(card, node, device), ""

    def _driver(self) -> str:
        """The version of amdgpu: its own where it was installed by itself, else the kernel's that it is part of."""
        try:
            own = text(os.path.join(self.root, "sys/module/amdgpu/version"))
            return own or text(os.path.join(self.root, "proc/sys/kernel/osrelease"))
        except OSError:
            return ""

    def _measured(self, card: Card, node: Node, device: Device) -> Device:
        """The memory of one card. An integrated device's is what was set apart for it and what it may map (GTT)."""
        total, used = (self._sum(card, what, "vram") for what in ("total", "used"))
        gtt = bytes_in(f"{card.folder}/mem_info_gtt_total", f"sysfs {card.name} gtt")
        maps_more = gtt.failed or (gtt.value or 0.0) > (total.value or 0.0)
        integrated = _integrated(card, node)
        if card.model in SOCKETS:
            return _unread(replace(device, integrated=True), (
                f"the memory of {card.name} is its socket's part of the machine's, and how much that is cannot be "
                f'read; set unified = true to count all of it as one, or take it out with leave_alone = ["{card.slot}"]'
            ))  # fmt: skip
        if integrated is None and maps_more and total.value is not None:
            total = Reading(None, total.source, (
                f"{card.name} has {total.value:.2f} GiB and maps {gtt.value or 0.0:.2f} GiB of the machine's, and this "
                "kernel does not tell whether it is part of the processor; set unified = true if it is, or take it out "
                f'with leave_alone = ["{card.slot}"]'
            ))  # fmt: skip
        shares = bool(integrated) and maps_more
        if shares:
            total, used = (self._sum(card, what, "vram", "gtt") for what in ("total", "used"))
        free = next((each for each in (total, used) if each.value is None), None)
        if total.value is not None and used.value is not None:
            free = Reading(max(0.0, total.value - used.value), used.source.replace(" used", " free"))
        on_it, unknown = tenants(self.root, node.gpu_id, integrated=shares)
        return replace(
            device,
            total=total,
            used=used,
            free=free or total,
            integrated=shares,
            tenants=on_it,
            tenants_missing=unknown,
        )

    def _sum(self, card: Card, what: str, *heaps: str) -> Reading:
        """Memory of one kind in all of these heaps; every card of amdgpu has these files, so one that lacks failed."""
        source = f"sysfs {card.name} {'+'.join(heaps)}{' used' if what == 'used' else ''}"
        total_gib = 0.0
        for heap in heaps:
            path = f"{card.folder}/mem_info_{heap}_{what}"
            reading = bytes_in(path, source)
            if reading.value is None:
                return Reading(None, source, reading.missing or f"{path} is not there: the driver is too old to tell")
            total_gib += reading.value
        return Reading(total_gib, source)


def _integrated(card: Card, node: Node) -> bool | None:
    """Whether it is part of the processor; None = nothing tells."""
    if any(os.path.lexists(f"{card.folder}/{name}") for name in NOT_ON_INTEGRATED):
        return False
    return True if node.processor or node.gfx in INTEGRATED_GFX else None


def _unread(device: Device, why: str) -> Device:
    """The device with no figures, and the reason."""
    unknown = Reading(None, f"sysfs {device.name.rpartition('(')[2].rstrip(')')}", why)
    return replace(device, total=unknown, free=unknown, used=unknown, tenants_missing=why)
