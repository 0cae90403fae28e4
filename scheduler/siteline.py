"""One value of a provider, set or taken out in the configuration of this site; all else of the file as it was.

As `sitefile` does it for what is measured: lines are changed, what comes of it is read again before it takes the file's
place, and where the two do not agree nothing is written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from scheduler import locks
from scheduler.errors import UsageError
from scheduler.sitefile import lines_of, locked, parsed, parsed_or_none, replace, text_of, with_text

Value = bool | int | float | str | list[Any]
"""What one value may be that is set by hand."""

Tables = tuple[tuple[str, ...], ...]


def written(value: Value | dict[str, Any]) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_bare(key)} = {written(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def places(path: str, name: str, key: str, tables: Tables) -> Tables:
    """These tables below `[providers.NAME]`, those first that have the key, then those that are there. UsageError."""
    own = _at(parsed(text_of(path), path), ("providers", name))
    return tuple(sorted(tables, key=lambda each: (key not in _at(own, each), not _at(own, each))))


def set_one(path: str, name: str, key: str, value: Value, tables: Tables = ((),), without: tuple[str, ...] = ()) -> str:
    """Set one key of a provider in the file at `path`, made if it is not there; the file that was written.

    `tables` are those below `[providers.NAME]` that it may stand in: it is replaced where it stands, else put into the
    first of them that is there, else into the first. Keys `without` are taken out of `[providers.NAME]` with that.
    UsageError as of `put`.
    """
    path = os.path.realpath(path)
    table: dict[str, Any] = {}
    place: list[str] = ["providers", name, *tables[0]]
    try:
        lock = locked(os.path.dirname(path), path)
        try:
            text = text_of(path)
            table = parsed(text, path)
            place = ["providers", name, *places(path, name, key, tables)[0]]
            expected = table
            for odd in (each for each in without if each in _at(table, place[:2])):
                expected = _deep_set(expected, [*place[:2], odd], None)
                text = _without_key(text, place[:2], odd, expected)
            expected = _deep_set(expected, [*place, key], value)
            for after in _with_key(text, place, key, value, expected):
                if _filled(parsed_or_none(after, path)) == _filled(expected):
                    break
            else:
                raise UsageError(
                    f"{path} has values of {name} in a form that is not changed line by line; it is as it was"
                )
            replace(path, after)
        finally:
            locks.let_go(lock)
    except UsageError as error:
        header, line = f"[{'.'.join(map(_bare, place))}]", f"{_bare(key)} = {written(value)}"
        if _at(table, place):
            raise UsageError(f"{error}. By hand, in {header}, set:\n{line}") from None
        raise UsageError(f"{error}. Put this into it by hand:\n{header}\n{line}") from None
    return path


def unset_one(path: str, name: str, key: str, tables: Tables = ((),), without: tuple[str, ...] = ()) -> bool:
    """Take one key of a provider out of every one of these tables; whether it was in one. UsageError as of `remove`.

    Keys `without` are taken out of `[providers.NAME]` with it.
    """
    path = os.path.realpath(path)
    lock = locked(os.path.dirname(path), path)
    try:
        before = text = text_of(path)
        table = expected = parsed(before, path)
        holds = [["providers", name, *each, key] for each in tables if key in _at(table, ("providers", name, *each))]
        more = [["providers", name, each] for each in without if each in _at(table, ("providers", name))]
        for *place, each in [*holds, *more] if holds else ():
            expected = _deep_set(expected, [*place, each], None)
            text = _without_key(text, place, each, expected)
        if text == before and expected is table:
            return False
        found = parsed_or_none(text, path)
        if found is None or _filled(found) != _filled(expected):
            raise UsageError(
                f"{path} has {key} of {name} in a form that is not changed line by line; take it out by hand"
            )
        replace(path, text)
    finally:
        locks.let_go(lock)
    return True


def _at(table: dict[str, Any], place: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """The table at a place; empty where there is none."""
    node: Any = table
    for part in place:
        node = node.get(part, {}) if isinstance(node, dict) else {}
    return node if isinstance(node, dict) else {}


def _deep_set(table: dict[str, Any], place: list[str], value: Any) -> dict[str, Any]:
    """The same table with one value set, or taken out where it is None."""
    first, *rest = place
    if rest:
        return {**table, first: _deep_set(_at(table, [first]), rest, value)}
    return {key: each for key, each in {**table, first: value}.items() if each is not None}


def _filled(value: Any) -> Any:
    """A table without the tables in it that say nothing."""
    if not isinstance(value, dict):
        return value
    below = {key: _filled(each) for key, each in value.items()}
    return {key: each for key, each in below.items() if each != {}}


def _with_key(text: str, place: list[str], key: str, value: Value, expected: dict[str, Any]) -> Iterator[str]:
    """Texts with one key of a table set, the likeliest first: in the line that has it or its table; at the table's end,
    or with its table last; as a dotted key of a table above. One of them says what is `expected`, or none.
    """
    found = _line_of(text, [*place, key])
    if found is not None:
        yield _with_line(text, found[0], _at(expected, found[1][:-1])[found[1][-1]])
    if lines_of(text.split("\n"), place) is not None:
        yield _with_more(text, place, [key], value)
        return
    lines, end = text.split("\n"), "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    while lines and not lines[-1].strip():
        lines.pop()
    if lines and not lines[-1].endswith(end):
        lines[-1] += end
    header, line = f"[{'.'.join(map(_bare, place))}]", f"{_bare(key)} = {written(value)}"
    yield "\n".join([*lines, *([end] if lines else []), header + end, line + end, ""])
    for depth in range(len(place) - 1, 0, -1):
        if lines_of(text.split("\n"), place[:depth]) is not None:
            yield _with_more(text, place[:depth], [*place[depth:], key], value)


def _with_more(text: str, place: list[str], keys: list[str], value: Value) -> str:
    """The text with a line behind the last one of a table that has a header."""
    lines, end = text.split("\n"), "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    own = lines_of(lines, place) or range(0)
    said = [n for n in own if lines[n].strip() and not lines[n].lstrip().startswith("#")]
    last = max(said, default=own.start - 1) + 1
    if last == len(lines):
        lines[-1] += end
        end = ""
    lines.insert(last, f"{'.'.join(map(_bare, keys))} = {written(value)}{end}")
    return "\n".join(lines)


def _line_of(text: str, path: list[str]) -> tuple[int, list[str]] | None:
    """The number of the line that sets a key, or the inline table that it is in, and the path of what is set there."""
    lines = text.split("\n")
    for depth in range(len(path) - 1, -1, -1):
        first = next((n for n, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
        for n in (lines_of(lines, path[:depth]) or ()) if depth else range(first):
            for long in range(len(path), depth, -1):
                if re.match(_begins(*path[depth:long]), lines[n]):
                    return n, path[:long]
    return None


def _with_line(text: str, at: int, value: Any) -> str:
    lines = text.split("\n")
    lines[at] = with_text(lines[at], written(value))
    return "\n".join(lines)


def _without_key(text: str, place: list[str], key: str, expected: dict[str, Any]) -> str:
    """The text without the lines of a key, and without a table that says nothing else; `expected` is what is to be."""
    found = _line_of(text, [*place, key])
    if found is not None and len(found[1]) <= len(place):
        rest = _filled(_at(expected, found[1]))
        if rest:
            return _with_line(text, found[0], rest)
    lines = text.split("\n")
    if found is not None:
        del lines[found[0]]
    left = lines_of(lines, place)
    if left is not None and not any(lines[n].strip() for n in left):
        del lines[left.start - 1 : left.stop if left.stop < len(lines) else left.start]
    return "\n".join(lines)


def _begins(*keys: str) -> str:
    """How a line begins that sets a key, bare or quoted, dotted where there are several."""
    each = (rf"""(?:{re.escape(key)}|"{re.escape(key)}"|'{re.escape(key)}')""" for key in keys)
    return r"\s*" + r"\s*\.\s*".join(each) + r"\s*="
