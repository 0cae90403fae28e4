"""The verbs for what an operator changes of queue, jobs and providers: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import (
    CHANGES,
    ENDED,
    IDS,
    JSON,
    MORE,
    OUTCOMES,
    RETRY,
    UNENDED,
    Argument,
    Option,
    Verb,
    filters,
)
from scheduler.cli.verbs_measure import MEASURE
from scheduler.cli.verbs_submit import BEGIN

CONTROL: tuple[Verb, ...] = (
    MEASURE,
    Verb(
        "hold",
        "control:hold",
        "Keep waiting jobs from starting until release.",
        told="Filters choose among those that wait. A job whose worker is being started is given back, uncounted, and "
        "the worker goes on loading. One that runs is left alone: schedq cancel stops it.",
        arguments=(IDS,),
        options=(*filters(("queued", "admitted"), ()), *CHANGES, JSON),
        examples=("schedq hold 7", "schedq hold --batch night --dry-run"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "release",
        "control:release",
        "Let held jobs go, each at its old place.",
        told="Filters choose among those that are held.",
        arguments=(IDS,),
        options=(*filters(("held",), ()), *CHANGES, JSON),
        examples=("schedq release 7", "schedq release --state held --mine"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "requeue",
        "control:requeue",
        "Open jobs again that failed, timed out or were cancelled.",
        told="Filters choose among those. Under the same id; tries count anew. What succeeded stays as it is: "
        "submit it again.",
        arguments=(IDS,),
        options=(
            *filters(ENDED[1:], OUTCOMES[1:]),
            Option("--timeout", "DURATION", "end an attempt that takes longer, in the place of what they asked for"),
            *CHANGES,
            JSON,
        ),
        examples=("schedq requeue 7", "schedq requeue --batch night --outcome timed_out --timeout 4h"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "update",
        "control:update",
        "Change what waiting jobs asked for: priority, limits, revision.",
        told="Filters choose among those of which it can be changed. What a job's attempt has begun with stays; of a "
        "running job only the policy for its next try can change.",
        arguments=(IDS,),
        options=(
            *filters(UNENDED, ()),
            Option("--priority", "N", "higher goes first"),
            Option(BEGIN.flag, BEGIN.metavar, f"{BEGIN.help}; or now"),
            Option("--after", "none", "let it come after nobody, but for what its input takes results of"),
            *RETRY,
            Option("--timeout", "DURATION", "end an attempt that takes longer"),
            Option("--repin", "", "take the revision of the provider that is here, where the input fits it"),
            *CHANGES,
            JSON,
        ),
        examples=("schedq update 7 --priority 5", "schedq update --slug capiti --state queued --repin"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "queue status",
        "pausing:status",
        "Whether the queue is open, paused or drained, and how many jobs it has.",
        options=(JSON,),
        examples=("schedq queue", "schedq queue status --json"),
        fast=True,
    ),
    Verb(
        "queue pause",
        "pausing:pause",
        "Let nothing new be sent or started; what runs goes on.",
        told="Idle workers stay warm. It outlasts a restart, and submit goes on being possible. A job whose request "
        "was not sent yet is given back, uncounted.",
        options=(JSON,),
        examples=("schedq queue pause",),
        fast=True,
    ),
    Verb(
        "queue resume",
        "pausing:resume",
        "End a pause or a drain.",
        options=(JSON,),
        examples=("schedq queue resume",),
        fast=True,
    ),
    Verb(
        "queue drain",
        "pausing:drain",
        "Take nothing new, and wait until what runs has ended and the workers are gone.",
        told="The scheduler stays, and submit goes on being possible; schedq queue resume ends it.",
        options=(Option("--timeout", "DURATION", "stop waiting after this long (exit 124); the drain goes on"), JSON),
        examples=("schedq queue drain", "schedq queue drain --timeout 2h"),
        fast=True,
    ),
    Verb(
        "providers reset",
        "control:reset",
        "Close the breakers of providers now, so that their jobs are tried again.",
        told="A provider whose workers fail in a row is left alone for a while; this ends that, and says what it was.",
        arguments=(Argument("SLUG", "providers", many=True, key="slugs"),),
        options=(JSON,),
        examples=("schedq providers reset capiti",),
        fast=True,
    ),
)
