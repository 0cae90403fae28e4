"""All vendors together: what is there and cannot be read is never told as none, and hides nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cards import Tree, lay

from scheduler.host.machine import accelerators as module
from scheduler.host.machine.accelerators import Accelerators, Seen
from scheduler.model.machine import Device, Reading, Tenant


class Stand:
    """Stands for NVIDIA's driver: says what it is told to, and records."""

    def __init__(self, *devices: Device, missing: str = "") -> None:
        self.devices, self.missing = devices, missing
        self.notes: tuple[str, ...] = ()
        self.opened = self.closed = 0

    def __call__(self) -> Stand:
        self.opened += 1
        return self

    def read(self) -> tuple[tuple[Device, ...], str]:
        return ((), self.missing) if self.missing else (self.devices, "")

    def close(self) -> None:
        self.closed += 1


def gib(value: float | None, missing: str = "") -> Reading:
    return Reading(value, "NVML", missing)


def nvidia(number: int = 0, slot: str = "", total: float | None = 80.0, **over: object) -> Device:
    known = None if total is None else total - 1.0
    device = Device(
        f"GPU-{number}", "NVIDIA", "H100", gib(total), gib(known), gib(1.0), (Tenant(9, 1.0),), number=number, slot=slot
    )
    return replace(device, **over)  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def seen(tree: Tree, stand: Stand | None = None) -> Seen:
    reader = Accelerators(str(tree.root), 20.0, stand or Stand(missing="no library libnvidia-ml.so.1"))
    found = reader.read()
    reader.close()
    return found


def test_a_machine_without_a_sign_of_one_has_none_and_no_driver_is_asked(tree: Tree) -> None:
    stand = Stand()
    found = seen(tree, stand)
    assert found == Seen((), found.count) and found.count.value == 0.0 and found.count.source
    assert stand.opened == 0


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("proc/driver/nvidia/version", "NVIDIA"),
        ("dev/nvidia0", "/dev/nvidia0"),
        ("dev/nvidiactl", "/dev/nvidiactl"),
        ("dev/dxg", "/dev/dxg"),
        ("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml"),
        ("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml"),
    ],
)
def test_every_sign_of_nvidia_with_a_driver_that_errs_is_one_that_is_there_and_unread(
    tree: Tree, path: str, named: str
) -> None:
    lay(tree.root, path)
    found = seen(tree, Stand(missing="the driver is not loaded"))
    assert found.count.failed and named in found.count.missing and "the driver is not loaded" in found.count.missing


def test_the_drivers_tool_alone_is_a_sign(tree: Tree) -> None:
    lay(tree.root, "usr/bin/nvidia-smi").chmod(0o755)
    assert "nvidia-smi" in seen(tree).count.missing


def test_a_card_of_nvidia_in_sysfs_is_a_sign_and_one_under_nouveau_is_none(tree: Tree) -> None:
    tree.card(0, "0x10de", "0000:01:00.0", driver="nouveau")
    assert seen(tree).count.value == 0.0
    tree.card(3, "0x10de", "0000:02:00.0")
    assert "NVIDIA (card3)" in seen(tree).count.missing


def test_a_driver_that_says_that_there_is_none_is_believed(tree: Tree) -> None:
    lay(tree.root, "usr/lib64/libnvidia-ml.so.1")
    assert seen(tree, Stand()).count.value == 0.0


def test_a_card_whose_vendor_cannot_be_read_is_unknown(tree: Tree) -> None:
    (tree.root / "sys/class/drm/card0/device/vendor").mkdir(parents=True)
    assert seen(tree).count.failed


