"""The verb that queues jobs: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import EVERYDAY, HOLD, JSON, REQUEST, Argument, Option, Verb

BEGIN = Option("--begin", "WHEN", "not before 22:00 (the next one), 2h (from now), 2026-11-29T22:00")

SUBMIT = Verb(
    "submit",
    "submitting:submit",
    "Queue a job for each input, or row of a file; print the ids.",
    told="Every input is checked before any is queued: all of them go in, or none, and each bad one is named. Works "
    "while no scheduler runs.\n\nA file of jobs is .jsonl (an object a line) or .csv (a table with a head); what a row "
    "says comes before the options of the call. Its keys: provider, input (a path, against the folder of the file; in "
    ".jsonl also the document itself) or inline, name, params (in a table also params.NAME), priority, key, labels, "
    "batch, after, on_parent, out, overwrite, begin, hold, timeout, max_attempts, retry_on, on_lost.",
    arguments=(
        Argument("SLUG", "provider, or provider:variant; of rows that name none", least=0),
        Argument("INPUT", "input files, globs, or folders; - reads stdin", least=0, many=True),
    ),
    options=(
        *REQUEST,
        Option("--from", "FILE", "a job for each row of this file; - reads .jsonl from stdin", key="source"),
        Option("--label", "NAME[=VALUE]", "a label to find the jobs by later", many=True),
        BEGIN,
        Option("--after", "ID|BATCH[:any]", "only once these have succeeded, or, with :any, ended", many=True),
        Option(
            "--each-after",
            "BATCH[:any]",
            "job i after job i of that batch; one INPUT is for all; --key may hold {parent}",
        ),
        Option("--on-parent", "WHAT", "when what it comes after did not succeed: fail, or hold"),
        Option("--timeout", "DURATION", "end an attempt that takes longer; not how long you wait"),
        HOLD,
        Option(
            "--resume",
            "",
            "of a --batch that is there: open again what did not succeed, with the input as it is, add what it lacks",
        ),
        Option("--dry-run", "", "say what would be queued, what refused, and when it should end; queue nothing"),
        JSON,
    ),
    examples=(
        "schedq submit capiti a.json",
        "schedq submit pyrodigal 'inputs/*.json' --batch night --out 'out/{name}'",
        "schedq submit pyrodigal inputs/ --batch night --resume",
        "schedq submit pyrodigal --from jobs.csv --batch night --dry-run",
    ),
    panel=EVERYDAY,
    fast=True,
)
