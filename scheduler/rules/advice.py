"""What a night calls for: the three commands that the reader of its report types next.

What stands in the way of everything comes first, then what failed, then what would fail again; a good night has what
one does with results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS, LETTERS = 3, 60
"""Commands of a report, and how long the ids in one may be."""

AGAIN = ("crashed", "no_reply", "lost", "timed_out", "interrupted")
"""Outcomes that another try may change, without anything else being changed."""

UNMET = ("check", "parent_failed")
"""Kinds of which no job is opened again by itself: it would answer the same, or be refused for its parent's sake."""

TELLS = {
    "log": "what its worker wrote", "show": "all that is known of it", "result": "the reply that is not as expected",
    "artifacts": "the files that it left",
}  # fmt: skip
"""Verbs that tell of one job, and what they show."""


@dataclass(frozen=True)
class Failure:
    """A kind of failure: the outcome, how many jobs, the first of them, and the verb that tells most of that one.

    `final`: another try would be refused again. `timeout_s`: what they were given in vain, None = it was not that.
    """

    kind: str
    count: int
    first_id: int
    verb: str = "log"
    final: bool = False
    timeout_s: float | None = None


@dataclass(frozen=True)
class Morning:
    """The facts that the rule looks at. `those` = how a verb is told which jobs, like `--batch night`; `page` = what
    makes the report a page for a browser. `awaited` = those of them that have not ended, "" if `those` does for that.
    `exact`: a filter beside `those` finds just what the report is about. Else `named` has the jobs to try again of each
    kind, as a verb takes them, like `3-9,12`; a kind whose jobs are too many to be named so is not in it.

    `failures`: the most frequent first. `broken`: providers whose breaker is open. `underdeclared`: (provider, GiB
    used, GiB declared), None = nothing. `good_id`: a job whose result is kept still. `held`: how many of the open ones
    wait to be released, and `held_those` how a verb is told which.
    """

    those: str
    page: str
    awaited: str = ""
    exact: bool = True
    named: Mapping[str, str] = field(default_factory=dict)
    scheduler: bool = True
    open: int = 0
    first_open_id: int | None = None
    failures: tuple[Failure, ...] = ()
    broken: tuple[str, ...] = ()
    underdeclared: tuple[tuple[str, float, float | None], ...] = ()
    good: int = 0
    good_id: int | None = None
    held: int = 0
    held_those: str = ""


def next_steps(morning: Morning) -> tuple[tuple[str, str], ...]:
    """Exactly three of (command, what it is for), the most urgent first. The command has no `schedq` before it."""
    found = [*_urgent(morning), *_failed(morning), *_memory(morning), *_waiting(morning), *_good(morning)]
    unique: dict[str, str] = {}
    for command, why in found:
        unique.setdefault(command, why)
    return tuple(unique.items())[:STEPS]


def _urgent(morning: Morning) -> list[tuple[str, str]]:
    found = []
    if morning.open and not morning.scheduler:
        found.append(("up", f"no scheduler runs, and {_jobs(morning.open)} not ended"))
    if morning.broken:
        slugs = " ".join(morning.broken[:4])
        found.append((f"providers reset {slugs}", "its breaker is open: once it is mended, its jobs are tried again"))
    return found


def _failed(morning: Morning) -> list[tuple[str, str]]:
    found = []
    failures = morning.failures
    if failures:
        found.append(_looked_at(failures, 0))
    again = [each for each in failures if each.kind in AGAIN and each.timeout_s is None]
    if again:
        found.append((_requeue(morning, again), f"another try for {_plain(sum(each.count for each in again))}"))
    late = [each for each in failures if each.timeout_s is not None]
    if late:
        count, most_s = sum(each.count for each in late), max(each.timeout_s or 0.0 for each in late)
        command = f"{_requeue(morning, late)} --timeout {_longer(most_s)}"
        found.append((command, f"another try for {_plain(count)}, with twice the time that was not enough"))
    return found


def _looked_at(failures: tuple[Failure, ...], which: int) -> tuple[str, str]:
    """The command that tells of the first job of a kind of failure, and of how many it is one."""
    this = failures[which]
    what, of_kind = TELLS[this.verb], sum(each.count for each in failures if each.kind == this.kind)
    if this.count > 1:
        what += f": the first of {this.count}"
    elif which and of_kind > 1:
        what += f": one of {of_kind} that {_ended(this.kind)}"
    return f"{this.verb} {this.first_id}", what


def _longer(timeout_s: float) -> str:
    """Twice the time, as an option takes it."""
    whole_s = max(1, math.ceil(2.0 * timeout_s))
    for size_s, unit in ((3600, "h"), (60, "m")):
        if whole_s % size_s == 0:
            return f"{whole_s // size_s}{unit}"
    return f"{whole_s}s"


def _requeue(morning: Morning, failures: list[Failure]) -> str:
    """The call that opens just these again; one that only lists what it would open where they cannot be named."""
    kinds = sorted({each.kind for each in failures})
    ids = ",".join(morning.named.get(kind, "") for kind in kinds)
    if not morning.exact and all(morning.named.get(kind) for kind in kinds) and len(ids) <= LETTERS:
        return f"requeue {ids}"
    which = f"--outcome {','.join(kinds)}" if all(kinds) else "--state failed,refused"
    return f"requeue {morning.those} {which}{' --dry-run' * (not morning.exact)}"


def _memory(morning: Morning) -> list[tuple[str, str]]:
    found = []
    for name, used_gib, declared_gib in morning.underdeclared[:2]:
        declared = "nothing is declared" if declared_gib is None else f"{declared_gib:.2f} are declared"
        found.append((f"measure {name} --write", f"{used_gib:.2f} GiB were used, {declared}"))
    return found


def _waiting(morning: Morning) -> list[tuple[str, str]]:
    found = []
    if morning.held:
        found.append((f"release {morning.held_those or morning.those}", f"{_plain(morning.held)} held till then"))
    waits = morning.open - morning.held
    if morning.open and morning.first_open_id is not None:
        found.append((f"why {morning.first_open_id}", f"why it has not ended, the first of {morning.open}"))
    awaited = morning.awaited or ("" if morning.held else morning.those)  # who waits for what is held waits for ever
    if waits and morning.scheduler and awaited:
        found.append((f"wait {awaited}", f"until all have ended; {_plain(waits)} to go"))
    if len(morning.failures) > 1:
        found.append(_looked_at(morning.failures, 1))
    rest = [each for each in morning.failures if each.kind not in (*AGAIN, *UNMET) and not each.final]
    if rest:
        command = _requeue(morning, rest).removesuffix(" --dry-run")
        found.append((f"{command} --dry-run", f"{_plain(sum(each.count for each in rest))}, once the cause is mended"))
    return found


def _ended(kind: str) -> str:
    words = {"check": "failed their check", "error": "ended with an error", "": "failed"}
    return words.get(kind, f"ended as {kind.replace('_', ' ')}")


def _good(morning: Morning) -> list[tuple[str, str]]:
    found = []
    if morning.good:
        found.append((f"table {morning.those}", "a row for each job; --col NAME=/POINTER adds what was found"))
    if morning.good_id is not None:
        found.append((f"result {morning.good_id}", "one reply, as its worker gave it"))
    found.append((morning.page, "this page for a browser, or to be printed"))
    found.append(("status", "what the queue does now"))
    found.append(("providers list", "what can be asked"))
    return found


def _jobs(count: int) -> str:
    return "1 job has" if count == 1 else f"{count} jobs have"


def _plain(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
