"""What a verb of the command line is made of: arguments, options, and those that many verbs share.

Standard library only, and nothing slow of it.
"""

from __future__ import annotations

STATES = ("queued", "held", "admitted", "running", "succeeded", "failed", "cancelled", "timed_out", "refused")
OUTCOMES = (
    "ok", "error", "refused", "no_outputs", "no_accelerator", "quarantined", "interrupted", "over_budget", "crashed",
    "timed_out", "no_reply", "lost", "cancelled", "input_changed", "later_expired", "parent_failed",
)  # fmt: skip
RETRIED = ("crashed", "no_reply", "lost", "timed_out", "error", "no_outputs")


class Argument:
    """Words without a flag: `least` of them at least, one at most unless `many`."""

    __slots__ = ("help", "key", "least", "many", "metavar")

    def __init__(self, metavar: str, help: str, *, least: int = 1, many: bool = False, key: str = "") -> None:
        self.metavar, self.help, self.least, self.many = metavar, help, least, many
        self.key = key or metavar.lower()


class Option:
    """A flag, which takes a value when it has a `metavar`, and can be given again when it is `many`."""

    __slots__ = ("flag", "help", "key", "many", "metavar", "short")

    def __init__(self, flag: str, metavar: str, help: str, *, many: bool = False, short: str = "") -> None:
        self.flag, self.metavar, self.help, self.many, self.short = flag, metavar, help, many, short
        self.key = flag[2:].replace("-", "_")


class Verb:
    """One command: what it takes, and `module:function` of scheduler.cli that carries it out."""

    __slots__ = ("arguments", "examples", "fast", "name", "options", "panel", "run", "summary", "told")

    def __init__(
        self,
        name: str,
        run: str,
        summary: str,
        *,
        told: str = "",
        arguments: tuple[Argument, ...] = (),
        options: tuple[Option, ...] = (),
        examples: tuple[str, ...] = (),
        panel: str = "",
        fast: bool = False,
    ) -> None:
        self.name, self.run, self.summary, self.told = name, run, summary, told
        self.arguments, self.options, self.examples = arguments, options, examples
        self.panel, self.fast = panel, fast


PANELS = EVERYDAY, MORE, HIDDEN = "Jobs and the scheduler", "More", "hidden"
"""The panels of `schedq --help`."""

JSON = Option("--json", "", "print JSON for programs instead of text")
SLUG = Argument("SLUG", "provider, or provider:variant")
JOB = Argument("ID", "a job: its id, or `last`")
IDS = Argument("ID", "jobs: 7, 3-9,12 or last", least=0, many=True, key="ids")
PATIENCE = Option("--timeout", "DURATION", "stop waiting after this long (exit 124); the job goes on")
RETRY = (
    Option("--max-attempts", "N", "how often its request is sent at most; the provider's unless given"),
    Option("--retry-on", "OUTCOME,...", f"what is tried again: some of {', '.join(RETRIED)}; or none"),
    Option("--on-lost", "WHAT", "when it vanished with its worker: requeue, hold or fail"),
)
HOLD = Option("--hold", "", "let nothing of it start until schedq release")
REQUEST = (
    Option("--param", "NAME=VALUE", "set one parameter of the provider", many=True),
    Option("--name", "NAME", "call the job so; otherwise the input's file stem"),
    Option("--out", "PATH", "where outputs go; may hold {name} {id} {slug} {batch}"),
    Option("--priority", "N", "higher goes first; 0 unless given, may be negative"),
    Option("--key", "KEY", "the same key is the same job: a second call finds the first one's"),
    Option("--batch", "BATCH", "a name that jobs submitted together share"),
    Option("--overwrite", "", "let the outputs take the place of what is at the destination"),
    *RETRY,
    Option("--example", "", "take the input that came with the provider"),
)
CHANGES = (
    Option("--dry-run", "", "say which jobs it would be, and change none"),
    Option("--yes", "", "do not ask, however many they are"),
)
FILTERS = (
    Option("--batch", "BATCH", "jobs of this batch"),
    Option("--slug", "SLUG", "jobs of this provider"),
    Option(
        "--state", "STATE",
        f"jobs in this state: {', '.join(STATES)}; a request that its worker refused is failed, with --outcome refused",
    ),
    Option(
        "--outcome", "KIND",
        f"jobs that ended so: {', '.join(OUTCOMES)}; a job of which two workers died is quarantined, whatever they"
        " died of",
    ),
    Option("--name", "GLOB", "jobs whose name matches"),
    Option("--mine", "", "jobs that I submitted"),
    Option("--since", "DURATION", "jobs submitted in the last DURATION, like 12h"),
)  # fmt: skip
