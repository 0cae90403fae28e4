"""Values out of many replies: the columns that are asked for, in their order, as cells of a table."""

from __future__ import annotations

import json
import re

from scheduler.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

FIXED = ("id", "name", "state", "output")
"""Columns that every table has; the values stand before the last."""

FORMULA = re.compile(r"[=+\-@\t\r]")
"""What begins a formula in a spreadsheet."""

INDEX = re.compile(r"0|[1-9][0-9]*")
MISSING: Any = object()


class Wanted:
    """One column: its name and the pointer of its value."""

    __slots__ = ("name", "parts", "pointer")

    def __init__(self, name: str, pointer: str) -> None:
        self.name, self.pointer = name, pointer
        self.parts = [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]

    def of(self, value: Any) -> Any:
        """The value in a reply; MISSING if it is not there."""
        for part in self.parts:
            if isinstance(value, dict):
                if part not in value:
                    return MISSING
                value = value[part]
            elif isinstance(value, list) and INDEX.fullmatch(part) and len(part) < 10 and int(part) < len(value):
                value = value[int(part)]
            else:
                return MISSING
        return value


def columns(words: Sequence[str]) -> list[Wanted]:
    """The columns that `NAME=/POINTER` or `/POINTER` ask for; a bare pointer is called by its last part. UsageError."""
    found: list[Wanted] = []
    for word in words:
        name, equals, pointer = ("", "", word) if word.startswith("/") else word.partition("=")
        if not word.startswith("/") and (not equals or not name):
            raise UsageError(
                f"--col {word!r} is no column; write NAME=/POINTER or /POINTER, like iptm=/confidence/iptm"
            )
        if pointer and not pointer.startswith("/"):
            raise UsageError(f"--col {word!r}: the pointer {pointer!r} does not begin with /; write {name}=/{pointer}")
        column = Wanted(name, pointer)
        column.name = name or column.parts[-1] or pointer
        taken = [*FIXED, *(each.name for each in found)]
        if column.name in taken:
            raise UsageError(
                f"--col {word!r}: there is a column {column.name!r} already; name this one, like "
                f"{column.name}2={pointer}"
            )
        found.append(column)
    return found


def sorting(word: str, names: Sequence[str]) -> tuple[int, bool]:
    """Which column a `--sort` means, and whether it falls. UsageError for one that is not there."""
    if word in names:
        return list(names).index(word), False
    bare = word[1:] if word[:1] in ("-", "+") else word
    if bare not in names:
        raise UsageError(f"--sort {word!r}: there is no column {bare!r}; there are {', '.join(names)}")
    return list(names).index(bare), word.startswith("-")


def ordered(rows: list[list[Any]], column: int, *, falling: bool) -> list[list[Any]]:
    """Rows by one column: numbers as numbers, texts after them, empty ones last whichever way it goes."""
    full = [row for row in rows if not _is_empty(row[column])]
    numbers = sorted((row for row in full if _is_number(row[column])), key=lambda row: row[column], reverse=falling)
    texts = sorted(
        (row for row in full if not _is_number(row[column])), key=lambda row: text_of(row[column]), reverse=falling
    )
    return [*numbers, *texts, *(row for row in rows if _is_empty(row[column]))]


def _is_empty(value: Any) -> bool:
    return value is MISSING or value is None or value == "" or (isinstance(value, float) and value != value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value: Any) -> str:
    """A value as a cell: numbers and texts as they are, lists and objects as JSON, nothing for null or MISSING."""
    if value is MISSING or value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def safe(value: Any) -> str:
    """A value as a cell of CSV: a text that a spreadsheet would carry out as a formula has a `'` before it."""
    text = text_of(value)
    if not _is_number(value) and text and FORMULA.match(text):
        return "'" + text
    return text


def pointers(value: Any, most: int = 12) -> list[str]:
    """Pointers to single values in a reply, those near its top first."""
    found: list[str] = []
    level: list[tuple[str, Any]] = [("", value)]
    while level and len(found) < most:
        deeper: list[tuple[str, Any]] = []
        for at, each in level:
            for key, inner in _inside(each):
                where = f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}"
                if isinstance(inner, dict | list):
                    deeper.append((where, inner))
                elif not isinstance(inner, str) or len(inner) <= 200:
                    found.append(where)
        level = deeper[:50]
    return found[:most]


def _inside(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value[:1])
