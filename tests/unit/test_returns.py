"""What a host says of memory that is awaited: at every snapshot, for each pool, when it is back or overdue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import machine, pool
from keepers import until
from made_proc import device, integrated

from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.host import returns as module
from scheduler.host.returns import Returns
from scheduler.host.workers import tree
from scheduler.host.workers.protocol import CLAIM, MARK
from scheduler.model.host import HostEvent, Loose, Nudged, Returned
from scheduler.model.machine import Charge, Holding, Machine, Tenant

A = "device:a"
QUEUE = "0123456789ab"


class Awaited:
    """A host's look-out, and what it said."""

    def __init__(self, folder: Path, leak_after_s: float = 20.0) -> None:
        self.said: list[HostEvent] = []
        self.ended: list[int] = []
        self.paths = Paths(str(folder))
        self.returns = Returns(self.paths, QUEUE, self.said.append, self.end, leak_after_s=leak_after_s, margin_gib=1.0)

    def end(self, worker_id: int, grace_s: float, why: str) -> None:
        self.ended.append(worker_id)

    def watch(self, *rows: Loose) -> None:
        self.returns.watch(rows)

    def look(self, here: Machine, began_s: float | None = None) -> list[HostEvent]:
        """What is said after this snapshot."""
        self.said.clear()
        self.returns.look(here, monotonic_s() if began_s is None else began_s)
        return [each for each in self.said if not isinstance(each, Nudged)]


@pytest.fixture
def awaited(tmp_path: Path) -> Awaited:
    return Awaited(tmp_path)


def loose(worker_id: int = 7, before: float | None = 0.25, **over: Any) -> Loose:
    values: dict[str, Any] = {"boot_id": tree.boot_id(), "before_gib": {A: before, "host": None}, "device": A, **over}
    return Loose(worker_id, values.pop("slug", "boltz"), **values)


def here(used: float, *tenants: Tenant, **over: Any) -> Machine:
    """A card of which so much is used."""
    listed = sum(tenant.used_gib or 0.0 for tenant in tenants)
    rest = used - listed
    nobody = Holding("unattributed", 0, "", (Charge(A, rest, rest, "device"),), competes=None)
    holdings = (*over.pop("holdings", ()), *([nobody] if rest > 0 else []))
    return machine(pool(A, 80.0), pool("host"), devices=(device("a", *tenants, used=used),), holdings=holdings, **over)


def back(pool_id: str, worker_id: int = 7) -> Returned:
    return Returned(worker_id, back=True, pool=pool_id)


def test_each_pool_is_back_by_itself(awaited: Awaited) -> None:
    awaited.watch(loose())
    assert awaited.look(here(24.0)) == [back("host")]
    assert awaited.returns.soon()
    assert awaited.look(here(0.5)) == [back(A)]
    assert not awaited.returns.soon()
    assert awaited.look(here(0.5)) == []


def test_a_snapshot_that_began_before_the_end_says_nothing(awaited: Awaited) -> None:
    began_s = monotonic_s()
    awaited.watch(loose())
    assert awaited.look(here(0.0), began_s - 0.001) == []


def test_what_is_not_back_after_its_time_is_overdue_with_figures_said_once(awaited: Awaited) -> None:
    awaited.watch(loose(gone_for_s=19.0))
    assert awaited.look(here(24.0)) == [back("host")], "it is not overdue yet"
    awaited.watch(loose(8, gone_for_s=21.0))
    (_, late) = sorted(awaited.look(here(24.0)), key=str, reverse=True)
    assert isinstance(late, Returned) and not late.back and late.pool == A and "23.75 GiB are not back" in late.text
    assert awaited.look(here(24.0)) == [] and not awaited.returns.soon()
    assert awaited.look(here(0.0)) == [back(A, 8)], "it heals by itself"


def test_new_figures_are_said_again_but_not_at_every_look(awaited: Awaited, monkeypatch: pytest.MonkeyPatch) -> None:
    awaited.watch(loose(gone_for_s=21.0))
    awaited.look(here(24.0))
    assert awaited.look(here(20.0)) == []
    monkeypatch.setattr(module, "SAY_S", 0.0)
    (said,) = awaited.look(here(20.0))
    assert isinstance(said, Returned) and "19.75 GiB are not back" in said.text


def test_a_process_that_its_driver_lists_after_its_end_keeps_the_charge(awaited: Awaited) -> None:
    dead = gone_pid()
    used = Charge(A, 30.0, 28.0, "device")
    living = Holding("boltz", 900, "me", (used,), 7, listed=((dead, 5.0),))
    awaited.look(here(28.0, Tenant(dead, 28.0), holdings=(living,)))
    awaited.watch(loose(gone_for_s=21.0))
    said = awaited.look(here(28.0, Tenant(dead, 28.0)))
    assert [each.text for each in said if isinstance(each, Returned) and not each.back] == [
        f"the driver of a still lists its process {dead} with 28 GiB"
    ]
    assert awaited.look(here(0.0)) == [back(A)]


@pytest.fixture
def leasing(tmp_path: Path) -> Iterator[tuple[int, tuple[int, float]]]:
    """The keeper of a lease, as its argv says, and the process that has it, which lives on."""
    words = ["worker=7", "slug=exec", "variant=v30r0n1t1-la", "kind=l", str(tmp_path)]
    keeper = subprocess.Popen([sys.executable, "-c", "input()", CLAIM, *words], stdin=subprocess.PIPE)
    stat = tree.stat_of(os.getpid())
    assert stat is not None
    until(lambda: CLAIM in tree.argv_of(keeper.pid), "its argv")
    yield keeper.pid, (os.getpid(), stat.started)
    keeper.communicate(b"\n")


