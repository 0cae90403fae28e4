"""The disks that jobs write to: each filesystem's room, what keeps jobs waiting there, and what a full one excuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import machine, pool, waiting
from mounts import mounted

from scheduler.config import DEFAULTS, Paths, Settings
from scheduler.host.machine import disks
from scheduler.host.machine.disks import Disks
from scheduler.host.machine.usage import Usage
from scheduler.model.machine import Disk, nearest
from scheduler.model.outcome import Outcome
from scheduler.model.plan import Snapshot
from scheduler.rules import disks as excuses
from scheduler.rules import explain
from scheduler.rules.deaths import end_of, failed_start
from scheduler.rules.order import kept_out


def settings(reserve_gib: float) -> Settings:
    return Settings({**DEFAULTS, "disk_reserve_gib": reserve_gib}, dict.fromkeys(DEFAULTS, "default"), {})


def test_the_tightest_of_the_queues_own_disks_counts_and_is_named(tmp_path: Path) -> None:
    home = tmp_path / "q"
    home.mkdir()
    with mounted(home / "jobs", options="size=8m") as small:
        (small / "fill").write_bytes(b"x" * (7 << 20))
        disk, note = Disks(str(home), settings(0.004)).own()
        assert disk.what == "jobs' work" and disk.free_gib is not None and disk.free_gib < 2 / 1024
        assert disk.reserve_gib == pytest.approx(8 / 1024 * 0.02) and note == ""


def test_a_disk_without_room_for_more_files_counts_as_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "q", options="size=8m,nr_inodes=40") as home:
        disk, note = Disks(str(home), settings(1.0)).own()
        assert disk.free_gib == 0.0 and "room for" in note and "it counts as full" in note


def test_the_disk_of_a_destination_is_looked_at_where_it_will_lie(tmp_path: Path) -> None:
    watched = Disks(str(tmp_path / "q"), settings(5.0))
    with mounted(tmp_path / "out", options="size=8m") as out:
        assert watched.watch([f"{out}/a/b"]) and not watched.watch([f"{out}/a/b"])
        found = watched.destinations()
        assert set(found) == {f"{out}/a/b", str(out)} and found[str(out)].reserve_gib < 0.001
        assert not watched.watch([f"{out}/a/c"]), "what lies beside it is known by then"
        assert nearest(found, f"{out}/a/c") == found[str(out)]


def test_a_disk_that_hangs_or_fails_is_unknown_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = disks.room_of

    def look(path: str) -> disks.Room:
        if path.startswith("/gone"):
            raise OSError(116, "Stale file handle")
        return real(path)

    monkeypatch.setattr(disks, "room_of", look)
    watched = Disks(str(tmp_path), settings(5.0))
    watched.watch(["/gone/a", str(tmp_path)])
    found = watched.destinations()
    assert found["/gone/a"].free_gib is None and "Stale file handle" in found["/gone/a"].missing
    assert found[str(tmp_path)].free_gib is not None


def seen(free_gib: float | None = 100.0, of: str = "the state folder") -> Snapshot:
    here = machine(pool("host", 64.0), disk_free_gib=free_gib, disk_reserve_gib=5.0, disk_of=of)
    return Snapshot(here, {}, (), ())


def test_nothing_starts_on_a_full_disk_and_the_reason_says_which_and_what_to_do() -> None:
    ruling, text = kept_out(seen(3.21, "jobs' work"), waiting("boltz")) or ("", "")
    assert ruling == "disk"
    assert text == (
        "the disk of jobs' work has 3.21 GiB free and 5 GiB stay reserved; make room"
        " (schedq prune --older-than 30d --dry-run shows what would go), then jobs go on"
    )


@pytest.mark.parametrize(
    ("room", "closed"), [((3.0, 5.0), True), ((None, 5.0), True), ((6.0, 5.0), False), (None, False)]
)
def test_a_full_disk_of_a_destination_keeps_its_own_job_alone(
    room: tuple[float | None, float] | None, closed: bool
) -> None:
    answer = kept_out(seen(), waiting("boltz", out=room))
    ruling, text = answer or ("", "")
    assert (ruling == "disk") == closed
    if room == (3.0, 5.0):
        assert "the disk of its destination (--out) has 3 GiB free" in str(text) and "then it goes on" in str(text)


@pytest.mark.parametrize("kind", ["error", "crashed", "no_reply", "no_outputs"])
def test_what_ends_while_the_disk_is_full_is_tried_again_and_not_counted(kind: str) -> None:
    full = seen(3.0).machine
    found = excuses.excused(Outcome(kind, "ValueError: no such file"), full)
    assert found.later and found.kind == "error"
    assert "ValueError: no such file; not counted: the disk of the state folder has 3 GiB free" in found.text
    assert excuses.excused(Outcome(kind, "bad"), seen(50.0).machine) == Outcome(kind, "bad")


@pytest.mark.parametrize("kind", ["ok", "refused", "cancelled", "timed_out", "over_budget"])
def test_a_full_disk_excuses_nothing_that_it_cannot_cause(kind: str) -> None:
    assert excuses.excused(Outcome(kind, "x"), seen(3.0).machine) == Outcome(kind, "x")


def test_what_says_that_a_disk_was_full_is_believed() -> None:
    found = excuses.excused(Outcome("error", "OSError: [Errno 28] No space left on device"), seen(50.0).machine)
    assert found.later and "it says that a disk was full" in found.text


def test_what_goes_on_saying_so_while_our_disks_have_room_fails_in_the_end() -> None:
    said = Outcome("error", "OSError: [Errno 28] No space left on device: '/dev/shm/x'")
    assert excuses.excused(said, seen(50.0).machine, laters=2).later
    assert excuses.excused(said, seen(50.0).machine, laters=3) == said
    assert excuses.excused(said, seen(3.0).machine, laters=300).later


def test_a_start_that_fails_while_the_disk_is_full_is_no_failure_of_the_provider() -> None:
    from scheduler.model.host import Gone

    gone = Gone(1, 1, "OSError: cannot write")
    assert failed_start(end_of(gone, "starting"), "starting", ready=False, why="", bound=True) is not None
    full = end_of(gone, "starting", explain.low_disk(seen(1.0).machine))
    assert full.full and failed_start(full, "starting", ready=False, why="", bound=True) is None


def test_the_queues_folder_is_measured_by_kind_each_inode_once(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "q"))
    for name, size in (
        ("results/1/x", 40_000),
        ("jobs/1/1/log", 9000),
        ("content/ab/c", 80_000),
        ("queue.db-wal", 5000),
    ):
        path = Path(paths.home) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    os.link(f"{paths.content}/ab/c", f"{paths.jobs}/1/1/in")
    (Path(paths.home) / "elsewhere").symlink_to("/usr")
    found = Usage(paths).measure()
    assert found is not None
    assert set(found["bytes"]) == {"outputs", "attempts", "content", "database", "other"}
    assert sum(found["bytes"].values()) < 200_000 and found["bytes"]["outputs"] > 40_000


def test_a_measure_that_is_to_end_ends(tmp_path: Path) -> None:
    measure = Usage(Paths(str(tmp_path / "q")), first_s=0.0, every_s=0.01)
    measure.open()
    measure.close()
    assert not measure._thread.is_alive()


def test_a_destination_is_found_by_the_nearest_folder_above_it() -> None:
    here = {"/a": Disk("x", 1.0, 0.0), "/a/b/c": Disk("y", 2.0, 0.0)}
    assert [nearest(here, each) for each in ("/a/b/c/d", "/a/b", "/c")] == [here["/a/b/c"], here["/a"], None]
