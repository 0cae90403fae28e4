"""One snapshot of a machine that is laid out as files, and how it is recorded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import holding, machine, pool, reading

from scheduler.config import DEFAULTS, Settings
from scheduler.errors import UsageError
from scheduler.host.machine import cgroup, disks, processes
from scheduler.host.machine.facts import facts
from scheduler.host.machine.snapshot import MachineIdentity, Snapshots, aged, unread, wanted
from scheduler.model.machine import GIB, Charge, Reading

WHO = MachineIdentity("boot", "here")


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., Snapshots]:
    """Snapshots of a machine with 64 GiB, 5 free and 60 available, no accelerator, nobody on it."""
    proc = tmp_path / "proc"
    (proc / "1").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemFree: {5 << 20} kB\nMemAvailable: {60 << 20} kB\n")

    def made(**values: object) -> Snapshots:
        chosen = {**DEFAULTS, **values}
        return Snapshots(
            str(tmp_path), Settings(chosen, dict.fromkeys(chosen, "test"), {}), WHO, queue_id="Q",
            budget_of=lambda slug: None, proc=str(proc), root=str(tmp_path), within_s=0.2,
        )  # fmt: skip

    return made


def test_a_machine_without_accelerator_has_one_host_pool(take: Callable[..., Snapshots]) -> None:
    found = take().take()
    (host,) = found.pools
    assert (host.id, host.kind, host.reserve_gib) == ("host", "host", 2.0)
    assert (host.capacity.value, host.free.value, host.available.value) == (64.0, 5.0, 60.0)
    assert (found.accelerators.value, found.competing, found.holdings_missing) == (0.0, 0, "")
    assert (found.boot_id, found.host_id) == ("boot", "here")


def test_the_operators_word_makes_it_unified(take: Callable[..., Snapshots]) -> None:
    found = take(unified="true").take()
    assert [(p.id, p.kind, p.reserve_gib) for p in found.pools] == [("unified", "unified", 4.0)]
    assert found.accelerators.value == 1.0 and "unified" in found.accelerators.source


def test_a_setting_that_is_no_word_for_it_is_told(take: Callable[..., Snapshots]) -> None:
    with pytest.raises(UsageError, match="unified"):
        take(unified="perhaps")


def test_a_reserve_that_the_operator_chose_stands_and_a_default_is_an_eighth_at_most(
    take: Callable[..., Snapshots], tmp_path: Path
) -> None:
    assert take(reserve_host_gib=40.0).take().pools[0].reserve_gib == 40.0
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n")
    left = Settings(dict(DEFAULTS), dict.fromkeys(DEFAULTS, "default"), {})
    assert wanted(left).chosen == frozenset() and wanted(left).reserve_host_gib == 2.0
    assert take(reserve_host_gib=0.25).take().pools[0].reserve_gib == 0.25


def test_an_accelerator_that_cannot_be_read_leaves_its_competitors_uncounted(
    take: Callable[..., Snapshots], tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    found = take().take()
    assert found.accelerators.failed and found.competing is None
    assert take(unified=True).take().competing is None


def test_the_tightest_group_bounds_capacity_and_what_is_live(
    take: Callable[..., Snapshots], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = [
        cgroup.Bound("/a", Reading(32.0, "a limit"), Reading(20.0, "a left")),
        cgroup.Bound("/b", Reading(48.0, "b limit"), Reading(3.0, "b left")),
    ]
    monkeypatch.setattr(cgroup, "memory_bounds", lambda proc: bounds)
    found = take().take()
    (host,) = found.pools
    assert (host.capacity.value, host.free.value, host.available.value) == (32.0, 3.0, 3.0)
    assert host.available.source == "b left" and any("a limit" in note for note in found.notes)
    bounds.append(cgroup.Bound("/full", Reading(60.0, "full"), Reading(0.0, "full")))
    bounds.append(cgroup.Bound("/c", Reading(60.0, "c"), reading(None, missing="use unread")))
    assert take().take().pools[0].available.failed


def test_a_memory_file_that_is_gone_is_a_failed_reading(take: Callable[..., Snapshots], tmp_path: Path) -> None:
    (tmp_path / "proc" / "meminfo").unlink()
    (host,) = take().take().pools
    assert host.capacity.failed and host.free.failed and host.available.failed


def test_what_hangs_is_missing_and_the_rest_is_still_read(
    take: Callable[..., Snapshots], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hang(proc: str) -> dict[int, processes.Process]:
        release.wait(20.0)
        return {}

    monkeypatch.setattr(processes, "table", hang)
    found = take().take()
    release.set()
    assert "the process table did not answer in 0.2 s" in found.holdings_missing
    assert found.pools[0].available.value == 60.0


def test_a_process_table_that_cannot_be_read_is_not_an_empty_one(
    take: Callable[..., Snapshots], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(proc: str) -> dict[int, processes.Process]:
        raise PermissionError("no")

    monkeypatch.setattr(processes, "table", fail)
    assert "PermissionError" in take().take().holdings_missing


def test_the_disk_keeps_the_smaller_of_the_setting_and_two_percent(
    take: Callable[..., Snapshots], tmp_path: Path
) -> None:
    room = os.statvfs(tmp_path)
    total_gib = room.f_blocks * room.f_frsize / GIB
    assert take(disk_reserve_gib=1e9).take().disk_reserve_gib == pytest.approx(total_gib * 0.02)
    found = take(disk_reserve_gib=0.001).take()
    assert found.disk_reserve_gib == 0.001 and found.disk_free_gib is not None


def test_a_disk_that_cannot_be_read_is_unknown(take: Callable[..., Snapshots], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> disks.Room:
        raise OSError(5, "I/O error")

    monkeypatch.setattr(disks, "room_of", fail)
    found = take().take()
    assert found.disk_free_gib is None and found.disk_reserve_gib == 5.0 and any("I/O error" in n for n in found.notes)


def test_an_unread_machine_knows_nothing_and_an_aged_one_says_how_old_it_is() -> None:
    nothing = unread(WHO, "not yet")
    assert nothing.holdings_missing == "not yet" and nothing.competing is None and nothing.pools[0].capacity.failed
    assert aged(machine(), 3.0).pools[0].available.age_s == 3.0


def test_the_record_shows_pools_and_others_as_status_does() -> None:
    ours = holding(Charge("host", 10.0, 2.0, "host"), worker_id=1, pid=1)
    theirs = holding(Charge("host", 6.0, 5.0, "host"), name="boltz@x", pid=2)
    unknown = holding(Charge("host", None), name="esm", pid=3)
    here = machine(pool("host", 64.0, free=5.0), holdings=(ours, theirs, unknown))
    shown = facts(here)
    (row,) = shown["pools"]
    assert (row["charged_gib"], row["owed_gib"], row["live_gib"]) == (16.0, 9.0, 64.0)
    assert (row["others_gib"], row["others_owed_gib"]) == (6.0, 1.0)
    assert set(row) >= {
        "id",
        "kind",
        "capacity_gib",
        "reserve_gib",
        "charged_gib",
        "owed_gib",
        "live_gib",
        "live_source",
    }
    assert facts(here, {"host": [40.0]})["pools"][0]["charged_gib"] == 46.0
    assert [(each["pid"], each["charge_gib"], each["competes"]) for each in shown["others"]] == [
        (2, 6.0, False), (3, None, False),
    ]  # fmt: skip
    assert set(shown["others"][0]) >= {"pid", "user", "command", "pool", "used_gib", "since_at", "competes"}
    assert (shown["cores"], shown["accelerators"]) == (8, 0.0)


def test_an_unread_machine_is_recorded_with_nulls_and_its_reason() -> None:
    shown = facts(unread(WHO, "not yet"))
    assert shown["accelerators"] is None and "not yet" in shown["notes"]
    (row,) = shown["pools"]
    assert row["capacity_gib"] is None and row["live_gib"] is None and row["live_source"] == "not yet"
