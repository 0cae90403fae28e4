"""What the control groups above us leave of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.host.machine import cgroup
from scheduler.host.machine.processes import hidden
from scheduler.model.machine import GIB


class Groups:
    """A made-up hierarchy of control groups and the /proc that tells of it."""

    def __init__(self, folder: Path, version: int, *, path: str = "/lab/night", root: str = "/") -> None:
        self.version, self.proc, self.mount = version, folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.mount.mkdir()
        tail = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        (self.proc / "self" / "cgroup").write_text(
            f"0::{path}\n" if version == 2 else f"9:name=systemd:/\n4:memory:{path}\n0::/\n"
        )
        (self.proc / "self" / "mountinfo").write_text(
            f"23 1 0:5 / /proc rw shared:1 - proc proc rw\n35 31 0:32 {root} {self.mount} rw shared:9 - {tail}\n"
        )

    def group(self, path: str, limit: int | str, usage: int = 0, inactive: int = 0, active: int = 0) -> None:
        folder = self.mount / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        names = ("memory.max", "memory.current") if self.version == 2 else (
            "memory.limit_in_bytes", "memory.usage_in_bytes",
        )  # fmt: skip
        prefix = "" if self.version == 2 else "total_"
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{usage}\n")
        (folder / "memory.stat").write_text(
            f"anon 1\n{prefix}inactive_file {inactive}\n{prefix}active_file {active}\ninactive_file 7\n"
            if self.version == 1
            else f"anon 1\ninactive_file {inactive}\nactive_file {active}\n"
        )

    def bounds(self) -> list[tuple[float | None, float | None]]:
        return [(bound.limit.value, bound.left.value) for bound in cgroup.memory_bounds(str(self.proc))]


@pytest.mark.parametrize("version", [1, 2])
def test_file_pages_are_not_in_use_and_every_group_above_counts(tmp_path: Path, version: int) -> None:
    groups = Groups(tmp_path, version)
    groups.group("/lab/night", 8 * GIB, usage=6 * GIB, inactive=2 * GIB, active=1 * GIB)
    groups.group("/lab", 16 * GIB, usage=15 * GIB)
    assert groups.bounds() == [(8.0, 5.0), (16.0, 1.0)]


@pytest.mark.parametrize(("version", "unlimited"), [(2, "max"), (1, 9223372036854771712)])
def test_a_group_without_a_limit_bounds_nothing(tmp_path: Path, version: int, unlimited: int | str) -> None:
    groups = Groups(tmp_path, version)
    groups.group("/lab/night", unlimited, usage=6 * GIB)
    groups.group("/lab", 16 * GIB, usage=1 * GIB)
    assert groups.bounds() == [(16.0, 15.0)]


def test_a_group_above_its_limit_leaves_nothing_and_not_less(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    groups.group("/lab/night", 8 * GIB, usage=9 * GIB)
    assert groups.bounds() == [(8.0, 0.0)]


def test_a_limit_whose_use_cannot_be_read_is_a_failed_reading(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    groups.group("/lab/night", 8 * GIB)
    (groups.mount / "lab" / "night" / "memory.current").unlink()
    (bound,) = cgroup.memory_bounds(str(groups.proc))
    assert bound.limit.value == 8.0 and bound.left.failed and "8.00 GiB" in bound.left.missing


def test_a_limit_that_may_not_be_read_is_unknown_and_not_unlimited(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    (groups.mount / "lab" / "night" / "memory.max").mkdir(parents=True)
    (bound,) = cgroup.memory_bounds(str(groups.proc))
    assert bound.limit.failed and bound.left.failed


def test_a_container_that_mounts_only_its_own_group_is_found_below_it(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 1, path="/docker/abc/inner", root="/docker/abc")
    groups.group("/inner", 4 * GIB, usage=1 * GIB)
    groups.group("/", 8 * GIB, usage=1 * GIB)
    assert groups.bounds() == [(4.0, 3.0), (8.0, 7.0)]


def test_a_group_outside_what_is_mounted_is_bound_by_the_mount(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2, path="/../../elsewhere", root="/")
    groups.group("/", 8 * GIB, usage=1 * GIB)
    assert groups.bounds() == [(8.0, 7.0)]


def test_without_control_groups_nothing_is_bound(tmp_path: Path) -> None:
    assert cgroup.memory_bounds(str(tmp_path)) == []


def test_a_quota_of_cores_counts_less_than_the_cores(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    groups.group("/lab/night", "max")
    (groups.mount / "lab" / "night" / "cpu.max").write_text("150000 100000\n")
    assert cgroup.cores(str(groups.proc)) == 1
    (groups.mount / "lab" / "night" / "cpu.max").write_text("max 100000\n")
    assert cgroup.cores(str(groups.proc)) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("said", ["150000 0", "a b", "1e5 100000", "", "150000", "-1 100000", "\u00b2 100000"])
def test_a_quota_that_is_none_counts_for_nothing(tmp_path: Path, said: str) -> None:
    groups = Groups(tmp_path, 2)
    groups.group("/lab/night", "max")
    (groups.mount / "lab" / "night" / "cpu.max").write_text(said)
    assert cgroup.cores(str(groups.proc)) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("said", ["", "lots", "\u00b2", "-5", "9" * 400])
def test_a_limit_that_is_no_number_is_a_failed_reading_and_not_unlimited(tmp_path: Path, said: str) -> None:
    groups = Groups(tmp_path, 2)
    groups.group("/lab/night", said)
    (bound,) = cgroup.memory_bounds(str(groups.proc))
    assert bound.limit.failed and "no limit of memory" in bound.limit.missing and bound.left.failed


def test_a_mount_whose_name_is_no_utf8_hides_nothing(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 2)
    groups.group("/lab/night", "max")
    (groups.mount / "lab" / "night" / "cpu.max").write_text("100000 100000\n")
    table = groups.proc / "self" / "mountinfo"
    table.write_bytes(b"30 1 0:26 / /media/usb-caf\xe9 rw - tmpfs tmpfs rw\n" + table.read_bytes())
    assert cgroup.cores(str(groups.proc)) == 1 and hidden(str(groups.proc)) == ""
