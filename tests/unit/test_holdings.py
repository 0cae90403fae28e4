"""Who holds a model on this machine: from a process table that is laid out as files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import pool

from scheduler.host.machine.holdings import Holdings, legacy_name, own_use, script_of
from scheduler.host.machine.processes import table
from scheduler.model.machine import Charge, Holding

HOST = (pool("host"),)
UNIFIED = (pool("unified"),)
BUDGETS = {"boltz": (28.0, 6.0), "capiti": (0.0, 0.5)}


class Table:
    """A made-up /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "stat").write_text("cpu 1\nbtime 1000000\n")
        self.reader = Holdings("Q", BUDGETS.get, str(folder))

    def run(
        self, pid: int, *argv: str, parent: int = 1, rss_mib: int = 0, state: str = "S", pss_mib: int | None = None
    ) -> None:
        place = self.folder / str(pid)
        place.mkdir()
        fields = [state, str(parent), "0", "0", *["0"] * 15, "4200", "0"]
        (place / "stat").write_text(f"{pid} (odd ) name) {' '.join(fields)}\n")
        (place / "cmdline").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in argv))
        (place / "status").write_text(f"Name:\tx\nRssAnon:\t{rss_mib * 1024} kB\nRssFile:\t999 kB\nRssShmem:\t0 kB\n")
        if pss_mib is not None:
            (place / "smaps_rollup").write_text(f"h\nPss: 1 kB\nPss_Anon: {pss_mib * 1024} kB\nPss_Shmem: 0 kB\n")

    def keeper(self, pid: int, *words: str, parent: int = 1) -> None:
        argv = (
            "/opt/py/bin/python3.11",
            "-I",
            "-S",
            "/x/keeper.py",
            "--schedq-keeper",
            *words,
            "control=/c",
            "/home/q/workers/1",
        )
        self.run(pid, *argv, parent=parent, rss_mib=5)

    def legacy(self, pid: int, path: str = "/lab/remote/boltz/resident/boltz_resident_worker.py", **more: int) -> None:
        self.run(pid, "/envs/boltz/bin/python", "-u", path, "--socket", "/tmp/s", **more)

    def read(self, pools: tuple = HOST, now_s: float = 0.0) -> list[Holding]:
        return list(self.reader.read(table(str(self.folder)), pools, now_s))


@pytest.fixture
def there(tmp_path: Path) -> Table:
    return Table(tmp_path)


def only(found: list[Holding]) -> Holding:
    assert len(found) == 1, found
    return found[0]


# Keepers


def test_a_keeper_of_another_queue_is_charged_what_its_argv_claims(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "variant=big", "queue=other", "lease=host:7", "charge=host:6.5")
    there.run(11, "python", "model.py", parent=10, rss_mib=1024)
    found = only(there.read())
    assert (found.name, found.pid, found.worker_id) == ("boltz:big", 10, None)
    assert found.charges == (Charge("host", 6.5, 1.0, "host"),)
    assert found.since_s == 1_000_042.0 and found.user


