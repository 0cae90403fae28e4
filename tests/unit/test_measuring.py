"""What `measure` says and writes of what was measured: the report first, and no budget that rests on half a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import measuring
from scheduler.config import config_files
from scheduler.errors import UsageError

SPEC = {"slug": "fold", "variant": "", "policy": "required", "mode": "resident"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "home"))
    path = Path(config_files()[1])
    path.parent.mkdir(parents=True)
    return path


def told(**over: Any) -> dict[str, Any]:
    case = {"name": "large", "job": 7, "state": "succeeded", "size": 10.0, "device_gib": 30.0, "host_gib": 2.0,
            "device_given_gib": 79.0, "ran_s": 9.0, "outcome": None}  # fmt: skip
    return {
        "slug": "fold", "variant": "", "at": "2026-11-30T05:00:00Z", "host": "here", "device": "H100",
        "declared": {"device_gib": None, "host_gib": None}, "base": {"device_gib": 9.0, "host_gib": 1.0},
        "peak": {"device_gib": 30.0, "host_gib": 2.0}, "cases": [case],
        "judged": {"device": "undeclared", "host": "undeclared"}, "budget": {"device": 33.0, "host": 2.2},
        "took_all": [], "written": None, **over,
    }  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_measured_is_said_also_when_the_file_cannot_be_written_and_then_the_values_too(
    config: Path, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    config.write_text("providers.fold.vram_budget_gb = 28\n")
    with pytest.raises(UsageError, match=r"by hand:\n\[providers.fold\]\nvram_budget_gb = 33.0\nram_budget_gb = 2.2\n"):
        measuring.tell(SPEC, told(), as_json=as_json, write=True)
    out = capfd.readouterr().out
    assert json.loads(out)["peak"]["device_gib"] == 30.0 if as_json else "30.00" in out
    assert config.read_text() == "providers.fold.vram_budget_gb = 28\n"


def test_what_is_written_is_said_and_where(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert measuring.tell(SPEC, told(), as_json=False, write=True)
    assert "vram_budget_gb = 33.0" in config.read_text()
    assert f"written to {config}, [providers.fold]" in capfd.readouterr().err


HALF = {
    "a part that nobody saw": (
        {"budget": {"host": 2.2}, "judged": {"host": "undeclared"}, "peak": {"device_gib": None, "host_gib": 2.0},
         "cases": [{**told()["cases"][0], "device_gib": None}]},
        "no use of device memory was seen of large: the driver did not show the worker's processes, or another",
    ),
    "a case that nobody saw, beside one that was": (
        {"cases": [*told()["cases"], {**told()["cases"][0], "name": "largest", "device_gib": None, "host_gib": None}]},
        "no use of device and host memory was seen of largest: the driver",
    ),
    "a device that was taken whole": (
        {"budget": {"host": 2.2}, "judged": {"host": "undeclared"}, "took_all": ["large took 78.60 of the 79.00 GiB"]},
        "1 case took all the device memory that was given",
    ),
    "a case that failed": (
        {"cases": [{**told()["cases"][0], "state": "failed"}]}, "large did not succeed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("over", "why"), HALF.values(), ids=HALF)
def test_nothing_is_written_of_half_a_figure_and_it_is_said_why(
    config: Path, capfd: pytest.CaptureFixture[str], over: dict[str, Any], why: str
) -> None:
    assert not measuring.tell(SPEC, told(**over), as_json=False, write=True)
    said = capfd.readouterr()
    assert f"nothing was written: {why}" in said.err and not config.exists()
    assert all(text in said.out for text in over.get("took_all", ()))
    assert measuring.tell(SPEC, told(**over), as_json=False, write=False), "nobody asked for it"
