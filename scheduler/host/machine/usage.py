"""What a queue's folder takes of its disk, by kind: measured every few minutes on a thread of its own, gently.

A walk through a large tree takes minutes at a tenth of a core; nobody waits for it, and `status` shows the last one.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from scheduler.clock import monotonic_s, now_s, stamp
from scheduler.config import Paths

log = logging.getLogger("schedq")

FIRST_S, EVERY_S = 20.0, 300.0
"""How long after the start the first walk begins, and how long after the end of one the next."""
WORK_S, REST_S = 0.01, 0.09
"""So long is walked, and so long rested."""

KINDS = {
    "results": "outputs", "jobs": "attempts", "content": "content", "workers": "workers", "backups": "backups",
    "journal": "logs", "scheduler.log": "logs", "queue.db": "database", "cache": "other",
}  # fmt: skip
"""What lies below which name in the queue's folder, as `prune` calls it."""


class Usage:
    """The measure of one queue. `latest` may be asked from any thread."""

    def __init__(self, paths: Paths, first_s: float = FIRST_S, every_s: float = EVERY_S) -> None:
        self._paths, self._wait_s, self._every_s = paths, first_s, every_s
        self._latest: dict[str, Any] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schedq-usage", daemon=True)

    def open(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a disk that hangs is left to hang alone."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(0.5)

    def latest(self) -> dict[str, Any] | None:
        """{"at", "bytes": {kind: bytes}} of the last whole walk, None = there was none yet."""
        return self._latest

    def _run(self) -> None:
        wait_s = self._wait_s
        while not self._closing.wait(wait_s):
            wait_s = self._every_s
            try:
                found = self.measure()
            except Exception:  # what is only shown ends nothing
                log.exception("what the queue's folder takes could not be measured")
                continue
            if found is not None:
                self._latest = found

    def measure(self) -> dict[str, Any] | None:
        """One walk; None if it was to end before it was through."""
        at_s, taken = now_s(), Counter[str]()
        linked: set[tuple[int, int]] = set()
        rested_s = monotonic_s()
        for kind, found in self._entries():
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                if (found.st_dev, found.st_ino) in linked:
                    continue
                linked.add((found.st_dev, found.st_ino))
            taken[kind] += found.st_blocks * 512
            if monotonic_s() - rested_s > WORK_S:
                if self._closing.wait(REST_S):
                    return None
                rested_s = monotonic_s()
        return {"at": stamp(at_s), "bytes": dict(taken)}

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """(kind, stat) of everything in the queue's folder. What goes meanwhile is not counted."""
        todo = [(self._paths.home, "")]
        while todo:
            folder, kind = todo.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        mine = kind or KINDS.get(_stem(entry.name), "other")
                        yield mine, entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            todo.append((entry.path, mine))
            except OSError:
                continue


def _stem(name: str) -> str:
    """`queue.db` of `queue.db-wal`, `scheduler.log` of `scheduler.log.1`."""
    return next((each for each in ("queue.db", "scheduler.log") if name.startswith(each)), name)
