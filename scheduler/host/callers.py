"""Who waits for a command: its caller's process, watched by pidfd, so that nothing is kept for one that has gone.

One pidfd for each process, however many commands it calls, and none once they have ended: a process that takes leases
all day costs no more than one that takes one.
"""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.host.workers import tree
from scheduler.host.workers.roster import Roster
from scheduler.model.host import Deserted, HostEvent

AGAIN_S = 1.0
"""How soon it is looked again where it could not be told whether a caller lives: no descriptor was left."""

ENDED = ("succeeded", "failed", "cancelled", "timed_out", "refused")

Caller = tuple[int, float]
"""Pid and start."""


@dataclass
class _Watched:
    fd: int
    jobs: set[int] = field(default_factory=set)


class Callers:
    """Those of one queue's commands. Watched on the roster's thread; `emit` is called there."""

    def __init__(self, roster: Roster, emit: Callable[[HostEvent], None]) -> None:
        self._roster, self._emit = roster, emit
        self._wanted: set[int] = set()
        self._watched: dict[Caller, _Watched] = {}

    def attend(self, callers: dict[int, dict[str, Any]]) -> None:
        """Watch these, by job id; one that is watched already is left to that."""
        for job_id, caller in callers.items():
            if job_id not in self._wanted:
                self._wanted.add(job_id)
                self._roster.soon(lambda job_id=job_id, caller=caller: self._watch(job_id, caller))  # type: ignore[misc]

    def done(self, job_id: int, state: str) -> None:
        """What becomes of a job was told: nobody is watched for one that has ended."""
        if state in ENDED and job_id in self._wanted:
            self._wanted.discard(job_id)
            self._roster.soon(lambda: self._release(job_id))

    def _watch(self, job_id: int, caller: dict[str, Any]) -> None:
        """Watch a caller. Deserted only if it is known to be gone; what cannot be told is asked again."""
        if job_id not in self._wanted:
            return
        key = int(caller["pid"]), float(caller.get("started") or 0.0)
        if key not in self._watched:
            try:
                fd = _opened(*key, str(caller.get("boot_id")))
            except OSError:
                self._roster.after(AGAIN_S, lambda: self._watch(job_id, caller))
                return
            if fd is None:
                self._desert({job_id}, key)
                return
            self._watched[key] = _Watched(fd)
            self._roster.selector.register(fd, selectors.EVENT_READ, (0, lambda _: self._gone(key)))
        self._watched[key].jobs.add(job_id)

    def _release(self, job_id: int) -> None:
        for key, watched in list(self._watched.items()):
            watched.jobs.discard(job_id)
            if not watched.jobs:
                self._let_go(key)

    def _gone(self, key: Caller) -> None:
        self._desert(self._let_go(key), key)

    def _desert(self, jobs: set[int], key: Caller) -> None:
        self._wanted -= jobs
        for job_id in sorted(jobs):
            self._emit(Deserted(job_id, f"its caller, process {key[0]}, has gone"))

    def _let_go(self, key: Caller) -> set[int]:
        watched = self._watched.pop(key)
        self._roster.selector.unregister(watched.fd)
        os.close(watched.fd)
        return watched.jobs


def _opened(pid: int, started: float, boot_id: str) -> int | None:
    """A pidfd of that very process; None if it is gone. OSError if that cannot be told."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):
            return None
        raise
    try:
        if boot_id == tree.boot_id() and tree.lives(pid, started):
            return fd
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None
