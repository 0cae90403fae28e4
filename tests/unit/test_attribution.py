"""Whose a device's memory is: workers, strangers, nobody; from a made-up process table and made-up drivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import pool, reading
from made_proc import Table, charged, device, integrated, only

from scheduler.host.machine.attribution import competing, places, pool_of, told_of_nobody
from scheduler.model.machine import Device, Holding, Tenant

A, B, C = pool("device:a"), pool("device:b"), pool("device:c")
HOST, UNIFIED = pool("host"), pool("unified")
CARDS = (A, B, HOST)


@pytest.fixture
def there(tmp_path: Path) -> Table:
    return Table(tmp_path)


def on(holding: Holding, pool_id: str) -> list[tuple[float | None, float | None]]:
    """(charge, used) of its device's charges on one pool."""
    return [(c.charge_gib, c.used_gib) for c in holding.charges if c.pool == pool_id and c.part != "host"]


# Workers on devices


def test_a_keepers_device_use_is_the_sum_of_its_tree_on_each_pool(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=device:a:28.0", "charge=host:6")
    there.run(11, "python", "model.py", parent=10)
    there.run(12, "python", "loader", parent=11)
    seen = [device("a", Tenant(11, 9.0), Tenant(12, 2.0), Tenant(99, 1.0)), device("b")]
    first = there.read(CARDS, devices=seen)[0]
    assert first.worker_id == 4 and on(first, "device:a") == [(28.0, 11.0)] and on(first, "device:b") == []


@pytest.mark.parametrize("tenants", [(), (Tenant(11, None),)])
def test_what_a_driver_does_not_say_is_unknown_and_all_of_the_charge_is_owed(
    there: Table, tenants: tuple[Tenant, ...]
) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=device:a:28.0")
    there.run(11, "python", "model.py", parent=10)
    assert on(only(there.read(CARDS, devices=[device("a", *tenants)])), "device:a") == [(28.0, None)]


def test_a_process_that_one_device_lists_twice_counts_once(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=device:a:28.0")
    there.run(11, "python", "model.py", parent=10)
    seen = [device("a", Tenant(11, 9.0), Tenant(11, 9.0, computes=False), used=9.0)]
    assert on(only(there.read(CARDS, devices=seen)), "device:a") == [(28.0, 9.0)]


def test_a_keeper_on_a_device_that_it_claims_nothing_of_is_charged_there_for_what_it_uses(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=capiti", "queue=Q", "charge=host:0.5")
    there.run(11, "python", "model.py", parent=10)
    assert on(only(there.read(CARDS, devices=[device("b", Tenant(11, 3.0))])), "device:b") == [(3.0, 3.0)]
    unified = only(there.read((UNIFIED,), devices=[integrated(Tenant(11, 3.0))]))
    assert charged(unified) == [("unified", 0.5, 0.0, "host"), ("unified", 3.0, 3.0, "astray")]


def test_others_are_charged_at_least_what_they_use_on_each_device_and_ours_as_leased(there: Table) -> None:
    for pid, queue in ((10, "other"), (20, "Q")):
        there.keeper(pid, "worker=4", "slug=boltz", f"queue={queue}", "charge=device:a:28.0")
        there.run(pid + 1, "python", "model.py", parent=pid)
    there.legacy(30)
    seen = [device("a", Tenant(11, 30.0), Tenant(21, 30.0), Tenant(30, 31.0))]
    assert [on(each, "device:a") for each in there.read(CARDS, devices=seen)] == [
        [(30.0, 30.0)], [(28.0, 30.0)], [(31.0, 31.0)],
    ]  # fmt: skip


def test_a_claim_on_a_device_that_shares_the_machines_memory_counts_on_the_unified_pool(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=other", "charge=device:GPU-gb10:28.0", "charge=host:6")
    found = only(there.read((UNIFIED,), devices=[integrated()]))
    assert charged(found) == [("unified", 6.0, 0.0, "host"), ("unified", 28.0, None, "device")]


def test_a_legacy_workers_charge_stands_on_each_device_that_it_is_seen_on_and_on_no_other(there: Table) -> None:
    there.legacy(10)
    there.run(11, "python", "child", parent=10)
    one = only(there.read((A, B, C, HOST), devices=[device("a"), device("b", Tenant(11, 5.0)), device("c")]))
    assert [(c.pool, c.charge_gib) for c in one.charges] == [("device:b", 28.0), ("host", 6.0)]
    seen = [device("a", Tenant(10, 1.0)), device("b", Tenant(11, 5.0)), device("c")]
    two = only(there.read((A, B, C, HOST), devices=seen))
    assert on(two, "device:a") == [(28.0, 1.0)] and on(two, "device:b") == [(28.0, 5.0)] and on(two, "device:c") == []


def test_an_undeclared_worker_closes_only_the_device_that_it_is_seen_on_and_the_host(there: Table) -> None:
    there.legacy(10, "esm")
    found = only(there.read(CARDS, devices=[device("a"), device("b", Tenant(10, 5.0))]))
    assert charged(found) == [("device:b", None, 5.0, "device"), ("host", None, 0.0, "host")]


def test_a_worker_that_is_seen_only_on_a_device_that_is_left_alone_is_charged_on_none(there: Table) -> None:
    there.legacy(10)
    assert [
        c.pool for c in only(there.read((A, HOST), devices=[device("a"), device("x", Tenant(10, 5.0))])).charges
    ] == ["host"]


def test_a_cpu_only_worker_that_is_on_a_device_all_the_same_is_charged_for_it(there: Table) -> None:
    there.legacy(10, "capiti")
    assert on(only(there.read(CARDS, devices=[device("a", Tenant(10, 2.0))])), "device:a") == [(2.0, 2.0)]


@pytest.mark.parametrize(
    ("env", "pools"),
    [
        ({}, ["device:GPU-aa", "device:GPU-ab", "device:GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-ab"}, ["device:GPU-ab"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a"}, ["device:GPU-aa", "device:GPU-ab"]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, ["device:GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": "0, 2"}, ["device:GPU-aa", "device:GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, ["device:GPU-aa"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "9"}, ["device:GPU-aa", "device:GPU-ab", "device:GPU-b"]),
        ({"ROCR_VISIBLE_DEVICES": "0"}, ["device:GPU-aa", "device:GPU-ab", "device:GPU-b"]),
    ],
)
def test_a_worker_that_no_driver_lists_yet_is_charged_where_its_environment_lets_it_be(
    there: Table, env: dict[str, str], pools: list[str]
) -> None:
    cards = [device(id, number=n) for n, id in enumerate(("GPU-aa", "GPU-ab", "GPU-b"))]
    there.legacy(10, env=env)
    found = only(there.read([*(pool(f"device:{card.id}") for card in cards), HOST], devices=cards))
    assert [c.pool for c in found.charges if c.part == "device"] == pools


def test_a_number_names_a_device_of_unlike_ones_only_where_they_are_counted_by_slot() -> None:
    cards = [device("GPU-a", number=0), device("GPU-b", number=1, name="T4")]
    pools = [pool("device:GPU-a"), pool("device:GPU-b")]
    seen = {"CUDA_VISIBLE_DEVICES": "1"}
    assert places(seen, cards, pools) == ["device:GPU-a", "device:GPU-b"]
    assert places({**seen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, cards, pools) == ["device:GPU-b"]


def test_each_vendors_variable_hides_its_own_devices_and_no_others() -> None:
    cards = [device("GPU-a"), device("c1", vendor="AMD", name="MI300X", seen_as="GPU-7", number=0)]
    pools = [pool("device:GPU-a"), pool("device:c1")]
    assert places({"CUDA_VISIBLE_DEVICES": "-1"}, cards, pools) == ["device:c1"]
    assert places({"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "GPU-7"}, cards, pools) == ["device:c1"]
    assert places({"ROCR_VISIBLE_DEVICES": "-1"}, cards, pools) == ["device:GPU-a"]
    two = [device("GPU-a", number=0), device("GPU-b", number=1), *cards[1:]]
    pools = [pool("device:GPU-a"), pool("device:GPU-b"), pool("device:c1")]
    assert places({"CUDA_VISIBLE_DEVICES": "1"}, two, pools) == ["device:GPU-b", "device:c1"]


def test_a_device_is_its_own_pool_or_the_unified_one_whose_memory_it_shares_or_none() -> None:
    assert pool_of(device("a"), (HOST, A)) == "device:a"
    assert pool_of(integrated(), (UNIFIED,)) == "unified"
    assert pool_of(device("x"), (UNIFIED,)) == pool_of(device("x"), (HOST, A)) == ""
    named = replace(UNIFIED, seen_as="x")
    assert pool_of(device("x"), (named,)) == "unified"


# Strangers


def test_a_stranger_is_charged_what_the_driver_says_and_owes_nothing(there: Table) -> None:
    there.run(10, "/envs/x/bin/python3", "-u", "/home/bob/my work/train.py", "--lr", "1", rss_mib=1024)
    found = only(there.read(CARDS, devices=[device("a", Tenant(10, 7.0)), device("b", Tenant(10, 2.0))]))
    assert (found.name, found.pid, found.worker_id, found.competes) == ("train.py", 10, None, True)
    assert charged(found) == [("device:a", 7.0, 7.0, "device"), ("device:b", 2.0, 2.0, "device")]
    assert found.user and found.since_s and found.command.startswith("/envs/x/bin/python3 -u")


def test_a_stranger_on_unified_memory_holds_host_memory_of_the_same_pool_too(there: Table) -> None:
    there.run(10, "/usr/bin/server", rss_mib=1024)
    found = only(there.read((UNIFIED,), devices=[integrated(Tenant(10, 7.0))]))
    assert charged(found) == [("unified", 1.0, 1.0, "host"), ("unified", 7.0, 7.0, "device")]


def test_a_desktops_process_is_charged_and_does_not_compete(there: Table) -> None:
    there.run(10, "/usr/lib/xorg/Xorg")
    found = only(there.read(CARDS, devices=[device("a", Tenant(10, 0.3, computes=False))]))
    assert (found.name, found.competes) == ("Xorg", False) and on(found, "device:a") == [(0.3, 0.3)]


@pytest.mark.parametrize("shown", [True, False])
def test_a_process_that_hides_its_argv_or_itself_is_a_stranger_without_a_name(there: Table, shown: bool) -> None:
    if shown:
        there.run(10)
    found = only(there.read(CARDS, devices=[device("a", Tenant(10, 7.0))]))
    assert (found.name, found.pid, found.competes) == ("?", 10, True) and on(found, "device:a") == [(7.0, 7.0)]


def test_a_stranger_of_which_the_driver_tells_no_figure_is_among_what_is_on_nobodys_name(there: Table) -> None:
    there.run(10, "train")
    stranger, nobody = there.read(CARDS, devices=[device("a", Tenant(10, None), used=9.0)])
    assert on(stranger, "device:a") == [(0.0, None)] and stranger.competes is True
    assert (nobody.name, nobody.pid, on(nobody, "device:a")) == ("unattributed", 0, [(9.0, 9.0)])


def test_a_declared_stranger_is_charged_what_was_declared_or_what_it_uses_if_that_is_more(tmp_path: Path) -> None:
    said = {("train", 10, 4200.0): (10.0, 2.0), ("train", 11, 4200.0): (1.0, 0.0)}
    there = Table(tmp_path, declared_of=lambda *who: said.get(who))
    there.run(10, "train", rss_mib=1024)
    there.run(11, "train")
    first, second = there.read(CARDS, devices=[device("a", Tenant(10, 7.0), Tenant(11, 7.0))])
    assert charged(first) == [("host", 2.0, 1.0, "host"), ("device:a", 10.0, 7.0, "device")]
    assert second.name == "train#2" and charged(second) == [("device:a", 7.0, 7.0, "device")]


def test_a_stranger_on_a_device_that_is_left_alone_is_charged_nowhere_and_competes(there: Table) -> None:
    there.run(10, "train")
    seen = [device("a"), device("x", Tenant(10, 7.0))]
    found = there.read((A, HOST), devices=seen)
    assert only(found).charges == () and competing(found, seen) == 1


# Who competes


def test_others_workers_compete_when_a_driver_lists_them_as_computing_and_ours_never_do(there: Table) -> None:
    there.legacy(10)
    there.keeper(20, "worker=4", "slug=boltz", "queue=other", "charge=device:a:28.0")
    there.run(21, "python", "model.py", parent=20)
    there.keeper(30, "worker=5", "slug=boltz", "queue=Q", "charge=device:a:28.0")
    there.run(31, "python", "model.py", parent=30)
    seen = [device("a", *(Tenant(pid, 1.0) for pid in (10, 21, 31)))]
    found = there.read(CARDS, devices=seen)
    assert [each.competes for each in found] == [True, True, False] and competing(found, seen) == 2
    found = there.read(CARDS, devices=[device("a")])
    assert [each.competes for each in found] == [False] * 3 and competing(found, []) == 0


def test_an_orphan_of_ours_that_computes_competes_for_nobody_holds_it(there: Table) -> None:
    there.run(10, "model", env={"SCHEDQ_WORKER": "Q:7"})
    seen = [device("a", Tenant(10, 1.0))]
    assert competing(there.read(CARDS, devices=seen), seen) == 1


def test_who_competes_is_unknown_where_a_driver_does_not_say_who_is_there(there: Table) -> None:
    there.legacy(10)
    there.legacy(11)
    there.keeper(30, "worker=5", "slug=boltz", "queue=Q", "charge=device:a:28.0")
    seen = [device("a", Tenant(10, 1.0)), device("b", tenants_missing="not permitted")]
    found = there.read(CARDS, devices=seen)
    assert [each.competes for each in found] == [True, None, False] and competing(found, seen) is None
    assert competing([], seen) is None


@pytest.mark.parametrize(
    ("used", "total", "competes", "count"), [(0.9, 16.0, False, 0), (1.1, 16.0, None, None), (1.1, 80.0, False, 0)]
)
def test_much_on_nobodys_name_may_be_somebody_who_competes(
    there: Table, used: float, total: float, competes: bool | None, count: int | None
) -> None:
    seen = [device("a", used=used, total=total)]
    found = there.read(CARDS, devices=seen)
    assert only(found).competes is competes and competing(found, seen) == count


# On nobody's name


def test_what_a_device_holds_beyond_its_listed_processes_is_charged_as_a_row(there: Table) -> None:
    there.run(10, "train")
    _, nobody = there.read(CARDS, devices=[device("a", Tenant(10, 7.0), used=10.0), device("b")])
    assert (nobody.name, nobody.pid, nobody.user, nobody.worker_id) == ("unattributed", 0, "", None)
    assert charged(nobody) == [("device:a", 3.0, 3.0, "device")]


@pytest.mark.parametrize(
    "seen",
    [
        device("a", used=0.5 / 1024),
        device("a", Tenant(1, 7.0), used=6.0),
        device("x", used=9.0),
        integrated(),
        Device("a", "NVIDIA", "H200", reading(80.0), reading(80.0), reading(None)),
    ],
)
def test_rounding_a_device_of_no_pool_unified_memory_and_a_lost_figure_are_no_row(there: Table, seen: Device) -> None:
    found = there.read((A, UNIFIED), devices=[seen])
    assert [each.name for each in found if each.name == "unattributed"] == []


def test_two_devices_have_a_row_each_of_the_same_name(there: Table) -> None:
    found = there.read(CARDS, devices=[device("a", used=2.0), device("b", used=3.0)])
    assert [(each.name, each.charges[0].pool) for each in found] == [
        ("unattributed", "device:a"),
        ("unattributed", "device:b"),
    ]


def test_in_a_container_that_has_the_device_to_itself_it_is_our_own_workers_up_to_their_charges(
    tmp_path: Path,
) -> None:
    there = Table(tmp_path, unattributed="ours")
    for pid, gib in ((10, 20), (20, 5)):
        there.keeper(pid, f"worker={pid}", "slug=boltz", "queue=Q", f"charge=device:a:{gib}")
        there.run(pid + 1, "python", "model.py", parent=pid)
    there.keeper(30, "worker=9", "slug=boltz", "queue=other", "charge=device:a:9")
    first, second, other, nobody = there.read(CARDS, devices=[device("a", used=27.0)])
    assert [on(each, "device:a") for each in (first, second, other)] == [[(20.0, 20.0)], [(5.0, 5.0)], [(9.0, None)]]
    assert on(nobody, "device:a") == [(2.0, 2.0)]
    first, second, _ = there.read(CARDS, devices=[device("a", used=8.0)])
    assert [on(each, "device:a") for each in (first, second)] == [[(20.0, 8.0)], [(5.0, 0.0)]]


def test_a_worker_whose_figure_the_driver_tells_takes_nothing_of_what_is_on_nobodys_name(tmp_path: Path) -> None:
    there = Table(tmp_path, unattributed="ours")
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=device:a:20")
    there.run(11, "python", "model.py", parent=10)
    worker, nobody = there.read(CARDS, devices=[device("a", Tenant(11, 5.0), used=8.0)])
    assert on(worker, "device:a") == [(20.0, 5.0)] and on(nobody, "device:a") == [(3.0, 3.0)]


def test_unified_memory_has_nothing_on_nobodys_name_that_could_be_ours(tmp_path: Path) -> None:
    there = Table(tmp_path, unattributed="ours")
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=unified:34")
    seen = replace(integrated(), used=reading(9.0))
    assert on(only(there.read((UNIFIED,), devices=[seen])), "unified") == [(28.0, None)]


def test_device_figures_stand_when_host_use_is_sampled_again(there: Table) -> None:
    there.legacy(10, rss_mib=2048)
    first = there.read((UNIFIED,), devices=[integrated(Tenant(10, 5.0))])
    (there.folder / "10" / "status").write_text("RssAnon: 1048576 kB\nRssShmem: 0 kB\n")
    assert charged(there.reader.again(first, 0.0)[0]) == [
        ("unified", 6.0, 1.0, "host"),
        ("unified", 28.0, 5.0, "device"),
    ]


# Host memory that a device takes its own from, or may


def test_where_a_device_may_share_the_hosts_memory_its_share_is_charged_there(there: Table) -> None:
    there.legacy(10, rss_mib=512)
    there.keeper(20, "worker=1", "slug=boltz", "queue=other", "charge=unified:34")
    boltz, other = there.read((replace(pool("host"), shared=True),))
    assert charged(boltz) == [("host", 6.0, 0.5, "host"), ("host", 28.0, None, "device")]
    assert sum(charge.charge_gib or 0.0 for charge in other.charges) == 34.0
    (apart,) = [each for each in there.read((pool("host"),)) if each.pid == 10]
    assert charged(apart) == [("host", 6.0, 0.5, "host")]


def test_who_computes_on_an_integrated_device_that_is_left_alone_holds_the_hosts_memory(there: Table) -> None:
    there.run(10, "python", "train.py")
    found = only(there.read((replace(pool("host"), shared=True),), devices=[integrated(Tenant(10, 8.0))]))
    assert found.name == "train.py" and ("host", 8.0, 8.0, "device") in charged(found)


def test_a_claim_of_another_queue_whose_split_nobody_here_knows_counts_once(there: Table) -> None:
    there.keeper(10, "worker=1", "slug=stranger", "queue=other", "charge=unified:6.05")
    there.run(11, "python", "model.py", parent=10, rss_mib=512)
    found = only(there.read((UNIFIED,), devices=[integrated(Tenant(11, 5.5))]))
    assert charged(found) == [("unified", 6.05, 6.0, "whole")]


def test_host_memory_that_was_given_back_between_two_looks_is_owed_again_where_the_split_is_unknown(
    there: Table,
) -> None:
    there.keeper(10, "worker=1", "slug=stranger", "queue=other", "charge=unified:44.0")
    there.run(11, "python", "model.py", parent=10, rss_mib=5120)
    first = there.read((UNIFIED,), devices=[integrated(Tenant(11, 19.0))])
    assert charged(only(first)) == [("unified", 44.0, 24.0, "whole")]
    (there.folder / "11" / "status").write_text("RssAnon: 2097152 kB\nRssShmem: 0 kB\n")
    assert charged(there.reader.again(first, 2.0)[0]) == [("unified", 44.0, 21.0, "whole")]


# What is on nobody's name


def test_what_is_used_where_only_ours_are_listed_without_a_figure_is_theirs(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=device:a:50.0")
    there.run(11, "python", "model.py", parent=10)
    seen = [device("a", Tenant(11, None), used=45.0)]
    (ours,) = there.read(CARDS, devices=seen)
    assert on(ours, "device:a") == [(50.0, 45.0)]
    there.run(12, "python", "train.py")
    shared = there.read(CARDS, devices=[device("a", Tenant(11, None), Tenant(12, None), used=45.0)])
    assert [each.name for each in shared] == ["boltz", "train.py", "unattributed"]
    assert on(shared[0], "device:a") == [(50.0, None)] and on(shared[2], "device:a") == [(45.0, 45.0)]


def test_what_is_used_beyond_the_figures_of_ours_is_nobodys_and_not_theirs(there: Table) -> None:
    """A container's process beside them: the parked worker has touched nothing of its charge yet."""
    there.keeper(10, "worker=4", "slug=boltz", "queue=Q", "charge=device:a:50.0")
    there.run(11, "python", "model.py", parent=10)
    there.keeper(20, "worker=5", "slug=esm", "queue=Q", "charge=device:a:20.0")
    seen = [device("a", Tenant(11, 10.0), used=40.0)]
    found = {each.name: each for each in there.read(CARDS, devices=seen)}
    assert on(found["boltz"], "device:a") == [(50.0, 10.0)]
    assert [used or 0.0 for _, used in on(found["esm"], "device:a")] == [0.0]
    assert on(found["unattributed"], "device:a") == [(30.0, 30.0)]


def test_what_is_on_nobodys_name_is_told_with_the_setting_for_it(there: Table) -> None:
    seen = [device("a", used=45.0), device("b", used=0.5)]
    (told,) = told_of_nobody(there.read(CARDS, devices=seen), seen)
    assert "45.00 GiB of a are on nobody's name" in told and "lists no process" in told
    assert 'unattributed = "ours"' in told
