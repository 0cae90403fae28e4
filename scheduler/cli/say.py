"""How a verb speaks: data on stdout, talk on stderr, colour on terminals only, tables of 80 columns."""

from __future__ import annotations

import os

COLOURS = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}
TEMPORARY, BROKEN_PIPE = 75, 141


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
    """A value as JSON text: indented on a terminal, else one line."""
    import json

    wide = os.isatty(1) if indent is None else indent
    text = json.dumps(value, ensure_ascii=False, indent=2 if wide else None)
    return text.encode("utf-8", "backslashreplace").decode()


def coloured() -> bool:
    """Whether stdout is a terminal that may be given colour."""
    return os.isatty(1) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """Text in a colour, where colour is wanted."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if colour and coloured() else text


def columns() -> int:
    """How wide a line may be: as COLUMNS says, else as the terminal on stdout is, else 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def plain(text: str) -> str:
    """Text on one line and without control characters, so that a name cannot move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


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


def wrap(text: str, indent: str, columns: int = 80) -> list[str]:
    """Text in lines of at most `columns`, each after `indent`; a word that is longer is broken."""
    lines, line = [], ""
    room = columns - len(indent)
    for word in plain(text).split(" "):
        while width(word) > room:
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


def span(seconds: float | None) -> str:
    """A time span in its two largest units: `45s`, `3m 12s`, `2h 05m`, `3d 04h`; `-` if it is not known."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds + 0.5))
    if whole < 60:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {second:02d}s"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minute:02d}m"
    days, hour = divmod(hours, 24)
    return f"{days}d {hour:02d}h"


def gib(value: object) -> str:
    """GiB with two decimals, or as many as it takes to tell it from zero; `?` if it is not known."""
    if not isinstance(value, int | float):
        return "?"
    if value and abs(value) < 0.05:
        return f"{value:.3f}"
    return f"{value:.2f}"
