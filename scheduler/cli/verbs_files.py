"""The verbs for what jobs leave on the disk, and for a look at all that a queue stands on: a part of the table."""

from __future__ import annotations

from scheduler.cli.options import IDS, JSON, OUTCOMES, PANELS, Option, Verb

EVERYDAY, MORE = PANELS[:2]

FILES: tuple[Verb, ...] = (
    Verb(
        "artifacts",
        "artifacts:artifacts",
        "The files that jobs left: outputs, input, logs, what failed attempts wrote.",
        told="A path a line; on a terminal with sizes and what each is. -o copies the outputs of each job whole or not "
        "at all. --json has one job's document for one id, else a list of them as `jobs`.",
        arguments=(IDS,),
        options=(
            Option("--batch", "BATCH", "the jobs of this batch"),
            Option("--output", "FOLDER", "copy the outputs into this folder, under the job's name", short="-o"),
            Option("--overwrite", "", "let them take the place of what is there"),
            Option("--sha256", "", "the sha256 of each file before its path, as sha256sum has it"),
            JSON,
        ),
        examples=("schedq artifacts 7", "schedq artifacts 3-9,12 -o here/", "schedq artifacts --batch night --sha256"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "prune",
        "pruning:prune",
        "Give back the disk space of jobs that have ended, by age, count and size.",
        told="A job goes if every rule given lets it go; one rule is needed. Its outputs in the queue's own folder, "
        "input, reply, logs and work go; its row stays for history and table. What was asked for with --out stays "
        "where it is, always. Jobs that have not ended, and results that they build on, are never touched. Without "
        "--batch, --slug and --outcome it also takes folders of workers that are gone, backups of the database but the "
        "newest three, and old samples.",
        options=(
            Option("--older-than", "DURATION", "jobs that ended longer ago than this"),
            Option("--keep", "N", "of those that match, the N that ended last stay"),
            Option("--max-size", "G", "oldest first, until the queue's folder is below G GiB (or 500M, 2T)"),
            Option("--batch", "BATCH", "only jobs of this batch"),
            Option("--slug", "SLUG", "only jobs of this provider"),
            Option("--outcome", "KIND,...", "only jobs that ended so", words=", ".join(OUTCOMES)),
            Option("--logs-only", "", "take the logs alone"),
            Option("--rows", "", "take the jobs' rows too, also of those pruned before: nothing tells of them then"),
            Option("--dry-run", "", "list what would go, with its size, and take nothing"),
            Option("--yes", "", "do not ask, however many they are"),
            JSON,
        ),
        examples=(
            "schedq prune --older-than 30d --dry-run",
            "schedq prune --max-size 200 --yes",
            "schedq prune --batch night --outcome crashed --keep 0",
        ),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "doctor",
        "doctoring:doctor",
        "All that a queue stands on: each ok, or a warning and a remedy.",
        told="The kernel, filesystem and room, sockets, logins, devices, locks, database, environments and weights, "
        "settings, what dead processes left, and what keeps failing. Changes nothing, and works before there is a "
        "queue. Exit 0 if all is well, 1 if anything warns.",
        options=(JSON,),
        examples=("schedq doctor", "schedq doctor --json"),
        panel=EVERYDAY,
        fast=True,
    ),
)
