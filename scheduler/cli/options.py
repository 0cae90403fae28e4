"""What a verb of the command line is made of: arguments, options, and those that many verbs share.

Standard library only, and nothing slow of it.
"""

from __future__ import annotations

STATES = ("queued", "held", "admitted", "running", "succeeded", "failed", "cancelled", "timed_out", "refused")
OUTCOMES = (
    "ok", "error", "refused", "no_outputs", "no_accelerator", "quarantined", "interrupted", "over_budget", "crashed",
    "timed_out", "no_reply", "lost", "cancelled", "input_changed", "later_expired", "parent_failed",
)  # fmt: skip
UNENDED, ENDED = ("queued", "held", "admitted", "running"), STATES[4:]
"""The states of jobs that have not ended, and of those that have."""
RETRIED = ("crashed", "no_reply", "lost", "timed_out", "error", "no_outputs")


class Argument:
    """Words without a flag: `least` of them at least, one at most unless `many`. `rest`: from its first word on all
    words are its own, options too.
    """

    __slots__ = ("help", "key", "least", "many", "metavar", "rest")

    def __init__(
        self, metavar: str, help: str, *, least: int = 1, many: bool = False, key: str = "", rest: bool = False
    ) -> None:
        self.metavar, self.help, self.least, self.many, self.rest = metavar, help, least, many or rest, rest
        self.key = key or metavar.lower()


class Option:
    """A flag, which takes a value when it has a `metavar`, and can be given again when it is `many`.

    `words`: what its value may be that is one of some, said below the options of a help page.
    """

    __slots__ = ("flag", "help", "key", "many", "metavar", "short", "words")

    def __init__(
        self,
        flag: str,
        metavar: str,
        help: str,
        *,
        many: bool = False,
        short: str = "",
        words: str = "",
        key: str = "",
    ) -> None:
        self.flag, self.metavar, self.help, self.many, self.short = flag, metavar, help, many, short
        self.key, self.words = key or flag[2:].replace("-", "_"), words


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
    Option(
        "--max-attempts", "N",
        "how often its request is sent at most; the provider's unless given. A job that killed two workers is"
        " quarantined whatever this says",
    ),
    Option("--retry-on", "OUTCOME,...", f"what is tried again: some of {', '.join(RETRIED)}; or none"),
    Option("--on-lost", "WHAT", "when worker and keeper vanished with it (a power cut): requeue, hold or fail"),
)  # fmt: skip
HOLD = Option("--hold", "", "let nothing of it start until schedq release")
REQUEST = (
    Option("--param", "NAME=VALUE", "set one parameter of the provider", many=True),
    Option("--name", "NAME", "call the job so; otherwise the input's file stem"),
    Option("--out", "PATH", "where outputs go; may hold {name} {id} {slug} {batch}"),
    Option("--priority", "N", "higher goes first; 0 unless given, may be negative"),
    Option("--key", "KEY", "the same key is the same job: a second call finds the first one's; may hold {name}"),
    Option("--batch", "BATCH", "a name that jobs submitted together share"),
    Option("--overwrite", "", "let the outputs take the place of what is at the destination"),
    *RETRY,
    Option("--example", "", "take the input that came with the provider"),
)
CHANGES = (
    Option("--dry-run", "", "list the jobs that it would change, and change none"),
    Option("--yes", "", "do not ask, however many they are"),
)


def filters(states: tuple[str, ...] = STATES, outcomes: tuple[str, ...] = OUTCOMES) -> tuple[Option, ...]:
    """The options that choose jobs, for a verb that can do something to those in these states, that ended so."""
    refused = " (what its worker refused is refused, not failed)" * ("refused" in states)
    quarantined = " (a job of which two workers died is quarantined, whatever they died of)"
    outcome = Option(
        "--outcome", "KIND,...", "jobs that ended in one of these ways",
        words=f"{', '.join(outcomes)}{quarantined}",
    )  # fmt: skip
    return (
        Option("--batch", "BATCH", "jobs of this batch"),
        Option("--label", "LABEL", "jobs with this label; again: with each of them", many=True),
        Option("--slug", "SLUG", "jobs of this provider"),
        Option("--state", "STATE,...", "jobs in one of these states", words=f"{', '.join(states)}{refused}"),
        *((outcome,) if outcomes else ()),
        Option("--name", "GLOB", "jobs whose name matches"),
        Option("--mine", "", "jobs that I submitted"),
        Option("--since", "WHEN", "jobs submitted since then: 12h (ago), 20:00 (the last one), 2026-11-29T20:00"),
    )


FILTERS = filters()
