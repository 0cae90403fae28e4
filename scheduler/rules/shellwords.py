"""Names as a shell takes them, for the calls that a message hints at: what is copied from it means what it says.

Imported by the fast paths: standard library only, and nothing slow of it.
"""

from __future__ import annotations

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+:,./-")
"""Letters that mean themselves to every shell, wherever they stand in a word."""


def word(text: str) -> str:
    """Any text as one word of a shell: as it is where that is one already, else in quotes."""
    if text and PLAIN.issuperset(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def option(flag: str, value: str) -> str:
    """An option with any value: `--batch night`, and `--batch=-x` where the value would be taken for a flag."""
    return f"{flag}={word(value)}" if value.startswith("-") else f"{flag} {word(value)}"


def argument(text: str) -> str:
    """Any text as a last argument of a call: behind `--` where it would be taken for a flag."""
    return f"-- {word(text)}" if text.startswith("-") else word(text)
