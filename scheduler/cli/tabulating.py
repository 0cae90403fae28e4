"""`schedq table`: a row for each job, with the values that are wanted of its reply."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from scheduler.cli import ids as names
from scheduler.cli import say, sheets
from scheduler.cli.fast import Call
from scheduler.cli.tables import Column, Table
from scheduler.config import Paths
from scheduler.errors import UsageError
from scheduler.night import values
from scheduler.night.because import because, told
from scheduler.night.values import MISSING
from scheduler.night.words import clean
from scheduler.store import peek, replies

SHOWN, AT_ONCE, WIDEST, MOST_WHY = 200, 1000, 32, 60
WHY = "why"
IDS = re.compile(r"(last|\d+(-\d+)?)(,(last|\d+(-\d+)?))*")
SCHEMA_VERSION = 1


class _Reading:
    """The rows as they come, and what is noticed meanwhile."""

    def __init__(self, paths: Paths, chosen: list[int], wanted: list[values.Wanted]) -> None:
        self._paths, self._chosen, self._wanted = paths, chosen, wanted
        self.found = {each.name: False for each in wanted}
        self.example: tuple[int, Any] | None = None
        self.damaged: list[int] = []
        self.rows = self.pruned = 0

    def __iter__(self) -> Iterator[list[Any]]:
        for row in replies.replies(self._paths, self._chosen):
            job_id, reply, value = row.id, row.reply, MISSING
            if row.damaged:
                self.damaged.append(job_id)
            if reply is not None and (self._wanted or self.example is None):
                try:
                    value = json.loads(reply)
                except ValueError:
                    self.damaged.append(job_id)
            if value is not MISSING and self.example is None:
                self.example = (job_id, value)
            cells = [MISSING if value is MISSING else each.of(value) for each in self._wanted]
            for each, cell in zip(self._wanted, cells, strict=True):
                if cell is not MISSING:
                    self.found[each.name] = True
            self.rows += 1
            self.pruned += row.pruned and reply is None
            why = told(row.state, *because(row.state, *row.ended))
            yield [job_id, row.name, row.state, *cells, row.output, clean(why)]


def table(call: Call) -> int:
    """CSV, or an aligned table on a terminal, or JSON. 1 if a reply that was stored is damaged.

    Why a job ended badly is the last column of a table where one did, and in JSON; CSV has what was asked for alone.
    """
    paths = Paths()
    wanted = values.columns(call.many("col"))
    head = ["id", "name", "state", *(each.name for each in wanted), "output"]
    by = values.sorting(call.text("sort") or "", head) if call.text("sort") else None
    chosen = _chosen(call, paths)
    on_terminal = _on_terminal() and not call.flag("json")
    short = on_terminal and not call.flag("all")
    reading = _Reading(paths, chosen[:SHOWN] if short and by is None else chosen, wanted)
    rows: Iterator[list[Any]] = iter(reading)
    if by is not None:
        rows = iter(values.ordered(list(rows), by[0], falling=by[1]))
    if call.flag("json"):
        _print_json(head, rows)
    elif on_terminal:
        _print_table(head, rows, SHOWN if short else len(chosen), None if by is None else by[0])
    else:
        _print_csv(head, rows)
    if short and len(chosen) > SHOWN:
        say.note(f"the first {SHOWN} of {len(chosen)}; --all shows all, and so does > FILE")
    _note(reading, wanted)
    return 1 if reading.damaged else 0


def _on_terminal() -> bool:
    return os.isatty(1)


def _chosen(call: Call, paths: Paths) -> list[int]:
    """The jobs of a call: ids, filters, or the one word that is a batch."""
    words = call.many("ids")
    if len(words) == 1 and not names.filters(call):
        [word] = words
        if not IDS.fullmatch(word):
            return names.found({"batch": word}, paths)
        if peek.names(paths, word)[0] is None:
            say.note(f"{word} is a batch here, and its jobs are meant")
            return names.found({"batch": word}, paths)
    if not words and not names.filters(call):
        raise UsageError("table needs jobs: a batch, ids like 7 or 3-9,12 or last, or filters like --slug SLUG")
    return names.needed(call, paths)


def _print_csv(head: list[str], rows: Iterator[list[Any]]) -> None:
    text = io.StringIO()
    text.write(sheets.line(head))
    for number, row in enumerate(rows, 1):
        text.write(sheets.line(row[:-1]))
        if number % AT_ONCE == 0:
            _flush(text)
    _flush(text)


def _flush(text: io.StringIO) -> None:
    say.data(text.getvalue().encode("utf-8", "surrogatepass"))
    text.seek(0)
    text.truncate()


def _print_json(head: list[str], rows: Iterator[list[Any]]) -> None:
    """One document, a row a line, written as it comes."""
    head = [*head, *([WHY] if WHY not in head else [])]
    start = json.dumps({"schema_version": SCHEMA_VERSION, "columns": head}, ensure_ascii=False)
    say.data(f'{start[:-1]}, "rows": ['.encode("utf-8", "backslashreplace"))
    text, between = io.StringIO(), "\n"
    for number, row in enumerate(rows, 1):
        row[-1] = row[-1] or None
        cells = dict(zip(head, (None if each is MISSING else each for each in row), strict=False))
        text.write(between + say.document(cells, indent=False))
        between = ",\n"
        if number % AT_ONCE == 0:
            _flush(text)
    text.write("\n]}\n")
    _flush(text)


def _print_table(head: list[str], rows: Iterator[list[Any]], most: int, by: int | None) -> None:
    """An aligned table: columns as wide as they need, as far as the page has room; the last ones are left out first.

    Those that tell which job it is, and the one it is sorted `by`, stay.
    """
    shown = [row for row, _ in zip(rows, range(most), strict=False)]
    if not shown:
        say.note("no job matches")
        return
    if WHY not in head and any(row[-1] for row in shown):
        head = [*head[:-1], WHY, head[-1]]
        shown = [[*row[:-2], row[-1], row[-2]] for row in shown]
    numeric = [_is_numeric([row[n] for row in shown]) for n in range(len(head))]
    cells = [[_cell(each) for each in row[: len(head)]] for row in shown]
    made = []
    for n, name in enumerate(head):
        wide = max(say.width(say.plain(name)), *(say.width(say.plain(row[n])) for row in cells))
        wide = wide if name in ("id", "state") else min(wide, MOST_WHY if name == WHY else WIDEST)
        least = wide if numeric[n] or name in ("id", "state") else min(wide, 8)
        drop = 0 if n < 2 or n == by else len(head) if name == "state" else len(head) - n
        made.append(Column(name, wide, before=2 if n else 0, right=numeric[n], least=least, drop=drop))
    table = Table(*made)
    say.out("\n".join([table.head(), *(table.row(*row) for row in cells)]))
    left_out = [each for each in table.left_out() if each != "output"]
    if left_out:
        say.note(f"no room for {', '.join(map(say.plain, left_out))}; > FILE has them, and so does --json")


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else values.text_of(value)


def _is_numeric(column: list[Any]) -> bool:
    there = [each for each in column if each is not MISSING and each is not None]
    return bool(there) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in there)


def _note(reading: _Reading, wanted: list[values.Wanted]) -> None:
    """What the reader would otherwise wonder about: columns that stay empty, what there is to choose from, damage."""
    empty = [each.pointer for each in wanted if not reading.found[each.name]]
    if reading.rows and reading.example is None:
        if reading.pruned:
            rest = reading.rows - reading.pruned
            also = f"; the other {rest} of these jobs have none" if rest else ""
            say.note(f"the replies of {say.counted(reading.pruned, 'job')} were pruned, and are not kept{also}")
        else:
            say.note("none of these jobs has a reply yet")
    elif reading.example is not None and (empty or not wanted):
        there = values.pointers(reading.example[1])
        what = f"no reply has anything at {', '.join(empty)}; " if empty else ""
        some = f"job {reading.example[0]} has " + (", ".join(there) or "no single values")
        say.note(f"{what}{some}" + ("" if empty else "; --col NAME=/POINTER adds a column"))
    if reading.damaged:
        named = ", ".join(map(str, reading.damaged[:10])) + (" and more" if len(reading.damaged) > 10 else "")
        say.note(f"the stored reply of {named} is gone or damaged, its cells are empty; schedq result ID says more")