def lease(keeper: int, *holders: tuple[int, float], name: str = "exec", worker_id: int = 7) -> Holding:
    return Holding(name, keeper, "me", (Charge(A, 30.0, 28.0, "device"),), worker_id, listed=holders)


def stranger(pid: int, used: float | None = 28.0) -> Holding:
    return Holding("python3", pid, "me", (Charge(A, used or 0.0, used, "device"),))


@pytest.mark.parametrize("name", ["exec", "exec#2"])
def test_what_a_process_keeps_of_a_device_after_its_lease_is_its_own_charge(
    awaited: Awaited, leasing: tuple[int, tuple[int, float]], name: str
) -> None:
    keeper, holder = leasing
    on = Tenant(holder[0], 28.0)
    awaited.look(here(28.0, on, holdings=(lease(keeper, holder, name=name),)))
    awaited.watch(loose(gone_for_s=1.0, slug="exec"))
    assert back(A) not in awaited.look(here(28.0, on)), "it is not charged to anybody yet"
    assert back(A) in awaited.look(here(28.0, on, holdings=(stranger(holder[0]),)))


def test_in_another_lease_of_the_same_process_it_is_that_ones(
    awaited: Awaited, leasing: tuple[int, tuple[int, float]]
) -> None:
    keeper, holder = leasing
    on = Tenant(holder[0], 28.0)
    awaited.look(here(28.0, on, holdings=(lease(keeper, holder),)))
    awaited.watch(loose(gone_for_s=1.0, slug="exec"))
    assert back(A) in awaited.look(here(28.0, on, holdings=(lease(keeper, holder, worker_id=8),)))


def test_what_no_driver_puts_a_figure_to_keeps_the_charge_of_a_lease_that_is_over(
    awaited: Awaited, leasing: tuple[int, tuple[int, float]]
) -> None:
    keeper, holder = leasing
    on = Tenant(holder[0], None)
    awaited.look(here(28.0, on, holdings=(lease(keeper, holder),)))
    awaited.watch(loose(gone_for_s=1.0, slug="exec"))
    assert back(A) not in awaited.look(here(28.0, on, holdings=(stranger(holder[0], None),)))


@pytest.mark.parametrize("used", [28.0, None])
def test_on_unified_memory_a_lease_that_is_over_is_back_where_a_driver_says_what_its_process_keeps(
    awaited: Awaited, leasing: tuple[int, tuple[int, float]], used: float | None
) -> None:
    keeper, holder = leasing
    gb10, shared = integrated(Tenant(holder[0], used)), pool("unified", 121.0)
    has = replace(lease(keeper, holder), charges=(Charge("unified", 30.0, used, "device"),))
    keeps = replace(
        stranger(holder[0]), charges=(Charge("unified", 1.0, 1.0, "host"), Charge("unified", 0.0, used, "device"))
    )
    awaited.look(machine(shared, devices=(gb10,), holdings=(has,)))
    awaited.watch(loose(gone_for_s=1.0, slug="exec", device="unified", before_gib={"unified": None}))
    said = awaited.look(machine(shared, devices=(gb10,), holdings=(keeps,)))
    assert said == ([back("unified")] if used else [])


def test_a_process_that_died_with_its_lease_and_is_still_listed_keeps_the_charge(
    awaited: Awaited, leasing: tuple[int, tuple[int, float]]
) -> None:
    keeper, dead = leasing[0], gone_pid()
    on = Tenant(dead, 28.0)
    awaited.look(here(28.0, on, holdings=(lease(keeper, (dead, 5.0)),)))
    awaited.watch(loose(gone_for_s=1.0, slug="exec"))
    assert back(A) not in awaited.look(here(28.0, on, holdings=(stranger(dead),)))


def test_a_later_process_with_the_pid_is_not_its_own(awaited: Awaited) -> None:
    awaited.watch(loose(pids=((os.getpid(), 5.0),)))
    assert back(A) in awaited.look(here(28.0, Tenant(os.getpid(), 28.0)))


def test_a_process_that_carries_its_mark_keeps_every_charge_and_is_told_to_be_ended(awaited: Awaited) -> None:
    code = "import sys; print('here', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={MARK: f"{QUEUE}:7"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None and child.stdout.readline() == b"here\n"
        awaited.watch(loose())
        assert awaited.look(here(0.0)) == [] and awaited.look(here(0.0)) == [] and awaited.ended == [7], "told once"
    finally:
        child.kill()
        child.communicate()
    assert sorted(map(str, awaited.look(here(0.0)))) == sorted(map(str, [back(A), back("host")]))


def test_memory_of_before_a_reboot_is_back(awaited: Awaited) -> None:
    awaited.watch(loose(boot_id="another"))
    assert awaited.said == [Returned(7, back=True)]
    assert awaited.look(here(24.0)) == []


def test_what_is_not_awaited_any_more_is_not_looked_at(awaited: Awaited) -> None:
    awaited.watch(loose())
    awaited.watch()
    assert awaited.look(here(0.0)) == []


def test_a_machine_that_cannot_be_read_gives_nothing_back(awaited: Awaited) -> None:
    awaited.watch(loose())
    assert awaited.look(here(0.0, holdings_missing="the process table hangs")) == []


def test_the_loop_is_told_when_somebody_else_has_left_and_not_when_that_cannot_be_read(awaited: Awaited) -> None:
    other = Holding("esm", 500, "bob", (Charge("host", 4.0, 4.0, "host"),), since_s=5.0)
    awaited.look(here(0.0, holdings=(other,)))
    awaited.look(here(0.0, holdings=(other,)))
    assert awaited.said == []
    awaited.look(here(0.0, holdings_missing="the process table hangs"))
    assert awaited.said == []
    awaited.look(here(0.0))
    assert awaited.said == [Nudged()]


def gone_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid
