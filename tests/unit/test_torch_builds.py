"""A torch that cannot use this machine's device is told with what to do; of every other nothing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from wheels import TORCH

from scheduler.cli import torch_builds
from scheduler.host import environments


class Machine:
    """A machine with these devices, as `Devices` tells of one; whether it had to be asked."""

    def __init__(self, *names: str) -> None:
        self._names, self.asked = list(names), False

    def names(self, *, ask: bool) -> list[str]:
        self.asked = ask
        return self._names


def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, **over: Any) -> dict[str, Any]:
    """A provider that runs in an environment with such a torch."""
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "torch"
    site.mkdir(parents=True)
    cuda, hip = over.pop("cuda", None), over.pop("hip", None)
    (site / "version.py").write_text(TORCH.format(version=version, cuda=repr(cuda), hip=repr(hip)))
    monkeypatch.setattr(environments, "folder_in", lambda _: str(tmp_path / "env"))
    declared = {"requirements": ["torch==2.13.0"], "hash": "h"}
    return {"slug": "toy", "variant": "", "policy": "required", "python": None, "environment": declared, **over}


def told(of: dict[str, Any], *names: str) -> str:
    return torch_builds.warning(of, Machine(*names))  # type: ignore[arg-type]


def test_a_build_for_the_processor_is_told_with_the_index_that_has_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = spec(tmp_path, monkeypatch, "2.13.0+cpu")
    text = told(of, "NVIDIA GB10", "NVIDIA GB10")
    assert "torch 2.13.0+cpu in" in text and "is built without CUDA" in text
    assert "this machine has NVIDIA GB10 and 1 more" in text
    assert "schedq uninstall toy, then PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu126" in text
    assert told(of) == "", "without a device there is nothing that it could compute on"
    assert told({**of, "policy": "none"}, "NVIDIA GB10") == "", "it needs none"


def test_a_build_that_the_manifest_pins_is_corrected_there_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = {"requirements": ["torch==2.13.0+cpu"], "hash": "h"}
    text = told(spec(tmp_path, monkeypatch, "2.13.0+cpu", environment=pinned), "Tesla V100")
    assert "its manifest pins that build (torch==2.13.0+cpu): write torch==2.13.0 there" in text


def test_one_in_an_environment_of_the_users_own_is_theirs_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = told(spec(tmp_path, monkeypatch, "2.13.0+cpu", python="/mine/bin/python"), "Tesla V100")
    assert "/env/bin/python -m pip install --force-reinstall --no-deps torch==2.13.0 --index-url" in text
    assert "uninstall" not in text.replace("--force-reinstall", "")


@pytest.mark.parametrize(
    ("cuda", "hip", "device", "words"),
    [
        ("12.6", None, "NVIDIA H200", ""),
        (None, "6.4", "AMD Instinct MI300X", ""),
        ("12.6", None, "AMD Instinct MI300X", "is built for CUDA 12.6"),
        (None, "6.4", "NVIDIA H200", "is built for ROCm 6.4"),
        (None, None, "AMD Radeon", "is built without ROCm"),
    ],
)
def test_a_build_for_the_other_maker_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, device: str, words: str
) -> None:
    text = told(spec(tmp_path, monkeypatch, "2.13.0", cuda=cuda, hip=hip), device)
    assert (words in text) if words else text == ""


def test_the_machine_is_asked_only_where_a_torch_is_built_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    of = spec(tmp_path, monkeypatch, "2.13.0", cuda="12.6")
    torch_builds.warning(of, machine)  # type: ignore[arg-type]
    assert not machine.asked
