"""The verbs for keeping a scheduler over reboots: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import JSON, Option, Verb

SERVICE: tuple[Verb, ...] = (
    Verb(
        "service status",
        "service:status",
        "Whether this queue's scheduler is started at boot, and by what.",
        told="Exit 0 if it is, by this schedq with the environment of now; 1 if not.",
        options=(JSON,),
        examples=("schedq service", "schedq service status --json"),
    ),
    Verb(
        "service install",
        "service:install",
        "Let the machine start this queue's scheduler at boot.",
        told="A unit of your own systemd, if that stays without a login; where there is no systemd, an @reboot line of "
        "your crontab. SCHEDQ_*, PATH and other places are written down as they are now. Stopping the unit leaves "
        "the workers. Again is harmless: it renews what has changed.",
        options=(
            Option("--system", "", "print a unit for the machine's systemd, and how root puts it in place"),
            Option("--cron", "", "the crontab, whatever else there is"),
        ),
        examples=(
            "schedq service install",
            "schedq service install --system",
            "schedq service install --cron",
        ),
    ),
    Verb(
        "service remove",
        "service:remove",
        "Take away what `service install` wrote for this queue, and nothing else.",
        told="A scheduler that runs goes on.",
        examples=("schedq service remove",),
    ),
)
