"""Jobs as a file has them: one JSON object a line, or a CSV table with a head. What each row asks is not looked at.

Imported by the fast paths: standard library only; the CSV reader is loaded when such a file is there.
"""

from __future__ import annotations

import os

from scheduler.errors import LINE, InvalidInput, SchedqError, UsageError
from scheduler.inputs import formats
from scheduler.inputs.formats import shortened
from scheduler.inputs.sources import largest, opened, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

KEYS = (
    "provider", "input", "inline", "name", "params", "priority", "key", "labels", "batch", "after", "on_parent", "out",
    "overwrite", "begin", "hold", "timeout", "max_attempts", "retry_on", "on_lost",
)  # fmt: skip
"""What a row may say."""

OTHER_WORDS = {"slug": "provider", "file": "input", "path": "input", "prio": "priority", "label": "labels"}
"""What people write instead, where it is not near to ours."""

PARAM = "params."
"""How a column of a table begins that is one parameter."""

ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv"}


class JobsFile:
    """A file of jobs, read. `rows`: (line, what it says) of each that could be read; `faults`: the others."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.shown = "stdin" if source == "-" else quoted(source)
        self.folder = os.path.dirname(source) if source != "-" else ""
        """What paths of it are against: its own folder; "" = the current one."""
        self.stem = "stdin" if source == "-" else os.path.splitext(os.path.basename(source))[0]
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.faults: list[tuple[int, str, SchedqError]] = []
        self.refused: list[dict[str, Any]] = []
        """Key and name of the rows in `faults`, as far as they can be made out: other rows may come after these."""

    @property
    def count(self) -> int:
        """How many rows it has, those that cannot be read among them."""
        return len(self.rows) + len(self.faults)


def read(source: str) -> JobsFile:
    """The rows of a file of jobs; `-` is JSON lines from standard input. UsageError: it is none, or has no row."""
    found = JobsFile(source)
    if source == "-":
        import sys

        if sys.stdin is None:
            raise UsageError("--from - means standard input, and that is closed; name a file")
        _read_lines(found, sys.stdin.buffer)
    else:
        ending = os.path.splitext(source)[1].lower()
        if ending not in ENDINGS and not os.path.isdir(source):
            raise UsageError(
                f"--from {found.shown} ends in {ending or 'nothing'}; a file of jobs is .jsonl or .ndjson (a JSON"
                " object a line), .csv or .tsv (a table with a head)"
            )
        try:
            with open(opened(source, ""), "rb") as file:
                (_read_lines if ENDINGS[ending] == "jsonl" else _read_table)(found, file)
        except OSError as error:
            raise UsageError(f"--from {found.shown} cannot be read: {error.strerror}") from None
    if not found.count:
        raise UsageError(f"--from {found.shown} has no row, so there is nothing to queue")
    return found


def where(number: int) -> str:
    """What errors call the row of a line."""
    return f"{LINE}{number}"


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | InvalidInput]]:
    """Each line and its number, without a mark at the beginning; for one that is too long why it was not read."""
    most = 2 * largest() + MORE
    number = 0
    while line := file.readline(most):
        number += 1
        if len(line) < most or line.endswith(b"\n"):
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            continue
        while (rest := file.readline(most)) and not rest.endswith(b"\n"):
            pass
        text = f"{where(number)}: has more than {most} bytes, and that is no row: an input may have {largest()}"
        yield number, InvalidInput(f"{text}; name a file, or raise input_max_mib in the configuration")


AT_ITS_END = "at the end of the line"
"""Where a row is cut off, which is a whole file to the parser of JSON."""

MORE = 1 << 20
"""What a line may have beside an input whose every byte is written as two."""


def _read_lines(found: JobsFile, file: IO[bytes]) -> None:
    known = frozenset(KEYS)
    told: dict[str, str] = {}
    for number, line in _lines(file):
        at = where(number)
        try:
            if isinstance(line, InvalidInput):
                raise line
            if not line.strip():
                continue
            row = formats.parse_json(formats.decoded(line.rstrip(b"\r\n"), at, "json"), at)
            if not isinstance(row, dict):
                raise InvalidInput(
                    f'{at}: must be an object like {{"provider": "NAME", "input": "FILE"}}, not {shortened(row, 40)}'
                )
            if not row.keys() <= known:
                wrong = next(key for key in row if key not in known)
                raise UsageError(f"{at}: {_unknown(wrong, told)}")
            found.rows.append((number, row))
        except SchedqError as error:
            said = str(error).replace("line 1, column", "column").replace("at the end of the file", AT_ITS_END, 1)
            found.faults.append((number, at, type(error)(said)))
            found.refused.append(_called(line) if isinstance(line, bytes) else {})


def _called(line: bytes) -> dict[str, Any]:
    """Key and name of a row that is none, by the look of its line."""
    import json
    import re

    made: dict[str, Any] = {}
    begins = line[:LOOKED_AT].decode("utf-8", "replace")
    for word, text in re.findall(r'"(key|name)"\s*:\s*("(?:[^"\\]|\\.)*")', begins):
        try:
            made[word] = json.loads(text)
        except ValueError:
            pass
    return made


LOOKED_AT = 1 << 16
"""So much of a line that is no row is looked through."""


def _unknown(key: str, told: dict[str, str]) -> str:
    """What is said of a key that no row has; kept, for a file may have it in every line."""
    if key not in told:
        import difflib

        near = OTHER_WORDS.get(key.lower()) or next(iter(difflib.get_close_matches(key.lower(), KEYS, n=1)), "")
        hint = f"did you mean {near}?" if near else f"a row has {', '.join(KEYS)}"
        told[key] = f"unknown key {shortened(key, 40)}; {hint}"
    return told[key]


def _read_table(found: JobsFile, file: IO[bytes]) -> None:
    import csv

    wrongs: list[InvalidInput] = []
    texts = _decoded(file, wrongs)
    before, head_line = next(((n, text) for n, text in enumerate(texts, 1) if text.strip()), (0, ""))
    mark = max(",;\t", key=head_line.count)
    csv.field_size_limit(1 << 30)
    names = [name.strip() for name in next(csv.reader([head_line], delimiter=mark), [])]
    if wrongs:
        raise UsageError(f"--from {found.shown}, its head: {wrongs[0]}")
    told: dict[str, str] = {}
    named = [name for name in names if name]
    wrong = [_unknown(name, told) for name in named if name not in KEYS and not name.startswith(PARAM)]
    wrong += [f"the column {shortened(name)} is there twice" for name in dict.fromkeys(named) if named.count(name) > 1]
    wrong += ["no column has a name"] * (bool(names) and not named)
    if wrong:
        raise UsageError(f"--from {found.shown}, its head: " + "; ".join(wrong))
    reader = csv.reader(texts, delimiter=mark, strict=True)
    while True:
        number = before + reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            at = where(number)
            found.faults.append((number, at, InvalidInput(f"{at}: not CSV: {error}; the rest was not read")))
            return
        row = {name: cell for name, cell in zip(names, cells, strict=False) if cell != "" and name}
        if wrongs:
            found.faults.append((number, where(number), wrongs[0]))
            found.refused.append(row)
            wrongs.clear()
            continue
        if not any(cells):
            continue
        if (more := _unnamed(cells, names)) is not None:
            at = where(number)
            found.faults.append((number, at, InvalidInput(f"{at}: {more}")))
            found.refused.append(row)
            continue
        found.rows.append((number, row))


def _unnamed(cells: list[str], names: list[str]) -> str | None:
    """What is wrong with a row that has a value where the head has no name, None if it has none: a spreadsheet leaves
    empty columns behind."""
    if any(cell.strip() for cell in cells[len(names) :]):
        return f"has {len(cells)} cells, and the head has {len(names)}; a cell with a comma needs double quotes"
    for column, (name, cell) in enumerate(zip(names, cells, strict=False), 1):
        if cell.strip() and not name:
            return f"has {shortened(cell, 40)} in column {column}, which has no name in the head; name it, or empty it"
    return None


def _decoded(file: IO[bytes], wrongs: list[InvalidInput]) -> Iterator[str]:
    """Each line as text, with its quotes and commas whatever else is no text; what is wrong goes into `wrongs`."""
    for number, line in _lines(file):
        text = "\n"
        try:
            if isinstance(line, InvalidInput):
                raise line
            text = line.decode("utf-8", "replace")
            formats.decoded(line, where(number), "csv")
        except InvalidInput as error:
            wrongs.append(error)
        yield text
