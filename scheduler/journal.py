"""What the scheduler heard, saw and decided, turn by turn: enough to decide it all again, so a bug report is a journal.

`SCHEDQ_HOME/journal/` (0700) holds files of JSON lines (0600), `<epoch>-<number>.jsonl`. The first line of each is its
head. Every other line is one turn of the loop that did anything: monotonic and wall time (seconds), the turn's number,
the host's events, and, where the plan gave an instruction that it had not given in the turn before, all of its
instructions and the Snapshot that they follow from. A snapshot tells only what differs from the one before in its file:
what is left out of it, of its machine and of the table of providers is as it was. Other values stand as rows, whose
`columns` the head names. `rolled_back` says why a turn's transaction did not happen; a snapshot without instructions is
one at which the plan failed.

In it: slugs, ids, revisions, figures, devices, users and pids of who holds memory, and sentences of schedq's own. Not
in it (LEFT_OUT): inputs, requests, replies, what a worker wrote, where outputs go, command lines, any environment.

Nothing rests on it: it is never synced and never read by a scheduler, and what keeps it from being written is said
once and stops nobody.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any

from scheduler.clock import SystemClock
from scheduler.model import machine, outcome, plan, provider, verdict
from scheduler.model.host import HostEvent
from scheduler.model.machine import Machine
from scheduler.model.plan import Explain, Head, Instruction, Postpone, Prefer, Snapshot

log = logging.getLogger("schedq")

FORMAT = 1
MIB = 1 << 20
FILES = 8
"""Into how many files the room for a journal is divided: the oldest is dropped for the next."""

MOST_FILES = 100
"""Schedulers that come and go leave small files; no more of them than this."""

AGAIN_S = 60.0
"""How long after a write that failed the next one is tried."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
"""By descriptor, so that nothing is written into a queue that took the place of this one."""

Quiet = Explain | Head | Postpone | Prefer
"""Instructions that a plan repeats while nothing happens."""

LEFT_OUT = {
    "Answered": {"versions"},
    "Breaker": {"last_error"},
    "Failed": {"text"},
    "Gone": {"text", "why"},
    "Holding": {"command"},
    "Outcome": {"text"},
    "Progressed": {"message"},
    "Replied": {"reply", "destination", "versions"},
}
"""Fields by type that no journal has: what a worker wrote may quote its input, what a stranger was called with too."""


@dataclass
class _Turn:
    """One turn of the loop until it is written."""

    number: int
    at_s: float
    wall_s: float
    happened: Sequence[HostEvent]
    seen: Snapshot | None = None
    decided: Sequence[Instruction] | None = None
    explained: bool = True
    rolled_back: str = ""


