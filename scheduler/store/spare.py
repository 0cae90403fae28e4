"""Room on the queue's disk that is kept for `prune`: to give space back, it has to write in the database first.

A file of a few MiB that the scheduler lays down while the disk has far more than that, and that goes when it is needed.
Standard library only.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scheduler.config import Paths

BYTES = 16 << 20
"""Marking jobs takes a few MiB of the write-ahead log until their files go, and the database may grow."""

AT_LEAST = 64
"""The disk has so many times as much free, or nothing is kept: a small disk is not made smaller."""


def keep(paths: Paths, size: int = BYTES) -> bool:
    """Lay it down unless it is there; whether it is. A disk that does not take it is not said here: it is looked at."""
    if os.path.lexists(paths.spare):
        return True
    part = f"{paths.spare}.part"
    try:
        if shutil.disk_usage(paths.home).free < AT_LEAST * size:
            return False
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
        os.rename(part, paths.spare)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        return False
    return True


def give(paths: Paths) -> bool:
    """Take it away; whether there was any."""
    with suppress(OSError):
        os.unlink(paths.spare)
        return True
    return False