def test_devices_of_all_vendors_stand_in_one_order_whatever_order_they_were_told_in(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    tree.amd(0, "0000:83:00.0", unique=2)
    tree.amd(1, "0000:03:00.0", unique=1)
    tree.card(2, "0x8086", "0000:07:00.0", driver="xe")
    one, two, ten = (nvidia(n, f"0000:{n:02x}:00.0") for n in (1, 2, 10))
    found = seen(tree, Stand(ten, two, one))
    assert [device.slot for device in found.devices] == [
        "0000:03:00.0", "0000:83:00.0", "0000:07:00.0", "0000:01:00.0", "0000:02:00.0", "0000:0a:00.0",
    ]  # fmt: skip
    assert found.count.value == 6.0 and found.count.source == "2 AMD, 1 Intel, 3 NVIDIA"


def test_what_a_driver_notes_is_told(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    stand = Stand(nvidia(0))
    stand.notes = ("GPU-9 is there and may not be used",)
    assert seen(tree, stand).notes == stand.notes


def test_instances_of_one_card_stand_in_the_order_of_their_numbers(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    found = seen(tree, Stand(*(nvidia(n, "0000:01:00.0") for n in (10, 2, 0))))
    assert [device.number for device in found.devices] == [0, 2, 10]


def test_a_driver_that_errs_hides_no_card_of_another_vendor_and_the_count_is_failed(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    tree.amd()
    found = seen(tree, Stand(missing="the driver is not loaded"))
    assert [device.vendor for device in found.devices] == ["AMD"] and found.count.failed


def test_a_driver_that_stops_answering_leaves_its_devices_without_live_figures(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    stand = Stand(nvidia(0), nvidia(1, total=None, integrated=True))
    reader = Accelerators(str(tree.root), 20.0, stand)
    before = reader.read()
    stand.missing = "it did not answer in 2 s"
    for _ in range(2):
        after = reader.read()
        assert [(d.id, d.total, d.integrated) for d in after.devices] == [
            (d.id, d.total, d.integrated) for d in before.devices
        ]
        for device in after.devices:
            assert device.free.failed and device.used.failed and "did not answer" in device.free.missing
            assert device.tenants == () and "did not answer" in device.tenants_missing
        assert after.count.failed
    stand.missing = ""
    assert reader.read() == before and stand.opened == 1


def test_a_total_that_cannot_be_read_for_a_moment_stays_what_it_was(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    stand = Stand(nvidia(0, total=120.0, integrated=True))
    reader = Accelerators(str(tree.root), 20.0, stand)
    reader.read()
    stand.devices = (nvidia(0, total=None, integrated=False),)
    stand.devices = (replace(stand.devices[0], total=gib(None, "lost"), free=gib(None, "lost")),)
    device = reader.read().devices[0]
    assert device.total.value == 120.0 and device.integrated and device.free.failed


def test_a_total_that_was_never_read_is_failed(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    stand = Stand(replace(nvidia(0), total=gib(None, "lost")))
    reader = Accelerators(str(tree.root), 20.0, stand)
    assert reader.read().devices[0].total.failed and reader.read().devices[0].total.failed


def test_a_card_that_can_be_read_no_more_stays_beside_the_others(tree: Tree) -> None:
    tree.amd(0, unique=1)
    tree.amd(1, "0000:83:00.0", unique=2)
    reader = Accelerators(str(tree.root), 20.0, Stand())
    assert reader.read().count.value == 2.0
    vendor = tree.root / "sys/class/drm/card0/device/vendor"
    vendor.unlink()
    vendor.mkdir()
    found = reader.read()
    assert found.count.failed and [device.free.failed for device in found.devices] == [True, False]
    vendor.rmdir()
    vendor.write_text("0x1002\n")
    assert reader.read().count.value == 2.0


def test_a_driver_that_was_taken_out_is_let_go_and_its_devices_are_gone(tree: Tree) -> None:
    sign = lay(tree.root, "dev/nvidia0")
    stand = Stand(nvidia(0))
    reader = Accelerators(str(tree.root), 20.0, stand)
    assert reader.read().count.value == 1.0
    sign.unlink()
    assert reader.read().count.value == 0.0 and stand.closed == 1
    lay(tree.root, "dev/nvidia0")
    stand.missing = "the driver is not loaded"
    again = reader.read()
    assert again.devices == () and again.count.failed and stand.opened == 2


def test_a_jetson_is_one_device_and_not_two_where_nvml_lists_it_too(tree: Tree) -> None:
    tree.jetson()
    alone = seen(tree)
    assert [device.id for device in alone.devices] == ["jetson"] and alone.count.value == 1.0
    lay(tree.root, "dev/nvidia0")
    theirs = seen(tree, Stand(nvidia(0, total=None, integrated=True)))
    assert [device.id for device in theirs.devices] == ["GPU-0"] and theirs.count.value == 1.0
    neither = seen(tree, Stand())
    assert [device.id for device in neither.devices] == ["jetson"]


def test_a_jetson_whose_nvml_errs_is_known_from_its_device_tree_unless_a_card_is_beside_it(tree: Tree) -> None:
    tree.jetson()
    lay(tree.root, "dev/nvhost-gpu")
    found = seen(tree)
    assert found.count.value == 1.0 and "no library" in found.notes[0]
    lay(tree.root, "sys/bus/pci/devices/0005:01:00.0/vendor", "0x10de\n")
    lay(tree.root, "sys/bus/pci/devices/0005:01:00.0/class", "0x030000\n")
    beside = seen(tree)
    assert beside.count.failed and [device.id for device in beside.devices] == ["jetson"]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Whether the kernel's files hang: set = they answer."""
    answers = threading.Event()
    answers.set()
    look = module._look

    def slow(root: str) -> module._Look:
        answers.wait(20.0)
        return look(root)

    monkeypatch.setattr(module, "_look", slow)
    yield answers
    answers.set()


def test_files_that_hang_are_cut_off_and_what_they_told_stays_without_live_figures(
    tree: Tree, hanging: threading.Event
) -> None:
    lay(tree.root, "dev/nvidia0")
    tree.amd()
    reader = Accelerators(str(tree.root), 20.0, Stand(nvidia(0)))
    before = reader.read()
    hanging.clear()
    reader._files.within_s = 0.05
    for _ in range(2):
        found = reader.read()
        assert found.count.failed and "sysfs did not answer" in found.count.missing
        assert [device.id for device in found.devices] == [device.id for device in before.devices]
        card, theirs = found.devices
        assert card.free.failed and card.total.value == 16.0 and theirs.free.value == 79.0
    hanging.set()
    reader._files.within_s = 20.0
    thread = reader._files._running
    assert thread is not None
    thread.join(20.0)
    assert reader.read() == before


def test_files_that_hang_from_the_start_are_a_failed_count(tree: Tree, hanging: threading.Event) -> None:
    hanging.clear()
    stand = Stand(nvidia(0))
    found = Accelerators(str(tree.root), 0.05, stand).read()
    assert found.count.failed and found.devices == () and stand.opened == 0


def test_close_ends_the_driver_once(tree: Tree) -> None:
    lay(tree.root, "dev/nvidia0")
    stand = Stand(nvidia(0))
    reader = Accelerators(str(tree.root), 20.0, stand)
    reader.read()
    reader.close()
    reader.close()
    assert stand.closed == 1