class Journal:
    """One scheduler's journal. `most_mib` is the room for all files; 0 keeps none, and no folder is touched."""

    def __init__(
        self, home: str = "", most_mib: float = 0.0, clock: SystemClock | None = None, epoch: int = 0, version: str = ""
    ) -> None:
        self.clock = clock or SystemClock()
        self._home, self._most, self._epoch, self._version = home, int(most_mib * MIB), epoch, version
        self._home_fd = self._folder = self._file = -1
        self._number = self._size = self._turns = 0
        self._pending: list[_Turn] = []
        self._last: Snapshot | None = None
        self._quiet: frozenset[object] = frozenset()
        self._again_s, self._said = -math.inf, set[str]()
        self._rolled_back = False

    @contextmanager
    def turn(self, happened: Sequence[HostEvent]) -> Iterator[None]:
        """One turn, with what the host told; what it raises rolls it back."""
        if not self._most:
            yield
            return
        self._turns += 1
        turn = _Turn(self._turns, self.clock.monotonic_s(), self.clock.now_s(), tuple(happened))
        self._pending.append(turn)
        try:
            yield
        except BaseException as error:
            turn.rolled_back, self._quiet = fault(error), frozenset()
            raise

    def sees(self, seen: Snapshot, *, explained: bool) -> None:
        """What this turn's plan is made from; kept if the plan says anything that the one before did not, or fails."""
        if self._pending:
            self._pending[-1].seen, self._pending[-1].explained = seen, explained

    def decides(self, decided: Sequence[Instruction]) -> None:
        """What this turn's plan says."""
        if not self._pending:
            return
        turn = self._pending[-1]
        quiet = frozenset(repr(_without_figures(each)) for each in decided if isinstance(each, Quiet))
        if quiet != self._quiet or any(not isinstance(each, Quiet) for each in decided):
            turn.decided = tuple(decided)
        else:
            turn.seen = None
        self._quiet = quiet

    def write(self) -> None:
        """Append what is there to append, by one write. Raises nothing; of turns that are rolled back one after
        the other only the first is written."""
        turns, self._pending = self._pending, []
        telling = [turn for turn in turns if self._tells(turn)]
        if not telling or self.clock.monotonic_s() < self._again_s:
            return
        try:
            if self._file < 0 or self._size >= self._most // FILES:
                self._open_next()
            lines = b"".join(map(self._line, telling))
            self._size += len(lines)
            if os.write(self._file, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except Exception as error:
            self._give_up(error)

    def _tells(self, turn: _Turn) -> bool:
        first, self._rolled_back = not self._rolled_back, bool(turn.rolled_back)
        return first if turn.rolled_back else bool(turn.happened) or turn.seen is not None

    def close(self) -> None:
        """Let go of the files."""
        self._let_go()
        if self._home_fd >= 0:
            os.close(self._home_fd)
        self._home_fd = -1

    def _let_go(self) -> None:
        for fd in (self._file, self._folder):
            if fd >= 0:
                os.close(fd)
        self._file = self._folder = -1

    def _give_up(self, error: Exception) -> None:
        """Go on without it for a while. The next try begins a file, so that nothing follows on half a line."""
        if str(error) not in self._said:
            what = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            log.warning(
                "the journal in %s cannot be written (%s): the scheduler goes on without it, and tries again every"
                " minute", os.path.join(self._home, "journal"), what,
            )  # fmt: skip
        self._said.add(str(error))
        self._again_s = self.clock.monotonic_s() + AGAIN_S
        self._let_go()

    def _open_next(self) -> None:
        """Begin a file, after dropping as many of the oldest as its room needs."""
        if self._home_fd < 0:
            self._home_fd = os.open(self._home, FOLDER & ~os.O_NOFOLLOW)
        if self._folder < 0:
            with suppress(FileExistsError):
                os.mkdir("journal", 0o700, dir_fd=self._home_fd)
            self._folder = os.open("journal", FOLDER, dir_fd=self._home_fd)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._drop_oldest()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        while self._file < 0:
            self._number += 1
            with suppress(FileExistsError):
                self._file = os.open(f"{self._epoch:08d}-{self._number:06d}.jsonl", flags, 0o600, dir_fd=self._folder)
        self._last = None
        head = {"journal": FORMAT, "version": self._version, "epoch": self._epoch, "at_s": self.clock.now_s(),
                "columns": _columns()}  # fmt: skip
        self._size = os.write(self._file, document(head) + b"\n")

    def _drop_oldest(self) -> None:
        names = sorted(name for name in os.listdir(self._folder) if name.endswith(".jsonl"))
        sizes = {name: os.stat(name, dir_fd=self._folder).st_size for name in names}
        room = self._most - self._most // FILES
        while names and (math.fsum(sizes[name] for name in names) > room or len(names) >= MOST_FILES):
            os.unlink(names.pop(0), dir_fd=self._folder)

    def _line(self, turn: _Turn) -> bytes:
        told: dict[str, Any] = {"turn": turn.number, "mono_s": turn.at_s, "at_s": turn.wall_s, "epoch": self._epoch}
        if turn.happened:
            told["events"] = named(turn.happened)
        if turn.seen is not None:
            told["seen"] = difference(turn.seen, self._last)
            told["explained"] = turn.explained
            self._last = turn.seen
        if turn.decided is not None:
            told["instructions"] = named(turn.decided)
        if turn.rolled_back:
            told["rolled_back"] = turn.rolled_back
        return document(told) + b"\n"


def named(those: Iterable[HostEvent | Instruction]) -> list[dict[str, Any]]:
    """Events or instructions as a journal has them, each with its name under `is` and all its fields.

    Of a reason why something waits only what it is about and its ruling: its figures change with every reading.
    """
    return [{"is": type(each).__name__, **_without_figures(each)} for each in those]


def _without_figures(each: HostEvent | Instruction) -> dict[str, Any]:
    told = dict(zip(*_read(each), strict=True))
    return {name: told[name] for name in told if name != "why"} if isinstance(each, Explain | Postpone) else told


def fault(error: BaseException) -> str:
    """An error as a journal has it: without the story of its subject, which may quote what a worker wrote."""
    return f"{type(error).__name__}: {error}".partition("; so far: ")[0][:200]


def difference(seen: Snapshot, before: Snapshot | None) -> dict[str, Any]:
    """A snapshot as a journal has it after `before`; all of it where there is none."""
    told = _changed(seen, before)
    if before is not None and "machine" in told:
        told["machine"] = _changed(seen.machine, before.machine)
    elif before is None:
        told["machine"] = _changed(seen.machine, None)
    if "providers" in told:
        same = before is not None and list(before.providers) == list(seen.providers)
        known = before.providers if same and before is not None else {}
        rows = [[*key, each] for key, each in seen.providers.items() if _differs(each, known.get(key))]
        told["providers"] = {"all": not same, "rows": rows}
    return told


def _changed(value: Snapshot | Machine, before: Snapshot | Machine | None) -> dict[str, Any]:
    names = [each.name for each in fields(value)]
    if before is None:
        return {name: getattr(value, name) for name in names}
    return {name: getattr(value, name) for name in names if _differs(getattr(value, name), getattr(before, name))}


def _differs(one: object, other: object) -> bool:
    """Whether a value is another one; most are the very same object, and comparing dataclasses is slow."""
    return one is not other and one != other


def told_fields(kind: type) -> tuple[str, ...]:
    """The names of the fields of a type that a journal has; what does not count for equality is left out too."""
    left_out = LEFT_OUT.get(kind.__name__, ())
    return tuple(each.name for each in fields(kind) if each.compare and each.name not in left_out)


def _columns() -> dict[str, tuple[str, ...]]:
    """The names of what stands in a row of each type."""
    kinds = [each for module in (machine, outcome, plan, provider, verdict) for each in vars(module).values()]
    return {kind.__name__: told_fields(kind) for kind in kinds if isinstance(kind, type) and is_dataclass(kind)}


def _read(value: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The names and the values of what is told of a dataclass."""
    kind = type(value).__name__
    if kind not in _READERS:
        names = told_fields(type(value))
        _READERS[kind] = names, attrgetter("__class__", "__class__", *names)
    names, read = _READERS[kind]
    return names, read(value)[2:]


_READERS: dict[str, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}
"""By type: its fields and what reads them, as a tuple also where they are one or none."""


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _read(value)[1]
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)


def document(value: object) -> bytes:
    """One line of JSON. Numbers that JSON has not are words: "inf", "-inf", "nan"."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        text = _ENCODER.encode(_finite(value))
    return text.encode()


_ENCODER = json.JSONEncoder(default=_plain, allow_nan=False, separators=(",", ":"), check_circular=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value if value is None or isinstance(value, str | int) else _finite(_plain(value))
