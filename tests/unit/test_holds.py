"""What an environment holds is read from its files; a torch is told by the file that its build left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from wheels import TORCH

from scheduler.host import holds


def conda(folder: Path, *packages: str, sites: tuple[str, ...] = ()) -> Path:
    """A conda environment as its files tell of it."""
    (folder / "conda-meta").mkdir(parents=True)
    for each in packages:
        (folder / "conda-meta" / f"{each}.json").write_text("{}")
    site = folder / "lib" / "python3.10" / "site-packages"
    site.mkdir(parents=True)
    for each in sites:
        (site / each).mkdir()
    return folder


def venv(folder: Path, *sites: str, config: str = "version = 3.11.7\n") -> Path:
    """A venv as its files tell of it."""
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(config)
    for each in sites:
        (site / each).mkdir()
    return folder


def test_a_venv_holds_what_its_packages_say_of_themselves(tmp_path: Path) -> None:
    path = venv(
        tmp_path / "v", "torch-2.3.0+cu121.dist-info", "Typing_Extensions-4.1.dist-info", "old-1.0-py3.11.egg-info"
    )
    assert holds.packages(str(path)) == {
        "python": "3.11.7", "old": "1.0", "torch": "2.3.0+cu121", "typing-extensions": "4.1",
    }  # fmt: skip


def test_a_conda_environment_holds_what_conda_installed_too(tmp_path: Path) -> None:
    path = conda(
        tmp_path / "c", "python-3.10.14-h955ad1f_1", "cudatoolkit-11.8.0-h6a678d5_0", "numpy-1.26.4-py310_0",
        sites=("numpy-1.26.4.dist-info", "boltz-2.2.1.dist-info"),
    )  # fmt: skip
    assert holds.packages(str(path)) == {
        "python": "3.10.14", "boltz": "2.2.1", "cudatoolkit": "11.8.0", "numpy": "1.26.4",
    }  # fmt: skip


def test_another_version_is_seen_and_is_another_environment(tmp_path: Path) -> None:
    path = venv(tmp_path / "v", "a-1.0.dist-info")
    site = path / "lib" / "python3.11" / "site-packages"
    before = holds.digest(str(path))
    assert holds.digest(str(path)) == before
    (site / "a-1.0.dist-info").rename(site / "a-2.0.dist-info")
    os.utime(site, ns=(1, 1))
    assert holds.packages(str(path))["a"] == "2.0"
    assert holds.digest(str(path)) != before


def test_an_interpreter_is_of_the_environment_that_its_own_path_lies_in(tmp_path: Path) -> None:
    path = venv(tmp_path / "v")
    (path / "bin").mkdir()
    (path / "bin" / "python").symlink_to("/usr/bin/env")
    assert holds.prefix_of(str(path / "bin" / "python")) == str(path)
    assert holds.prefix_of("/usr/bin/env") is None


@pytest.mark.parametrize(
    ("version", "cuda", "hip", "told"),
    [
        ("2.13.0+cpu", None, None, holds.Torch("2.13.0+cpu", "", "")),
        ("2.13.0", "12.6", None, holds.Torch("2.13.0", "12.6", "")),
        ("2.13.0+rocm6.4", None, "6.4.43482", holds.Torch("2.13.0+rocm6.4", "", "6.4.43482")),
    ],
)
def test_a_torch_is_told_by_the_file_of_its_build(
    tmp_path: Path, version: str, cuda: str | None, hip: str | None, told: holds.Torch
) -> None:
    path = venv(tmp_path / "v", "torch", f"torch-{version}.dist-info")
    text = TORCH.format(version=version, cuda=repr(cuda), hip=repr(hip))
    (path / "lib" / "python3.11" / "site-packages" / "torch" / "version.py").write_text(text)
    assert holds.torch(str(path)) == told
    assert holds.torch(str(venv(tmp_path / "none"))) is None
