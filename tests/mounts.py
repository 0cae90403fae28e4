"""Filesystems for a test that needs another one than its own; where they may not be mounted, the test is skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, kind: str = "tmpfs", options: str = "size=16m") -> Iterator[Path]:
    """A folder that is a filesystem of its own until the block ends."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", kind, "-o", options, kind, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no {kind} may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def read_only(folder: Path) -> None:
    """From now on nobody writes in this mounted folder, root neither."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
