"""Real processes on the real machine: who is seen, with what charge, and what their trees use."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import pool
from keepers import QUEUE, Yard, until

from scheduler.config import Paths, settings
from scheduler.host.machine.holdings import Holdings
from scheduler.host.machine.processes import table
from scheduler.host.machine.sampler import Sampler
from scheduler.host.workers.protocol import CLAIM
from scheduler.model.machine import Holding, Machine

MIB = 1 << 20
WORKER = """
import os, sys
held = bytearray(int(os.environ.get("HOLD_MIB", "0")) << 20)
held[::4096] = b"x" * len(held[::4096])
if not os.environ.get("FORK") or os.fork():
    print("up", flush=True)
sys.stdin.read()
"""
KEEPER = """
import subprocess, sys, os
child = subprocess.Popen([sys.executable, os.environ["BELOW"], "--socket", "/tmp/x"], stdin=0)
child.wait()
"""

Run = Callable[..., int]


@pytest.fixture
def run() -> Iterator[Run]:
    """Start a command that says when it is up and lives until the test ends; its pid."""
    living: list[subprocess.Popen[str]] = []

    def start(*argv: str, **env: str) -> int:
        child = subprocess.Popen(
            argv, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        living.append(child)
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        return child.pid

    yield start
    for child in living:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.close()
    for child in living:
        child.wait(10)
        child.stdout.close()  # type: ignore[union-attr]


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Callable[[], Machine]]:
    """A fresh snapshot of this machine, as queue Q sees it."""
    budgets = {"hydropathy": (0.0, 0.25)}
    sampler = Sampler(
        Paths(str(tmp_path)), settings(), queue_id="Q", host_id="here", budget_of=budgets.get, period_s=3600.0
    )
    sampler.open()

    def fresh() -> Machine:
        there = threading.Event()
        sampler.refresh(there.set)
        assert there.wait(20.0)
        return sampler.latest()

    yield fresh
    sampler.close()


def script(folder: Path, path: str, text: str = WORKER) -> str:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return str(target)


def of(machine: Machine, pid: int) -> Holding:
    return next(each for each in machine.holdings if each.pid == pid)


def test_a_legacy_worker_of_a_deleted_checkout_is_seen_and_a_shell_that_quotes_it_is_not(
    tmp_path: Path, run: Run, look: Callable[[], Machine]
) -> None:
    path = script(tmp_path, "my lab/worktrees/old/remote/hydropathy/resident/hydropathy_resident_worker.py")
    line = f"{shlex.quote(sys.executable)} {shlex.quote(path)} --socket /tmp/x"
    quoting = run("sh", "-c", f": {shlex.quote(line)}; echo up; read wait")
    pid = run(sys.executable, "-u", path, "--socket", "/tmp/with blank", HOLD_MIB="64")
    Path(path).unlink()
    seen = look()
    assert of(seen, pid).name == "hydropathy@old"
    (charge,) = of(seen, pid).charges
    assert charge.charge_gib == 0.25 and charge.used_gib is not None and charge.used_gib * (1 << 30) >= 64 * MIB
    assert charge.used_gib < 0.25
    assert quoting not in [each.pid for each in seen.holdings]


def test_a_forked_worker_is_one_holder_and_uses_what_it_shares_once(
    tmp_path: Path, run: Run, look: Callable[[], Machine]
) -> None:
    path = script(tmp_path, "remote/hydropathy/resident/hydropathy_resident_worker.py")
    pid = run(sys.executable, path, "--socket", "/tmp/x", HOLD_MIB="64", FORK="1")
    seen = look()
    mine = [each for each in seen.holdings if str(tmp_path) in each.command]
    assert [each.pid for each in mine] == [pid]
    used = mine[0].charges[0].used_gib
    assert used is not None and 60 * MIB < used * (1 << 30) < 110 * MIB


def test_a_keepers_claim_counts_and_its_worker_is_not_counted_again(
    tmp_path: Path, run: Run, look: Callable[[], Machine]
) -> None:
    below = script(tmp_path, "remote/hydropathy/resident/hydropathy_resident_worker.py")
    keeper = script(tmp_path, "keeper.py", KEEPER)
    claim = [CLAIM, "worker=41", "slug=hydropathy", "variant=", "charge=host:0.5", "control=/c"]
    ours = run(sys.executable, "-I", "-S", keeper, *claim, "queue=Q", str(tmp_path), BELOW=below, HOLD_MIB="32")
    theirs = run(sys.executable, "-I", "-S", keeper, *claim, "queue=other", str(tmp_path), BELOW=below)
    seen = look()
    mine = [each for each in seen.holdings if str(tmp_path) in each.command]
    assert sorted(each.pid for each in mine) == sorted([ours, theirs])
    assert of(seen, ours).worker_id == 41 and of(seen, theirs).worker_id is None
    assert [charge.charge_gib for charge in of(seen, theirs).charges] == [0.5]
    used = of(seen, ours).charges[0].used_gib
    assert used is not None and used * (1 << 30) >= 32 * MIB


def test_a_worker_that_says_its_budget_is_charged_that_and_two_of_a_slug_are_told_apart(
    tmp_path: Path, run: Run, look: Callable[[], Machine]
) -> None:
    path = script(tmp_path, "my lab/remote/hydropathy/resident/hydropathy_resident_worker.py")
    first = run(sys.executable, path, "--socket", "/tmp/x", RAM_BUDGET_GB="0.75")
    second = run(sys.executable, path, "--socket", "/tmp/x", "--ram-budget-gb", "0.5", RAM_BUDGET_GB="0.75")
    seen = look()
    assert [of(seen, pid).charges[0].charge_gib for pid in (first, second)] == [0.75, 0.5]
    names = [each.name for each in seen.holdings if str(tmp_path) in each.command]
    assert len(set(names)) == 2 and all(name.startswith("hydropathy") for name in names)


def test_what_a_killed_keeper_leaves_is_a_holder_by_its_mark(tmp_path: Path) -> None:
    yard, reader = Yard(tmp_path / "q"), Holdings(QUEUE, lambda slug: None)
    pools = (pool("device:a"), pool("host"))

    def ours() -> list[Holding]:
        return [each for each in reader.read(table(), pools, 0.0) if each.worker_id == 1]

    try:
        yard.start("--grandchild", "stubborn", env={"SCHEDQ_CHARGE_DEVICE_GIB": "3.0"})
        log, keeper = Path(yard.paths.worker(1)) / "log", yard.shown.keeper_pid
        until(lambda: "grandchild" in log.read_text(), "the grandchild")
        assert [each.pid for each in ours()] == [keeper]
        yard.roster.close()
        os.kill(keeper, signal.SIGKILL)
        until(lambda: not any(each.pid == keeper for each in ours()), "the keeper to go")
        (left,) = ours()
        assert "grandchild" in left.command and left.user
        assert [(c.pool, c.charge_gib) for c in left.charges] == [("device:a", 3.0), ("host", None)]
        assert left.charges[1].used_gib
    finally:
        yard.end()


def test_a_holder_is_never_missed_while_others_come_and_go(tmp_path: Path, run: Run) -> None:
    path = script(tmp_path, "remote/hydropathy/resident/hydropathy_resident_worker.py")
    pid = run(sys.executable, path, "--socket", "/tmp/x")
    reader = Holdings("Q", lambda slug: None)
    going = [subprocess.Popen(["/bin/sh", "-c", "for n in $(seq 300); do /bin/true & done; wait"]) for _ in range(2)]
    reads = 0
    while any(child.poll() is None for child in going):
        assert pid in [each.pid for each in reader.read(table(), (pool("host"),), 0.0)]
        reads += 1
    assert reads > 3


def test_this_machine_is_read_whole(look: Callable[[], Machine]) -> None:
    seen = look()
    (pool,) = seen.pools
    assert pool.capacity.value and pool.available.value and pool.free.value is not None
    assert 0 < pool.available.value <= pool.capacity.value
    assert 0 < pool.reserve_gib <= pool.capacity.value / 8
    assert seen.cores >= 1 and seen.disk_free_gib and seen.holdings_missing == ""
    assert seen.accelerators.failed or seen.accelerators.value == 0.0
