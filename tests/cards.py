"""Trees of /sys, /proc and /dev as the kernel makes them, for machines that are not this one. Sizes in GiB."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

GIB = 1 << 30


def lay(root: Path, path: str, text: str = "") -> Path:
    """A file of that text below `root`."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


@dataclass
class Tree:
    """The files of one machine; what is not laid is not there."""

    root: Path
    nodes: int = field(default=0)

    def card(
        self, number: int, vendor: str, slot: str, *, model: str = "0x0000", driver: str = "", display: bool = False
    ) -> Path:
        """A PCI card of sysfs with one port; its folder."""
        device = self.root / "sys/devices/pci0000:00" / slot
        device.mkdir(parents=True)
        lay(device, "vendor", f"{vendor}\n")
        lay(device, "device", f"{model}\n")
        lay(device, "uevent", f"DRIVER={driver}\nPCI_SLOT_NAME={slot}\n")
        if driver:
            lay(self.root, f"sys/bus/pci/drivers/{driver}/module")
            os.symlink(self.root / f"sys/bus/pci/drivers/{driver}", device / "driver")
        card = self.root / f"sys/class/drm/card{number}"
        card.mkdir(parents=True)
        os.symlink(device, card / "device")
        port = self.root / f"sys/class/drm/card{number}-DP-1"
        lay(port, "status", "connected\n" if display else "disconnected\n")
        os.symlink(card, port / "device")
        return device

    def amd(
        self, number: int = 0, slot: str = "0000:03:00.0", *, vram: float = 16.0, vram_used: float = 0.0,
        gtt: float = 8.0, gtt_used: float = 0.0, model: str = "0x744c", product: str = "", display: bool = False,
        discrete: bool = True, unique: int = 0x1234, gfx: int = 110000, computes: bool = True, partitions: int = 1,
    ) -> Path:  # fmt: skip
        """A card of AMD under amdgpu with its node of the compute driver; `discrete`: files that only cards have."""
        device = self.card(number, "0x1002", slot, model=model, driver="amdgpu", display=display)
        sizes = {"vram_total": vram, "vram_used": vram_used, "gtt_total": gtt, "gtt_used": gtt_used}
        for name, gib in sizes.items():
            lay(device, f"mem_info_{name}", f"{int(gib * GIB)}\n")
        if product:
            lay(device, "product_name", f"{product}\n")
        if discrete:
            lay(device, "board_info", "type : cem\n")
        if computes:
            lay(self.root, "dev/kfd")
            if not self.nodes:
                self.node("0", "cpu_cores_count 16\nsimd_count 0\n")
            for part in range(partitions):
                place = self._location(slot) | part << 28
                self.node(
                    str(1000 + number), f"cpu_cores_count 0\nsimd_count 192\nlocation_id {place}\ndomain 0\n"
                    f"gfx_target_version {gfx}\nunique_id {unique}\n",
                )  # fmt: skip
        return device

    def node(self, gpu_id: str, properties: str) -> Path:
        """The next node of the compute driver."""
        node = self.root / f"sys/class/kfd/kfd/topology/nodes/{self.nodes}"
        self.nodes += 1
        lay(node, "gpu_id", f"{gpu_id}\n")
        lay(node, "properties", properties)
        (self.root / "sys/class/kfd/kfd/proc").mkdir(parents=True, exist_ok=True)
        return node

    def computing(self, pid: int, held: dict[int, float], queues: tuple[int, ...] = ()) -> Path:
        """A process of the compute driver: GiB by the card's number, and the cards that it has a queue on."""
        folder = self.root / f"sys/class/kfd/kfd/proc/{pid}"
        lay(folder, "pasid", "1\n")
        for number, gib in held.items():
            lay(folder, f"vram_{1000 + number}", f"{int(gib * GIB)}\n")
        for queue, number in enumerate(queues):
            lay(folder, f"queues/{queue}/gpuid", f"{1000 + number}\n")
        return folder

    def jetson(self, model: str = "NVIDIA Jetson AGX Orin Developer Kit", chip: str = "nvidia,tegra234") -> None:
        """The device tree of a Jetson board."""
        lay(self.root, "proc/device-tree/model", f"{model}\0")
        lay(self.root, "proc/device-tree/compatible", f"nvidia,p3737-0000+p3701-0000\0{chip}\0")

    @staticmethod
    def _location(slot: str) -> int:
        _, bus, rest = slot.split(":")
        device, function = rest.split(".")
        return int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
