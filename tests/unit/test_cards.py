"""Accelerators in the kernel's own files: what is read, what is not, and in which words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from cards import Tree, lay

from scheduler.host.machine import kfd, sysfs
from scheduler.host.machine.cards import Cards, cards, jetson
from scheduler.model.machine import Device, Reading, Tenant


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def only(found: Cards) -> Device:
    assert not found.missing and len(found.devices) == 1, found
    return found.devices[0]


def test_a_card_of_amd_is_a_device_with_its_own_memory(tree: Tree) -> None:
    tree.amd(1, "0000:c3:00.0", vram=24.0, vram_used=3.5, unique=0xABC, product="Radeon PRO W7900", display=True)
    device = only(cards(str(tree.root)))
    assert (device.id, device.seen_as, device.vendor) == ("GPU-0000000000000abc", "GPU-0000000000000abc", "AMD")
    assert (device.total.value, device.used.value, device.free.value) == (24.0, 3.5, 20.5)
    assert (device.slot, device.number, device.name) == ("0000:c3:00.0", 0, "Radeon PRO W7900 (card1)")
    assert device.display and not device.integrated and not device.tenants_missing
    assert device.total.source == "sysfs card1 vram" and len(device.free.source) < 30
    lay(tree.root, "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    assert only(cards(str(tree.root))).driver == "6.8.0-45-generic"
    lay(tree.root, "sys/module/amdgpu/version", "6.10.5\n")
    assert only(cards(str(tree.root))).driver == "6.10.5"


def test_every_card_counts_and_not_only_the_first(tree: Tree) -> None:
    for number in range(10):
        tree.amd(number, f"0000:{number + 3:02x}:00.0", unique=number + 1, vram=16.0 + number)
    found = cards(str(tree.root)).devices
    assert [device.total.value for device in found] == [16.0 + number for number in range(10)]
    assert [device.number for device in found] == list(range(10))


def test_a_card_without_a_unique_id_is_named_by_its_address_and_seen_by_the_drivers_order(tree: Tree) -> None:
    tree.amd(0, "0000:83:1f.1", unique=0)
    tree.amd(1, "0000:03:00.0", unique=0)
    first, second = cards(str(tree.root)).devices
    assert (first.id, first.seen_as, second.id, second.seen_as) == ("0000:03:00.0", "1", "0000:83:1f.1", "0")
    assert not first.display


def test_a_card_that_maps_more_of_the_machines_memory_than_it_has_is_still_a_card(tree: Tree) -> None:
    tree.amd(vram=16.0, gtt=62.0)
    device = only(cards(str(tree.root)))
    assert not device.integrated and device.total.value == 16.0


@pytest.mark.parametrize("gfx", [90012, 110003, 110501])
def test_an_integrated_device_has_what_was_set_apart_and_what_it_maps(tree: Tree, gfx: int) -> None:
    tree.amd(vram=0.5, vram_used=0.25, gtt=62.0, gtt_used=10.0, discrete=False, gfx=gfx, unique=0)
    device = only(cards(str(tree.root)))
    assert device.integrated and device.total.value == 62.5 and device.free.value == 52.25
    assert device.total.source == "sysfs card0 vram+gtt"


def test_an_integrated_device_with_more_set_apart_than_it_maps_has_memory_of_its_own(tree: Tree) -> None:
    tree.amd(vram=96.0, gtt=15.5, discrete=False, gfx=110501)
    device = only(cards(str(tree.root)))
    assert not device.integrated and device.total.value == 96.0


def test_the_node_of_the_processor_itself_is_integrated(tree: Tree) -> None:
    tree.amd(vram=0.5, gtt=15.0, discrete=False, gfx=0, computes=False)
    lay(tree.root, "dev/kfd")
    tree.node("7", "cpu_cores_count 8\nsimd_count 10\nlocation_id 768\n")
    assert only(cards(str(tree.root))).integrated


def test_what_nothing_tells_integrated_or_not_is_unreadable_with_the_way_out(tree: Tree) -> None:
    tree.amd(vram=16.0, gtt=31.0, discrete=False, gfx=0)
    device = only(cards(str(tree.root)))
    assert device.total.failed and not device.integrated
    for word in ("16.00 GiB", "31.00 GiB", "unified = true", 'leave_alone = ["0000:03:00.0"]'):
        assert word in device.total.missing


def test_a_socket_whose_memory_is_the_machines_in_parts_is_unreadable(tree: Tree) -> None:
    tree.amd(vram=128.0, gtt=256.0, model="0x74a0", gfx=90402)
    device = only(cards(str(tree.root)))
    assert device.integrated and device.total.failed and "unified = true" in device.total.missing


def test_a_divided_card_is_unreadable_and_says_how_to_undivide_it(tree: Tree) -> None:
    tree.amd(vram=192.0, partitions=8)
    device = only(cards(str(tree.root)))
    assert device.total.failed and "8 partitions" in device.total.missing and device.id == "0000:03:00.0"


@pytest.mark.parametrize("name", ["mem_info_vram_total", "mem_info_vram_used"])
@pytest.mark.parametrize("text", ["", "many\n", "-1\n", None])
def test_a_figure_that_is_no_number_or_not_there_is_failed_and_never_a_zero(
    tree: Tree, name: str, text: str | None
) -> None:
    device = tree.amd()
    (device / name).unlink()
    if text is not None:
        lay(device, name, text)
    found = only(cards(str(tree.root)))
    assert found.free.failed and name in found.free.missing
    assert found.total.failed == (name == "mem_info_vram_total")


def test_a_lost_card_is_unreadable_and_the_others_are_read(tree: Tree) -> None:
    lost = tree.amd(0, unique=1)
    tree.amd(1, "0000:83:00.0", unique=2)
    (lost / "mem_info_vram_total").unlink()
    (lost / "mem_info_vram_total").mkdir()
    first, second = cards(str(tree.root)).devices
    assert first.total.failed and "Is a directory" in first.total.missing and second.total.value == 16.0


def test_a_card_whose_vendor_cannot_be_read_is_named_as_missing(tree: Tree) -> None:
    tree.amd(0, unique=1)
    (tree.root / "sys/class/drm/card1/device/vendor").mkdir(parents=True)
    found = cards(str(tree.root))
    assert len(found.devices) == 1 and "card1" in found.missing


def test_without_the_compute_driver_a_card_only_drives_a_display(tree: Tree) -> None:
    tree.amd(computes=False)
    found = cards(str(tree.root))
    assert not found.devices and not found.missing and "/dev/kfd" in found.notes[0] and "card0" in found.notes[0]


def test_a_card_that_the_compute_driver_does_not_list_is_no_accelerator(tree: Tree) -> None:
    tree.amd(0, unique=1)
    tree.amd(1, "0000:83:00.0", computes=False)
    found = cards(str(tree.root))
    assert [device.slot for device in found.devices] == ["0000:03:00.0"] and "card1" in found.notes[0]


def test_a_node_that_a_container_may_not_use_is_left_out_and_not_counted(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.amd(0, "0000:03:00.0", unique=0)
    tree.amd(1, "0000:83:00.0", unique=0)
    read = sysfs.text

    def refused(path: str) -> str:
        if path.endswith("nodes/1/gpu_id"):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
        return read(path)

    monkeypatch.setattr(kfd, "text", refused)
    found = cards(str(tree.root))
    assert [(device.slot, device.seen_as) for device in found.devices] == [("0000:83:00.0", "0")]
    assert "not among the devices given to this container" in found.notes[0] and not found.missing


def test_a_node_that_cannot_be_read_is_missing_and_not_absent(tree: Tree) -> None:
    tree.amd(0)
    (tree.root / "sys/class/kfd/kfd/topology/nodes/1/properties").write_text("location nowhere\n")
    found = cards(str(tree.root))
    assert not found.devices and "location_id" in found.missing


def test_processes_are_on_the_cards_where_they_hold_memory_or_have_a_queue(tree: Tree) -> None:
    tree.amd(0, "0000:03:00.0", unique=1)
    tree.amd(1, "0000:83:00.0", unique=2)
    tree.computing(50, {0: 3.0, 1: 0.0})
    tree.computing(7, {0: 0.0, 1: 0.0}, queues=(1,))
    tree.computing(60, {0: 0.0, 1: 0.0})
    first, second = cards(str(tree.root)).devices
    assert first.tenants == (Tenant(50, 3.0),) and second.tenants == (Tenant(7, 0.0),)


def test_what_a_process_holds_of_an_integrated_device_is_unknown_where_the_figure_says_nothing(tree: Tree) -> None:
    tree.amd(vram=0.5, gtt=30.0, discrete=False, gfx=110501)
    tree.computing(50, {0: 0.0}, queues=(0,))
    assert only(cards(str(tree.root))).tenants == (Tenant(50, None),)


def test_a_process_whose_figure_cannot_be_read_is_there_with_an_unknown_use(tree: Tree) -> None:
    tree.amd()
    (tree.computing(50, {}) / "vram_1000").mkdir()
    assert only(cards(str(tree.root))).tenants == (Tenant(50, None),)


def test_a_process_that_vanishes_while_it_is_read_is_not_there(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.amd()
    monkeypatch.setattr(kfd, "listed", lambda folder: ["99"] if folder.endswith("proc") else sysfs.listed(folder))
    assert only(cards(str(tree.root))).tenants == ()
    monkeypatch.setattr(kfd, "bytes_in", lambda path, source: Reading(None, source, "No such device"))
    assert only(cards(str(tree.root))).tenants == ()


def test_a_kernel_or_a_container_that_does_not_tell_who_is_on_a_card_says_so(tree: Tree) -> None:
    tree.amd()
    (tree.root / "proc/self/ns").mkdir(parents=True)
    os.symlink("pid:[4026532300]", tree.root / "proc/self/ns/pid")
    assert "container" in only(cards(str(tree.root))).tenants_missing
    (tree.root / "sys/class/kfd/kfd/proc").rmdir()
    assert "this kernel" in only(cards(str(tree.root))).tenants_missing


def test_intels_integrated_device_is_a_display_adapter(tree: Tree) -> None:
    tree.card(0, "0x8086", "0000:00:02.0", driver="i915")
    found = cards(str(tree.root))
    assert not found.devices and not found.missing and "display adapter" in found.notes[0]


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_intels_card_is_there_and_what_cannot_be_read_is_said(tree: Tree, driver: str) -> None:
    tree.card(1, "0x8086", "0000:03:00.0", driver=driver, model="0x56a0")
    device = only(cards(str(tree.root)))
    assert device.name == "Intel device 56a0 (card1)" and device.id == "0000:03:00.0"
    assert device.total.failed and device.free.failed and device.used.failed and device.tenants_missing
    assert 'leave_alone = ["0000:03:00.0"]' in device.total.missing


def test_nvidias_cards_are_its_own_drivers_to_tell_of_and_nouveau_cannot_compute(tree: Tree) -> None:
    tree.card(0, "0x10DE", "0000:01:00.0", driver="nvidia")
    tree.card(1, "0x10de", "0000:02:00.0", driver="nouveau")
    found = cards(str(tree.root))
    assert not found.devices and found.nvidia == ("card0",) and "nouveau" in found.notes[0]


@pytest.mark.parametrize("vendor", ["0x1a03", "0x1234", "0x1af4", "0x1b36", "0x15ad", "0x102b"])
def test_what_only_drives_a_display_is_no_accelerator(tree: Tree, vendor: str) -> None:
    tree.card(0, vendor, "0000:05:00.0")
    assert cards(str(tree.root)) == Cards()


def test_a_machine_without_cards_has_none(tmp_path: Path) -> None:
    assert cards(str(tmp_path)) == Cards() and jetson(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("model", "chip"),
    [
        ("NVIDIA Jetson AGX Orin Developer Kit", "nvidia,tegra234"),
        ("NVIDIA Jetson AGX Xavier", "nvidia,tegra194"),
        ("NVIDIA Jetson AGX Thor Developer Kit", "nvidia,tegra264"),
    ],
)
def test_a_jetson_is_one_integrated_device_without_memory_of_its_own(tree: Tree, model: str, chip: str) -> None:
    tree.jetson(model, chip)
    device = jetson(str(tree.root))
    assert device is not None and device.integrated and device.name == model
    assert device.total.value is None and not device.total.failed and "root" in device.tenants_missing


def test_another_board_is_no_jetson(tree: Tree) -> None:
    lay(tree.root, "proc/device-tree/model", "Raspberry Pi 5 Model B\0")
    lay(tree.root, "proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0")
    assert jetson(str(tree.root)) is None
