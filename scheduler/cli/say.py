"""How a verb speaks: data on stdout, talk on stderr, colour on terminals only, pages of 50 to 80 columns."""

from __future__ import annotations

import os

from scheduler.rules.figures import counted as counted
from scheduler.rules.figures import elapsed as elapsed
from scheduler.rules.figures import gib as gib
from scheduler.rules.figures import soon as soon
from scheduler.rules.figures import span as span

COLOURS = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}
TEMPORARY, BROKEN_PIPE = 75, 141
NARROWEST, WIDEST = 50, 80
"""Columns of a page: as many as there are, between these."""


class Quiet(BaseException):
    """Leave with this exit code and say nothing more: the reader of stdout has gone."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def data(block: bytes) -> None:
    """Bytes to stdout, all of them. Temporary if it is full, Quiet if nobody reads it."""
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except BrokenPipeError:
        raise Quiet(BROKEN_PIPE) from None
    except OSError as error:
        from scheduler.errors import Temporary

        raise Temporary(
            f"stdout cannot be written ({error.strerror}): the output is cut off; free it and ask again"
        ) from None


def out(text: str) -> None:
    """A line, or lines, to stdout."""
    data(_bytes(text + "\n"))


def note(text: str) -> None:
    """A line for people, to stderr; a stderr that is closed is no reason to stop."""
    text = "\n".join(map(plain, text.split("\n")))
    try:
        os.write(2, _bytes(text + "\n"))
    except OSError:
        pass


def document(value: object, *, indent: bool | None = None) -> str:
    """A value as JSON text: indented on a terminal, else one line. A number that JSON has not is null."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    if os.isatty(1) if indent is None else indent:
        from scheduler.cli.indented import indented

        text = indented(json.loads(text), max(NARROWEST, columns()))
    return text.encode("utf-8", "backslashreplace").decode()


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and value - value != 0.0 else value


def coloured() -> bool:
    """Whether stdout is a terminal that may be given colour."""
    return os.isatty(1) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """Text in a colour, where colour is wanted."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if colour and coloured() else text


def is_terminal(fd: int = 1) -> bool:
    """Whether somebody looks at what is written there, and lines can be written over: a terminal that is not dumb."""
    return os.isatty(fd) and os.environ.get("TERM", "dumb") != "dumb"


def columns(fd: int = 1) -> int:
    """How wide a line may be: as COLUMNS says, else as the terminal on `fd` is, stdout unless given, else 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


def page_width() -> int:
    """How many columns a page for people takes on stdout: between NARROWEST and WIDEST."""
    return max(NARROWEST, min(WIDEST, columns()))


def plain(text: str) -> str:
    """Text on one line and without control characters, so that a name cannot move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int) -> str:
    """Text of at most `columns`, its end replaced by `..` where it was longer."""
    text = plain(text)
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 2:
        text = text[:-1]
    return text + ".."


def fill(text: str, columns: int) -> str:
    """Text cut, then padded with blanks to exactly `columns`."""
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def wrap(text: str, indent: str, columns: int | None = None) -> list[str]:
    """Text in lines of at most `columns`, each after `indent`; a word that is longer is broken, unless it is a path.

    A path stands whole on a line of its own, however long, so that it can be copied. As wide as a page unless given.
    """
    lines, line = [], ""
    room = (page_width() if columns is None else columns) - len(indent)
    for word in plain(text).split(" "):
        while width(word) > room and "/" not in word:
            head = word[: max(1, room - (width(line) + 1 if line else 0))]
            line, word = (line + " " if line else "") + head, word[len(head) :]
            lines.append(line)
            line = ""
        if line and width(line) + 1 + width(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        lines.append(line)
    return [indent + each for each in lines]
