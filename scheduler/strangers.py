"""What an operator declared of holders that nothing else declares: SCHEDQ_HOME/strangers.json, of this queue alone.

A process is known by (boot id, pid, start in clock ticks since boot), never by pid alone; a name stands for every
holder that is called so. Memory is GiB. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from scheduler import locks, readable
from scheduler.config import Paths
from scheduler.errors import Temporary, UsageError

FILE, SCHEMA_VERSION, MOST_BYTES, MOST_GIB = "strangers.json", 1, 1 << 20, 2.0**30
PATIENCE_S = 5.0


@dataclass(frozen=True)
class Declared:
    """What one process (`pid`, `started`, `boot_id`), or everything of one name (`slug`), may hold. GiB.

    `at` is a stamp, `user` who said so.
    """

    slug: str
    pid: int | None
    started: float | None
    boot_id: str
    vram_gib: float
    ram_gib: float
    at: str
    user: str

    @property
    def who(self) -> str:
        """The name, or the process, that it is about."""
        return self.slug or f"pid {self.pid}"


def file_of(paths: Paths) -> str:
    """Where it stands."""
    return os.path.join(paths.home, FILE)


def boot_id() -> str:
    """The kernel's name for the time since it started."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def started_of(pid: int, proc: str = "/proc") -> float | None:
    """When a living process started, in clock ticks since boot; None if there is none, or it is a zombie."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            rest = file.read().rpartition(b")")[2].split()
        return None if rest[0] in (b"Z", b"X") else float(rest[19])
    except (OSError, IndexError, ValueError):
        return None


def declared(paths: Paths) -> tuple[Declared, ...]:
    """Everything that was declared. UsageError, naming the file, if that is not what schedq wrote; it is left so."""
    path = file_of(paths)
    if not os.path.lexists(path):
        return ()
    try:
        return _parsed(readable.read(path, MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path} {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: not what schedq wrote ({error}); correct it, or move it away and declare again with "
            "schedq machine declare; it was left as it is"
        ) from None


def declare(paths: Paths, said: Declared) -> None:
    """Say it from now on, in place of what was said of the same process or name. UsageError as `declared`; OSError."""
    with _alone(paths):
        _write(paths, [*(each for each in declared(paths) if each.who != said.who), said])


def remove(paths: Paths, who: str) -> tuple[Declared, ...]:
    """Say it no longer of that process (`pid 7`) or name; what was said. UsageError as `declared`; OSError."""
    with _alone(paths):
        found = declared(paths)
        gone = tuple(each for each in found if each.who == who)
        if gone:
            _write(paths, [each for each in found if each.who != who])
    return gone


class Strangers:
    """What was declared, asked at every look at the machine: the file is read again when it has changed.

    A broken file stops nobody: what was read last stands, and `trouble` says what is wrong with it.
    """

    def __init__(self, paths: Paths, boot: Callable[[], str] = boot_id) -> None:
        self.paths, self.trouble = paths, ""
        self._boot = boot
        self._seen: tuple[int, ...] | None = None
        self._by_pid: dict[tuple[int, float | None], tuple[float, float]] = {}
        self._by_slug: dict[str, tuple[float, float]] = {}

    def budget_of(self, slug: str, pid: int | None, started: float | None) -> tuple[float, float] | None:
        """(device GiB, host GiB) of a holder, None if nobody declared it. What is said of a process goes before.

        `started` is in clock ticks since boot, of this boot.
        """
        self._look()
        if not self._by_pid and not self._by_slug:
            return None
        found = self._by_pid.get((pid, started)) if pid is not None and started is not None else None
        return found if found is not None else self._by_slug.get(slug)

    def _look(self) -> None:
        try:
            stat = os.stat(file_of(self.paths))
            now: tuple[int, ...] = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
        except OSError:
            now = ()
        if now == self._seen:
            return
        try:
            found = declared(self.paths)
            boot = self._boot() if found else ""
        except (UsageError, OSError) as error:
            self.trouble, self._seen = str(error), now
            return
        self.trouble, self._seen = "", now
        here = [each for each in found if each.pid is not None and each.boot_id == boot]
        self._by_pid = {(each.pid or 0, each.started): (each.vram_gib, each.ram_gib) for each in here}
        self._by_slug = {each.slug: (each.vram_gib, each.ram_gib) for each in found if each.slug}


def gib(value: object) -> float:
    """An amount of memory as it may be declared: GiB from 0 to 2^30. ValueError says what it is instead."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and 0.0 <= number <= MOST_GIB):
        raise ValueError(f"{value!r} is no number of GiB from 0 to {MOST_GIB:.0f}")
    return number


def _parsed(data: bytes) -> tuple[Declared, ...]:
    whole = json.loads(data)
    if not isinstance(whole, dict) or whole.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"no object of schema_version {SCHEMA_VERSION}")
    rows = whole.get("declared")
    if not isinstance(rows, list):
        raise ValueError("declared is no list")
    return tuple(map(_row, rows))


def _row(row: Any) -> Declared:
    if not isinstance(row, dict) or not {field.name for field in fields(Declared)} <= row.keys():
        raise ValueError("a row lacks some of its keys")
    slug, pid, started = row["slug"], row["pid"], row["started"]
    words = (slug, row["boot_id"], row["at"], row["user"])
    process = type(pid) is int and pid > 0 and type(started) in (int, float) and 0 <= started < 2**63
    if not all(isinstance(word, str) for word in words) or bool(slug) == process or (slug and pid is not None):
        raise ValueError("a row is neither of a name nor of a process")
    ticks = float(started) if process else None
    return Declared(slug, pid, ticks, row["boot_id"], gib(row["vram_gib"]), gib(row["ram_gib"]), row["at"], row["user"])


@contextmanager
def _alone(paths: Paths) -> Iterator[None]:
    """One who changes the file at a time; the queue's folder is made where it is missing."""
    os.makedirs(os.path.dirname(paths.home), exist_ok=True)
    try:
        os.mkdir(paths.home, 0o700)
    except FileExistsError:
        pass
    lock = locks.take(paths.home, patience_s=PATIENCE_S)
    if lock is None:
        raise Temporary(f"another process has been changing {file_of(paths)} for {PATIENCE_S:.0f} s; try again")
    try:
        yield
    finally:
        locks.let_go(lock)


def _write(paths: Paths, rows: list[Declared]) -> None:
    """In place of what is there, whole or not at all, 0600, on disk when this returns."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, "declared": [asdict(row) for row in rows]}, indent=1)
    path = file_of(paths)
    beside = f"{path}.tmp"
    try:
        os.unlink(beside)
    except FileNotFoundError:
        pass
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    folder = os.open(paths.home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
