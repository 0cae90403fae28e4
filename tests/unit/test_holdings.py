"""Who holds a model on this machine: from a process table that is laid out as files."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from builders import pool
from made_proc import Table, charged, only

from scheduler.host.machine.declared import told
from scheduler.host.machine.facts import used_of
from scheduler.host.machine.holders import legacy_name, script_of
from scheduler.host.machine.processes import table
from scheduler.model.machine import Charge

HOST = (pool("host"),)
UNIFIED = (pool("unified"),)
CARDS = (pool("device:a"), pool("device:b"), pool("host"))


@pytest.fixture
def there(tmp_path: Path) -> Table:
    return Table(tmp_path)


# The table


def test_a_process_that_goes_while_it_is_read_or_cannot_be_read_is_left_out_and_the_others_stand(there: Table) -> None:
    there.legacy(10)
    for pid in (11, 12, 13):
        there.run(pid, "python", "x.py")
    (there.folder / "11" / "stat").unlink()
    (there.folder / "12" / "stat").write_text("12 (half")
    (there.folder / "13" / "cmdline").unlink()
    seen = table(str(there.folder))
    assert sorted(seen) == [10, 13] and seen[13].argv == ()
    assert only(there.read(HOST)).pid == 10


def test_a_holder_that_goes_after_the_table_was_read_is_still_named_and_charged(there: Table) -> None:
    there.legacy(10)
    seen = table(str(there.folder))
    for file in (there.folder / "10").iterdir():
        file.unlink()
    (there.folder / "10").rmdir()
    found = only(list(there.reader.read(seen, HOST, 0.0)))
    assert (found.name, found.user, charged(found)) == ("boltz", "", [("host", 6.0, None, "host")])


def test_a_table_that_cannot_be_read_is_an_error_and_no_empty_machine(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        table(str(tmp_path / "none"))
    with pytest.raises(OSError, match="lists no process"):
        table(str(tmp_path))


def test_reading_another_tables_place_leaves_psutils_own_as_it_was(there: Table) -> None:
    there.legacy(10, path="resident/boltz_resident_worker.py")
    there.read(HOST)
    assert psutil.PROCFS_PATH == "/proc"


def test_an_argument_vector_longer_than_one_read_is_read_whole(there: Table) -> None:
    there.legacy(10, "boltz", "x" * 9000, "--vram-budget-gb", "3")
    assert [c.charge_gib for c in only(there.read((pool("device:a"),))).charges] == [3.0]


def test_a_kernel_that_does_not_say_when_it_booted_leaves_the_start_open(there: Table) -> None:
    there.legacy(10)
    assert only(there.read(HOST)).since_s == 1_000_042.0
    (there.folder / "stat").write_text("cpu 1\n")
    assert only(there.read(HOST)).since_s is None


# Keepers


def test_a_keeper_of_another_queue_is_charged_what_its_argv_claims(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "variant=big", "queue=other", "lease=host:7", "charge=host:6.5")
    there.run(11, "python", "model.py", parent=10, rss_mib=1024)
    found = only(there.read(HOST))
    assert (found.name, found.pid, found.worker_id) == ("boltz:big", 10, None)
    assert found.charges == (Charge("host", 6.5, 1.0, "host"),)
    assert found.since_s == 1_000_042.0 and found.user


def test_our_own_keeper_is_known_by_its_worker_id_and_a_strangers_claim_to_it_is_not(
    there: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.keeper(10, "worker=4", "slug=capiti", "queue=Q", "charge=host:0.5")
    there.run(11, "python", "model.py", parent=10, rss_mib=256)
    assert only(there.read(HOST)).worker_id == 4
    assert [used_of(each) for each in there.read(HOST) if each.worker_id == 4] == [{"host": 0.25}]
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert only(there.read(HOST)).worker_id is None


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
    assert [charge.charge_gib for charge in only(there.read(HOST)).charges] == [None]


def test_what_an_operator_declares_stands_for_a_claim_that_cannot_be_read(tmp_path: Path) -> None:
    asked = []

    def declared_of(*who: object) -> tuple[float, float]:
        asked.append(who)
        return 4.0, 1.0

    there = Table(tmp_path, declared_of=declared_of)
    there.keeper(10, "worker=4", "slug=boltz", "queue=other", "charge=host:nan")
    assert charged(only(there.read(UNIFIED))) == [("unified", 1.0, 0.0, "host"), ("unified", 4.0, None, "device")]
    assert asked == [("boltz", 10, 4200.0)]


def test_a_worker_below_a_keeper_is_its_keepers_and_not_a_second_holder(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=other", "charge=host:6")
    there.legacy(11, parent=10)
    there.keeper(12, "worker=4", "slug=boltz", "queue=other", "charge=host:6", parent=10)
    assert [each.pid for each in there.read(HOST)] == [10]


def test_a_queue_inside_anothers_worker_is_a_holder_of_its_own_and_its_use_counts_once(there: Table) -> None:
    there.keeper(10, "worker=4", "slug=boltz", "queue=outer", "charge=host:6")
    there.run(11, "python", "run.py", parent=10, rss_mib=256)
    there.keeper(12, "worker=1", "slug=capiti", "queue=inner", "charge=host:0.5", parent=11)
    there.run(13, "python", "model.py", parent=12, rss_mib=512)
    assert [each.charges[0].used_gib for each in there.read(HOST)] == [0.25, 0.5]


# Names


def test_several_of_one_name_are_told_apart_in_the_order_of_their_pids(there: Table) -> None:
    there.legacy(30)
    there.legacy(10)
    there.keeper(20, "worker=4", "slug=boltz", "queue=other", "charge=host:6")
    there.legacy(25, path="/x/worktrees/t1/remote/boltz/resident/boltz_resident_worker.py")
    names = ["boltz", "boltz#2", "boltz@t1", "boltz#3"]
    assert [each.name for each in there.read(HOST)] == names
    assert [each.name for each in there.read(HOST)] == names


# Legacy workers


def test_a_legacy_worker_is_charged_what_is_declared_for_its_slug(there: Table) -> None:
    there.legacy(10, rss_mib=2048)
    found = only(there.read(HOST))
    assert found.name == "boltz" and found.charges == (Charge("host", 6.0, 2.0, "host"),)
    gpus = (pool("device:a"), pool("host"))
    assert [(c.pool, c.charge_gib) for c in only(there.read(gpus)).charges] == [("device:a", 28.0), ("host", 6.0)]


def test_a_holder_of_others_is_charged_at_least_what_it_is_seen_to_use(there: Table) -> None:
    there.legacy(10, rss_mib=9 * 1024)
    assert only(there.read(HOST)).charges == (Charge("host", 9.0, 9.0, "host"),)


def test_a_claim_of_others_counts_at_least_what_is_used_and_ours_counts_as_it_is_leased(there: Table) -> None:
    for pid, queue in ((10, "other"), (20, "Q")):
        there.keeper(pid, "worker=4", "slug=capiti", f"queue={queue}", "charge=host:0.5")
        there.run(pid + 1, "python", "model.py", parent=pid, rss_mib=2048)
    assert [each.charges[0].charge_gib for each in there.read(HOST)] == [2.0, 0.5]


def test_a_slug_that_nobody_declared_is_unknown_on_every_pool_it_could_be_on(there: Table) -> None:
    there.legacy(10, "esm")
    found = only(there.read(CARDS))
    assert [(c.pool, c.charge_gib) for c in found.charges] == [("device:a", None), ("device:b", None), ("host", None)]


def test_a_cpu_only_worker_holds_no_device(there: Table) -> None:
    there.legacy(10, "capiti")
    assert [c.pool for c in only(there.read(CARDS)).charges] == ["host"]


def test_another_checkouts_worker_is_named_with_its_tree_also_when_it_was_deleted(there: Table) -> None:
    there.legacy(10, path="/no/such/worktrees/feature-x/remote/boltz/resident/boltz_resident_worker.py")
    found = only(there.read(HOST))
    assert found.name == "boltz@feature-x" and found.charges[0].charge_gib == 6.0


def test_two_processes_of_one_provider_are_two_holders_and_a_fork_is_none(there: Table) -> None:
    there.legacy(10)
    there.legacy(11)
    there.legacy(9, parent=11)
    assert [each.pid for each in there.read(HOST)] == [10, 11]


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
    assert there.read(HOST) == []


def test_paths_with_blanks_and_options_with_words_are_read_as_the_kernel_has_them(there: Table) -> None:
    there.run(
        10, "/my envs/b/bin/python3.12", "-X", "dev", "-W", "error", "-B",
        "/a lab/boltz/resident/boltz_resident_worker.py", "--socket=/tmp/a b",
    )  # fmt: skip
    assert only(there.read(HOST)).name == "boltz"


def test_a_relative_script_is_named_from_where_the_process_stands(there: Table) -> None:
    there.legacy(10, path="resident/boltz_resident_worker.py")
    assert only(there.read(HOST)).name == "boltz"
    os.symlink("/lab/worktrees/t1/remote/boltz (deleted)", there.folder / "10" / "cwd")
    assert only(there.read(HOST)).name == "boltz@t1"


def test_a_zombie_holds_nothing(there: Table) -> None:
    there.run(10, "python", "/l/boltz/resident/boltz_resident_worker.py", "--socket", "/s", state="Z")
    assert there.read(HOST) == []


# What it tells of itself


@pytest.mark.parametrize(
    ("words", "env", "charges"),
    [
        (("--vram-budget-gb", "10", "--ram-budget-gb=2"), {}, [10.0, 2.0]),
        (("--vram-budget-gb=10",), {"RAM_BUDGET_GB": "3", "VRAM_BUDGET_GB": "99"}, [10.0, 3.0]),
        ((), {"VRAM_BUDGET_GB": "11.5"}, [11.5, 6.0]),
        (("--ram-budget-gb", "1"), {}, [28.0, 1.0]),
        (("--vram-budget-gb", "1", "--vram-budget-gb", "12"), {}, [12.0, 6.0]),
        (("--vram-budget-gb", "0"), {}, [6.0]),
        ((), {"VRAM_BUDGET_GB": ""}, [28.0, 6.0]),
    ],
)
def test_what_a_worker_tells_itself_comes_before_the_manifest_and_argv_before_the_environment(
    there: Table, words: tuple[str, ...], env: dict[str, str], charges: list[float]
) -> None:
    there.legacy(10, "boltz", *words, env=env)
    assert [c.charge_gib for c in only(there.read((pool("device:a"), pool("host")))).charges] == charges


def test_a_device_budget_alone_is_enough_of_a_worker_that_nobody_else_declared(there: Table) -> None:
    there.legacy(10, "esm", "--vram-budget-gb", "10", rss_mib=1024)
    assert charged(only(there.read((pool("device:a"), pool("host"))))) == [
        ("device:a", 10.0, None, "device"),
        ("host", 1.0, 1.0, "host"),
    ]


def test_a_host_budget_alone_leaves_the_devices_unknown_and_the_host_known(there: Table) -> None:
    there.legacy(10, "esm", "--ram-budget-gb", "2")
    assert [c.charge_gib for c in only(there.read((pool("device:a"), pool("host")))).charges] == [None, 2.0]


@pytest.mark.parametrize("word", ["nan", "inf", "-1", "much", "--x"])
def test_a_worker_that_tells_no_amount_is_unknown_and_its_name_says_why(there: Table, word: str) -> None:
    there.legacy(10, "boltz", "--vram-budget-gb", word)
    found = only(there.read(CARDS))
    assert found.name == f"boltz (--vram-budget-gb {word})"
    assert [c.charge_gib for c in found.charges] == [None, None, None]


def test_an_option_without_its_word_and_a_variable_that_is_no_amount_are_named(there: Table) -> None:
    assert told(["w", "--ram-budget-gb"], {}).wrong == "--ram-budget-gb"
    assert told(["w"], {"RAM_BUDGET_GB": "1e999"}).wrong == "RAM_BUDGET_GB 1e999"


def test_what_an_operator_declares_comes_last_and_rescues_what_is_wrong(tmp_path: Path) -> None:
    there = Table(tmp_path, declared_of=lambda slug, pid, started: (9.0, 1.0) if pid != 12 else None)
    there.legacy(10)
    there.legacy(11, "esm")
    there.legacy(12, "esm")
    there.legacy(13, "boltz", "--vram-budget-gb", "nan")
    charges = [[c.charge_gib for c in each.charges] for each in there.read((pool("device:a"), pool("host")))]
    assert charges == [[28.0, 6.0], [9.0, 1.0], [None, None], [9.0, 1.0]]


def test_the_environment_of_another_user_is_not_asked(there: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    there.legacy(10, env={"VRAM_BUDGET_GB": "1"})
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert [c.charge_gib for c in only(there.read((pool("device:a"), pool("host")))).charges] == [28.0, 6.0]


def test_an_environment_is_read_once_for_each_program_that_a_process_runs(there: Table) -> None:
    there.legacy(10, env={"VRAM_BUDGET_GB": "1"})
    gpu = (pool("device:a"),)
    assert only(there.read(gpu)).charges[0].charge_gib == 1.0
    (there.folder / "10" / "environ").write_bytes(b"VRAM_BUDGET_GB=2\0")
    assert only(there.read(gpu)).charges[0].charge_gib == 1.0
    line = (there.folder / "10" / "cmdline").read_bytes()
    (there.folder / "10" / "cmdline").write_bytes(line + b"-v\0")
    assert only(there.read(gpu)).charges[0].charge_gib == 2.0


def test_an_environment_keeps_no_name_but_those_that_are_asked_for(there: Table) -> None:
    there.legacy(10, env={"API_KEY": "secret", "VRAM_BUDGET_GB": "1"})
    there.read(HOST)
    assert "secret" not in repr(there.reader.asked.__dict__)


# Orphans


MARKED = {"SCHEDQ_WORKER": "Q:7", "SCHEDQ_CHARGE_DEVICE_GIB": "28.0", "CUDA_VISIBLE_DEVICES": "b"}


def test_what_a_killed_keeper_left_is_a_holder_by_its_mark_with_all_that_is_below_it(there: Table) -> None:
    there.run(10, "/envs/b/bin/python", "/x/model.py", env=MARKED, rss_mib=1024, started=50)
    there.run(9, "loader", env=MARKED, rss_mib=512, started=60)
    there.run(11, "sh", parent=10, rss_mib=2048, env={})
    found = only(there.read((pool("device:a"), pool("host"))))
    assert (found.name, found.pid, found.worker_id) == ("model.py", 10, 7)
    assert charged(found) == [("device:a", 28.0, None, "device"), ("host", None, 2.0, "host")]


def test_an_orphan_of_a_known_provider_has_its_host_budget_and_one_of_another_queue_is_not_ours(there: Table) -> None:
    there.legacy(10, env={**MARKED, "SCHEDQ_WORKER": "other:7", "SCHEDQ_CHARGE_DEVICE_GIB": "20"})
    found = only(there.read((pool("device:b"), pool("host"))))
    assert (found.name, found.worker_id) == ("boltz", None)
    assert [c.charge_gib for c in found.charges] == [20.0, 6.0]


def test_an_orphan_that_was_given_no_device_holds_none_and_one_with_a_broken_charge_is_unknown(there: Table) -> None:
    none = {"SCHEDQ_WORKER": "Q:7", "CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
    there.run(10, "model", env={**none, "RAM_BUDGET_GB": "2"})
    there.run(11, "model", env={**MARKED, "SCHEDQ_WORKER": "Q:8", "SCHEDQ_CHARGE_DEVICE_GIB": "nan"})
    first, second = there.read((pool("device:a"), pool("host")))
    assert charged(first) == [("host", 2.0, 0.0, "host")]
    assert second.name == "model (SCHEDQ_CHARGE_DEVICE_GIB nan)"
    assert [c.charge_gib for c in second.charges] == [None, None]


def test_a_marked_process_whose_keeper_lives_is_its_keepers_wherever_it_went(there: Table) -> None:
    there.keeper(10, "worker=7", "slug=boltz", "queue=Q", "charge=host:6")
    there.run(11, "model", parent=10, env=MARKED, rss_mib=1024)
    there.run(12, "model", env=MARKED, rss_mib=2048)
    assert charged(only(there.read(HOST))) == [("host", 6.0, 2.0, "host")]


def test_two_workers_whose_keepers_are_gone_are_two_holders_and_neither_uses_what_the_other_does(there: Table) -> None:
    there.run(10, "model", env=MARKED, rss_mib=256)
    there.run(11, "model", parent=10, env={**MARKED, "SCHEDQ_WORKER": "Q:8"}, rss_mib=512)
    found = [(each.pid, each.name, each.worker_id, each.charges[-1].used_gib) for each in there.read(HOST)]
    assert found == [(10, "model", 7, 0.25), (11, "model#2", 8, 0.5)]


# What they use


def test_several_processes_use_what_they_share_once_and_pss_is_read_rarely(there: Table) -> None:
    there.legacy(10, rss_mib=1024, pss_mib=768)
    there.run(11, "python", "child", parent=10, rss_mib=1024, pss_mib=512)
    assert only(there.read(HOST, now_s=0.0)).charges[0].used_gib == 1.25
    (there.folder / "10" / "smaps_rollup").write_text("h\nPss_Anon: 1048576 kB\nPss_Shmem: 0 kB\n")
    assert only(there.read(HOST, now_s=4.9)).charges[0].used_gib == 1.25
    assert only(there.read(HOST, now_s=5.0)).charges[0].used_gib == 1.5


def test_a_tree_whose_pss_may_not_be_read_uses_at_least_its_largest_process(there: Table) -> None:
    there.legacy(10, rss_mib=1024)
    there.run(11, "python", "child", parent=10, rss_mib=512)
    assert only(there.read(HOST)).charges[0].used_gib == 1.0


def test_the_smaller_of_two_samples_counts(there: Table) -> None:
    there.legacy(10, rss_mib=2048)
    first = there.read(HOST)
    (there.folder / "10" / "status").write_text("RssAnon: 1048576 kB\nRssShmem: 0 kB\n")
    assert there.reader.again(first, 0.0)[0].charges[0].used_gib == 1.0
    (there.folder / "10" / "status").write_text("RssAnon: 4194304 kB\nRssShmem: 0 kB\n")
    assert there.reader.again(first, 0.0)[0].charges[0].used_gib == 2.0


def test_a_script_is_the_first_word_that_is_no_option() -> None:
    assert script_of(["python3", "-u", "a.py", "-c"]) == ("a.py", ["-c"])
    assert script_of(["/x/pypy3", "a.py"]) == ("a.py", [])
    assert script_of(["python3"]) is None and script_of([]) is None
    assert legacy_name("a.py") is None


@pytest.mark.parametrize(
    "words",
    [
        ("-Xpycache_prefix=/tmp/pyc",), ("-X", "pycache_prefix=/tmp/c"), ("-Werror::asyncio.m",), ("-IX", "dev.c"),
        ("-W", "ignore::x.c"), ("--check-hash-based-pycs", "always"), ("-uB",),
    ],
)  # fmt: skip
def test_what_follows_an_option_with_a_value_is_no_command(words: tuple[str, ...]) -> None:
    assert script_of(["python3", *words, "a.py", "--socket"]) == ("a.py", ["--socket"])


@pytest.mark.parametrize("words", [("-c", "a.py"), ("-Ic", "a.py"), ("-m", "a"), ("-um", "a"), ("-",)])
def test_a_command_a_module_and_stdin_are_no_script(words: tuple[str, ...]) -> None:
    assert script_of(["python3", *words, "a.py"]) is None


def test_a_worker_that_another_one_started_is_a_holder_of_its_own(there: Table) -> None:
    there.legacy(10, rss_mib=1024)
    there.legacy(11, "esm", parent=10, rss_mib=2048)
    there.legacy(12, "esm", parent=11, rss_mib=10)
    assert [each.name for each in there.read(HOST)] == ["boltz", "esm"]


def test_a_name_that_is_no_text_is_shown_with_its_odd_bytes_escaped(there: Table) -> None:
    there.legacy(10, path=os.fsdecode(b"/lab/remote/caf\xe9\x1b/resident/caf\xe9\x1b_resident_worker.py"))
    found = only(there.read(HOST))
    assert found.name == "caf\\xe9\\x1b" and found.command.isprintable() and found.command.encode()


@pytest.mark.parametrize("said", ["1e308", "1073741825"])
def test_more_than_any_memory_is_no_amount(there: Table, said: str) -> None:
    there.run(10, "/envs/b/bin/python", "/r/x/resident/x_resident_worker.py", "--socket=s", f"--vram-budget-gb={said}")
    there.keeper(20, "worker=1", "slug=y", "queue=other", f"charge=host:{said}")
    assert all(charge.charge_gib is None for each in there.read(CARDS) for charge in each.charges)
