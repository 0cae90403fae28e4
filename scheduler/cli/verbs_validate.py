"""The verb that queues validation cases: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import EVERYDAY, JSON, Argument, Option, Verb

VALIDATE = Verb(
    "validate",
    "validating:validate",
    "Queue providers' validation cases, and judge what they answer.",
    told="Every [[validation]] case of the providers, and of their variants that declare some, becomes a job of one "
    "batch, whose name goes to stdout. Whether a case passed is kept apart from whether its job ran: a job whose "
    "expectations are not met has succeeded. What is not installed, or can never run here, is in the batch as refused. "
    "With --wait: exit 0 if all passed, 1 if not.",
    arguments=(Argument("SLUG", "providers, or provider:variant", least=0, many=True, key="slugs"),),
    options=(
        Option("--all", "", "every provider"),
        Option("--batch", "BATCH", "the batch's name; validate-DATE-TIME unless given"),
        Option("--wait", "", "wait until all are judged, then say how each went"),
        Option("--timeout", "DURATION", "stop waiting after this long (exit 124); the cases go on"),
        Option("--fresh", "", "each case in a worker that has served nothing, and serves nothing after it"),
        Option("--repeat", "N", "queue each case N times"),
        Option(
            "--changed", "",
            "only providers whose cases did not all pass the last time, with this revision and these expectations",
        ),
        Option("--dry-run", "", "list what would be queued, and queue nothing"),
        JSON,
    ),
    examples=("schedq validate capiti --wait", "schedq validate capiti --fresh", "schedq validate --all --changed"),
    panel=EVERYDAY,
    fast=True,
)  # fmt: skip
