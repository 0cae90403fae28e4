"""Files that can be made again: signatures of what they were made from, and how one is read and put in place.

What is read back is trusted only if it is a regular file of ours that nobody else can read or write. Imported
by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import stat
import sys


def signature(path: str) -> list[int] | None:
    """What changes when a file or folder does: (time in ns, size, inode); None if it is not there."""
    try:
        seen = os.stat(path)
    except (OSError, ValueError):
        return None
    return [seen.st_mtime_ns, seen.st_size, seen.st_ino]


def sha256(data: bytes) -> str:
    """The hex digest; small data is spared the loading of OpenSSL (3 ms)."""
    if len(data) < 1_000_000:
        try:
            name = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
            return str(__import__(name).sha256(data).hexdigest())
        except ImportError:
            pass
    import hashlib

    return hashlib.sha256(data).hexdigest()


def own_bytes(path: str) -> bytes | None:
    """The bytes of a cache file that is a regular file of ours that nobody else can read or write; else None."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(fd)


def put(path: str, data: bytes) -> bool:
    """Put a cache file in place whole, readable by us only; False if it cannot be (read-only, full)."""
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.rename(beside, path)
        except OSError:
            os.unlink(beside)
            return False
    except OSError:
        return False
    return True


class Seen:
    """Every file and folder that was looked at, with its signature from before it was read."""

    def __init__(self) -> None:
        self.signatures: dict[str, list[int] | None] = {}

    def look(self, path: str) -> bool:
        """Note a path; whether it is there."""
        if path not in self.signatures:
            self.signatures[path] = signature(path)
        return self.signatures[path] is not None

    def bytes_of(self, path: str) -> bytes:
        """Note a file and read it. OSError as open() gives it."""
        self.look(path)
        with open(path, "rb") as file:
            return file.read()
