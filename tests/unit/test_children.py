"""Processes of schedq itself run the package that started them, whatever lies in the caller's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.cli import children
from scheduler.config import Paths

TRAP = "raise SystemExit('the wrong scheduler')\n"


def started(cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(children.argv("version", "--json"), cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("trap", ["scheduler.py", "scheduler/__main__.py", "scheduler/__init__.py"])
def test_a_scheduler_of_the_folder_is_not_taken_for_ours(tmp_path: Path, trap: str) -> None:
    (tmp_path / trap).parent.mkdir(exist_ok=True)
    (tmp_path / trap).write_text(TRAP)
    done = started(tmp_path, children.environment(Paths(str(tmp_path / "home"))))
    assert done.returncode == 0 and children.ROOT in done.stdout, done


@pytest.mark.parametrize("places", ["{trap}", ":{trap}", "."])
def test_nor_is_one_of_an_earlier_place_of_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str
) -> None:
    (tmp_path / "scheduler.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", places.format(trap=tmp_path))
    monkeypatch.setattr(sys, "path", ["/anything", str(tmp_path), *sys.path[1:]])
    done = started(tmp_path, children.environment(Paths(str(tmp_path / "home"))))
    assert done.returncode == 0 and children.ROOT in done.stdout, done


def test_relative_places_of_the_caller_are_kept_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SCHEDQ_MANIFESTS", "SCHEDQ_ENVS"):
        monkeypatch.setenv(name, "one:/two")
    made = children.environment(Paths())
    assert made["SCHEDQ_MANIFESTS"] == made["SCHEDQ_ENVS"] == f"{os.getcwd()}/one:/two"
    assert os.path.isabs(made["SCHEDQ_HOME"])
