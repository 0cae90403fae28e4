"""Every verb of the command line: its arguments, options, help and examples, as one table.

The fast parser reads argv by it and the Typer commands are made from it, so that they cannot disagree.
Standard library only, and nothing slow of it.
"""

from __future__ import annotations

from scheduler.cli import options
from scheduler.cli.options import FILTERS, IDS, JOB, JSON, PANELS, PATIENCE, REQUEST, SLUG, Argument, Option, Verb
from scheduler.cli.verbs_completion import COMPLETION
from scheduler.cli.verbs_control import CONTROL
from scheduler.cli.verbs_exec import COMMANDS
from scheduler.cli.verbs_files import FILES
from scheduler.cli.verbs_install import INSTALL
from scheduler.cli.verbs_providing import PROVIDING
from scheduler.cli.verbs_report import REPORT
from scheduler.cli.verbs_schedule import SCHEDULE
from scheduler.cli.verbs_service import SERVICE
from scheduler.cli.verbs_submit import SUBMIT
from scheduler.cli.verbs_validate import VALIDATE
from scheduler.cli.verbs_watching import CSV, WATCH, WATCHING
from scheduler.cli.verbs_workers import WORKERS

EVERYDAY, MORE, HIDDEN = PANELS

NIGHT = """\
{"capacity_gib": 64, "reserve_gib": 4,
 "providers": {"boltz": {"budget_gib": 28, "cold_s": 100, "warm_s": 47},
               "esm2":  {"budget_gib": 40, "cold_s": 30}},
 "jobs": [{"id": 1, "slug": "boltz", "arrives_s": 0, "run_s": 50,
           "priority": 5},
          {"id": 2, "slug": "esm2", "arrives_s": 60, "run_s": 12}]}"""
"""A trace as `simulate --help` shows it."""

