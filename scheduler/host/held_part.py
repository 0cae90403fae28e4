"""Where a file lies while it is fetched: one regular file beside its place, written by one fetch at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

from scheduler import locks
from scheduler.errors import SchedqError
from scheduler.host import named_files

Say = Callable[[str], None]


@contextlib.contextmanager
def alone(path: str, say: Say) -> Iterator[BinaryIO]:
    """The file's part, made if need be and held by nobody else: who has it is said, and waited for.

    SchedqError if something else than a file has its name; OSError if it cannot be opened.
    """
    beside = named_files.part_of(path)
    while True:
        with open(_opened(beside, path), "r+b", buffering=0) as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = locks.holder(beside)
                say(f"{path}: another fetch{f' (process {pid})' if pid else ''} is at work on it; waiting for it")
                fcntl.flock(part, fcntl.LOCK_EX)
            if _is_at(beside, part):
                yield part
                return


def _opened(beside: str, path: str) -> int:
    """A descriptor of the part, made if need be; a link is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(beside, flags, 0o666)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
    kind = named_files.kind_of(os.lstat(beside).st_mode)
    raise SchedqError(f"{beside} is {kind}, and {path} is fetched to a file of that name; remove it, and ask again")


def _is_at(path: str, part: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.fstat(part.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False
