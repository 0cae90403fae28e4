"""Each acceptance test gets a queue of its own, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from driven import Queue


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue whose scheduler, workers and keepers are all gone when the test has ended."""
    made = Queue(tmp_path)
    yield made
    if made.home.exists():
        made("down", "--now")
    for process in made.processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    made.reap()