TABLE = (
    Verb(
        "run",
        "requests:run",
        "Submit one request, wait for it, and print the worker's reply.",
        told="Installs the provider and starts a scheduler where that is missing. Ctrl-C cancels the job; a hang-up "
        "or --timeout leaves it: schedq wait ID finds it again, and so does the same call if it had a --key.",
        arguments=(SLUG, Argument("INPUT", "the input file; - reads it from stdin", least=0)),
        options=(*REQUEST, PATIENCE, JSON),
        examples=("schedq run propka model.pdb --out results/model", "schedq run capiti --example"),
        panel=EVERYDAY,
        fast=True,
    ),
    SUBMIT,
    Verb(
        "status",
        "looking:status",
        "The pools, who holds them, what runs, and what waits and why.",
        arguments=(IDS,),
        options=(*FILTERS, *WATCH, JSON, CSV),
        examples=("schedq status --watch", "schedq status 3-9 --json", "schedq status --batch night --state failed"),
        panel=EVERYDAY,
        fast=True,
    ),
    Verb(
        "show",
        "looking:show",
        "Everything that is known of one job.",
        arguments=(JOB,),
        options=(JSON,),
        examples=("schedq show 7", "schedq show last --json"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "why",
        "why:why",
        "Why a job waits, or how it was admitted, newest decision first.",
        told="A job that is not the first of its provider waits for what that one waits for. --json has every number "
        "that each decision was made from.",
        arguments=(JOB,),
        options=(JSON,),
        examples=("schedq why 7", "schedq why last --json"),
        panel=EVERYDAY,
        fast=True,
    ),
    Verb(
        "log",
        "reading:log",
        "What the worker printed for a job; -f goes on as it prints.",
        told="Of its last attempt that has a log. Where none has one: what the last worker wrote that was started for "
        "the job and did not come up.",
        arguments=(JOB,),
        options=(
            Option("--follow", "", "go on until the job ends", short="-f"),
            Option("--attempt", "N", "another attempt than that"),
        ),
        examples=("schedq log 7", "schedq log last -f"),
        panel=EVERYDAY,
        fast=True,
    ),
    Verb(
        "result",
        "reading:result",
        "Print a job's reply, or a part of it, or write it to a file.",
        arguments=(JOB,),
        options=(
            Option("--pointer", "P", "only the part at this JSON pointer, like /results/0/top"),
            Option(
                "--output",
                "PATH",
                "a file; or a folder, which gets NAME.result.json and the outputs (a new one is written sh/, with"
                " the slash); or - for stdout",
                short="-o",
            ),
            Option("--overwrite", "", "let it take the place of what is there"),
            JSON,
        ),
        examples=("schedq result 7", "schedq result 7 --pointer /results/0/top -o top.txt"),
        panel=EVERYDAY,
        fast=True,
    ),
    Verb(
        "wait",
        "waiting:wait",
        "Wait until jobs have ended; never cancels them.",
        told="Exit 0 if all succeeded, 1 if one did not, 124 when the time is over, 6 when no scheduler runs that "
        "could end them.",
        arguments=(IDS,),
        options=(*FILTERS, PATIENCE, JSON),
        examples=("schedq wait 3-9,12 --timeout 2h", "schedq wait --batch night"),
        panel=EVERYDAY,
        fast=True,
    ),
    Verb(
        "cancel",
        "changing:cancel",
        "Cancel jobs, waiting or running.",
        told="Filters choose among those that have not ended.",
        arguments=(IDS,),
        options=(*options.filters(options.UNENDED, ()), *options.CHANGES, JSON),
        examples=("schedq cancel 7", "schedq cancel --batch night --state queued --dry-run"),
        panel=EVERYDAY,
        fast=True,
    ),
    *COMMANDS,
    VALIDATE,
    *REPORT,
    Verb(
        "up",
        "lifecycle:up",
        "Start the scheduler of this queue; it survives the logout.",
        options=(
            Option("--foreground", "", "stay in this terminal, log to stderr"),
            Option("--takeover", "", "end a scheduler that is stopped or does not answer, and take its place"),
        ),
        examples=("schedq up", "schedq up --foreground"),
        panel=EVERYDAY,
    ),
    Verb(
        "down",
        "lifecycle:down",
        "Stop the scheduler and its workers, after what runs has ended.",
        told="Starts nothing that waits. What cannot be brought down is named, with its figures: then the scheduler "
        "ends all the same, and the exit code is 75.",
        options=(Option("--now", "", "do not wait for running jobs: they return to the queue, uncounted"),),
        examples=("schedq down", "schedq down --now"),
        panel=EVERYDAY,
    ),
    Verb(
        "serve",
        "lifecycle:serve",
        "Be the scheduler that `up` started in the background.",
        options=(
            Option("--auto-down", "", "end after a time with nothing to do (setting auto_down)"),
            Option("--drain", "", "take nothing new, and end when what runs has ended"),
            Option(
                "--supervised", "", "a service manager keeps this process: restart does not put another in its place"
            ),
        ),
        examples=("schedq serve",),
        panel=HIDDEN,
    ),
    Verb(
        "restart",
        "lifecycle:restart",
        "Hand over to a new scheduler; workers stay, busy and idle.",
        told="It reads configuration and SCHEDQ_* anew. Exit 6 if no scheduler runs: schedq up starts one.",
        examples=("schedq restart",),
        panel=MORE,
    ),
    *WATCHING,
    *INSTALL,
    Verb(
        "plan",
        "planning:plan",
        "When each job is expected to start and to end.",
        told="From learned times and the queue as it is now; new jobs change it. A job that waits for something other "
        "than its turn has no time: schedq status says why.",
        options=(JSON,),
        examples=("schedq plan", "schedq plan --json"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "room",
        "machine:room",
        "Whether there is memory for one more worker of a provider now, and what would make it fit.",
        told="About memory alone: a paused queue, a breaker and max_workers are not looked at. Reads the machine, and"
        " starts nothing. Exit 0 if it fits, 75 if not now, 3 if it never will.",
        arguments=(SLUG,),
        options=(JSON,),
        examples=("schedq room capiti", "schedq room capiti --json"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "simulate",
        "simulating:simulate",
        "Run a night that has not happened, in seconds, and print its figures.",
        told="By the scheduler's own loop under a virtual clock, on a queue of its own: one unified pool, one worker a "
        "provider. Providers load and usually run as long as the trace says of them (as if learned before); what a job "
        f"takes is known when it has ended. A trace, in GiB and seconds:\n\n\b\n{NIGHT}\n\n"
        "warm_s (what a run usually takes), priority (0) and lower_bound_s are optional. Jobs stand in the order of "
        "submission.",
        arguments=(Argument("TRACE", "a JSON file of providers and jobs; - reads stdin"),),
        options=(
            Option("--overtake", "DURATION", "how long the first job may be overtaken (setting overtake)"),
            Option("--strict", "", "nobody overtakes anybody"),
            Option("--unlearned", "", "begin with nothing known of how long providers load and run"),
            JSON,
        ),
        examples=("schedq simulate night.json", "schedq simulate night.json --strict --json"),
        panel=MORE,
        fast=True,
    ),
    Verb(
        "version",
        "about:version",
        "The versions of schedq, Python and SQLite, and where they lie.",
        options=(JSON,),
        examples=("schedq version --json",),
        panel=MORE,
    ),
    Verb(
        "workers list",
        "workers:list_workers",
        "The resident workers: their states, charges and idle times.",
        options=(JSON,),
        examples=("schedq workers", "schedq workers list --json"),
    ),
    Verb(
        "machine show",
        "machine:show",
        "The pools, every reading with its source and age, and who holds what.",
        options=(JSON,),
        examples=("schedq machine", "schedq machine show --json"),
        fast=True,
    ),
    Verb(
        "machine declare",
        "declaring:declare",
        "Say what a process holds that nobody declared, so that it can be summed.",
        told="A process that no manifest here declares closes its pools to every start. A number declares that one "
        "process, a name every such holder of that name. Without either it lists what is declared.",
        arguments=(Argument("PID|SLUG", "a living process, or a provider's name", least=0, key="who"),),
        options=(
            Option("--vram", "G", "GiB that it may hold of devices; 0 unless given"),
            Option("--ram", "G", "GiB that it may hold of the machine's memory; 0 unless given"),
            Option("--remove", "", "declare it no longer"),
            JSON,
        ),
        examples=(
            "schedq machine declare",
            "schedq machine declare 4711 --vram 24 --ram 2",
            "schedq machine declare alphafold --remove",
        ),
        fast=True,
    ),
    Verb(
        "providers list",
        "providers:list_providers",
        "Every provider that can be asked, and what it costs.",
        options=(JSON,),
        examples=("schedq providers list",),
    ),
    Verb(
        "providers show",
        "providers:show",
        "All that one provider declares.",
        arguments=(SLUG,),
        options=(JSON,),
        examples=("schedq providers show capiti",),
    ),
    Verb(
        "providers check",
        "providers:check",
        "Read all manifests and say what is wrong, missing or odd.",
        arguments=(Argument("SLUG", "providers; all unless given", least=0, many=True, key="slugs"),),
        options=(JSON,),
        examples=("schedq providers check", "schedq providers check capiti"),
    ),
    *PROVIDING,
    Verb(
        "db check",
        "database:check",
        "Whether SQLite and the queue's own rules find the database whole.",
        options=(JSON,),
        examples=("schedq db check",),
    ),
    Verb(
        "db backup",
        "database:backup",
        "Write a whole copy of the database while the queue is in use.",
        arguments=(Argument("TARGET", "the file to write; among the queue's backups unless given", least=0),),
        examples=("schedq db backup", "schedq db backup /mnt/safe/queue.db"),
    ),
    Verb(
        "db upgrade",
        "database:upgrade",
        "Bring the database to this version, after a backup.",
        examples=("schedq db upgrade",),
    ),
    Verb(
        "config show",
        "settings:show",
        "Every setting, its value, and where that came from.",
        options=(JSON,),
        examples=("schedq config show",),
    ),
    *CONTROL,
    *WORKERS,
    *SERVICE,
    *SCHEDULE,
    *FILES,
    *COMPLETION,
)

GROUPS = {
    "queue": ("The whole queue: pause, drain, resume.", "status"),
    "workers": ("The resident workers.", "list"),
    "machine": ("This machine: pools, readings, holders.", "show"),
    "providers": ("What can be asked: the catalog of manifests.", "list"),
    "db": ("The queue's database.", ""),
    "config": ("Settings and their origins.", "show"),
    "service": ("The scheduler at boot.", "status"),
    "schedule": ("Calls that are repeated: every evening, every Monday.", "list"),
    "notify": ("Who is told of batches that end and breakers that open.", "list"),
}
"""Group -> what it is about, and the verb that its bare name stands for (or none)."""
