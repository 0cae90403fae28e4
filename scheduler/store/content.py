"""Bytes that are too large for a row, kept by their sha256: inputs, files that inputs name, large replies.

A piece is written beside, synced, made read-only and renamed; its folder is synced; only then may a row name it.
Everything that is renamed here, and everything that is pruned, passes inside the turnstile. Standard library only.
"""

from __future__ import annotations

import os

from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.errors import Corrupt, Refused
from scheduler.store.folders import sync
from scheduler.store.identity import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

INLINE_MAX = 64 << 10
"""Up to this many bytes are kept in the row itself."""

_CHUNK = 4 << 20
_reached: set[tuple[int, int]] = set()
"""Folders (device, inode) whose own names this process knows to be durable."""


def path(paths: Paths, sha256: str) -> str:
    """Where the piece with this hash is kept."""
    return paths.content_of(sha256)


def present(paths: Paths, sha256: str) -> bool:
    """Whether the piece is here."""
    return os.path.exists(path(paths, sha256))


def put(paths: Paths, data: bytes, sha256: str = "") -> str:
    """Keep these bytes and answer with their sha256, durable on return. Call it inside the turnstile."""
    sha256 = sha256 or digest(data)
    if present(paths, sha256):
        settle(paths, sha256)
    else:
        staged = stage_bytes(paths, data)
        try:
            place(paths, staged, sha256)
        except BaseException:
            discard(staged)
            raise
    return sha256


def stage_bytes(paths: Paths, data: bytes) -> str:
    """Write bytes beside the content, synced; `place` the file inside the turnstile."""
    staged = _staging(paths)
    try:
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
            os.fchmod(fd, 0o400)
    except BaseException:
        discard(staged)
        raise
    return staged


def stage(paths: Paths, source: str, sha256: str, said_by: str) -> str:
    """Copy a file that an input names beside the content, synced and checked; `place` it inside the turnstile.

    Refused if it is not there, or is no longer what was checked (`sha256`). `said_by` = who names it, for the text.
    """
    from hashlib import sha256 as hasher

    staged, seen = _staging(paths), hasher()
    try:
        try:
            found = open(source, "rb")  # noqa: SIM115
        except OSError as error:
            raise Refused(f"{said_by} names {source}, which cannot be read: {error.strerror}") from None
        out = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with found, open(out, "wb") as file:
            while chunk := found.read(_CHUNK):
                seen.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(out)
            os.fchmod(out, 0o400)
        if seen.hexdigest() != sha256:
            raise Refused(f"{source}, which {said_by} names, changed while it was submitted; submit again")
    except BaseException:
        discard(staged)
        raise
    return staged


def place(paths: Paths, staged: str, sha256: str) -> None:
    """Give a staged file its name, durably."""
    name(paths, staged, sha256)
    settle_all(paths, (sha256,))


def name(paths: Paths, staged: str, sha256: str) -> None:
    """Give a staged file its name, which is durable when `settle_all` was called with it."""
    os.makedirs(os.path.dirname(path(paths, sha256)), 0o700, exist_ok=True)
    crashpoint("content.staged")
    os.rename(staged, path(paths, sha256))


def settle(paths: Paths, sha256: str) -> None:
    """Make the name of a piece durable, and those that lead to it.

    Also of one that is there: who placed it may have been killed before it came to that.
    """
    settle_all(paths, (sha256,))


def settle_all(paths: Paths, many: Iterable[str]) -> None:
    """As `settle`, for the names of many pieces: each folder is synced once."""
    folders = dict.fromkeys(os.path.dirname(path(paths, each)) for each in many)
    if not folders:
        return
    upwards = [*((each, paths.content) for each in folders), (paths.content, paths.home)]
    fresh = {(found.st_dev, found.st_ino): above for below, above in upwards if (found := os.stat(below))}
    for folder in dict.fromkeys([*folders, *(above for which, above in fresh.items() if which not in _reached)]):
        sync(folder)
    _reached.update(fresh)
    crashpoint("content.placed")


def read(paths: Paths, sha256: str) -> bytes:
    """The bytes with this hash, checked. Corrupt if they are gone or are others."""
    where = path(paths, sha256)
    try:
        with open(where, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise Corrupt(f"{where} is gone; restore the queue's folder from a backup, or submit the job again") from None
    if digest(data) != sha256:
        raise Corrupt(f"{where} is not what was stored (its sha256 differs); submit the job again")
    return data


def discard(staged: str) -> None:
    """Remove a staged file that will not be placed; one that stays is tidied later."""
    try:
        os.unlink(staged)
    except OSError:
        pass


def tidy(paths: Paths) -> list[str]:
    """Remove staged files whose process has ended, and name them. Call it inside the turnstile."""
    gone = []
    try:
        names = os.listdir(paths.content)
    except FileNotFoundError:
        return []
    for name in names:
        pid = name.split("-")[1] if name.startswith(".staged-") and name.count("-") == 2 else ""
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            discard(os.path.join(paths.content, name))
            gone.append(name)
    return gone


def _staging(paths: Paths) -> str:
    return os.path.join(paths.content, f".staged-{os.getpid()}-{os.urandom(6).hex()}")
