"""What becomes of an attempt's outputs when a worker put something else among them, or in their place."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host.collect import Collected, collect
from scheduler.model.host import Task


class Left:
    """An attempt whose worker has answered `ok`, and its folder of outputs as the worker left it."""

    def __init__(self, home: Path, out: str = "") -> None:
        self.paths = Paths(str(home))
        self.task = Task(1, 7, 1, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b"{}", {}, out)
        self.place = attempts.lay_out(self.paths, self.task, whole=True)
        self.out = Path(self.place.out_dir)
        (self.out / "model.pdb").write_text("ATOM")
        Path(self.place.reply_path).write_text('{"ok": true, "result": {"n": 1}}')

    def collected(self, unstored: str = "") -> Collected:
        spec: dict[str, Any] = {"mode": "resident", "outputs": []}
        return collect(self.paths, spec, self.task, {"job": 7, "attempt": 1}, 0o022, unstored)


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path / "home")


def published(got: Collected) -> dict[str, str]:
    assert got.outcome.kind == "ok", got
    return {str(path.relative_to(got.destination)): path.read_text() for path in Path(got.destination).rglob("*")}


@pytest.mark.parametrize("name", ["job.json", "job.json.tmp"])
def test_our_record_is_written_beside_the_outputs_and_never_through_a_link(
    left: Left, tmp_path: Path, name: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (left.out / name).symlink_to(precious)
    assert json.loads(published(left.collected())["job.json"])["job"] == 7
    assert precious.read_text() == "mine" and precious.stat().st_mode & 0o777 != 0o600


@pytest.mark.parametrize("name", ["job.json", "job.json.tmp", "result.json", "other"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_pipes_and_sockets_hold_nobody_up_and_are_not_published(
    left: Left, monkeypatch: pytest.MonkeyPatch, name: str, elsewhere: bool
) -> None:
    os.mkfifo(left.out / name)
    (left.out / "sub").mkdir()
    monkeypatch.chdir(left.out / "sub")  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("s")
    rename = os.rename

    def across(source: str, target: str) -> None:
        if source == str(left.out):
            raise OSError(errno.EXDEV, "another filesystem")
        rename(source, target)

    if elsewhere:
        monkeypatch.setattr(os, "rename", across)
    got = left.collected()
    assert got.outcome.kind == "ok" and got.destination
    found = {path.name for path in Path(got.destination).rglob("*")}
    assert found == {"job.json", "model.pdb", "sub"} | ({"result.json"} if name != "result.json" else set())


@pytest.mark.parametrize("out", ["", "wanted"])
def test_a_link_or_a_file_in_place_of_the_folder_fails_the_job_and_nothing_behind_it_is_touched(
    tmp_path: Path, out: str
) -> None:
    left = Left(tmp_path / "home", str(tmp_path / out) if out else "")
    theirs = tmp_path / "theirs"
    left.out.rename(theirs)
    theirs.chmod(0o700)
    left.out.symlink_to(theirs)
    got = left.collected()
    assert got.outcome.kind == "error" and not got.outcome.later and "is not the folder" in got.outcome.text
    assert os.listdir(theirs) == ["model.pdb"] and theirs.stat().st_mode & 0o777 == 0o700
    assert left.out.is_symlink()
    left.out.unlink()
    left.out.write_text("a file")
    assert left.collected().outcome.kind == "error"


def test_a_folder_in_place_of_our_record_fails_the_job_at_once(left: Left) -> None:
    (left.out / "job.json").mkdir()
    got = left.collected()
    assert got.outcome.kind == "error" and not got.outcome.later and "job.json" in got.outcome.text
    assert (left.out / "model.pdb").exists()


def test_a_link_that_leads_nowhere_is_published_and_listed(left: Left) -> None:
    (left.out / "latest").symlink_to("gone")
    Path(left.place.reply_path).write_text('{"ok": true, "result": null}')
    got = left.collected()
    assert got.outcome.kind == "ok" and got.reply is not None
    assert "latest" in [row["path"] for row in json.loads(got.reply)["outputs"]]


def test_a_pipe_in_place_of_the_reply_is_no_reply(left: Left) -> None:
    os.unlink(left.place.reply_path)
    os.mkfifo(left.place.reply_path)
    outcome = left.collected().outcome
    assert outcome.kind == "no_reply" and "not a regular file" in outcome.text


def test_a_reply_that_could_not_be_stored_ends_its_attempt_with_what_its_keeper_said(left: Left) -> None:
    os.unlink(left.place.reply_path)
    outcome = left.collected("the reply could not be stored: Is a directory").outcome
    assert (outcome.kind, outcome.text) == ("no_reply", "the reply could not be stored: Is a directory")


def test_a_pipe_at_the_destination_is_not_taken_for_our_record(tmp_path: Path) -> None:
    left = Left(tmp_path / "home", str(tmp_path / "wanted"))
    (tmp_path / "wanted").mkdir()
    os.mkfifo(tmp_path / "wanted" / "job.json")
    assert "is there by now" in left.collected().outcome.text


def test_the_input_is_laid_out_in_place_of_whatever_has_its_name(tmp_path: Path, left: Left) -> None:
    os.unlink(left.place.input_path)
    os.mkfifo(left.place.input_path)
    attempts.lay_out(left.paths, left.task, whole=False)
    assert Path(left.place.input_path).read_bytes() == b"{}"
