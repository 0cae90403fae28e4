"""What tests of several tiers stand on: a queue's paths, its store, a folder that anybody can reach."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.config import Paths
from scheduler.store.engine import Store


def pytest_sessionstart() -> None:
    """What tests start hears signals that the tests themselves ignore, begun in a script's background or by `nohup`."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


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
