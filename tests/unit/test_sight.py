"""A scheduler looks into the folders that it was started with: what it would never run is told before it is queued."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.cli import sight


def manifest(root: Path, slug: str = "echo", text: str = "slug") -> str:
    (root / slug).mkdir(parents=True, exist_ok=True)
    path = root / slug / "provider.toml"
    path.write_text(text)
    return str(path)


def spec(path: str, **over: object) -> dict[str, object]:
    return {"slug": "echo", "manifest": path, "python": "/usr/bin/python3", "environment": None, **over}


def test_a_folder_that_the_scheduler_does_not_know_is_named_with_what_makes_it(tmp_path: Path) -> None:
    mine = spec(manifest(tmp_path / "mine"))
    (tmp_path / "bundled").mkdir()
    told = sight.mismatch({"manifests": [str(tmp_path / "bundled")]}, mine)
    assert f"does not look into {tmp_path / 'mine'}, where echo lies" in told and "schedq restart" in told
    assert sight.mismatch({"manifests": [str(tmp_path / "bundled"), str(tmp_path / "mine")]}, mine) == ""


def test_another_manifest_of_the_same_name_that_the_scheduler_prefers_is_told(tmp_path: Path) -> None:
    mine, theirs = spec(manifest(tmp_path / "mine")), tmp_path / "theirs"
    manifest(theirs, text="another")
    known = [str(tmp_path / "mine"), str(theirs)]
    assert f"takes echo from {theirs}" in sight.mismatch({"manifests": known}, mine)
    assert sight.mismatch({"manifests": known[::-1]}, mine) == ""


@pytest.mark.parametrize("about", [{}, {"manifests": None}, {"manifests": ["/nowhere/at/all"]}])
def test_a_scheduler_that_does_not_tell_is_not_doubted(tmp_path: Path, about: dict[str, object]) -> None:
    mine = spec(manifest(tmp_path / "mine"))
    assert (sight.mismatch(about, mine) == "") is (not about.get("manifests"))


def test_the_same_manifest_in_another_folder_is_the_same_provider(tmp_path: Path) -> None:
    manifest(tmp_path / "other")
    assert sight.mismatch({"manifests": [str(tmp_path / "other")]}, spec(manifest(tmp_path / "mine"))) == ""


def test_environments_that_the_scheduler_does_not_look_into_are_told(tmp_path: Path) -> None:
    mine = spec(manifest(tmp_path / "m"), python="", environment={"hash": "sha256:" + "ab" * 32})
    about = {"manifests": [str(tmp_path / "m")], "envs": [str(tmp_path / "envs")]}
    assert str(tmp_path / "envs") in sight.mismatch(about, mine)
    made = tmp_path / "envs" / ("ab" * 16)
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").touch(0o755)
    (made / sight.MARKER).touch()
    assert sight.mismatch(about, mine) == ""
