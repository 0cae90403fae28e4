"""Jobs as CSV: one row a job under fixed columns, for a spreadsheet. Seconds, UTC stamps, nothing for what is not."""

from __future__ import annotations

from scheduler.clock import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Row = dict[str, Any]

COLUMNS = (
    "id", "slug", "variant", "name", "user", "state", "outcome", "text", "exit_code", "priority", "batch", "labels",
    "attempts", "tries", "submitted_at", "started_at", "ended_at", "waited_s", "ran_s", "case",
)  # fmt: skip


def head() -> str:
    """The line of columns."""
    return _lines([COLUMNS])


def body(rows: Iterable[Row], at_s: float) -> str:
    """A line a job, as `store.history` or `peek.jobs` has it, told at that moment; each ends with a newline."""
    return _lines(_cells(row, at_s) for row in rows)


def waited_s(row: Row, at_s: float) -> float | None:
    """How long a job stood in the line until its request was first sent: until `at_s` where that is still to come.

    From when it was free to start: not held, not before its time, and after those that it comes after.
    """
    until, free = row.get("started_at") or row.get("ended_at"), row.get("free_at")
    since = free if free and (not until or free <= until) else row["submitted_at"]
    return max(0.0, (seconds(until) if until else at_s) - seconds(since))


def ran_s(row: Row, at_s: float) -> float | None:
    """How long attempts of a job ran, all together, what runs until `at_s`; None for one of which none was sent."""
    if "attempts" in row:
        spans = [(each["sent_at"], each["ended_at"]) for each in row["attempts"] if each["sent_at"]]
    else:
        spans = [(row["sent_at"], None)] if row["sent_at"] else []
    done_s = row.get("ran_s")
    if not spans:
        return None if done_s is None else float(done_s)
    over_s = None if row.get("state") == "running" else row.get("ended_at")
    told = [(seconds(sent), ended or over_s) for sent, ended in spans]
    return float(done_s or 0.0) + sum(max(0.0, (seconds(end) if end else at_s) - since_s) for since_s, end in told)


def _cells(row: Row, at_s: float) -> list[object]:
    told = row["outcome"] if isinstance(row.get("outcome"), dict) else None
    kind = told["kind"] if told else row.get("outcome")
    text = told["text"] if told else row.get("outcome_text") or (row.get("reason") or {}).get("text")
    code = told["exit_code"] if told else row.get("exit_code")
    values: Row = {
        **row, "outcome": kind, "text": text, "exit_code": code, "attempts": row["attempt"],
        "labels": " ".join(row.get("labels") or []), "waited_s": _rounded(waited_s(row, at_s)),
        "ran_s": _rounded(ran_s(row, at_s)),
    }  # fmt: skip
    return [values.get(column) for column in COLUMNS]


def _rounded(value_s: float | None) -> float | None:
    return None if value_s is None else round(value_s, 3)


def _lines(rows: Iterable[Iterable[object]]) -> str:
    return "".join(map(line, rows))


def line(cells: Iterable[object]) -> str:
    """Any row of CSV: quoted where that is needed, and nothing in it that a spreadsheet takes for a formula."""
    import csv
    import io

    from scheduler.night.values import safe

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([safe(each) for each in cells])
    return text.getvalue()
