"""`history`: which jobs there were, what became of them, how long they waited and ran."""

from __future__ import annotations

from scheduler.cli import ids as names
from scheduler.cli import paging, say, sheets
from scheduler.cli.fast import Call
from scheduler.cli.joblines import COLOURS, OVER, named, provider
from scheduler.cli.say import counted, span
from scheduler.cli.tables import Column, Table
from scheduler.clock import local, now_s, seconds
from scheduler.config import Paths
from scheduler.errors import UsageError
from scheduler.store import history as past

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Row = dict[str, Any]
    Parts = Iterator[list[Row]]

UNSEEN = 20
"""How many jobs stdout gets where it is no terminal that has a height."""


def history(call: Call) -> int:
    """Print jobs, newest first."""
    paths, at_s = Paths(), now_s()
    if call.flag("json") and call.flag("csv"):
        raise UsageError("--json and --csv are two forms of one list; give one of them")
    given, limit = names.filters(call), _limit(call)
    parts = past.parts(paths, given, limit)
    first = next(parts, [])
    if not first and given:
        names.found(given, paths)
    if call.flag("json"):
        _document(first, parts, at_s)
    elif call.flag("csv"):
        say.data(sheets.head().encode())
        for part in _all(first, parts):
            say.data(sheets.body(part, at_s).encode("utf-8", "backslashreplace"))
    elif not first:
        say.out("no job matches" if given else "no job yet; schedq submit makes one")
    else:
        paging.out(_page(_all(first, parts), at_s))
        if call.text("limit") is None and limit is not None and len(first) == limit and _more(paths, given, limit):
            say.note(f"the last {counted(limit, 'job')}; --all has every one, --limit N as many as you like")
    return 0


def _limit(call: Call) -> int | None:
    """How many are printed at most, None for all. UsageError for a number below 1."""
    limit = call.whole("limit")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit} leaves nothing to print; at least 1")
    if limit is not None and call.flag("all"):
        raise UsageError("--all and --limit contradict each other; give one of them")
    if limit is not None or call.flag("all") or call.flag("json") or call.flag("csv"):
        return limit
    return max(5, paging.rows() - 4) if say.is_terminal() else UNSEEN


def _more(paths: Paths, given: dict[str, object], limit: int) -> bool:
    return sum(map(len, past.parts(paths, given, limit + 1))) > limit


def _all(first: list[Row], parts: Parts) -> Parts:
    yield first
    yield from parts


def _document(first: list[Row], parts: Parts, at_s: float) -> None:
    """One JSON document, written part by part: a long history is never in memory as a whole."""
    say.data(b'{"schema_version": 1, "jobs": [')
    between = ""
    for row in (row for part in _all(first, parts) for row in part):
        told = {**row, "waited_s": sheets.waited_s(row, at_s), "ran_s": sheets.ran_s(row, at_s)}
        say.data((between + say.document(told, indent=False)).encode("utf-8", "backslashreplace"))
        between = ", "
    say.out("]}")


def _page(parts: Iterable[list[Row]], at_s: float) -> Iterator[str]:
    table = Table(
        Column("id", 6, right=True), Column("provider", 14, before=2, least=7), Column("name", 15, before=1, least=6),
        Column("ended as", 13, before=1, least=11), Column("when", 12, before=1, least=6, drop=3),
        Column("waited", 7, before=1, right=True), Column("ran", 7, before=1, right=True),
        Column("tries", 5, before=1, right=True, drop=1),
    )  # fmt: skip
    yield table.head()
    today = local(at_s)[:6]
    for part in parts:
        for row in part:
            when = local(seconds(row["ended_at"] or row["submitted_at"]))
            yield table.row(
                str(row["id"]), provider(row), named(row), _ending(row),
                when.removeprefix(today + " ") if when.startswith(today) else when,
                span(sheets.waited_s(row, at_s)), span(sheets.ran_s(row, at_s)), str(row["tries"] or "-"),
            )  # fmt: skip


def _ending(row: Row) -> tuple[str, str]:
    """What a job ended as: its outcome where that says more than its state; the state of one that has not ended."""
    state, outcome = row["state"], row["outcome"]
    told = outcome if state == "failed" and outcome not in (None, "ok") else state
    return str(told).replace("_", " "), COLOURS.get(state, "") if state in OVER else ""
