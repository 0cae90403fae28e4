"""Whether there is an accelerator: what is there and cannot be read is never told as none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.host.machine.accelerators import accelerators


def lay(root: Path, path: str, text: str = "") -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def test_a_machine_without_a_sign_of_one_has_none(tmp_path: Path) -> None:
    found = accelerators(str(tmp_path))
    assert found.value == 0.0 and not found.failed and found.source


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("proc/driver/nvidia/version", "NVIDIA"),
        ("dev/nvidia0", "/dev/nvidia0"),
        ("dev/nvidiactl", "/dev/nvidiactl"),
        ("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml"),
        ("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml"),
    ],
)
def test_every_sign_of_nvidia_is_one_that_is_there_and_unread(tmp_path: Path, path: str, named: str) -> None:
    lay(tmp_path, path)
    found = accelerators(str(tmp_path))
    assert found.failed and named in found.missing and "cannot read its memory yet" in found.missing


def test_the_drivers_tool_alone_is_a_sign(tmp_path: Path) -> None:
    lay(tmp_path, "usr/bin/nvidia-smi").chmod(0o755)
    assert "nvidia-smi" in accelerators(str(tmp_path)).missing


@pytest.mark.parametrize(("vendor", "name"), [("0x1002", "AMD"), ("0x8086", "Intel"), ("0x10DE", "NVIDIA")])
def test_every_card_of_a_vendor_of_accelerators_counts(tmp_path: Path, vendor: str, name: str) -> None:
    lay(tmp_path, "sys/class/drm/card0/device/vendor", "0x1a03\n")
    lay(tmp_path, "sys/class/drm/card3/device/vendor", f"{vendor}\n")
    assert f"{name} (card3)" in accelerators(str(tmp_path)).missing


@pytest.mark.parametrize("vendor", ["0x1a03", "0x1234", "0x1af4", "0x1b36", "0x15ad", "0x102b"])
def test_what_only_drives_a_display_is_no_accelerator(tmp_path: Path, vendor: str) -> None:
    lay(tmp_path, "sys/class/drm/card0/device/vendor", f"{vendor}\n")
    lay(tmp_path, "sys/class/drm/card0-VGA-1/device/vendor", "0x1002\n")
    assert accelerators(str(tmp_path)).value == 0.0


def test_a_card_whose_vendor_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "sys/class/drm/card0/device/vendor").mkdir(parents=True)
    assert accelerators(str(tmp_path)).failed
