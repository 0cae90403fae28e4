"""Where a queue may live, and that what is said of it survives a power cut: the names that lead to it are synced."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from queues import row, submitted

from scheduler.config import Paths
from scheduler.errors import StoreError
from scheduler.store import content, folders, intake


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "lab" / "state" / "queue"))


class Disk:
    """Which folders were synced, in order; `said` stands among them where the ids were printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        real = os.fsync

        def noted(fd: int) -> None:
            self.done.append(os.readlink(f"/proc/self/fd/{fd}"))
            real(fd)

        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(content, "_reached", set(), raising=False)

    def submit(self, paths: Paths, *rows: dict) -> set[str]:
        """Submit, and what was synced before an id was said."""
        self.done.clear()
        before: set[str] = set()
        intake.submit(paths, list(rows), lambda _ids: before.update(self.done))
        return before


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def above(path: str) -> list[str]:
    """The folders in which the names lie that lead to this one, as far as the test made them."""
    return [path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))]


def test_the_first_id_is_said_when_every_name_that_leads_to_the_queue_is_durable(paths: Paths, disk: Disk) -> None:
    assert disk.submit(paths, row()) >= set(above(paths.home))
    assert disk.submit(paths, row()) == set(), "later ones need not"


def test_a_folder_that_a_killed_process_made_is_not_taken_for_a_durable_one(paths: Paths, disk: Disk) -> None:
    """It may have been killed between making a name and syncing it, the database's own among them."""
    folders.prepare(paths)
    Path(paths.database).touch()
    assert disk.submit(paths, row()) >= set(above(paths.home))


LARGE = b"x" * (content.INLINE_MAX + 1)


@pytest.mark.parametrize("made", ["folder", "piece"])
def test_content_that_a_killed_process_placed_is_not_taken_for_durable_content(
    paths: Paths, disk: Disk, made: str
) -> None:
    submitted(paths)
    where = Path(content.path(paths, hashlib.sha256(LARGE).hexdigest()))
    where.parent.mkdir()
    if made == "piece":
        where.write_bytes(LARGE)
    assert disk.submit(paths, row(data=LARGE)) >= {str(where.parent), paths.content, paths.home}


def test_a_file_that_an_input_names_is_not_taken_for_durable_because_it_is_there(
    paths: Paths, disk: Disk, tmp_path: Path
) -> None:
    submitted(paths)
    source = tmp_path / "a.msa"
    source.write_bytes(b"MSA")
    sha256 = hashlib.sha256(b"MSA").hexdigest()
    where = Path(content.path(paths, sha256))
    where.parent.mkdir()
    where.write_bytes(b"MSA")
    named = {"/a": {"sha256": sha256, "bytes": 3, "path": str(source)}}
    done = disk.submit(paths, row(files=dict(named)), row(files=dict(named)))
    assert done >= {str(where.parent), paths.content, paths.home}
    assert disk.done.count(str(where.parent)) == 1, "once a call, however many name it"


def test_a_piece_costs_one_sync_of_its_folder_once_the_way_to_it_is_durable(paths: Paths, disk: Disk) -> None:
    submitted(paths)
    disk.submit(paths, row(data=LARGE))
    Path(content.path(paths, hashlib.sha256(LARGE).hexdigest())).unlink()
    folder = os.path.dirname(content.path(paths, hashlib.sha256(LARGE).hexdigest()))
    assert {each for each in disk.submit(paths, row(data=LARGE)) if os.path.isdir(each)} == {folder}


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/root rw
31 22 0:44 / /home/lab\\040one rw shared:1 - nfs4 server:/lab rw
32 31 0:45 / /home/lab\\040one/scratch rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home/lab one/q", "nfs4"), ("/home/lab one/scratch/q", "xfs"), ("/home/lab onetwo", "ext4"), ("/q", "ext4")],
)
def test_the_filesystem_is_that_of_the_nearest_mount(tmp_path: Path, folder: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = folders.mount_of(folder, str(mounts))
    assert found is not None and found[1] == kind


def test_a_network_filesystem_is_refused_by_mount_and_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    paths = Paths("/home/lab one/q")
    with pytest.raises(StoreError, match=r"network filesystem at /home/lab one \(type nfs4\)") as caught:
        folders.require_local(paths, str(mounts))
    assert caught.value.exit_code == 3
    monkeypatch.setenv("SCHEDQ_ALLOW_NETWORK_FILESYSTEM", "true")
    folders.require_local(paths, str(mounts))
