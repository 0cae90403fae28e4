"""Turns the file cache into free memory, off the loop's thread, the gentlest way first, and says what it gained.

(a) Files that are read and done with; (b) a control group that we may write; (c) the operator's own command; (d) a
helper that touches memory, only while nothing of ours loads or computes and nobody else computes on a device: it drives
what is free to the floor while it runs (E25). While a worker loads, (a) goes on ten times a second: a load fills the
cache again as fast as it reads. What gained nothing is left alone for a while, longer each time.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from scheduler.clock import monotonic_s, now_s, stamp
from scheduler.host.machine import cached, cgroup, outside
from scheduler.host.machine.levels import HostLevel
from scheduler.model.host import HostEvent, Reclaimed
from scheduler.rules.figures import plain

log = logging.getLogger("schedq")

AGAIN_S, FIRST_S, MOST_S = 5.0, 30.0, 600.0
"""After it was of use it is not asked for again in so many seconds; after it was not, in so many, doubling."""

ENOUGH = 0.5
"""It was of use if it gained at least this share of what was wanted."""

FILES_S = 30.0
LIMIT_S = FILES_S + outside.COMMAND_S + outside.HELPER_S
"""Longer than all ways together may take, nobody waits for it: it hangs on a file whose server does not answer."""

HANGS_S = 10.0
"""One pass over the files that loading workers read takes milliseconds."""

TOLD_S = 60.0
TENDED_S = 2.0
CHUNK_GIB = 1.0


class Reclaim:
    """One host's way to free memory. `mode` is auto, files or off.

    `files` are the paths that manifests name, `pids` the processes of some workers, or of all (None). `quiet` says
    whether nothing of ours loads or computes, `alone` whether nobody else is known to compute on a device. `touch` runs
    the helper: (gained or not, its words). `never` are files that this process must not open. `then` calls back after
    the machine was read again.
    """

    def __init__(
        self,
        emit: Callable[[HostEvent], None],
        then: Callable[[Callable[[], None]], None],
        *,
        mode: str = "auto",
        command: str = "",
        files: Callable[[], Iterable[str]] = tuple,
        pids: Callable[[list[int] | None], list[int]] = lambda ids: [],
        quiet: Callable[[], bool] = lambda: False,
        alone: Callable[[], bool] = lambda: False,
        touch: outside.Toucher | None = None,
        never: Callable[[], Iterable[cached.File]] = tuple,
        level: HostLevel | None = None,
        proc: str = "/proc",
    ) -> None:
        self.mode, self.command, self.proc = mode, command, proc
        self._emit, self._then = emit, then
        self._files, self._pids, self._quiet, self._alone, self._never = files, pids, quiet, alone, never
        self._touch = touch
        self._level = level or HostLevel(proc)
        self._turn = threading.Condition()
        self._running, self._since_s = "", 0.0
        self._at: dict[str, str] = {}
        """The file that each pass looks at."""
        self._tending_s: float | None = None
        self._again_at_s, self._failures = 0.0, 0
        self._last: tuple[float, str, str] | None = None
        self._tended: tuple[float, str] | None = None
        self._wanted: list[int] | None = None
        self._closing = False
        self._tender: threading.Thread | None = None

    @property
    def word(self) -> str:
        """`ready`, `running`, or `off`: not wanted, of no use a moment ago, or hanging."""
        with self._turn:
            if self.mode == "off" or self._closing or self._overdue():
                return "off"
            return "running" if self._running else "ready" if monotonic_s() >= self._again_at_s else "off"

    def ask(self, pool: str, gib: float, reserve_gib: float, job_id: int | None) -> None:
        """Begin; Reclaimed follows. Asked while it runs, it does not begin a second time."""
        with self._turn:
            if self._running or self.mode == "off" or self._closing:
                return
            self._running = f"{plain(gib, 2)} GiB of the file cache are being turned into free memory of {pool}"
            self._since_s = monotonic_s()
        run = lambda: self._perform(pool, gib, reserve_gib, job_id)  # noqa: E731
        threading.Thread(target=run, name="schedq-reclaim", daemon=True).start()

    def tend(self, worker_ids: list[int], free_gib: float, reserve_gib: float) -> None:
        """Give back what these workers, which load, have read so far; returns at once. One pass at a time."""
        if self.mode == "off":
            return
        with self._turn:
            if self._closing:
                return
            self._wanted = worker_ids
            stands = f"{plain(free_gib, 2)} GiB are free, {plain(reserve_gib, 2)} stay reserved"
            hung_s = monotonic_s() - self._tending_s if self._tending_s is not None else 0.0
            hangs = hung_s >= HANGS_S and self._hangs("tend", hung_s)
            text = f"{stands}: {hangs or 'what loading workers have read is dropped from the file cache'}"
            self._tended = monotonic_s(), text
            if self._tender is None:
                self._tender = threading.Thread(target=self._tend, name="schedq-cache", daemon=True)
                self._tender.start()
            self._turn.notify_all()

    def stand_back(self) -> None:
        """A worker is about to load or compute: the helper lets go of everything at once."""
        if self._touch is not None:
            self._touch.end()

    def close(self) -> None:
        """End what runs."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        self.stand_back()

    def notes(self) -> tuple[str, ...]:
        """What it does, or did a moment ago."""
        now = monotonic_s()
        with self._turn:
            last = self._last[2] if self._last and now - self._last[0] < TOLD_S else ""
            tended = self._tended[1] if self._tended and now - self._tended[0] < TENDED_S else ""
            return tuple(f"reclaim: {text}" for text in (self._runs() or last, tended) if text)

    def facts(self) -> dict[str, Any]:
        """What `status` shows of it. `again_in_s`: not asked for before that."""
        with self._turn:
            return {
                "mode": self.mode, "running": self._runs(), "last": self._last[2] if self._last else "",
                "last_at": self._last[1] if self._last else None,
                "again_in_s": max(0.0, self._again_at_s - monotonic_s()),
                "tending": self._tended[1] if self._tended and monotonic_s() - self._tended[0] < TENDED_S else "",
            }  # fmt: skip

    def _overdue(self) -> bool:
        return bool(self._running) and monotonic_s() - self._since_s >= LIMIT_S

    def _runs(self) -> str:
        """What it does now; and of one that hangs, where."""
        if not self._overdue():
            return self._running
        return f"{self._running}, and nobody waits for that: {self._hangs('ask', monotonic_s() - self._since_s)}"

    def _hangs(self, who: str, hung_s: float) -> str:
        path = cached.named(self._at.get(who, "")) or "a file"
        return (
            f"it has not come back for {hung_s:.0f} s from {path}, whose file system does not answer; nothing is given "
            "back before it does: see to that mount"
        )

    def _free_gib(self) -> float:
        return self._level.read()[0].value or 0.0

    def _perform(self, pool: str, gib: float, reserve_gib: float, job_id: int | None) -> None:
        before = self._free_gib()
        told: list[str] = []
        try:
            self._steps(before, gib, reserve_gib, pool, told)
        except Exception as error:
            log.exception("the file cache could not be given back")
            told.append(f"{type(error).__name__}: {error}")
        gained = self._free_gib() - before
        with self._turn:
            useful = gained >= ENOUGH * gib
            self._failures = 0 if useful else self._failures + 1
            wait_s = AGAIN_S if useful else min(MOST_S, FIRST_S * 2.0 ** min(10, self._failures - 1))
            self._again_at_s = monotonic_s() + wait_s
            text = f"the file cache gave {plain(max(0.0, gained), 2)} of {plain(gib, 2)} GiB that {pool} lacked"
            text += f" ({'; '.join(told)})" if told else ""
            text += "" if useful else f"; not tried again for {wait_s:.0f} s"
            self._last, self._running = (monotonic_s(), stamp(now_s()), text), ""
        log.info("%s", text)
        self._then(lambda: self._emit(Reclaimed(pool, gib, gained, text, job_id)))

    def _steps(self, before: float, gib: float, reserve_gib: float, pool: str, told: list[str]) -> None:
        """One way after the other, until enough is free."""
        ways: list[tuple[str, Callable[[float], str]]] = [("files", lambda lacks: self._drop())]
        if self.mode == "auto":
            ways.append(("memory.reclaim", lambda lacks: self._groups(lacks, before + gib)))
            ways.append(("reclaim_command", lambda lacks: outside.command(self.command) if self.command else ""))
            ways.append(("helper", lambda lacks: self._helper(before + gib, lacks, reserve_gib, pool)))
        for name, way in ways:
            free = self._free_gib()
            lacks = before + gib - free
            if lacks <= 0 or self._closing or self._overdue():
                return
            said = way(lacks)
            if said:
                told.append(f"{name}: {plain(max(0.0, self._free_gib() - free), 2)} GiB, {said}")

    def _drop(self) -> str:
        files, size = self._let_go(None, "ask")
        return f"{files} files of {plain(size / (1 << 30), 2)} GiB" if files else ""

    def _let_go(self, worker_ids: list[int] | None, who: str) -> tuple[int, int]:
        paths = [*self._files(), *cached.open_files(self._pids(worker_ids), self.proc)]
        try:
            return cached.let_go(paths, self._never(), lambda path: self._at.update({who: path}))
        finally:
            self._at.pop(who, None)

    def _groups(self, lacks: float, target: float) -> str:
        """The control groups above us that may be written, innermost first, a GiB at a time."""
        said = ""
        for folder in cgroup.reclaimable(self.proc):
            said = folder
            while self._free_gib() < target and not self._closing:
                before = self._free_gib()
                if not cgroup.reclaim(folder, min(CHUNK_GIB, lacks)) or self._free_gib() - before < CHUNK_GIB / 16:
                    break
        return said

    def _helper(self, target: float, lacks: float, reserve_gib: float, pool: str) -> str:
        """Touch as much as is free and what lacks of the cache; not where it would not reach the cache."""
        if self._touch is None:
            return ""
        if not self._quiet():
            return "not while a worker of ours loads or computes"
        if not self._alone():
            return "not while somebody else computes on a device, or may"
        free, available = self._level.read()
        if free.value is None or available.value is None or available.value - reserve_gib <= free.value:
            return "not where the reserve would be reached before the cache"
        size = min(free.value + lacks, available.value - reserve_gib)
        return self._touch.run(pool, size, reserve_gib, self._quiet)

    def _tend(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._closing or self._wanted is not None)
                if self._closing:
                    return
                wanted, self._wanted = self._wanted, None
                self._tending_s = monotonic_s()
            try:
                self._let_go(wanted, "tend")
            except Exception:
                log.exception("what loading workers read could not be dropped from the file cache")
            self._tending_s = None


def own_database(home: str) -> list[cached.File]:
    """The files of a queue's database: opening and closing one would drop the locks that SQLite holds on it."""
    names = (os.path.join(home, f"queue.db{tail}") for tail in ("", "-wal", "-shm", "-journal"))
    return [found for name in names if (found := cached.identity(name)) is not None]
