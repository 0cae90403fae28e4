"""The verbs for what an operator changes of workers: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import JSON, Argument, Option, Verb

THOSE = "workers: 7, 3-9,12, or a provider's name for all of its workers"

WORKERS: tuple[Verb, ...] = (
    Verb(
        "workers retire",
        "workers:retire",
        "End workers: idle ones now, busy ones after their job.",
        told="A job that waits is not lost by it: it is sent to another worker, or starts one. A worker that comes up "
        "for a job stays: cancel the job, or retire it when it is ready.",
        arguments=(Argument("ID|SLUG", THOSE, least=0, many=True, key="who"),),
        options=(
            Option("--idle", "", "only those that have nothing to do, of those named or of all; pinned ones stay"),
            Option("--all", "", "all, pinned ones too, and no provider is wanted warm any more"),
            JSON,
        ),
        examples=("schedq workers retire 3", "schedq workers retire --idle", "schedq workers retire capiti --idle"),
    ),
    Verb(
        "workers pin",
        "workers:pin",
        "Keep workers: never stopped for room or age, until unpin.",
        arguments=(Argument("ID|SLUG", THOSE, many=True, key="who"),),
        options=(JSON,),
        examples=("schedq workers pin 3", "schedq workers pin capiti"),
    ),
    Verb(
        "workers unpin",
        "workers:unpin",
        "Let pinned workers make room and age again.",
        arguments=(Argument("ID|SLUG", THOSE, many=True, key="who"),),
        options=(JSON,),
        examples=("schedq workers unpin 3",),
    ),
    Verb(
        "workers warm",
        "workers:warm",
        "Start a worker before a job asks for it.",
        told="It is admitted like any other and waits for its room: nobody is stopped for it, and no waiting job that "
        "needs the room comes after it. schedq workers says what it waits for. It is given up when it can never fit or "
        "its start fails twice.",
        arguments=(Argument("SLUG", "providers, or provider:variant", many=True, key="slugs"),),
        options=(
            Option("--pin", "", "pin it when it is up"),
            Option("--remove", "", "want it no longer; a worker that is up stays"),
            JSON,
        ),
        examples=("schedq workers warm capiti", "schedq workers warm capiti pyrodigal --pin"),
    ),
    Verb(
        "workers write-off",
        "write_off:write_off",
        "Give up leaked memory: its charge is taken back though it is not seen to be.",
        told="Only what schedq status shows as leaked, of a worker that is gone. What its driver still shows on no "
        "process's name stays charged as that. Recorded with who did it.",
        arguments=(Argument("ID", "the worker that the memory was charged to"),),
        options=(Option("--pool", "POOL", "its charge on this pool alone: its id, or the beginning of it"), JSON),
        examples=("schedq workers write-off 7", "schedq workers write-off 7 --pool device:GPU-5d1f"),
    ),
)
