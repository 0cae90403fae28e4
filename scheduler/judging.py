"""Validation cases judged beside the loop: replies are read, files looked at and hashed, in a thread of its own.

What is to be judged stands in the queue (`store.checks`), and so does what was found: a crash in between loses nothing,
the next scheduler judges it again. What the disk cannot read now is tried again; what was pruned or overwritten before
it was judged has failed, in these words.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection

from scheduler import matching
from scheduler.clock import SystemClock, stamp
from scheduler.config import Paths
from scheduler.deeds import Deed
from scheduler.errors import SchedqError
from scheduler.outputs import maker
from scheduler.rules.expectation import FILES, Fault, File, Outputs, globs, judge
from scheduler.store import checks, content

log = logging.getLogger("schedq")

AT_ONCE = 16
"""So many cases are judged before the loop is given what was found."""

SLOW_S, LANES = 20.0, 4
"""A thread that has been at one case for so long may hang: the others are judged beside it, by so many threads."""

SOONEST_S, LATEST_S, AGAIN_MOST_S = 0.02, 1.0, 60.0
OURS = ("job.json", "result.json")
"""Records that schedq puts beside outputs: a glob does not mean them, unless it names them."""

GONE = matching.GONE
CLOSED = (errno.EACCES, errno.EPERM, errno.ELOOP)
"""What reading a file again will not change: it is not there, or is nobody's to read."""


@dataclass
class _Lane:
    """A thread that judges, and the case that it is at since then. `left`: it may hang, and takes no other."""

    thread: threading.Thread | None = None
    job_id: int = 0
    since_s: float = 0.0
    left: bool = False


