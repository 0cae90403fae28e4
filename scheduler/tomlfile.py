"""TOML, read as it is meant: whatever the bytes are, they are a table or refused in words, in a bounded time.

Stricter than `tomllib` where that is without bounds: whole numbers have 64 bits, as TOML has it, and nesting ends.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from scheduler.errors import UsageError

MOST_BYTES = 1 << 20
DEEPEST = 100
"""Levels of tables and lists: every later reader walks them by recursion."""

LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST}}}""")
LONG_NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d_]{4000,}(?![\w.])")
KEY = re.compile(r"""^[ \t]*([\w."'-]{1,60})[ \t]*=""")


def parsed(data: bytes, path: str) -> dict[str, Any]:
    """The table that a file holds. UsageError names the file, the place or key, and the fix."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8, which TOML must be; save it as UTF-8") from None
    if LONG_KEY.search(text):
        raise UsageError(f"{path}: a key is nested too deep, more than {DEEPEST} levels; flatten it")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}; correct that line") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deep to be read; flatten it") from None
    except ValueError as error:
        raise UsageError(f"{path}: {_long_number(text) or f'not TOML: {error}; correct it'}") from None
    wrong = _beyond(table)
    if wrong:
        raise UsageError(f"{path}: {wrong}")
    return table


def _long_number(text: str) -> str:
    """Where the number stands that `tomllib` cannot read, with its key; empty if none is found."""
    found = LONG_NUMBER.search(text)
    if found is None:
        return ""
    start = text.rfind("\n", 0, found.start()) + 1
    key = KEY.match(text[start : found.start()])
    digits = sum(each.isdigit() for each in found.group())
    place = f"line {text.count(chr(10), 0, start) + 1}: " + (f"{key[1]}: " if key else "")
    return f"{place}a whole number of {digits} digits, and TOML has 64 bits; write a smaller one, or text in quotes"


def _beyond(table: dict[str, Any]) -> str:
    """The first value that TOML does not have although it was written: too long a number, too deep a table."""
    for key, value, level in leaves(table):
        if level > DEEPEST:
            return f"{shortened(key)}: nested too deep, more than {DEEPEST} levels; flatten it"
        if type(value) is int and not -(2**63) <= value < 2**63:
            return (
                f"{shortened(key)}: a whole number of more than 64 bits, which TOML has not; write a smaller one, or "
                "text in quotes"
            )
    return ""


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any, int]]:
    """Every value with its dotted key and its level, tables and lists before what they hold; nothing recurses.

    What lies below more than DEEPEST levels is left out.
    """
    waiting = [(key, value, 0)]
    while waiting:
        at, node, level = waiting.pop()
        yield at, node, level
        if level > DEEPEST:
            continue
        if isinstance(node, dict):
            below = [(f"{at}.{quoted(name)}" if at else quoted(name), child, level + 1) for name, child in node.items()]
            waiting += reversed(below)
        elif isinstance(node, list):
            waiting += reversed([(f"{at}[{index}]", child, level + 1) for index, child in enumerate(node)])


def quoted(key: str) -> str:
    """A key as it can be shown in one line: as it is if it prints, else with escapes."""
    return key if key.isprintable() else repr(key)


def shortened(key: str) -> str:
    """A dotted key for a message, cut in the middle if it is long."""
    return key if len(key) <= 80 else f"{key[:40]}...{key[-20:]}"
