"""Which verb argv asks for, and the words that are near to one.

Standard library only, and nothing slow of it.
"""

from __future__ import annotations

from scheduler.cli.options import Verb
from scheduler.cli.verbs import EVERYDAY as EVERYDAY
from scheduler.cli.verbs import GROUPS as GROUPS
from scheduler.cli.verbs import HIDDEN as HIDDEN
from scheduler.cli.verbs import MORE as MORE
from scheduler.cli.verbs import NIGHT as NIGHT
from scheduler.cli.verbs import TABLE as TABLE

VERBS = {verb.name: verb for verb in TABLE}

FRONT = ("--help", "-h", "--version", "--install-completion", "--show-completion")
"""What may be asked without a verb."""


def words() -> list[str]:
    """Every first word of a call: verbs and groups."""
    return [verb.name for verb in TABLE if " " not in verb.name and verb.panel != HIDDEN] + list(GROUPS)


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean X?` for a slip of a known word, else an empty string."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def verb_of(argv: list[str]) -> tuple[Verb | None, list[str]]:
    """The verb that argv asks for, and the rest of argv; None when it asks for help of more than one verb.

    No word, or options alone, is `status`. UsageError for a word that is neither verb nor group.
    """
    from scheduler.errors import UsageError

    if not argv or (argv[0].startswith("-") and argv[0] not in FRONT):
        return VERBS["status"], argv
    first, rest = argv[0], argv[1:]
    if first == "help":
        return None, [*rest, "--help"]
    if first == "--version":
        return VERBS["version"], rest
    if first in VERBS:
        return VERBS[first], rest
    if first in GROUPS:
        inside = [name.split(" ")[1] for name in VERBS if name.startswith(first + " ")]
        if rest and not rest[0].startswith("-"):
            if rest[0] not in inside:
                hint = nearest(rest[0], inside) or f"; it has {', '.join(inside)}"
                raise UsageError(f"no verb {rest[0]!r} in {first}{hint}")
            return VERBS[f"{first} {rest[0]}"], rest[1:]
        default = GROUPS[first][1]
        if default and "--help" not in rest and "-h" not in rest:
            return VERBS[f"{first} {default}"], rest
        return None, argv if rest else [first, "--help"]
    if first in FRONT:
        return None, argv
    hint = nearest(first, words()) or "; schedq --help lists them"
    raise UsageError(f"no verb {first!r}{hint}")