class Judging:
    """One scheduler's judge."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._found: deque[tuple[int, list[dict[str, str]]]] = deque()
        self._faults: deque[tuple[int, str]] = deque()
        self._again: dict[int, tuple[float, float]] = {}
        self._thread: threading.Thread | None = None
        self._begun_s = 0.0
        self._lane = _Lane()
        self._hanging: list[_Lane] = []

    def after(self, tx: Connection) -> list[Deed]:
        """Keep what was found, and begin with what is to be judged, after the commit.

        What is lost with a transaction that is rolled back is judged again.
        """
        now_s = self._clock.monotonic_s()
        busy = self._thread is not None and self._thread.is_alive()
        while self._found:
            job_id, faults = self._found.popleft()
            self._again.pop(job_id, None)
            checks.judge(tx, job_id, faults, stamp(self._clock.now_s()))
        while self._faults:
            job_id, text = self._faults.popleft()
            wait_s = min(AGAIN_MOST_S, 2 * self._again.get(job_id, (0.0, 0.5))[1])
            self._again[job_id] = now_s + wait_s, wait_s
            log.warning("job %d cannot be judged now, and is tried again in %g s: %s", job_id, wait_s, text)
        self._hanging = [lane for lane in self._hanging if lane.thread is not None and lane.thread.is_alive()]
        if busy and now_s - self._lane.since_s >= SLOW_S and len(self._hanging) < LANES - 1:
            self._lane.left, busy = True, False
            self._hanging.append(self._lane)
            log.warning("job %d is being judged for %g s; the others are judged beside it", self._lane.job_id, SLOW_S)
        if busy:
            return []
        self._thread = None
        if any(at_s <= now_s for at_s, _ in self._again.values()):
            known = checks.still_open(tx, self._again)
            self._again = {job_id: when for job_id, when in self._again.items() if job_id in known}
        waits = [job_id for job_id, (at_s, _) in self._again.items() if at_s > now_s]
        waits += [lane.job_id for lane in self._hanging]
        due = checks.to_judge(tx, AT_ONCE, waits)
        paths: Paths = tx.info["paths"]
        return [Deed(0, partial(self._begin, paths, due))] if due else []

    def due_in_s(self) -> list[float]:
        """When this is to be looked at again, seconds from now: soon while something is judged, and after a fault."""
        now_s = self._clock.monotonic_s()
        waits = [max(SOONEST_S, at_s - now_s) for at_s, _ in self._again.values()]
        if self._hanging:
            waits.append(LATEST_S)
        if self._thread is not None:
            waits.append(min(LATEST_S, max(SOONEST_S, (now_s - self._begun_s) / 4)))
        return waits

    def _begin(self, paths: Paths, due: list[Any]) -> None:
        self._begun_s = self._clock.monotonic_s()
        self._lane = lane = _Lane(job_id=due[0].job_id, since_s=self._begun_s)
        self._thread = lane.thread = threading.Thread(
            target=self._judge, args=(paths, due, lane), name="judging", daemon=True
        )
        self._thread.start()

    def _judge(self, paths: Paths, due: list[Any], lane: _Lane) -> None:
        for check in due:
            if lane.left:
                return
            lane.job_id, lane.since_s = check.job_id, self._clock.monotonic_s()
            try:
                self._found.append((check.job_id, [asdict(fault) for fault in judged(paths, check)]))
            except OSError as error:
                self._faults.append((check.job_id, str(error)))
            except Exception as error:  # whatever a reply holds, it is that case's fault and nobody else's
                log.exception("job %d could not be judged", check.job_id)
                fault = Fault("the check", "a verdict", f"{type(error).__name__}: {error}")
                self._found.append((check.job_id, [asdict(fault)]))


def judged(paths: Paths, check: Any) -> list[Fault]:
    """What a job's result lacks of what is expected of it. `check`: a row of `checks.to_judge`.

    OSError: the disk cannot tell now.
    """
    expect = json.loads(check.expect)
    data = _reply(paths, check)
    if isinstance(data, Fault):
        return [data]
    try:
        reply = json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        return [Fault("the reply", "JSON", f"it cannot be read: {error}")]
    wanted = globs(expect)
    found = _outputs(check.job_id, check.destination, wanted) if wanted else Outputs()
    if isinstance(found, Fault):
        rest = {place: rule for place, rule in expect.items() if place != FILES}
        return [*judge(rest, reply, Outputs()), found]
    return judge(expect, reply, found)


def _reply(paths: Paths, check: Any) -> bytes | Fault | None:
    gone = Fault("the reply", "to be there", "it was pruned before it was judged")
    if not check.kept:
        return gone
    if check.reply is not None or check.sha256 is None:
        return check.reply  # type: ignore[no-any-return]
    if not content.present(paths, check.sha256):
        return gone
    try:
        return content.read(paths, check.sha256)
    except SchedqError as error:
        return Fault("the reply", "to be there", str(error))


def _outputs(job_id: int, folder: str | None, wanted: dict[str, bool]) -> Outputs | Fault:
    """What lies in the outputs of a job, as far as these globs ask; or why that is nothing to judge by."""
    if not folder:
        return Outputs()
    lost = Fault(FILES, f"outputs in {folder}", "they were pruned, moved or removed before they were judged")
    try:
        there = tuple(sorted(path for path in _walked(folder) if path not in OURS))
        matching = {pattern: tuple(_matching(folder, pattern, hashed)) for pattern, hashed in wanted.items()}
    except OSError as error:
        if error.errno in CLOSED:
            return Fault(FILES, f"outputs in {folder}", f"{error.filename or folder}: {error.strerror}")
        if error.errno not in GONE:
            raise
        return lost
    by = maker(folder)
    if by is not None and by != job_id:
        return Fault(FILES, f"outputs in {folder}", f"they were overwritten by job {by} before they were judged")
    return Outputs(there, matching) if os.path.isdir(folder) else lost


def _walked(folder: str) -> Iterator[str]:
    return matching.walked(folder)


def _matching(folder: str, pattern: str, hashed: bool) -> Iterator[File]:
    plain = not any(each in pattern for each in matching.MAGIC)
    for path in matching.matching(folder, pattern, hidden=True):
        whole = os.path.join(folder, path)
        if path in OURS and not plain:
            continue
        with open(whole, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest() if hashed else ""
            yield File(path, os.fstat(file.fileno()).st_size, sha256)
