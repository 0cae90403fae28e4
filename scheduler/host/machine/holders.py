"""Which processes hold a model: recognised by their argv, and this user's also by the mark in their environment.

Three kinds. Keepers of schedq carry their claim in argv. Legacy resident workers are an interpreter whose script is
`*_resident_worker.py` with `--socket`; the path names provider and checkout. Orphans have a keeper's mark in their
environment and no keeper any more: it was killed, and what it started lives on. A shell or an editor that quotes such
a line is none: its argv[0] is no interpreter, or the script is not its argument. A worker whose checkout was deleted
is one all the same: it was another checkout's workers that filled the machine (E2). Sockets are no evidence: they
outlive their workers, and two checkouts may share one path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.host.machine.asked import Asked
from scheduler.host.machine.processes import Process, ancestors, below, children_of
from scheduler.host.workers.protocol import CLAIM, MARK, claim_of
from scheduler.model.command import called

INTERPRETER = re.compile(r"(python|pypy)[\w.\-]*")
LEGACY = "_resident_worker.py"
LONG = {"--check-hash-based-pycs": "X"}
"""Long options that take the next word, as a short one does."""

Mark = tuple[str, str]
"""(queue id, worker id) of a worker of this project, whichever queue's."""


@dataclass(frozen=True)
class Holder:
    """A process that holds a model, with what it started (`tree`; a keeper itself holds none and is not in it).

    `name` is the slug, `slug:variant`, or `slug@tree` for another checkout's; `slug` is empty where only the mark is
    known. `mark` is set for workers of this project, `claim` for those whose keeper lives. `environment` is what may
    be read of it.
    """

    process: Process
    tree: tuple[Process, ...]
    name: str
    slug: str
    mark: Mark | None = None
    claim: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None


def holders(processes: dict[int, Process], asked: Asked) -> list[Holder]:
    """Every holder. What it started is part of it, unless that is a holder again of another claim or mark.

    Forks show their parent's argv and so are no second holder; two workers of one provider are two.
    """
    children = children_of(processes)
    keepers = _keepers(processes)
    kept = {pid for keeper in keepers for pid in below(children, keeper)}
    marked = _marked(processes, children, asked, kept)
    inside = kept | {process.pid for tree in marked.values() for process in tree}
    legacy = {}
    for pid, process in processes.items():
        names = _legacy(process, asked) if pid not in inside and pid not in keepers else None
        if names is not None:
            legacy[pid] = names
    forks = [
        pid
        for pid in legacy
        if any(processes[each].argv == processes[pid].argv for each in ancestors(processes, pid) & {*legacy})
    ]
    for pid in forks:
        legacy.pop(pid)
    tops = frozenset((*keepers, *legacy, *_leased(processes, keepers)))
    found, held = [], {*legacy}
    for pid, claim in keepers.items():
        tree = (*(processes[each] for each in below(children, pid, tops)), *marked.pop(_whose(claim), ()))
        held |= {process.pid for process in tree}
        tree = (*tree, *(each for each in _holding(processes, children, pid, claim, tops) if each.pid not in held))
        held |= {process.pid for process in tree}
        slug, variant = claim.get("slug", "?"), claim.get("variant", "")
        name = called(slug, variant)
        found.append(Holder(processes[pid], tree, name, slug, _whose(claim), claim))
    for pid, (slug, name) in legacy.items():
        tree = tuple(processes[each] for each in (pid, *below(children, pid, tops)))
        found.append(Holder(processes[pid], tree, name, slug, environment=asked.environment(processes[pid])))
    for mark, tree in marked.items():
        first = tree[0]
        slug, name = _legacy(first, asked) or ("", command_name(first))
        found.append(Holder(first, tree, name, slug, mark, environment=asked.environment(first)))
    return found


def _holding(
    processes: dict[int, Process], children: dict[int, list[int]], keeper: int, claim: Mapping[str, str],
    tops: frozenset[int],
) -> tuple[Process, ...]:  # fmt: skip
    """The process that has a lease for itself, and what it started: its keeper is its child, and says so (kind=l).

    That is of no other holder's tree, and where it has several leases, of the first one's: what it uses of one charge
    must not look as if another had been used.
    """
    top = processes[keeper].parent
    if top not in _leased(processes, {keeper: claim}):
        return ()
    return tuple(processes[pid] for pid in (top, *below(children, top, tops)))


def _leased(processes: dict[int, Process], keepers: Mapping[int, Mapping[str, str]]) -> set[int]:
    """The pids of the processes that have a lease for themselves."""
    above = {processes[pid].parent for pid, claim in keepers.items() if claim.get("kind") == "l"}
    return {pid for pid in above if pid > 1 and pid in processes and pid not in keepers}


