"""Whether this machine has an accelerator. This version reads none of them: one that is there is a failed reading.

So a provider that requires one waits as `unreadable` instead of being told that there is none, and providers without
device go on. An adapter that only drives a display is no accelerator.
"""

from __future__ import annotations

import glob
import os
import re
import shutil

from scheduler.model.machine import Reading

VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
NVIDIA_DEVICE = re.compile(r"nvidia(\d+|ctl|-uvm)|nvhost-gpu|dxg")
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_FOLDERS = (
    "/usr/lib/*-linux-gnu*", "/usr/lib64", "/usr/lib", "/lib/*-linux-gnu*", "/usr/local/nvidia/lib*",
    "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
)  # fmt: skip


def accelerators(root: str = "/") -> Reading:
    """How many accelerators there are: 0.0 = looked and found none; failed = one is there, or its driver is.

    `root` is where /proc, /sys, /dev and /usr are looked for.
    """
    signs = [*_nvidia_signs(root), *_card_signs(root)]
    looked = "/proc/driver, /dev, /sys/class/drm, the driver's library"
    if not signs:
        return Reading(0.0, looked)
    found = "; ".join(signs)
    return Reading(None, looked, f"{found}: present, and this version cannot read its memory yet")


def _nvidia_signs(root: str) -> list[str]:
    signs = []
    if os.path.isdir(os.path.join(root, "proc/driver/nvidia")):
        signs.append("/proc/driver/nvidia")
    try:
        names = sorted(name for name in os.listdir(os.path.join(root, "dev")) if NVIDIA_DEVICE.fullmatch(name))
    except OSError:
        names = []
    signs += [f"/dev/{name}" for name in names[:2]]
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


def _card_signs(root: str) -> list[str]:
    """Every card in sysfs, by vendor; display adapters of other vendors (ASPEED, virtio, QXL...) are none."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, "sys/class/drm/card*/device/vendor"))):
        card = path.split(os.sep)[-3]
        try:
            with open(path) as file:
                vendor = VENDORS.get(file.read().strip().lower())
        except OSError as error:
            found.append(f"{card} (vendor unreadable: {error.strerror})")
            continue
        if vendor and re.fullmatch(r"card\d+", card):
            found.append(f"{vendor} ({card})")
    return found
