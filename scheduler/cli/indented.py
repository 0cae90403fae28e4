"""JSON for people: indented, a list of numbers or short texts in as few lines as it takes."""

from __future__ import annotations

import json

from scheduler.cli.say import width

SHORT = 24
"""Columns of a text that may stand beside others on a line, its quotes included."""


def indented(value: object, columns: int, *, indent: int = 0, at: int = 0) -> str:
    """A value as JSON text on lines that are two blanks further in for each level that it is deeper.

    A list of numbers or short texts stands on one line, and fills lines of at most `columns` where one is too short for
    it. The first line begins in column `at`; the others are below `indent`.
    """
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    pad, inner = " " * indent, " " * (indent + 2)
    if isinstance(value, list):
        words = [_word(each) for each in value]
        if None not in words:
            one = f"[{', '.join(filter(None, words))}]"
            if at + width(one) < columns:
                return one
            return "[\n" + "\n".join(inner + line for line in _filled(words, columns - indent - 3)) + f"\n{pad}]"
        parts = [indented(each, columns, indent=indent + 2, at=indent + 2) for each in value]
        return "[\n" + ",\n".join(inner + each for each in parts) + f"\n{pad}]"
    parts = []
    for key, each in value.items():
        name = f"{json.dumps(key, ensure_ascii=False)}: "
        parts.append(inner + name + indented(each, columns, indent=indent + 2, at=indent + 2 + width(name)))
    return "{\n" + ",\n".join(parts) + f"\n{pad}}}"


def _word(value: object) -> str | None:
    """How a number or a short text is written; None for what is neither."""
    if isinstance(value, dict | list):
        return None
    word = json.dumps(value, ensure_ascii=False)
    return None if isinstance(value, str) and width(word) > SHORT else word


def _filled(words: list[str | None], room: int) -> list[str]:
    """Words with commas in lines of at most `room` columns."""
    lines, line = [], ""
    for number, word in enumerate(filter(None, words), 1):
        word += "," if number < len(words) else ""
        if line and width(line) + 1 + width(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
