"""What becomes of jobs that wait for others when those end: let through, failed, held, or given their input.

Gates are looked at in the loop's own transaction, so many children a turn and no more. Inputs that take results are
made on a thread, after the turn that saw those is committed, and written in a later one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from scheduler import pinning
from scheduler.clock import SystemClock, stamp
from scheduler.making import Making
from scheduler.rules.gating import BROKEN, SHUT, ruling
from scheduler.store import content, events, passing

log = logging.getLogger("schedq")

MOST = 2000
"""Children that are moved in one turn."""

WRITTEN = 50
"""Inputs that are written in one turn: the folder that a piece lies in is synced."""

AGAIN_S, SELDOM_S = 60.0, 3600.0
"""After so long what could not be read is tried again; it is said again after as long, twice as long, at most so long.
"""

SLOW = "it takes long to read: a large file, or a disk that hangs"
"""Why an input is not there whose making has not ended."""

ODD_MOST = 5
"""So often an input is tried again after an error that nobody foresaw."""


@dataclass
class _Off:
    """What was put off: why, how often, when that was said, and how long it is not said again."""

    text: str = ""
    count: int = 0
    said_s: float = 0.0
    quiet_s: float = AGAIN_S

    def tell(self, text: str, now_s: float) -> bool:
        """Whether this is to be said: it is another reason, or was not said for long."""
        anew, again = text != self.text, now_s - self.said_s >= self.quiet_s
        self.count += 1
        if anew or again:
            self.quiet_s = AGAIN_S if anew else min(SELDOM_S, 2 * self.quiet_s)
            self.text, self.said_s = text, now_s
        return anew or again


class Dependents:
    """One scheduler's look at gates and drafts. `inline`: inputs are made at once, for who has no thread to spare."""

    def __init__(self, clock: SystemClock, *, inline: bool = False) -> None:
        self._clock = clock
        self._making = Making(clock, inline=inline)
        self._past: dict[int, int] = {}
        self._wanted: dict[int, None] = {}
        self._later: dict[int, float] = {}
        self._off: dict[int, _Off] = {}
        self._slow: set[int] = set()
        self._shut: dict[int, float] = {}
        self._gates_off: dict[int, _Off] = {}
        self._more, self._anew = False, True
        self.came = False
        """Whether jobs came into the line in the last turn."""

    def turn(self, tx: Connection) -> dict[int, str]:
        """Look at each gate that changed, and write the inputs that were made; the state of each job that moved."""
        paths, at, told = tx.info["paths"], stamp(self._clock.now_s()), {}  # type: Any, str, dict[int, str]
        self.came = self._more = False
        if self._anew:
            passing.look_again(tx)
            self._anew = False
        now = self._clock.monotonic_s()
        due = [job_id for job_id, due_s in self._later.items() if due_s <= now]
        for job_id in due:
            del self._later[job_id]
        self._shut = {gate_id: due_s for gate_id, due_s in self._shut.items() if due_s > now}
        self._making.ask(paths, [*self._wanted, *due])
        self._wanted = {}
        slow = self._making.slow()
        for job_id in slow - self._slow:
            passing.put_off(tx, job_id, SLOW)
            log.warning("the input of job %s: %s", job_id, SLOW)
        self._slow = slow
        self._write(tx, at, told)
        left = MOST
        while left > 0:
            gates = passing.changed(tx, left, self._shut)
            if not gates:
                return told
            for gate in gates:
                left -= 1 + self._try(tx, gate, at, max(1, left), told)
                if left <= 0:
                    break
        self._more = True
        return told

    @property
    def stays(self) -> bool:
        """Whether there is something to stay for: inputs in the making, or put off."""
        return bool(self._later or self._making.busy)

    def due_in_s(self) -> list[float]:
        """In how many seconds something here is due."""
        if self._more or self._wanted or self._making.done:
            return [0.01]
        now = self._clock.monotonic_s()
        due = [*self._later.values(), *self._shut.values(), *self._making.slow_at_s()]
        return [max(0.01, due_s - now) for due_s in due]

    def doubt(self) -> None:
        """The last transaction may have been rolled back: whose turn it is, is looked for anew."""
        self._past, self._wanted, self._anew = {}, {}, True

    def _try(self, tx: Connection, gate: Any, at: str, most: int, told: dict[int, str]) -> int:
        """Look at one gate; what goes wrong there is said, undone and tried again, and the others are looked at."""
        moved: dict[int, str] = {}
        try:
            with passing.apart(tx):
                count = self._look(tx, gate, at, most, moved)
        except Exception as error:
            if not passing.concerns_one(error):
                raise
            self._past.pop(gate.id, None)
            now, text = self._clock.monotonic_s(), f"{type(error).__name__}: {error}"
            self._shut[gate.id] = now + AGAIN_S
            if self._gates_off.setdefault(gate.id, _Off()).tell(text, now):
                after = f"batch {gate.batch}" if gate.parent_id is None else f"job {gate.parent_id}"
                log.exception("what comes after %s cannot be looked at", after)
                said = f"what comes after {after} cannot be looked at, tried again in {AGAIN_S:.0f} s: {text}"
                events.record(tx, at, event="after", text=said)
            return 0
        self._gates_off.pop(gate.id, None)
        told.update(moved)
        return count

    def _look(self, tx: Connection, gate: Any, at: str, most: int, told: dict[int, str]) -> int:
        """Move those at one gate; how many were. It counts as looked at once nobody is left, from the first on."""
        found = ruling(gate.need, gate.open, gate.bad)
        past = self._past.pop(gate.id, 0)
        if found == SHUT:
            passing.settle(tx, gate.id)
            return 0
        if found == BROKEN:
            moved = passing.broken(tx, gate, at, past, most)
            told.update(moved)
            last, count = max((job_id for job_id, _state in moved), default=0), len(moved)
        else:
            ids = passing.let_through(tx, gate.id, at, past, most)
            self.came = self.came or bool(ids)
            last, count = ids[-1] if ids else 0, len(ids)
            if not past and gate.parent_id is not None:
                self._want(tx, gate.id)
        if count >= most:
            self._past[gate.id] = last
        elif past:
            self._past[gate.id] = 0
        else:
            passing.settle(tx, gate.id)
        return count

    def _want(self, tx: Connection, gate_id: int) -> None:
        past = 0
        while ids := passing.to_make(tx, gate_id, past, MOST):
            self._wanted.update(dict.fromkeys(ids))
            past = ids[-1]

    def _write(self, tx: Connection, at: str, told: dict[int, str]) -> None:
        for made in self._making.taken(WRITTEN):
            try:
                with passing.apart(tx):
                    self._keep(tx, made, at, told)
            except Exception as error:
                if not passing.concerns_one(error):
                    raise
                log.exception("the input of job %s could not be written", made.job_id)
                made.put_off, made.odd = f"{type(error).__name__}: {error}", not isinstance(error, OSError)
                self._put_off(tx, made, at, told)
            finally:
                made.discard()

    def _keep(self, tx: Connection, made: pinning.Made, at: str, told: dict[int, str]) -> None:
        """Write what was made of a draft. What is a piece of the content is in its place before a row names it."""
        paths = tx.info["paths"]
        if made.fault is not None:
            self._refuse(tx, made.job_id, *made.fault, at, told)
            return
        if any(not content.present(paths, sha256) for sha256 in made.relied):  # pruned since it was looked for
            self._wanted[made.job_id] = None
            return
        for sha256 in list(made.staged):
            content.place(paths, made.staged[sha256], sha256)
            del made.staged[sha256]
        if made.pins or not made.put_off:
            became = passing.pin(tx, made.job_id, made.pins, made.columns, made.data, at)
            self.came = self.came or became == "through"
        if made.put_off:
            self._put_off(tx, made, at, told)
        else:
            self._off.pop(made.job_id, None)

    def _refuse(self, tx: Connection, job_id: int, kind: str, text: str, at: str, told: dict[int, str]) -> None:
        state = passing.refuse(tx, job_id, kind, text, at)
        told.update({job_id: state} if state else {})
        self._off.pop(job_id, None)

    def _put_off(self, tx: Connection, made: pinning.Made, at: str, told: dict[int, str]) -> None:
        """Try it again later, and say why, seldom while that is the same. What nobody foresaw is not tried for ever."""
        now, off = self._clock.monotonic_s(), self._off.setdefault(made.job_id, _Off())
        say = off.tell(made.put_off, now)
        if made.odd and off.count >= ODD_MOST:
            text = f"its input could not be made in {off.count} tries, a fault of schedq itself: {made.put_off}"
            self._refuse(tx, made.job_id, "parent_failed", text, at, told)
            return
        if not passing.put_off(tx, made.job_id, made.put_off):
            del self._off[made.job_id]
            return
        self._later[made.job_id] = now + AGAIN_S
        if say:
            log.warning("the input of job %s cannot be made yet: %s", made.job_id, made.put_off)
            text = f"its input cannot be made yet, tried again every {AGAIN_S:.0f} s: {made.put_off}"
            events.record(tx, at, job_id=made.job_id, event="after", text=text)
