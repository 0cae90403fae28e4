"""The verbs for calls that are repeated, and for who is told of events: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import JSON, Argument, Option, Verb

ID = Argument("SCHEDULE", "a schedule's number", key="id")

SCHEDULE: tuple[Verb, ...] = (
    Verb(
        "schedule list",
        "scheduling:list_schedules",
        "Every schedule: when it is due next, and how the last time ended.",
        options=(JSON,),
        examples=("schedq schedule", "schedq schedule list --json"),
        fast=True,
    ),
    Verb(
        "schedule add",
        "scheduling:add",
        "Repeat a schedq call at the times that a cron line names.",
        told="The line has minute, hour, day of month, month and weekday, in quotes; @daily and the like are lines. "
        "What follows it is the call, checked at once, and made by the scheduler in this folder. Options of this verb "
        "stand before it. A time that the clock skips in spring is made up right after the skipped hour, one that "
        "comes twice in autumn is used once; a line with * for its hour goes by the hours that pass. What was missed, "
        "since no scheduler ran, is made up once; what could not be started, like in a folder that is not there, is "
        "tried again a little later. Calls run one after the other, for schedule_limit at most.",
        arguments=(
            Argument("CRON", 'when, like "0 22 * * *"'),
            Argument("CALL", "a schedq call, like validate --all", rest=True),
        ),
        options=(Option("--zone", "ZONE", "the zone of these times, like Europe/Berlin; else the machine's"), JSON),
        examples=(
            'schedq schedule add "0 22 * * *" validate --all',
            'schedq schedule add --zone Europe/Berlin "30 7 * * mon-fri" report last',
            'schedq schedule add "0 8 * * *" queue pause',
        ),
        fast=True,
    ),
    Verb(
        "schedule show",
        "scheduling:show",
        "One schedule: its call, its next times, how it ended each time, and what it said last.",
        arguments=(ID,),
        options=(JSON,),
        examples=("schedq schedule show 1", "schedq schedule show 1 --json"),
        fast=True,
    ),
    Verb(
        "schedule run",
        "scheduling:run",
        "Let a schedule be due now, beside its own times.",
        arguments=(ID,),
        examples=("schedq schedule run 1",),
        fast=True,
    ),
    Verb(
        "schedule remove",
        "scheduling:remove",
        "Repeat a call no more. What it queued stays, and a call that runs goes on.",
        arguments=(ID,),
        examples=("schedq schedule remove 1",),
        fast=True,
    ),
    Verb(
        "notify list",
        "notifying:list_notices",
        "What happened of late, who was told of it, and what could not be told and why.",
        options=(JSON,),
        examples=("schedq notify", "schedq notify list --json"),
        fast=True,
    ),
    Verb(
        "notify test",
        "notifying:test",
        "Send one notice now, and say what came back.",
        told="By the settings notify_command and notify_url as this call sees them. The scheduler reads them when it "
        "starts: after a change, schedq restart. A webhook is sent JSON with a text, as Slack and Mattermost take it.",
        options=(JSON,),
        examples=("schedq notify test", "schedq notify test --json"),
        fast=True,
    ),
)
