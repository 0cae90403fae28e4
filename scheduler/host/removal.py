"""Environments taken away: what one holds of the disk, who runs in it, and its end, in one step.

The marker goes first, so that nothing starts in it any more; then it is looked again who runs in it, and it is put back
if somebody does. What a killed removal left is taken away by the next one, or put back if it was whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scheduler import clock, locks
from scheduler.crash import crashpoint
from scheduler.errors import SchedqError, Temporary
from scheduler.host import install_step, marker

_NAME = re.compile(r"[0-9a-f]{16,64}")
_GONE = ".gone-"
PATIENCE_S, AGAIN_S = 20.0, 0.1
"""How long is waited for what runs in an environment that is to be built again, and how often is looked."""
_LONGEST, _LINKS, _MAPS = 4096, 8, 16 << 20


@dataclass(frozen=True)
class Found:
    """An environment's folder: the hash of its declaration, "" if it is not whole; whether this user may remove it."""

    path: str
    hash: str
    ours: bool


def found(roots: list[str]) -> list[Found]:
    """Every environment below some folders, whole or left half made, and nothing else that lies there."""
    rows = []
    seen: set[str] = set()
    for root in roots:
        if os.path.realpath(root) in seen:
            continue
        seen.add(os.path.realpath(root))
        for name in _names(root):
            path = os.path.join(root, name)
            if _NAME.fullmatch(name) is None or os.path.islink(path) or not _is_made_by_us(path):
                continue
            made = marker.read(path)
            ours = os.stat(path).st_uid == os.getuid() and os.access(root, os.W_OK)
            rows.append(Found(path, str(made["hash"]) if made else "", ours))
    return rows


def _is_made_by_us(path: str) -> bool:
    return any(os.path.isfile(os.path.join(path, name)) for name in (marker.MARKER, install_step.LOG))


def bytes_of(path: str) -> int:
    """What a folder takes of its disk, in bytes: hard links once, and not if they are elsewhere too."""
    total = 0
    linked: dict[tuple[int, int], tuple[int, int]] = {}
    for root, folders, names in os.walk(path):
        for name in [*folders, *names]:
            try:
                seen = os.lstat(os.path.join(root, name))
            except OSError:
                continue
            taken = seen.st_blocks * 512
            if seen.st_nlink > 1 and name not in folders:
                key = (seen.st_dev, seen.st_ino)
                left, _ = linked.get(key, (seen.st_nlink, 0))
                linked[key] = (left - 1, taken)
            else:
                total += taken
    return total + sum(taken for left, taken in linked.values() if left <= 0)


def used_by(path: str, proc: str = "/proc") -> list[int]:
    """The processes that run in an environment: their program, or a word of their command line, lies in it.

    So does what their command line only leads to, by links and from their own folder, and of this user's processes,
    whatever they call themselves, a library that they have loaded from it. Who reads its log does not run in it.
    """
    inside = os.path.join(os.path.realpath(path), "")
    pids = [int(name) for name in _names(proc) if name.isdecimal() and int(name) != os.getpid()]
    return sorted(pid for pid in pids if _runs_in(os.path.join(proc, str(pid)), inside))


def wait_unused(path: str, say: install_step.Say) -> None:
    """Wait until nobody runs in an environment that is to be built again, as what a killed installation left may.

    Temporary after PATIENCE_S: its processes are named.
    """
    until_s, said = clock.monotonic_s() + PATIENCE_S, False
    while pids := used_by(path):
        shown = f"process{'' if len(pids) == 1 else 'es'} {', '.join(map(str, pids[:5]))}"
        if clock.monotonic_s() > until_s:
            raise Temporary(
                f"{path} is not whole and is to be built again, and {shown} of it still run"
                f"{'s' if len(pids) == 1 else ''}; nothing was changed. Wait, or end what runs there, and ask again"
            )
        if not said:
            say(f"{path} is not whole, and {shown} at work in it; waiting at most {PATIENCE_S:g} s for that")
        said = True
        time.sleep(AGAIN_S)


def _runs_in(process: str, inside: str) -> bool:
    words, folder = [], ""
    with contextlib.suppress(OSError), open(os.path.join(process, "cmdline"), "rb") as file:
        words = os.fsdecode(file.read(1 << 16)).split("\0")
    with contextlib.suppress(OSError):
        folder = os.readlink(os.path.join(process, "cwd"))
    with contextlib.suppress(OSError):
        words.append(os.readlink(os.path.join(process, "exe")))
    log = os.path.join(inside, install_step.LOG)
    found = (place for word in words if "/" in word and len(word) < _LONGEST for place in _places(word, folder))
    if any(place.startswith(inside) and place != log for place in found):
        return True
    with contextlib.suppress(OSError), open(os.path.join(process, "maps"), "rb") as file:
        return os.fsencode(f" {inside}") in file.read(_MAPS)
    return False


def _places(word: str, folder: str) -> Iterator[str]:
    """Where a word of a command line leads to: itself, without the links above it, and what it is a link to, if any."""
    place = os.path.join(folder, word)
    for _ in range(_LINKS if place.startswith("/") else 0):
        above = os.path.realpath(os.path.dirname(place))
        yield os.path.join(above, os.path.basename(place))
        try:
            place = os.path.join(above, os.readlink(place))
        except (OSError, ValueError):
            return


def remove(path: str, used: Callable[[], str]) -> None:
    """Take an environment away. `used` says who runs in it, "" = nobody: asked once nothing starts in it any more.

    Temporary (75), and it is as it was: it is being installed, or somebody runs in it. SchedqError if it cannot be.
    """
    try:
        with _alone(path):
            try:
                marker.put_aside(path)
                why = used()
                if why:
                    raise Temporary(why)
            except BaseException:
                marker.put_back(path)
                raise
            crashpoint("environment unmarked for good")
            root, name = os.path.split(path)
            gone = os.path.join(root, f"{_GONE}{name}-{os.getpid()}")
            os.rename(path, gone)
            shutil.rmtree(gone)
    except OSError as error:
        raise SchedqError(f"{path} could not be removed: {error.filename or path}: {error.strerror}") from None


def sweep(roots: list[str]) -> None:
    """Take away what killed removals left of environments; one that they had only begun with is whole again."""
    for root in roots:
        for name in _names(root):
            path = os.path.join(root, name)
            if name.startswith(_GONE) and not locks.is_held(path):
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.exists(os.path.join(path, marker.MARKER + marker.ASIDE)):
                with contextlib.suppress(Temporary, OSError), _alone(path):
                    marker.put_back(path)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = locks.holder(path)
            by = f" by process {pid}" if pid else ""
            raise Temporary(f"{path} is being installed{by}; wait for that, or end it, and ask again") from None
        yield
    finally:
        os.close(fd)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
