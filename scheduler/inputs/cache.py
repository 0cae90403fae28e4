"""Files that can be made again: signatures of what they were made from, and how one is read and put in place.

What is read back is trusted only if it is a regular file of ours that nobody else can read or write. Imported
by the fast paths: standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from scheduler import readable

MOST_BYTES = 64 << 20
"""The largest file that belongs to a manifest: its schemas and its code are kilobytes."""


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
        self._refused: set[str] = set()

    def look(self, path: str) -> bool:
        """Note a path; whether it is there."""
        if path not in self.signatures:
            self.signatures[path] = signature(path)
        return self.signatures[path] is not None

    def bytes_of(self, path: str, most_bytes: int = MOST_BYTES) -> bytes:
        """Note a file and read it. OSError with our words for what is no regular file, or cannot be read."""
        self.look(path)
        try:
            return readable.read(path, most_bytes)
        except OSError as error:
            self._refuse(path, error)
            raise

    def fault(self, path: str) -> str:
        """Note a file; why it is none that can be read, to follow its path and a blank; empty if it can."""
        self.look(path)
        try:
            os.close(readable.opened(path))
        except OSError as error:
            self._refuse(path, error)
            return str(error.strerror)
        return ""

    def _refuse(self, path: str, error: OSError) -> None:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            self._refused.add(path)

    def changed(self) -> bool:
        """Whether anything is not as it was when it was looked at."""
        return any(signature(path) != was for path, was in self.signatures.items())

    def kept(self) -> dict[str, list[int] | None]:
        """The signatures to compare with later; what could not be read has none: no signature shows that it can now."""
        return {path: None if path in self._refused else was for path, was in self.signatures.items()}
