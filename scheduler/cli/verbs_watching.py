"""The verb that looks back: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import FILTERS, JSON, MORE, Option, Verb

CSV = Option("--csv", "", "print CSV for a spreadsheet: a row a job, seconds and UTC times")
WATCH = (
    Option("--watch", "", "stay, and draw the page anew as things happen; q leaves. Into a pipe: after each change"),
    Option("--every", "DURATION", "with --watch: how often it is drawn; 2s unless given"),
)

WATCHING: tuple[Verb, ...] = (
    Verb(
        "history",
        "recalling:history",
        "The jobs that were submitted last, ended or not, newest first.",
        told="As many as fit the terminal, unless --limit or --all says otherwise; --json and --csv have every job "
        "that matches. What does not fit goes through $PAGER, on a terminal only. Times are this machine's own.",
        options=(
            *FILTERS,
            Option("--user", "USER", "jobs that this user submitted"),
            Option("--limit", "N", "this many at most"),
            Option("--all", "", "every job that matches"),
            JSON,
            CSV,
        ),
        examples=(
            "schedq history --since 20:00",
            "schedq history --batch night --state failed --all",
            "schedq history --slug boltz --outcome crashed,lost --csv",
        ),
        panel=MORE,
        fast=True,
    ),
)