def keeper_claim(argv: Sequence[str]) -> dict[str, str] | None:
    """The claim of a keeper: an interpreter whose script is followed by the keepers' word. None if it is none."""
    if CLAIM not in argv:
        return None
    run = script_of(argv)
    return claim_of([CLAIM, *run[1][1:]]) if run is not None and run[1][:1] == [CLAIM] else None


def script_of(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """(script, its arguments) if this is an interpreter that runs a script file; None if it is anything else."""
    if not argv or not INTERPRETER.fullmatch(os.path.basename(argv[0])):
        return None
    words = list(argv[1:])
    while words and words[0].startswith("-"):
        option = words.pop(0)
        known = LONG.get(option) if option.startswith("--") else _last_letter(option)
        if option == "-" or (known is not None and known in "cm"):
            return None
        if known is not None and known in "WX" and words:
            words.pop(0)
    return (words[0], words[1:]) if words else None


def _last_letter(option: str) -> str | None:
    """The short option that ends a word of them: `c` or `m` where that is among them, None where a value ends it."""
    for at, letter in enumerate(option[1:], 1):
        if letter in "cm":
            return letter
        if letter in "WX":
            return letter if at == len(option) - 1 else None
    return None


def legacy_name(script: str, cwd: str = "") -> tuple[str, str] | None:
    """(slug, name) of a legacy worker's script: `slug`, `slug@tree` below a folder `worktrees`; None if it is none."""
    if not script.endswith(LEGACY):
        return None
    parts = os.path.normpath(os.path.join(cwd, script)).split("/")
    slug = parts[-3] if len(parts) >= 3 and parts[-2] == "resident" else parts[-1].removesuffix(LEGACY)
    tree = next((parts[n + 1] for n, part in enumerate(parts[:-2]) if part == "worktrees"), None)
    return slug, f"{slug}@{tree}" if tree else slug


def printable(text: str) -> str:
    """A text of somebody's as it can be stored and shown: bytes that are no UTF-8, and control characters, escaped."""
    whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in whole)


def command_name(process: Process | None) -> str:
    """What people call a process: the script that it runs, or its program; "?" where its argv is hidden."""
    if process is None or not process.argv:
        return "?"
    run = script_of(process.argv)
    return os.path.basename(run[0] if run is not None else process.argv[0]) or "?"


def _keepers(processes: dict[int, Process]) -> dict[int, dict[str, str]]:
    """The claims of keepers by pid; a keeper's fork that shows its argv still is none."""
    claims = {pid: claim for pid, p in processes.items() if (claim := keeper_claim(p.argv)) is not None}
    found = {}
    for pid, claim in claims.items():
        above = ancestors(processes, pid)
        if not any(_whose(claims[each]) == _whose(claim) for each in above & {*claims}):
            found[pid] = claim
    return found


def _marked(
    processes: dict[int, Process], children: dict[int, list[int]], asked: Asked, kept: set[int]
) -> dict[Mark, tuple[Process, ...]]:
    """What lives of workers outside of every keeper's tree: all of a mark and what is under them, the oldest first."""
    marked: dict[Mark, list[Process]] = {}
    for pid, process in processes.items():
        if pid in kept or keeper_claim(process.argv) is not None:
            continue
        queue, colon, worker = asked.environment(process).get(MARK, "").rpartition(":")
        if colon:
            marked.setdefault((queue, worker), []).append(process)
    found = {}
    others = {process.pid: mark for mark, tops in marked.items() for process in tops}
    for mark, tops in marked.items():
        but = frozenset(pid for pid, whose in others.items() if whose != mark) | kept
        tree = {process.pid: process for process in tops}
        for top in tops:
            tree.update({pid: processes[pid] for pid in below(children, top.pid, but)})
        found[mark] = tuple(sorted(tree.values(), key=lambda process: (process.started, process.pid)))
    return found


def _legacy(process: Process, asked: Asked) -> tuple[str, str] | None:
    if not any(word.endswith(LEGACY) for word in process.argv):
        return None
    run = script_of(process.argv)
    if run is None:
        return None
    if not any(word == "--socket" or word.startswith("--socket=") for word in run[1]):
        return None
    return legacy_name(run[0], "" if run[0].startswith("/") else asked.cwd(process))


def _whose(claim: Mapping[str, str]) -> Mark:
    return claim.get("queue", ""), claim.get("worker", "")
