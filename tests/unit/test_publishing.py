"""What becomes of an attempt's outputs when a worker put something else among them, or in their place."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host import publishing
from scheduler.host.collect import Collected, collect
from scheduler.model.host import Task


class Left:
    """An attempt whose worker has answered `ok`, and its folder of outputs as the worker left it."""

    def __init__(self, home: Path, out: str = "", queue: str = "Q", seed: int = 1) -> None:
        self.paths = Paths(str(home))
        self.facts = {"queue_id": queue, "job": 7, "attempt": 1, "params": {"seed": seed}}
        self.task = Task(1, 7, 1, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b"{}", {}, out)
        self.place = attempts.lay_out(self.paths, self.task, whole=True)
        self.out = Path(self.place.out_dir)
        (self.out / "model.pdb").write_text("ATOM")
        Path(self.place.reply_path).write_text('{"ok": true, "result": {"n": 1}}')

    def collected(self, unstored: str = "") -> Collected:
        spec: dict[str, Any] = {"mode": "resident", "outputs": []}
        return collect(self.paths, spec, self.task, self.facts, 0o022, unstored)


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


class Killed(BaseException):
    """In the place of a SIGKILL: nothing that follows in that scheduler is done but what unwinding does."""


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Left, str], None]:
    """Collect until a crash point; what the unwinding would clean up stays, as it does after a SIGKILL."""

    def until(left: Left, point: str) -> None:
        def crash(name: str) -> None:
            if name == point:
                raise Killed

        with monkeypatch.context() as armed, pytest.raises(Killed):
            armed.setattr(publishing, "crashpoint", crash)
            armed.setattr(publishing.moving, "drop_copies", lambda *_: None)
            left.collected()

    return until


@pytest.fixture
def another_filesystem(monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def across(source: str | Path, target: str | Path) -> None:
        if str(source).endswith("/out") and not str(target).endswith(".moved"):
            raise OSError(errno.EXDEV, "another filesystem")
        rename(source, target)

    monkeypatch.setattr(os, "rename", across)


@pytest.mark.parametrize(("queue", "seed"), [("another", 1), ("another", 2), ("Q", 2)])
def test_what_another_queue_put_at_the_destination_is_not_taken_for_the_jobs_own(
    tmp_path: Path, killed_at: Callable[[Left, str], None], queue: str, seed: int
) -> None:
    out = tmp_path / "wanted"
    first, second = Left(tmp_path / "a", str(out)), Left(tmp_path / "b", str(out), queue, seed)
    third = Left(tmp_path / "c", str(out), queue, seed)
    killed_at(third, "publish.synced")
    publishing.moving.note(third.place.folder, str(out), third.facts)
    assert first.collected().outcome.kind == "ok"
    for other in (second, third):
        got = other.collected()
        assert got.outcome.kind == "error" and f"{out} is there by now" in got.outcome.text
        assert (other.out / "model.pdb").read_text() == "ATOM"
    assert json.loads((out / "job.json").read_text())["queue_id"] == "Q"


@pytest.mark.parametrize("out", ["", "wanted"])
def test_outputs_that_were_put_in_place_before_a_crash_are_the_jobs_also_with_another_manifest_by_then(
    tmp_path: Path, killed_at: Callable[[Left, str], None], out: str
) -> None:
    left = Left(tmp_path / "home", str(tmp_path / out) if out else "")
    killed_at(left, "publish.renamed")
    left.facts["revision"] = "newer"
    assert published(left.collected())["model.pdb"] == "ATOM"


@pytest.mark.parametrize("out", ["", "wanted"])
@pytest.mark.parametrize("instead", [False, True])
def test_outputs_that_were_moved_away_after_a_crash_are_no_empty_success(
    tmp_path: Path, killed_at: Callable[[Left, str], None], out: str, instead: bool
) -> None:
    left = Left(tmp_path / "home", str(tmp_path / out) if out else "")
    destination = tmp_path / out if out else Path(left.paths.results) / "7"
    killed_at(left, "publish.renamed")
    destination.rename(tmp_path / "elsewhere")
    if instead:
        destination.mkdir()
    got = left.collected()
    assert got.outcome.kind == "error" and not got.outcome.later, got
    assert f"put at {destination}" in got.outcome.text and "not there any more" in got.outcome.text
    assert got.reply == b'{"n":1}' and not got.destination
    assert os.listdir(tmp_path / "elsewhere") and (not destination.exists() or not os.listdir(destination))


@pytest.mark.usefixtures("another_filesystem")
def test_a_copy_that_a_crash_left_goes_when_the_destination_is_there_by_then(
    tmp_path: Path, killed_at: Callable[[Left, str], None]
) -> None:
    left = Left(tmp_path / "home", str(tmp_path / "theirs" / "wanted"))
    killed_at(left, "publish.copied")
    assert [name[:8] for name in os.listdir(tmp_path / "theirs")] == [".schedq-"]
    (tmp_path / "theirs" / "wanted").mkdir()
    assert "is there by now" in left.collected().outcome.text
    assert os.listdir(tmp_path / "theirs") == ["wanted"]


@pytest.mark.usefixtures("another_filesystem")
def test_a_copy_that_a_crash_left_goes_with_the_next_attempt_and_another_queues_stays(
    tmp_path: Path, killed_at: Callable[[Left, str], None]
) -> None:
    out = tmp_path / "theirs" / "wanted"
    left, other = Left(tmp_path / "home", str(out)), Left(tmp_path / "b", str(out), "another")
    killed_at(other, "publish.copied")
    (kept,) = os.listdir(out.parent)
    killed_at(left, "publish.copied")
    assert len(os.listdir(out.parent)) == 2
    left.facts["attempt"], left.task = 2, replace(left.task, attempt=2)
    place = attempts.lay_out(left.paths, left.task, whole=True)
    Path(place.reply_path).write_text('{"ok": true}')
    assert left.collected().outcome.kind == "ok"
    assert sorted(os.listdir(out.parent)) == sorted([kept, "wanted"])


@pytest.mark.usefixtures("another_filesystem")
def test_a_copy_that_a_crash_left_goes_when_its_attempt_ends_another_way(
    tmp_path: Path, killed_at: Callable[[Left, str], None]
) -> None:
    left = Left(tmp_path / "home", str(tmp_path / "theirs" / "wanted"))
    killed_at(left, "publish.copied")
    attempts.clear(left.paths, 7, 1, "")
    assert os.listdir(tmp_path / "theirs") == []
    assert (left.out / "model.pdb").exists()
    assert sorted(os.listdir(left.place.folder)) == ["out"]


def test_half_of_the_outputs_are_never_taken_for_all_when_a_crash_stops_the_clearing_of_a_copied_folder(
    tmp_path: Path, another_filesystem: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "wanted"
    left = Left(tmp_path / "home", str(out))
    rmtree = publishing.shutil.rmtree

    def half(path: str, ignore_errors: bool = False) -> None:
        if os.path.exists(os.path.join(path, "model.pdb")):
            os.unlink(os.path.join(path, "model.pdb"))
            raise Killed
        rmtree(path, ignore_errors=ignore_errors)

    with monkeypatch.context() as armed, pytest.raises(Killed):
        armed.setattr(publishing.shutil, "rmtree", half)
        left.collected()
    out.rename(tmp_path / "elsewhere")
    got = left.collected()
    assert got.outcome.kind == "error" and "not there any more" in got.outcome.text and not out.exists()


def test_a_pipe_among_the_outputs_is_named_in_the_log(left: Left, caplog: pytest.LogCaptureFixture) -> None:
    (left.out / "sub").mkdir()
    os.mkfifo(left.out / "sub" / "pipe")
    assert left.collected().outcome.kind == "ok"
    assert "job 7: 'sub/pipe' is no file, folder or link" in caplog.text
