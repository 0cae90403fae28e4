"""Files where a worker can write: whatever lies there instead holds nobody up and leads nobody elsewhere."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.host.workers import lean, records, regular, tree


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_a_file(path: Path) -> None:
    path.symlink_to(__file__)


def folder(path: Path) -> None:
    path.mkdir()


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


THINGS = pytest.mark.parametrize("make", [fifo, link, link_to_a_file, folder, listener])
Make = Callable[[Path], None]


@THINGS
def test_what_is_no_file_is_not_waited_for_and_not_read(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "x")
    for read in (regular.content, lambda path: regular.tail(path, 10)):
        with pytest.raises(OSError, match="not a regular file") as caught:
            read(str(tmp_path / "x"))
        assert caught.value.errno == errno.EINVAL


@THINGS
def test_the_records_of_a_worker_that_made_something_else_of_them_are_none(tmp_path: Path, make: Make) -> None:
    for name in ("exit.json", "leader.json", "log", "log.1"):
        make(tmp_path / name)
    assert records.recorded_exit(str(tmp_path)) == (None, "")
    assert records.worker_words(str(tmp_path)) == ""
    assert tree.leader_of(str(tmp_path)) is None


def test_a_file_is_read_as_far_as_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    assert regular.content(str(tmp_path / "x")) == b"0123456789"
    assert regular.content(str(tmp_path / "x"), 3) == b"012"
    assert regular.tail(str(tmp_path / "x"), 3) == b"789"


@pytest.mark.parametrize("name", ["x", "x.tmp"])
@pytest.mark.parametrize("make", [fifo, link, listener])
def test_a_file_is_put_in_place_of_what_lies_there_and_follows_no_link(tmp_path: Path, make: Make, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    if make is link:
        (tmp_path / name).symlink_to(precious)
    else:
        make(tmp_path / name)
    regular.put(str(tmp_path / "x"), b"ours", mode=0o640, sync=True)
    assert (tmp_path / "x").read_bytes() == b"ours" and not (tmp_path / "x").is_symlink()
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
    assert precious.read_text() == "mine"
    assert not (tmp_path / "x.tmp").exists()


def test_what_cannot_be_put_leaves_nothing_half_made(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(IsADirectoryError):
        regular.put(str(tmp_path / "x"), b"ours")
    assert os.listdir(tmp_path) == ["x"]


def test_a_record_goes_into_the_folder_that_is_held_wherever_its_path_leads_by_now(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    held = os.open(tmp_path / "home", os.O_RDONLY)
    (tmp_path / "home").rename(tmp_path / "away")
    (tmp_path / "home").mkdir()
    regular.put("x", b"ours", folder=held)
    os.close(held)
    assert os.listdir(tmp_path / "home") == [] and os.listdir(tmp_path / "away") == ["x"]


def test_a_name_is_taken_away_only_while_it_is_the_file_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    known = regular.inode(str(path))
    path.rename(tmp_path / "old")
    path.touch()
    regular.unlink(str(path), known)
    assert path.exists()
    regular.unlink(str(path), regular.inode(str(path)))
    assert not path.exists()
    regular.unlink(str(path), None)


def test_a_log_is_not_held_up_by_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    log = lean.Log(str(tmp_path / "log"), 20)
    os.unlink(tmp_path / "log")
    os.mkfifo(tmp_path / "log")
    for _ in range(10):
        log.write(b"0123456789")
    log.close()
