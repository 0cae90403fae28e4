"""Files where a worker can write, read and made so that whatever it put there instead holds nobody up.

A FIFO is waited at for ever, a link leads to somebody else's file, a device has no end: only a regular file of that
very name is opened. Standard library only and light: keepers import it.
"""

from __future__ import annotations

import errno
import os
import stat


def opened(path: str) -> int:
    """A descriptor to read a regular file by. OSError, with EINVAL if it is anything else, a link included."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _other(path) from None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise _other(path)


def _other(path: str) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", path)


def content(path: str, most: int = -1) -> bytes:
    """What is in a regular file, its first `most` bytes if that is given. OSError as `opened` has it."""
    with os.fdopen(opened(path), "rb") as file:
        return file.read(most)


def tail(path: str, most: int) -> bytes:
    """The last `most` bytes of a regular file. OSError as `opened` has it."""
    with os.fdopen(opened(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def made(path: str, folder: int | None = None) -> int:
    """A descriptor to read and write a new, empty file of that name by, 0600; what lies there is taken away first.

    `path` counts from the descriptor `folder` where that is given. OSError; a folder of that name stays.
    """
    try:
        os.unlink(path, dir_fd=folder)
    except FileNotFoundError:
        pass
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600, dir_fd=folder)


def put(path: str, data: bytes, *, mode: int = 0o600, sync: bool = False, folder: int | None = None) -> None:
    """Make a file that is either whole or not there, in place of whatever file or link has its name. OSError."""
    fd = made(path + ".tmp", folder)
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fchmod(fd, mode)
        if sync:
            os.fsync(fd)
        os.replace(path + ".tmp", path, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(path + ".tmp", dir_fd=folder)
        raise
    finally:
        os.close(fd)


def inode(place: str | int) -> tuple[int, int] | None:
    """Which file this is, by its path or descriptor: device and inode; None if there is none."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def unlink(path: str, known: tuple[int, int] | None) -> None:
    """Take a name away while it is the file that is known by `inode`; somebody else's stays."""
    if known is None or inode(path) != known:
        return
    try:
        os.unlink(path)
    except OSError:
        pass
