"""Files that a manifest names: found as their worker finds them, told by looking, and by reading."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from scheduler.host import named_files

SHA = hashlib.sha256(b"1234").hexdigest()


def spec(tmp_path: Path, *files: dict[str, Any], **over: Any) -> dict[str, Any]:
    """A provider that needs these files."""
    return {"slug": "toy", "variant": "", "manifest": "/m/toy/provider.toml", "folder": str(tmp_path), "env": {},
            "files": list(files), **over}  # fmt: skip


def test_a_path_is_expanded_as_the_worker_has_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("SHARE", "/share")
    monkeypatch.delenv("NOWHERE", raising=False)
    of = spec(tmp_path, env={"CACHE": "~/.boltz", "BELOW": "${SHARE}/b"})
    for written, path in [
        ("${CACHE}/a", "/home/ada/.boltz/a"), ("$BELOW/a", "/share/b/a"), ("~/a", "/home/ada/a"),
        ("$SHARE/x/../a", "/share/a"), ("w/a", f"{tmp_path}/w/a"), ("/a", "/a"),
        ("${NOWHERE}/a", f"{tmp_path}/${{NOWHERE}}/a"),
    ]:  # fmt: skip
        assert named_files.path_of(of, {"path": written}) == path
    assert named_files.path_of({**of, "env": {"CACHE": "/data"}}, {"path": "${CACHE}/a"}) == "/data/a"


@pytest.mark.parametrize(
    ("there", "declared", "state"),
    [
        (b"1234", {"bytes": 4}, "there"),
        (b"1234", {}, "there"),
        (b"123", {"bytes": 4}, "wrong size"),
        (None, {"bytes": 4}, "missing"),
    ],
)
def test_a_file_is_told_by_looking(tmp_path: Path, there: bytes | None, declared: dict[str, Any], state: str) -> None:
    if there is not None:
        (tmp_path / "w").write_bytes(there)
    row = named_files.state_of(spec(tmp_path), {"path": "w", **declared})
    assert row["state"] == state
    assert (row["text"] == "") is (state == "there")


def test_a_folder_is_there_and_what_was_fetched_in_part_is_said(tmp_path: Path) -> None:
    (tmp_path / "mols").mkdir()
    for declared in ({}, {"archive": "mols.tar"}, {"archive": "mols.tar", "bytes": 9}):
        assert named_files.state_of(spec(tmp_path), {"path": "mols", **declared})["state"] == "folder"
    (tmp_path / ".w.part").write_bytes(b"12")
    row = named_files.state_of(spec(tmp_path), {"path": "w", "bytes": 4})
    assert (row["state"], row["have_bytes"]) == ("in part", 2) and "2 bytes of it were fetched" in row["text"]


@pytest.mark.parametrize("declared", [{"bytes": 4}, {"sha256": SHA}, {"url": "https://example.org/w"}])
def test_a_folder_where_a_file_is_declared_does_not_count(tmp_path: Path, declared: dict[str, Any]) -> None:
    (tmp_path / "w").mkdir()
    of = spec(tmp_path, {"path": "w", **declared})
    assert named_files.verified(of, of["files"][0], lambda *_: None)["state"] == "wrong kind"
    assert f"{tmp_path}/w is a folder, and a file is declared: remove it" in named_files.fault(of)


@pytest.mark.parametrize("declared", [{}, {"bytes": 4, "sha256": SHA}, {"archive": "mols.tar"}])
def test_a_fifo_or_a_device_counts_as_nothing_that_is_declared(tmp_path: Path, declared: dict[str, Any]) -> None:
    os.mkfifo(tmp_path / "w")
    (tmp_path / "v").symlink_to("/dev/null")
    for name, kind in (("w", "a FIFO"), ("v", "a device")):
        row = named_files.verified(spec(tmp_path), {"path": name, **declared}, lambda *_: None)
        assert row["state"] == "wrong kind" and f"is {kind}, and a" in row["text"]


def test_a_file_where_the_folder_of_an_archive_is_declared_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "mols").touch()
    row = named_files.state_of(spec(tmp_path), {"path": "mols", "archive": "mols.tar"})
    assert row["state"] == "wrong kind" and "is a file, and a folder is declared" in row["text"]


def test_what_is_no_file_is_not_taken_for_what_was_fetched_in_part(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"12")
    (tmp_path / ".w.part").symlink_to("elsewhere")
    assert named_files.state_of(spec(tmp_path), {"path": "w", "bytes": 4})["state"] == "missing"


def test_a_path_below_a_file_cannot_be_looked_at_and_keeps_from_starting(tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    of = spec(tmp_path, {"path": "w/below"})
    assert named_files.state_of(of, of["files"][0])["state"] == "unreadable"
    assert "cannot be looked at: Not a directory" in named_files.fault(of)


@pytest.mark.parametrize(("sha256", "state"), [(SHA, "verified"), ("0" * 64, "wrong content"), (None, "no sha256")])
def test_a_file_is_told_by_reading(tmp_path: Path, sha256: str | None, state: str) -> None:
    (tmp_path / "w").write_bytes(b"1234")
    steps: list[tuple[int, int | None]] = []
    row = named_files.verified(spec(tmp_path), {"path": "w", "sha256": sha256}, lambda *step: steps.append(step))
    assert (row["state"], row["found_sha256"], steps) == (state, SHA, [(4, 4)])


def test_what_keeps_from_starting_is_told_with_the_command_that_ends_it(tmp_path: Path) -> None:
    url = "https://example.org/w"
    missing = spec(tmp_path, {"path": "w", "url": url}, {"path": "v"}, variant="big")
    told = named_files.fault(missing)
    assert told == (
        f"toy:big is not installed: its file {tmp_path}/w is not there (and 1 more); run: schedq files toy:big --fetch "
        f"(from {url})"
    )
    (tmp_path / "w").write_bytes(b"12")
    assert "--fetch --overwrite" in named_files.fault(spec(tmp_path, {"path": "w", "bytes": 4, "url": url}))
    both = spec(tmp_path, {"path": "v", "url": url}, {"path": "w", "bytes": 4, "url": url})
    assert "is not there (and 1 more); run: schedq files toy --fetch --overwrite" in named_files.fault(both)
    assert "gives no address of it: put it there" in named_files.fault(spec(tmp_path, {"path": "v"}))
    assert named_files.fault(spec(tmp_path, {"path": "w"})) == ""


@pytest.mark.parametrize(
    ("bytes_", "shown"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.50 KiB"), (5 << 30, "5.00 GiB")]
)
def test_a_size_is_shown_in_its_unit(bytes_: int, shown: str) -> None:
    assert named_files.size(bytes_) == shown
