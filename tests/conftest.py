"""What tests of several tiers stand on: a queue's paths, its store, a folder that anybody can reach."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.config import Paths
from scheduler.store.engine import Store


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


@pytest.fixture
def store(paths: Paths) -> Iterator[Store]:
    made = Store(paths)
    yield made
    made.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach; pytest's own are private."""
    made = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    made.chmod(0o755)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)
