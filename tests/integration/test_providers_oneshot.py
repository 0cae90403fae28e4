"""The shipped command runs as its manifest says, and its figures are those of the science."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from providers import MANIFESTS, declared, installed, spec_of, unmet

pytestmark = pytest.mark.network


def run(spec: dict[str, Any], source: Path, folder: Path, params: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The command as a keeper runs it: placeholders filled, in the manifest's folder."""
    out = folder / "out"
    out.mkdir()
    (folder / "params.json").write_text(json.dumps(params))
    values = {
        "{python}": installed(spec),
        "{input}": str(source),
        "{out}": str(out),
        "{params}": str(folder / "params.json"),
    }
    argv = []
    for word in spec["command"]:
        for name, value in values.items():
            word = word.replace(name, value)
        argv.append(word)
    return subprocess.run(argv, cwd=spec["folder"], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The spec of propka."""
    return spec_of("propka", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("case", declared("propka")["validation"], ids=lambda case: case["name"])
def test_a_validation_case_holds(spec: dict[str, Any], tmp_path: Path, case: dict[str, Any]) -> None:
    done = run(spec, MANIFESTS / "propka" / case["input"], tmp_path, case.get("params", {}))
    assert done.returncode == 0, done.stderr
    assert unmet(json.loads((tmp_path / "out" / "result.json").read_text()), case["expect"]) == []
    for pattern in spec["outputs"]:
        assert list((tmp_path / "out").glob(pattern)), pattern


def test_the_figures_are_those_of_the_programs_own_report(spec: dict[str, Any], tmp_path: Path) -> None:
    source = MANIFESTS / "propka" / "validation" / "1ubi.pdb"
    run(spec, source, tmp_path, {})
    sites = json.loads((tmp_path / "out" / "result.json").read_text())["sites"]
    summary = (tmp_path / "out" / "1ubi.pka").read_text().partition("SUMMARY OF THIS PREDICTION")[2]
    reported = {}
    for line in summary.splitlines()[2:]:
        words = line.split()
        if len(words) != 5:
            break
        reported[f"{words[2]}:{words[0]}{words[1]}"] = (float(words[3]), float(words[4]))
    residues = {(line[17:20], line[22:26]) for line in source.read_text().splitlines() if line.startswith("ATOM")}
    titrate = [name for name, _ in residues if name in ("ASP", "GLU", "HIS", "CYS", "TYR", "LYS", "ARG")]
    assert len(reported) == len(titrate) + 2
    assert {name: (site["pka"], site["model_pka"]) for name, site in sites.items()} == reported


@pytest.mark.parametrize(
    ("text", "params", "word"),
    [
        ("HEADER    NOTHING\nEND\n", {}, "has no ATOM record"),
        (None, {"chains": "AB"}, "there is no chain B in 1ubi.pdb; it has A"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_the_last_line(
    spec: dict[str, Any], tmp_path: Path, text: str | None, params: dict[str, Any], word: str
) -> None:
    source = MANIFESTS / "propka" / "validation" / "1ubi.pdb"
    if text is not None:
        source = tmp_path / "empty.pdb"
        source.write_text(text)
    done = run(spec, source, tmp_path, params)
    assert done.returncode == 3
    assert word in done.stderr.splitlines()[-1]
