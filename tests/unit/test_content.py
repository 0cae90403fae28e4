from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from scheduler.config import Paths
from scheduler.errors import Corrupt, Refused
from scheduler.store import content
from scheduler.store.folders import prepare


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "queue"))
    prepare(made)
    return made


def test_a_piece_is_named_by_its_hash_and_nobody_may_write_it(paths: Paths) -> None:
    sha256 = content.put(paths, b"ATOM")
    assert sha256 == hashlib.sha256(b"ATOM").hexdigest()
    assert stat.S_IMODE(os.stat(content.path(paths, sha256)).st_mode) == 0o400
    assert content.read(paths, sha256) == b"ATOM"


def test_the_same_bytes_are_kept_once(paths: Paths) -> None:
    sha256 = content.put(paths, b"ATOM")
    before = os.stat(content.path(paths, sha256)).st_ino
    assert content.put(paths, b"ATOM") == sha256
    assert os.stat(content.path(paths, sha256)).st_ino == before
    assert sorted(os.listdir(paths.content)) == [sha256[:2]]


def test_bytes_that_changed_on_the_disk_are_not_handed_out(paths: Paths) -> None:
    sha256 = content.put(paths, b"ATOM")
    os.chmod(content.path(paths, sha256), 0o600)
    Path(content.path(paths, sha256)).write_bytes(b"MOTA")
    with pytest.raises(Corrupt, match="is not what was stored"):
        content.read(paths, sha256)


def test_bytes_that_are_gone_are_named(paths: Paths) -> None:
    with pytest.raises(Corrupt, match="is gone"):
        content.read(paths, "ab" * 32)


def test_a_file_that_changed_after_its_check_is_refused_and_leaves_nothing(paths: Paths, tmp_path: Path) -> None:
    source = tmp_path / "a.msa"
    source.write_bytes(b"new")
    with pytest.raises(Refused, match="changed while it was submitted"):
        content.stage(paths, str(source), hashlib.sha256(b"old").hexdigest(), "in.json")
    assert os.listdir(paths.content) == []


def test_a_file_that_is_not_there_is_refused_with_its_name(paths: Paths, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"in\.json names .*/a\.msa, which cannot be read: No such file"):
        content.stage(paths, str(tmp_path / "a.msa"), "00", "in.json")


def test_what_a_dead_process_staged_is_tidied_and_a_living_ones_is_not(paths: Paths) -> None:
    dead, living = f".staged-{2**22 + 7}-00ff", f".staged-{os.getpid()}-00ff"
    for name in (dead, living):
        Path(paths.content, name).write_bytes(b"")
    assert content.tidy(paths) == [dead]
    assert os.listdir(paths.content) == [living]
