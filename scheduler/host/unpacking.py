"""A folder of a manifest's `[[files]]` that is unpacked from another of them, a tar archive: whole or not at all.

Of an archive that holds a folder of the same name at its top, that is what is put in place. Only files and folders are
taken: a link, a device, or a name that leads out is refused, since nobody has looked at them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from typing import NoReturn

from scheduler import locks
from scheduler.crash import crashpoint
from scheduler.errors import SchedqError, Temporary
from scheduler.host import marker
from scheduler.host.install_step import Say
from scheduler.host.named_files import REPLACED, Told, kind_of, note_of, part_of, sha256_of, unpacked_from
from scheduler.host.workers import regular

DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)
"""What reading an archive raises that is cut short or was changed; so does an OSError without a number."""


def unpack(
    archive: str,
    folder: str,
    told: Told,
    say: Say,
    *,
    sha256: str | None = None,
    anew: bool = False,
    checking: Told | None = None,
) -> None:
    """Unpack an archive to a folder; `told(bytes, of)` is called as the archive is read.

    A folder that is there is left as it is, or with `anew` replaced. `sha256` is what the archive has to have: read
    before anything is unpacked, with `checking` called. What a killed one left is done anew; of two at once the second
    waits. Temporary (75): the archive is not there yet, or the disk stands in the way. SchedqError (1): it is no
    archive, not whole, not the one that is declared, or holds what is not taken.
    """
    if not os.path.isfile(archive):
        raise Temporary(f"{folder} is unpacked from {archive}, which is not there; fetch that first")
    try:
        folder = os.path.realpath(folder)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with _alone(folder, say, sha256 if anew else "") as beside:
            if beside is None:
                return
            try:
                found = _refuse_other(archive, folder, sha256, checking or told)
                _extract(archive, beside, told)
                _put(beside, folder, found)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise
    except DAMAGED as error:
        _refuse_damaged(archive, error)
    except OSError as error:
        if error.errno is None:
            _refuse_damaged(archive, error)
        _refuse(folder, error)


def doubt(folder: str) -> None:
    """Note that the archive of a folder was replaced, until it is unpacked: what lies in it is of the one before."""
    if os.path.isdir(folder):
        regular.put(note_of(folder), json.dumps({"sha256": REPLACED}).encode(), mode=0o644, sync=True)


def _refuse_other(archive: str, folder: str, sha256: str | None, checking: Told) -> str:
    """The archive's sha256. SchedqError if another one is declared."""
    found = sha256_of(archive, checking)
    if sha256 is not None and found != sha256:
        raise SchedqError(
            f"{archive} has the sha256 {found}, and {sha256} is declared: nothing was unpacked to {folder}. "
            "--overwrite with --fetch replaces the archive and what is unpacked from it"
        )
    return found


def _refuse_damaged(archive: str, error: Exception) -> NoReturn:
    raise SchedqError(
        f"{archive} is no tar archive, or not whole ({error}); nothing was unpacked. --overwrite with --fetch replaces "
        "one that is not what is declared"
    ) from None


def _put(beside: str, folder: str, sha256: str) -> None:
    """What was unpacked takes the folder's place once all of it is on the disk, then is noted what it came from."""
    fd = os.open(beside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        marker.sync(fd)
    finally:
        os.close(fd)
    crashpoint("archive unpacked")
    name, before = os.path.basename(folder), beside + ".before"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(note_of(folder))
    shutil.rmtree(before, ignore_errors=True)
    if os.path.isdir(folder):
        os.rename(folder, before)
    inner = os.path.join(beside, name)
    os.rename(inner if os.listdir(beside) == [name] and os.path.isdir(inner) else beside, folder)
    regular.put(note_of(folder), json.dumps({"sha256": sha256}).encode(), mode=0o644, sync=True)
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(before, ignore_errors=True)


def _extract(archive: str, beside: str, told: Told) -> None:
    size = os.stat(archive).st_size
    with tarfile.open(archive) as held:
        for member in held:
            place = os.path.normpath(os.path.join(beside, member.name))
            if place != beside and not place.startswith(beside + os.sep):
                raise SchedqError(
                    f"{archive} holds {member.name!r}, which leads out of its folder; it was not unpacked"
                )
            if member.isdir():
                os.makedirs(place, exist_ok=True)
                continue
            source = held.extractfile(member) if member.isfile() else None
            if source is None:
                raise SchedqError(f"{archive} holds {member.name!r}, which is no plain file; it was not unpacked")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with source, open(place, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            told(min(held.offset, size), size)
        _read_out(held)


def _read_out(held: tarfile.TarFile) -> None:
    """Read to the end, so that a compressed one's own sum is compared. ReadError if what comes is no archive's end.

    A header that is damaged, or cut off, is an end to `tarfile`.
    """
    assert held.fileobj is not None
    held.fileobj.seek(held.offset)
    end = held.fileobj.read(2 * tarfile.BLOCKSIZE)
    if len(end) < tarfile.BLOCKSIZE or any(end):
        raise tarfile.ReadError(f"after {held.offset} bytes comes neither a member nor the end")
    while held.fileobj.read(1 << 20):
        pass


@contextlib.contextmanager
def _alone(folder: str, say: Say, unless: str | None) -> Iterator[str | None]:
    """An empty folder beside the place, held by nobody else; None if the place is filled, from whatever archive.

    `unless`: only if it is filled from the archive of this sha256; None = in no case.
    """
    beside = part_of(folder)
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(beside)
        try:
            lock = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            kind = kind_of(os.lstat(beside).st_mode)
            raise SchedqError(
                f"{beside} is {kind}, and {folder} is unpacked to a folder of that name; remove it, and ask again"
            ) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = locks.holder(beside)
                say(f"{folder}: another call{f' (process {pid})' if pid else ''} is unpacking it; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(folder) and (unless == "" or (unless is not None and unpacked_from(folder) == unless)):
                shutil.rmtree(beside, ignore_errors=True)
                yield None
                return
            if _is_at(beside, lock):
                for entry in os.scandir(beside):
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
                yield beside
                return
        finally:
            os.close(lock)


def _is_at(path: str, lock: int) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _refuse(folder: str, error: OSError) -> NoReturn:
    kind = Temporary if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else SchedqError
    raise kind(f"{folder} cannot be unpacked: {error.filename or folder}: {error.strerror}; the same call begins anew")
