"""What the everyday verbs load: nothing that a script with a hundred calls would have to wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from driven import Queue

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"typer", "click", "pydantic", "sqlalchemy", "alembic", "rich", "fastjsonschema", "ruamel", "psutil"}
SLOW = {
    "dataclasses", "inspect", "typing", "pathlib", "subprocess", "argparse", "tempfile", "shutil", "glob", "asyncio",
    "logging", "importlib.metadata", "tomllib",
}  # fmt: skip
PROBE = """
import os, sys
def leave(code):
    os.write(2, ("LOADED " + " ".join(sys.modules) + chr(10)).encode())
    real(code)
real, os._exit = os._exit, leave
from scheduler.__main__ import main
main()
"""


def loaded(queue: Queue, *argv: str) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-X", "frozen_modules=on", "-c", PROBE, *argv],
        env={**queue.env, "PYTHONPATH": str(ROOT)}, cwd=queue.folder, capture_output=True, text=True,
    )  # fmt: skip
    names = next(line for line in done.stderr.splitlines() if line.startswith("LOADED "))
    return done.returncode, set(names.split())


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["submit", "echo", "a.json"], 0),
        (["submit", "echo", "a.json", "--param", "loud=true", "--out", "o/{id}", "--json"], 0),
        (["status"], 0),
        (["status", "--json"], 0),
        (["show", "1"], 0),
        (["why", "1"], 0),
        (["why", "last", "--json"], 0),
        (["wait", "1", "--timeout", "10ms"], 6),
        (["result", "1"], 75),
        (["log", "1"], 75),
        (["cancel", "1"], 0),
        (["history"], 0),
        (["history", "--since", "12h", "--state", "queued", "--csv"], 0),
        (["status", "1", "--csv"], 0),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_an_everyday_verb_loads_no_framework_and_no_slow_module(tmp_path: Path, argv: list[str], code: int) -> None:
    queue = Queue(tmp_path)
    queue.provider()
    queue.input()
    assert queue("submit", "echo", "a.json").code == 0
    answered, names = loaded(queue, *argv)
    bare = set(
        subprocess.run(
            [sys.executable, "-c", "import sys; print(*sys.modules)"],
            env={**queue.env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        ).stdout.split()
    )  # fmt: skip
    assert answered == code
    assert {name.partition(".")[0] for name in names} & HEAVY == set()
    assert (names - bare) & SLOW == set()
    assert {name for name in names if name.startswith("scheduler.model.")} <= {"scheduler.model.command"}
