"""The house keeps its rules: imports run downwards, types hold, names say what they are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p for p in (ROOT / "scheduler").rglob("*.py") if p.parent.name not in ("migrations", "manifests"))
TOP = {"pyproject.toml", "scheduler", "migrations", "manifests", "tests", "README.md", "LICENSE", "CHANGELOG.md"}


def tool(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *args], cwd=ROOT, capture_output=True, text=True)


def test_imports_run_downwards_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_code_is_typed() -> None:
    done = tool("mypy")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("verb", [("check",), ("format", "--check")])
def test_the_code_reads_alike(verb: tuple[str, ...]) -> None:
    done = tool("ruff", *verb, ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_top_level_is_what_was_agreed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in found if not name.startswith(".")} <= TOP


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short_and_says_what_it_is_for(module: Path) -> None:
    text = module.read_text()
    assert text.count("\n") <= 350
    if module.name != "__init__.py":
        assert ast.get_docstring(ast.parse(text)), "no docstring"


def test_public_names_have_docstrings_and_no_vague_words() -> None:
    faults = []
    for module in MODULES:
        tree = ast.parse(module.read_text())
        for node in [tree, *[n for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]]:
            for item in node.body:
                if not isinstance(item, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                    continue
                where = f"{module.relative_to(ROOT)}:{item.lineno} {item.name}"
                if not item.name.startswith("_") and not ast.get_docstring(item):
                    faults.append(f"{where}: no docstring")
                if item.name.startswith(("handle_", "process_", "get_")) or item.name.endswith("Manager"):
                    faults.append(f"{where}: a vague name")
    assert not faults, "\n".join(faults)
    vague = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py", "manager.py"}
    assert not [m for m in MODULES if m.name in vague]


def test_every_module_of_the_house_stands_in_its_plan() -> None:
    plan = (ROOT / "scheduler" / "README.md").read_text()
    missing = [
        str(m.relative_to(ROOT / "scheduler")) for m in MODULES if m.name != "__init__.py" and m.name not in plan
    ]
    assert not missing
