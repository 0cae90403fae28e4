"""The verb for commands that queue for their room: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import PANELS, Argument, Option, Verb

COMMANDS: tuple[Verb, ...] = (
    Verb(
        "exec",
        "commanding:exec_",
        "Run any command when there is room for it.",
        told="The command queues in order with the jobs, and runs in this terminal with this environment, in which its "
        "devices (CUDA_VISIBLE_DEVICES and the like) and threads (OMP_NUM_THREADS and the like) are set. While it, or "
        "anything that it started, runs, its budget is taken, on this machine and for every user's queue. It is "
        "stopped when it takes more than its budget and memory runs short. Signals reach it; if this call dies, or its "
        "terminal goes and nohup does not keep both, it is ended. The exit code is the command's own, 128 + n for "
        "signal n; 127 and 126 for a command that is not there or cannot be executed, 3 and 5 for what never fits, 75 "
        "with --no-wait, 125 if schedq could not keep it. At least one of --vram, --ram and --exclusive is needed.",
        arguments=(Argument("COMMAND", "the command and its arguments, after --", many=True),),
        options=(
            Option("--vram", "GIB", "device memory that it may take, on each device"),
            Option("--ram", "GIB", "host memory that it may take; 0 unless given: say it for what loads data"),
            Option("--gpus", "N", "devices that it gets; 1 with --vram, otherwise it sees none"),
            Option(
                "--exclusive", "",
                "alone: starts when no other worker of this queue is on the memory that it uses, and none starts there"
                " before it ends; budgets are then what it needs at least",
            ),
            Option("--threads", "N", "cores that it counts for; OMP_NUM_THREADS unless given, else 1"),
            Option("--name", "NAME", "call its job so; otherwise the command's"),
            Option("--priority", "N", "higher goes first; 0 unless given, may be negative"),
            Option("--no-wait", "", "if there is no room now, say why and leave with 75; nothing stays queued"),
            Option(
                "--detach", "",
                "print the job's id and leave: it runs without a terminal, with a log, and outlives this call",
            ),
            Option(
                "--out", "PATH", "with --detach: where what it puts into $SCHEDQ_OUT goes if it ends well; {name} {id}"
            ),
            Option("--json", "", "with --detach: print the id as JSON for programs"),
            Option("--on-lost", "WHAT", "with --detach, when it vanished unfinished: fail (else), hold, requeue"),
        ),
        examples=(
            "schedq exec --vram 28 --ram 6 -- python train.py",
            "schedq exec --ram 2 --threads 8 -- make -j8",
            "schedq exec --vram 10 --detach --name night -- ./sweep.sh",
        ),
        panel=PANELS[0],
        fast=True,
    ),
)  # fmt: skip
"""One verb."""
