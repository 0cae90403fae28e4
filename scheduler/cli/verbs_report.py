"""The verbs of the morning: what became of the night, and what was found. A part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import EVERYDAY, FILTERS, JSON, MORE, Argument, Option, Verb

REPORT: tuple[Verb, ...] = (
    Verb(
        "report",
        "reporting:report",
        "What became of a batch or a night, why, and what to do next.",
        told="Validation cases count by their checks, other jobs by how they ended. Exit 0 if all is good, 1 if "
        "something failed or has not ended, 4 if there is no such batch. Without a batch it is the newest one.",
        arguments=(Argument("BATCH", "a batch, or last: the newest one", least=0),),
        options=(
            Option("--since", "WHEN", "instead of a batch all jobs since then: 20:00 (the last one), 12h, 2026-11-29"),
            Option("--against", "BATCH|last", "what fails, passes, or is slower than in an earlier batch like it"),
            Option("--html", "FILE", "write a page for a browser or to be printed, in one file; - = stdout"),
            Option("--junit", "FILE", "write JUnit XML for CI; - = stdout"),
            Option("--md", "", "print Markdown"),
            JSON,
        ),
        examples=(
            "schedq report night",
            "schedq report --since 20:00 --html night.html",
            "schedq report nightly-7 --against last --junit junit.xml",
        ),
        panel=EVERYDAY,
        fast=True,
    ),
    Verb(
        "table",
        "tabulating:table",
        "A row for each job with values of its reply: CSV, or a table on a terminal.",
        told="Columns are id, name, state, those that are asked for, and output. A value that is not there is empty. "
        "In CSV a text that a spreadsheet would take for a formula has a ' before it.",
        arguments=(Argument("BATCH|ID", "a batch, or jobs: 7, 3-9,12 or last", least=0, many=True, key="ids"),),
        options=(
            Option("--col", "NAME=/POINTER", "a column: the value at this JSON pointer of the reply", many=True),
            Option("--sort", "COLUMN", "order by a column, numbers as numbers; -COLUMN falls"),
            Option("--all", "", "on a terminal all rows, not the first 200"),
            *FILTERS,
            JSON,
        ),
        examples=(
            "schedq table night --col iptm=/confidence/iptm --sort -iptm",
            "schedq table 3-9 --col /length > lengths.csv",
        ),
        panel=MORE,
        fast=True,
    ),
)
