"""The file cache given back by real means: files in the real cache, real programs, a control group of one's own."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import pool, reading
from keepers import until

from scheduler.host.machine import cached, cgroup, processes, touching
from scheduler.host.machine.holdings import Holdings
from scheduler.host.machine.levels import HostLevel, Left
from scheduler.host.machine.outside import Toucher, command
from scheduler.host.machine.reclaim import Reclaim, own_database
from scheduler.model.host import Reclaimed

MIB = 1 << 20
GROUPS = Path("/sys/fs/cgroup/memory")


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.mincore.argtypes = LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def is_cached(path: Path | int) -> bool:
    """Whether the first page of a file is in the cache; asking does not bring it there."""
    fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY)
    try:
        at, page = LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0), ctypes.create_string_buffer(1)
        assert LIBC.mincore(at, 4096, page) == 0
        LIBC.munmap(at, 4096)
        return bool(page.raw[0] & 1)
    finally:
        if fd is not path:
            os.close(fd)


def weights(path: Path, mib: int = 8) -> Path:
    """A file that lies in the cache and on its disk."""
    with path.open("wb") as file:
        file.write(os.urandom(MIB) * mib)
        file.flush()
        os.fsync(file.fileno())
    path.read_bytes()
    assert is_cached(path)
    return path


def test_a_file_loses_its_cache_and_nothing_else(tmp_path: Path) -> None:
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert cached.let_go([str(one), str(one), str(tmp_path / "none")]) == (1, 8 * MIB)
    assert not is_cached(one) and is_cached(two) and one.stat().st_size == 8 * MIB


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: (opened.append(str(path)), real(path, *rest, **more))[1]
    )
    assert cached.let_go([str(tmp_path / "pipe"), "/dev/null", "/dev/tty", str(tmp_path)]) == (0, 0)
    assert opened == []


def test_what_takes_a_files_place_in_between_is_let_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = weights(tmp_path / "one"), weights(tmp_path / "other")
    real = os.stat

    def stat(name: Any, *rest: Any, **more: Any) -> os.stat_result:
        found = real(name, *rest, **more)
        if name == str(path):
            other.replace(path)
        return found

    with monkeypatch.context() as swapped:
        swapped.setattr(os, "stat", stat)
        assert cached.let_go([str(path)]) == (0, 0)
    assert is_cached(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_what_another_user_keeps_to_himself_is_not_opened_by_root_either(tmp_path: Path) -> None:
    path = weights(tmp_path / "secret")
    os.chown(path, 12345, 12345)
    path.chmod(0o600)
    assert cached.let_go([str(path)]) == (0, 0)
    path.chmod(0o644)
    assert cached.let_go([str(path)]) == (1, 8 * MIB)


def test_the_database_of_the_queue_is_never_opened(tmp_path: Path) -> None:
    path = weights(tmp_path / "queue.db")
    link = tmp_path / "link"
    link.symlink_to(path)
    never = own_database(str(tmp_path))
    assert cached.let_go([str(path), str(link)], never) == (0, 0) and is_cached(path)


def test_files_that_a_process_has_open_are_found_also_when_they_have_lost_their_name(tmp_path: Path) -> None:
    path = weights(tmp_path / "one")
    with path.open("rb") as file:
        path.unlink()
        assert cached.let_go(cached.open_files([os.getpid()]))[1] >= 8 * MIB
        assert not is_cached(file.fileno())


def test_the_operators_command_is_run_without_a_shell_and_told_by_its_end(tmp_path: Path) -> None:
    assert command(f"{sys.executable} -c 'import sys; sys.exit(0)' ; touch {tmp_path}/no") == "exit 0"
    assert not (tmp_path / "no").exists()
    code = 'import sys; print("no such thing", file=sys.stderr); sys.exit(3)'
    assert command(f"{sys.executable} -c '{code}'") == "exit 3: no such thing"
    assert command("/no/such/program -x") == "/no/such/program cannot be run: No such file or directory"
    assert command("echo 'x").startswith("it is no command") and command("  ") == "it is empty"


def test_a_command_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import subprocess as s; p = s.Popen(['sleep', '60']); open('{note}', 'w').write(str(p.pid)); p.wait()"
    assert command(f'{sys.executable} -c "{code}"', within_s=1.5).startswith("it had not ended after 1.5 s")
    until(
        lambda: not Path(f"/proc/{note.read_text()}").exists() or _state(int(note.read_text())) == "Z",
        "its child's end",
    )


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


class Proc:
    """A /proc of which only what the helper asks is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pressure").mkdir()
        self.say()

    def say(self, available_gib: float = 8.0, swapped: int = 0, full: float = 0.0) -> None:
        (self.folder / "meminfo").write_text(f"MemAvailable: {int(available_gib * (1 << 20))} kB\n")
        (self.folder / "vmstat").write_text(f"pgpgin 7\npswpout {swapped}\n")
        (self.folder / "pressure/memory").write_text(f"some avg10=0.00 x\nfull avg10={full:.2f} avg60=0.00 total=0\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    folder = tmp_path / "proc"
    folder.mkdir()
    return Proc(folder)


def test_the_helper_touches_what_it_was_told_in_steps(tmp_path: Path, proc: Proc) -> None:
    toucher = Toucher("Q", str(tmp_path), proc=str(proc.folder))
    assert toucher.run("host", 0.5, 2.0, lambda: True) == "touched 0.50 GiB"


def test_the_helper_stops_at_the_reserve_and_a_step_at_a_swapped_page_and_while_everybody_waits(proc: Proc) -> None:
    where = str(proc.folder)
    assert touching.unfit(where, 2.0 * touching.GIB, 0) == ""
    proc.say(available_gib=2.2)
    assert (
        touching.unfit(where, 2.0 * touching.GIB, 0) == "2.20 GiB were available, and the reserve and a step are 2.25"
    )
    proc.say(swapped=1)
    assert touching.unfit(where, 2.0 * touching.GIB, 0) == "memory was swapped out"
    assert touching.unfit(where, 2.0 * touching.GIB, 1) == ""
    proc.say(full=10.01)
    assert touching.unfit(where, 2.0 * touching.GIB, 0) == "everybody waited for memory 10.01 % of the last 10 s"
    proc.folder.joinpath("meminfo").unlink()
    assert touching.unfit(where, 2.0 * touching.GIB, 0) != ""


def test_the_helper_is_a_holding_for_everybody_while_it_runs_and_is_killed_first(tmp_path: Path, proc: Proc) -> None:
    toucher = Toucher("Q", str(tmp_path), proc=str(proc.folder))
    seen: list[Any] = []
    scores: list[str] = []

    def look() -> bool:
        pools = (pool("host", 64.0),)
        table = processes.table()
        found = [h for h in Holdings("other", lambda slug: None).read(table, pools, 0.0) if h.name == "reclaim"]
        if found and not seen:
            score = Path(f"/proc/{found[0].pid}/oom_score_adj").read_text().strip()
            if score == "1000":
                seen.extend(found)
                scores.append(score)
                toucher.end()
        return True

    argv = toucher.argv("host", 0.75, 2.0)
    slow = tmp_path / "slow.py"
    slow.write_text("import time\nopen('/proc/self/oom_score_adj', 'w').write('1000')\ntime.sleep(60)\n")
    toucher.argv = lambda *rest: [*argv[:3], str(slow), *argv[4:]]  # type: ignore[method-assign]
    assert toucher.run("host", 0.75, 2.0, look).startswith("the helper was ended")
    [holding] = seen
    assert [(c.pool, c.charge_gib) for c in holding.charges] == [("host", 0.75)] and holding.worker_id is None


def test_the_helper_lets_go_at_once_when_a_worker_begins(tmp_path: Path, proc: Proc) -> None:
    toucher = Toucher("Q", str(tmp_path), proc=str(proc.folder))
    began = time.monotonic()
    assert toucher.run("host", 0.75, 2.0, lambda: False).startswith(("the helper was ended", "touched"))
    assert time.monotonic() - began < 5.0


def test_the_helper_makes_the_kernel_give_the_cache_back(tmp_path: Path, proc: Proc) -> None:
    group = GROUPS / f"schedq-touch-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(640 * MIB))
    except OSError as error:
        pytest.skip(f"no control group of one's own here: {error.strerror}")

    def in_cache() -> int:
        lines = (group / "memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["total_cache"])

    def inside(*argv: str) -> str:
        line = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        with subprocess.Popen(["sh", "-c", line, "sh", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            return child.stdout.read().decode()

    path = tmp_path / "foreign"
    try:
        inside("dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=400", "conv=fsync", "status=none")
        before = in_cache()
        assert before > 300 * MIB
        argv = Toucher("Q", str(tmp_path), proc=str(proc.folder)).argv("host", 0.5, 2.0)
        said = json.loads(inside(*argv))
        assert said == {"touched_gib": 0.5, "why": ""}
        assert in_cache() < before - 200 * MIB
    finally:
        path.unlink(missing_ok=True)
        until(lambda: not (group / "cgroup.procs").read_text().split(), "an empty group")
        (group / "memory.force_empty").write_text("0")
        group.rmdir()


class Free(HostLevel):
    """What is free is what these files do not take, a GiB each."""

    def __init__(self, *paths: Path, available: float = 10.0, free: float = 4.0) -> None:
        super().__init__()
        self.paths, self.available, self.free = paths, available, free

    def read(self) -> Left:
        return reading(self.free - sum(map(is_cached, self.paths))), reading(self.available)


class Asked:
    """A way to reclaim, and what it said."""

    def __init__(self, level: HostLevel, **over: Any) -> None:
        self.told: list[Any] = []
        then: Callable[[Callable[[], None]], None] = lambda act: act()  # noqa: E731
        self.way = Reclaim(self.told.append, then, level=level, **over)

    def __call__(self, gib: float = 1.0) -> Reclaimed:
        before = len(self.told)
        self.way.ask("host", gib, 2.0, 8)
        until(lambda: len(self.told) > before, "the end of it")
        return self.told[-1]


def test_files_of_manifests_come_first_and_if_they_suffice_nothing_else_is_asked(tmp_path: Path) -> None:
    path = weights(tmp_path / "one")
    ask = Asked(Free(path), files=lambda: [str(path)], command=f"touch {tmp_path}/no")
    assert ask.way.word == "ready"
    event = ask()
    assert (event.pool, event.gib, event.gained_gib, event.job_id) == ("host", 1.0, 1.0, 8)
    assert event.text == "the file cache gave 1 of 1 GiB that host lacked (files: 1 GiB, 1 files of 0.01 GiB)"
    assert not (tmp_path / "no").exists()
    assert ask.way.word == "off" and 4.0 < ask.way.facts()["again_in_s"] <= 5.0
    assert ask.way.notes() == (f"reclaim: {event.text}",)


def test_a_foreign_file_is_left_to_the_operators_command(tmp_path: Path) -> None:
    path = weights(tmp_path / "foreign")
    code = f"import os; fd = os.open('{path}', os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)"
    ask = Asked(Free(path), command=f'{sys.executable} -c "{code}"')
    assert ask().text.endswith("that host lacked (reclaim_command: 1 GiB, exit 0)")


def test_what_gains_nothing_is_left_alone_for_longer_each_time_and_files_only_means_that(tmp_path: Path) -> None:
    path = weights(tmp_path / "foreign")
    ask = Asked(Free(path), mode="files", command=f"touch {tmp_path}/no")
    assert ask().text == "the file cache gave 0 of 1 GiB that host lacked; not tried again for 30 s"
    ask.way._again_at_s = 0.0
    assert ask().text.endswith("not tried again for 60 s")
    assert not (tmp_path / "no").exists()
    assert Asked(Free(path), mode="off").way.word == "off"


def test_the_helper_comes_last_and_never_beside_whoever_loads_or_computes(tmp_path: Path, proc: Proc) -> None:
    level = Free()
    toucher = Toucher("Q", str(tmp_path), proc=str(proc.folder))
    sizes: list[float] = []
    toucher.run = lambda pool, gib, reserve, quiet: (sizes.append(gib), "touched")[1]  # type: ignore[method-assign]
    assert "not while a worker of ours loads or computes" in Asked(level, touch=toucher)().text
    beside = Asked(level, touch=toucher, quiet=lambda: True)
    assert "not while somebody else computes on a device, or may" in beside().text
    alone = {"touch": toucher, "quiet": lambda: True, "alone": lambda: True}
    assert "not where the reserve would be reached before the cache" in Asked(Free(available=6.0), **alone)().text
    assert sizes == []
    Asked(level, **alone)()
    Asked(Free(available=6.5), **alone)()
    assert sizes == [5.0, 4.5]


def test_a_group_that_we_may_write_is_asked_for_its_file_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "self").mkdir()
    mount = tmp_path / "cg"
    (mount / "user/job").mkdir(parents=True)
    (tmp_path / "self/cgroup").write_text("0::/user/job\n")
    (tmp_path / "self/mountinfo").write_text(f"30 20 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    (mount / "user/memory.reclaim").write_text("")
    assert cgroup.reclaimable(str(tmp_path)) == [f"{mount}/user"]
    assert cgroup.reclaim(f"{mount}/user", 0.5)
    assert (mount / "user/memory.reclaim").read_text() == f"{512 * MIB} swappiness=0"
    assert not cgroup.reclaim(f"{mount}/none", 0.5)


def test_what_loading_workers_read_is_dropped_as_long_as_they_load(tmp_path: Path) -> None:
    path = weights(tmp_path / "one")
    with path.open("rb"):
        ask = Asked(Free(path), pids=lambda ids: [os.getpid()] if ids == [3] else [])
        ask.way.tend([3], 1.0, 2.0)
        until(lambda: not is_cached(path), "its cache to go")
        path.read_bytes()
        ask.way.tend([4], 1.0, 2.0)
        ask.way.tend([3], 1.0, 2.0)
        until(lambda: not is_cached(path), "its cache to go again")
        assert ask.way.notes() == (
            "reclaim: 1 GiB are free, 2 stay reserved: what loading workers have read is dropped from the file cache",
        )
        ask.way.close()
        assert ask.way.word == "off"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    names = ("schedq-reclaim", "schedq-cache")
    until(lambda: not [t for t in threading.enumerate() if t.name == names[0]], "its threads to end")
