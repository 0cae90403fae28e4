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

OTHERS = {
    "list": "providers list, schedq workers list, or schedq status", "check": "providers check, or schedq db check",
    "stop": "down", "quit": "down", "exit": "down", "start": "up",
    "rm": "cancel", "kill": "cancel", "del": "cancel", "delete": "cancel", "remove": "cancel", "abort": "cancel",
    "top": "status --watch", "watch": "status --watch",
    "ps": "status", "ls": "status", "stat": "status", "jobs": "status", "info": "show",
    "logs": "log", "tail": "log ID -f", "output": "result", "outputs": "result",
    "retry": "requeue", "rerun": "requeue", "add": "submit", "enqueue": "submit", "suspend": "hold",
}  # fmt: skip
"""What other programs, or a group of ours, call a verb -> the verb that does it."""

FRONT = ("--help", "-h", "--version")
"""What may be asked without a verb."""


def words() -> list[str]:
    """Every first word of a call: verbs and groups."""
    return [verb.name for verb in TABLE if " " not in verb.name and verb.panel != HIDDEN] + list(GROUPS)


def elsewhere() -> dict[str, str]:
    """Each word that is no first word of a call and stands for a verb -> that verb.

    Those are OTHERS, and a verb's second word that only one group has.
    """
    inside: dict[str, str] = {}
    for name in VERBS:
        group, _, word = name.partition(" ")
        if word and group != "service":
            inside[word] = "" if word in inside else name
    found = {**{word: name for word, name in inside.items() if name}, **OTHERS}
    return {word: name for word, name in found.items() if word not in VERBS and word not in GROUPS}


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

    if argv and argv[0] in ("--install-completion", "--show-completion"):
        raise UsageError(f"there is no {argv[0]}; schedq completion prints a shell's script, its --help where it goes")
    if not argv or (argv[0].startswith("-") and argv[0] not in FRONT):
        return VERBS["status"], argv
    first, rest = argv[0], argv[1:]
    if first == "help":
        verb_of(rest)
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
    others = elsewhere()
    hint = f"; did you mean schedq {others[first]}?" if first in others else nearest(first, words())
    raise UsageError(f"no verb {first!r}{hint or '; schedq --help lists them'}")
