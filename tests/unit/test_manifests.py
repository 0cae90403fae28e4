"""The shipped manifests are whole, and manifests/README.md says of every key what the code does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from providers import LEGACY, MANIFESTS, NEED_A_DEVICE, SLUGS, declared, spec_of

from scheduler.client import Client
from scheduler.declared import declaration
from scheduler.host import attempt, environments
from scheduler.night import validation
from scheduler.rules.expectation import FILES, file_rules

README = (MANIFESTS / "README.md").read_text()
UNSET = "required"


def documented() -> dict[str, object]:
    """Every key of the README's table with its default."""
    rows = re.findall(
        r"^\| `([a-z0-9_.]+)` \| (required|`[^|]*`) \|", README.partition("## Every key")[2], re.MULTILINE
    )
    return {key: UNSET if text == UNSET else json.loads(text.strip("`")) for key, text in rows}


def coded() -> dict[str, object]:
    """Every key that a manifest may have, with its default."""
    found: dict[str, object] = {}
    tables = {"": declaration.Manifest, **{f"{name}.": model for name, model in declaration.TABLES.items()}}
    for prefix, model in tables.items():
        for name, field in model.model_fields.items():
            key = field.alias or name
            if prefix or key not in declaration.TABLES:
                value = field.get_default(call_default_factory=True)
                empty = value.model_dump(exclude_none=True) if isinstance(value, declaration.Table) else value
                found[prefix + key] = UNSET if field.is_required() else empty
    return found


def test_the_readme_has_every_key_with_its_default_and_no_other() -> None:
    assert documented() == coded()


def test_the_readme_has_the_placeholders_that_are_filled() -> None:
    written = set(re.findall(r"^ +\| `\{(\w+)\}` \|", README, re.MULTILINE))
    place = attempt.Desk("f", "f/in/x.pdb", "f/out", "work", "log", "reply")
    spec = {"command": [f"{{{name}}}" for name in sorted(written)], "wrap": []}
    assert written == set(declaration.PLACEHOLDERS)
    assert not [word for word in attempt.argv(spec, "python", place, "job", "params", "request") if "{" in word]


def test_the_readme_has_a_line_for_each_shipped_provider() -> None:
    shipped = sorted(path.parent.name for path in MANIFESTS.glob("*/provider.toml"))
    assert shipped == sorted((*SLUGS, *NEED_A_DEVICE))
    for slug in shipped:
        assert re.search(rf"^\| `{slug}` \| .* \| {declared(slug)['mode']} \|", README, re.MULTILINE)
        assert f"**{slug}**" in README


@pytest.mark.parametrize("slug", SLUGS)
def test_a_shipped_manifest_is_read_without_a_warning(slug: str, tmp_path: Path) -> None:
    spec = spec_of(slug, tmp_path)
    assert spec["warnings"] == []
    assert spec["policy"] == "none"
    assert spec["ram_gib"] > 0
    assert spec["validation"]
    assert Path(spec["example"]).is_file()
    pinned = [line for line in spec["environment"]["requirements"] if line != "--no-deps"]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pinned)


@pytest.mark.parametrize("slug", [*SLUGS, *NEED_A_DEVICE])
def test_the_files_that_a_shipped_case_expects_are_called_as_a_job_of_its_input_calls_them(
    slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the job's name, which a provider calls its files after, or by what the input itself names."""
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path))
    spec = {**spec_of(slug, tmp_path), "policy": "none"}
    for case in spec["validation"]:
        name = validation.row_of(Client(), spec, case, "b")["name"]
        assert name == Path(case["input"]).stem
        for glob in file_rules(case["expect"].get(FILES, {})):
            stem = Path(glob).name.partition(".")[0]
            inside = re.search(rf"\b{re.escape(stem)}\b", Path(case["input"]).read_text())
            assert "*" in stem or stem == name or inside, (slug, case["name"], glob)


def test_an_older_trees_manifest_is_read_and_its_strange_keys_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(LEGACY))
    spec = spec_of("hydropathy", tmp_path)
    warned = "\n".join(spec["warnings"])
    assert "standard" in warned and "provenance" in warned and "host.ram_budget_gb is missing" in warned
    assert environments.missing(spec) == ""
    assert environments.python_of(spec) == shutil.which("python3")