def test_our_own_keeper_is_known_by_its_worker_id_and_a_strangers_claim_to_it_is_not(
    there: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.keeper(10, "worker=4", "slug=capiti", "queue=Q", "charge=host:0.5")
    there.run(11, "python", "model.py", parent=10, rss_mib=256)
    assert only(there.read()).worker_id == 4
    assert own_use(there.read()) == {4: 0.25}
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert only(there.read()).worker_id is None


def test_a_claim_on_unified_memory_is_split_into_what_is_owed_apart(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=other", "charge=unified:34.0")
    there.run(11, "python", "model.py", parent=10, rss_mib=1024)
    assert only(there.read(UNIFIED)).charges == (
        Charge("unified", 6.0, 1.0, "host"),
        Charge("unified", 28.0, None, "device"),
    )


def test_host_and_unified_claims_count_on_whichever_this_machine_is_taken_to_have(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=capiti", "queue=other", "charge=unified:3")
    assert only(there.read(HOST)).charges == (Charge("host", 3.0, 0.0, "host"),)


@pytest.mark.parametrize("claim", ["charge=host:lots", "charge=host:-1", "charge=host:nan", "charge=host:inf", "x=1"])
def test_a_claim_that_cannot_be_read_is_an_unknown_one(there: Table, claim: str) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=other", claim)
    assert [charge.charge_gib for charge in only(there.read()).charges] == [None]


def test_a_worker_below_a_keeper_is_its_keepers_and_not_a_second_holder(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=other", "charge=host:6")
    there.legacy(11, parent=10)
    there.keeper(12, "worker=4", "slug=boltz", "queue=other", "charge=host:6", parent=10)
    assert [each.pid for each in there.read()] == [10]


def test_two_keepers_are_two_holders(there: Table) -> None:
    for pid, worker in ((10, 4), (11, 5)):
        there.keeper(pid, f"worker={worker}", "slug=boltz", "queue=other", "charge=host:6")
    assert [each.pid for each in there.read()] == [10, 11]


# Legacy workers


def test_a_legacy_worker_is_charged_what_is_declared_for_its_slug(there: Table) -> None:
    there.legacy(10, rss_mib=2048)
    found = only(there.read())
    assert found.name == "boltz" and found.charges == (Charge("host", 6.0, 2.0, "host"),)
    gpus = (pool("device:a"), pool("host"))
    assert [(c.pool, c.charge_gib) for c in only(there.read(gpus)).charges] == [("device:a", 28.0), ("host", 6.0)]


def test_a_holder_of_others_is_charged_at_least_what_it_is_seen_to_use(there: Table) -> None:
    there.legacy(10, rss_mib=9 * 1024)
    assert only(there.read()).charges == (Charge("host", 9.0, 9.0, "host"),)


def test_a_claim_of_others_counts_at_least_what_is_used_and_ours_counts_as_it_is_leased(there: Table) -> None:
    for pid, queue in ((10, "other"), (20, "Q")):
        there.keeper(pid, "worker=4", "slug=capiti", f"queue={queue}", "charge=host:0.5")
        there.run(pid + 1, "python", "model.py", parent=pid, rss_mib=2048)
    assert [each.charges[0].charge_gib for each in there.read()] == [2.0, 0.5]


def test_a_slug_that_nobody_declared_is_unknown_on_every_pool_it_could_be_on(there: Table) -> None:
    there.legacy(10, "/lab/remote/esm/resident/esm_resident_worker.py")
    found = only(there.read((pool("device:a"), pool("device:b"), pool("host"))))
    assert [(c.pool, c.charge_gib) for c in found.charges] == [("device:a", None), ("device:b", None), ("host", None)]


def test_a_cpu_only_worker_holds_no_device(there: Table) -> None:
    there.legacy(10, "/lab/remote/capiti/resident/capiti_resident_worker.py")
    assert [c.pool for c in only(there.read((pool("device:a"), pool("host")))).charges] == ["host"]


def test_another_checkouts_worker_is_named_with_its_tree_also_when_it_was_deleted(there: Table) -> None:
    there.legacy(10, "/no/such/worktrees/feature-x/remote/boltz/resident/boltz_resident_worker.py")
    found = only(there.read())
    assert found.name == "boltz@feature-x" and found.charges[0].charge_gib == 6.0


def test_two_processes_of_one_provider_are_two_holders_and_a_fork_is_none(there: Table) -> None:
    there.legacy(10)
    there.legacy(11)
    there.legacy(9, parent=11)
    assert [each.pid for each in there.read()] == [10, 11]


@pytest.mark.parametrize(
    "argv",
    [
        ("bash", "-c", "python /lab/remote/boltz/resident/boltz_resident_worker.py --socket /tmp/s"),
        ("vim", "/lab/remote/boltz/resident/boltz_resident_worker.py", "--socket"),
        ("python3", "-c", "print('boltz_resident_worker.py')", "--socket"),
        ("python3", "-m", "pytest", "boltz_resident_worker.py", "--socket"),
        ("python3", "-um", "pdb", "boltz_resident_worker.py", "--socket"),
        ("python3", "/x/edit.py", "/lab/remote/boltz/resident/boltz_resident_worker.py", "--socket"),
        ("python3", "/lab/remote/boltz/resident/boltz_resident_worker.py"),
        ("python3 /lab/remote/boltz/resident/boltz_resident_worker.py --socket /tmp/s",),
        ("grep", "--schedq-keeper", "worker=1", "queue=x", "charge=host:9", "/f"),
        ("python3", "/x/read.py", "--", "--schedq-keeper", "worker=1", "charge=host:9", "/f"),
        (),
    ],
)
def test_who_only_quotes_a_worker_is_no_holder(there: Table, argv: tuple[str, ...]) -> None:
    there.run(10, *argv)
    assert there.read() == []


def test_paths_with_blanks_and_options_with_words_are_read_as_the_kernel_has_them(there: Table) -> None:
    there.run(
        10, "/my envs/b/bin/python3.12", "-X", "dev", "-W", "error", "-B",
        "/a lab/boltz/resident/boltz_resident_worker.py", "--socket=/tmp/a b",
    )  # fmt: skip
    assert only(there.read()).name == "boltz"


def test_a_relative_script_is_named_from_where_the_process_stands(there: Table) -> None:
    there.legacy(10, "resident/boltz_resident_worker.py")
    assert only(there.read()).name == "boltz"
    os.symlink("/lab/worktrees/t1/remote/boltz (deleted)", there.folder / "10" / "cwd")
    assert only(there.read()).name == "boltz@t1"


def test_a_zombie_holds_nothing(there: Table) -> None:
    there.run(10, "python", "/l/boltz/resident/boltz_resident_worker.py", "--socket", "/s", state="Z")
    assert there.read() == []


# What they use


def test_several_processes_use_what_they_share_once_and_pss_is_read_rarely(there: Table) -> None:
    there.legacy(10, rss_mib=1024, pss_mib=768)
    there.run(11, "python", "child", parent=10, rss_mib=1024, pss_mib=512)
    assert only(there.read(now_s=0.0)).charges[0].used_gib == 1.25
    (there.folder / "10" / "smaps_rollup").write_text("h\nPss_Anon: 1048576 kB\nPss_Shmem: 0 kB\n")
    assert only(there.read(now_s=4.9)).charges[0].used_gib == 1.25
    assert only(there.read(now_s=5.0)).charges[0].used_gib == 1.5


def test_a_tree_whose_pss_may_not_be_read_uses_at_least_its_largest_process(there: Table) -> None:
    there.legacy(10, rss_mib=1024)
    there.run(11, "python", "child", parent=10, rss_mib=512)
    assert only(there.read()).charges[0].used_gib == 1.0


def test_the_smaller_of_two_samples_counts(there: Table) -> None:
    there.legacy(10, rss_mib=2048)
    first = there.read()
    (there.folder / "10" / "status").write_text("RssAnon: 1048576 kB\nRssShmem: 0 kB\n")
    assert there.reader.again(first, 0.0)[0].charges[0].used_gib == 1.0
    (there.folder / "10" / "status").write_text("RssAnon: 4194304 kB\nRssShmem: 0 kB\n")
    assert there.reader.again(first, 0.0)[0].charges[0].used_gib == 2.0


def test_a_script_is_the_first_word_that_is_no_option() -> None:
    assert script_of(["python3", "-u", "a.py", "-c"]) == ("a.py", ["-c"])
    assert script_of(["/x/pypy3", "a.py"]) == ("a.py", [])
    assert script_of(["python3"]) is None and script_of([]) is None
    assert legacy_name("a.py") is None
