"""Replay a journal through the planner: the same snapshots must give the same instructions.

    python tests/replay.py SCHEDQ_HOME/journal

Exit 0: all plans are the same; 1: the first that is not is shown; 2: there is no journal to be read.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scheduler.journal import FORMAT, LEFT_OUT, document, fault, named
from scheduler.model.plan import Snapshot
from scheduler.rules.plan import plan


class Unreadable(Exception):
    """It is no journal, or one of another format."""


@dataclass
class Turn:
    """One line: where it stands, what it says, and, if the plan said anything, what it saw."""

    place: str
    told: dict[str, Any]
    seen: Snapshot | None


def turns(folder: Path) -> Iterator[Turn]:
    """Every turn of a journal, in order. A last line that was cut is left out, as is a file without a head."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise Unreadable(f"{folder} has no journal: no file *.jsonl")
    for file in files:
        lines = file.read_bytes().split(b"\n")
        known: dict[str, Any] = {}
        columns: dict[str, list[str]] = {}
        for number, line in enumerate(lines[:-1], 1):
            place = f"{file.name}:{number}"
            try:
                told = json.loads(line)
            except ValueError as error:
                raise Unreadable(f"{place} is no line of a journal: {error}") from None
            if number == 1:
                if told.get("journal") != FORMAT:
                    raise Unreadable(f"{place} is no head of a journal of format {FORMAT}: {line[:80]!r}")
                columns = told["columns"]
                continue
            if "seen" in told:
                _advance(known, told["seen"])
            yield Turn(place, told, _made(Snapshot, known, columns) if "seen" in told else None)


def _advance(known: dict[str, Any], told: dict[str, Any]) -> None:
    """What a snapshot says of itself, over what the one before it said."""
    machine = {**known.get("machine", {}), **told.get("machine", {})}
    table = told.get("providers", {"all": False, "rows": []})
    rows = {(slug, variant): row for slug, variant, row in table["rows"]}
    providers = rows if table["all"] else {**known.get("providers", {}), **rows}
    known.update({**told, "machine": machine, "providers": providers})


def _made(kind: Any, told: Any, columns: dict[str, list[str]]) -> Any:
    """A value of a type, from what JSON has of it; a field that is not among its columns has its default."""
    if is_dataclass(kind):
        row = told if isinstance(told, dict) else dict(zip(columns[kind.__name__], told, strict=True))
        return kind(
            **{name: _made(of, row[name], columns) if name in row else empty for name, of, empty in _parts(kind)}
        )
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if told is None else _made(next(each for each in inner if each is not type(None)), told, columns)
    if origin is tuple:
        each = [inner[0]] * len(told) if inner[1:] == (...,) else inner
        return tuple(_made(of, value, columns) for of, value in zip(each, told, strict=True))
    if origin is dict:
        return told if inner[1] is float else {key: _made(inner[1], value, columns) for key, value in told.items()}
    return float(told) if kind is float and isinstance(told, str) else told


@cache
def _parts(kind: type) -> list[tuple[str, Any, Any]]:
    hints, found = get_type_hints(kind), []
    for each in fields(kind):
        empty = each.default_factory() if each.default_factory is not MISSING else each.default
        if empty is MISSING and each.name in LEFT_OUT.get(kind.__name__, ()):
            empty = ""
        found.append((each.name, hints[each.name], empty))
    return found


def written(turn: Turn) -> list[dict[str, Any]]:
    """What the plan said in this turn, or how it failed."""
    return turn.told.get("instructions") or _failed(turn.told.get("rolled_back", ""))


def replayed(turn: Turn) -> list[dict[str, Any]]:
    """What the plan says to this turn's snapshot, as a journal has it, or how it fails."""
    assert turn.seen is not None
    try:
        found = plan(turn.seen, explained=turn.told["explained"])
    except Exception as error:
        return _failed(fault(error))
    return json.loads(document(named(found)))


def _failed(text: str) -> list[dict[str, Any]]:
    return [{"is": "failed", "text": text}] if text else []


def first_difference(folder: Path) -> tuple[str, int, int]:
    """("" or the first plan that is not the same, how many plans were replayed, how many turns there were)."""
    plans = count = 0
    for turn in turns(folder):
        count += 1
        if turn.seen is None:
            continue
        plans += 1
        was, is_ = written(turn), replayed(turn)
        if was != is_:
            return _shown(turn, was, is_), plans, count
    return "", plans, count


def _shown(turn: Turn, was: list[dict[str, Any]], is_: list[dict[str, Any]]) -> str:
    head = f"{turn.place}: turn {turn.told['turn']} of epoch {turn.told['epoch']} is decided otherwise"
    lines = [f"- {json.dumps(each)}" for each in was if each not in is_]
    lines += [f"+ {json.dumps(each)}" for each in is_ if each not in was]
    return "\n".join([head, *(lines or ["the same instructions, in another order"])])


def main(words: list[str]) -> int:
    """Replay the journal in a folder, and say what came of it."""
    if len(words) != 1:
        print("usage: python tests/replay.py SCHEDQ_HOME/journal", file=sys.stderr)
        return 2
    try:
        found, plans, count = first_difference(Path(words[0]))
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    print(found or f"{plans} plans in {count} turns: the same instructions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
