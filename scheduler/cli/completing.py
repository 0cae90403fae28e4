"""What a half-typed call can go on with: verbs, options, and the names that a queue and its manifests have.

Asked at each press of Tab by the scripts of `schedq completion`. It makes no queue, starts nothing, and has no errors:
what cannot be read offers nothing. Standard library only, and nothing slow of it.
"""

from __future__ import annotations

import os

from scheduler.cli import grammar, naming
from scheduler.cli.options import Option, Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scheduler.config import Paths

    Offer = tuple[str, str]

VARIABLE = "_SCHEDQ_WORDS"
"""Set by the scripts to the name of their shell: the arguments are words of a call, the last one half typed."""

FILES: Offer = ("", "files")
"""In place of a word: files go on here, as the shell lists them."""

CALLS = ("CALL",)
"""An argument that is a call of schedq itself."""


def answer(words: list[str], paths: Paths | None = None) -> list[Offer]:
    """(a word, what it is) of all that the last of `words` can become; FILES among them where a path may stand."""
    try:
        before, begun = words[:-1], words[-1] if words else ""
        return [each for each in _offers(before, begun, paths) if each == FILES or each[0].startswith(begun)]
    except Exception:
        return []


def lines(offers: list[Offer], shell: str) -> str:
    """The answer as the script of a shell reads it: a word a line, and what it is after a tab where that is shown."""
    told = []
    for word, about in offers:
        plain = "".join(each if each.isprintable() else " " for each in about)
        if word.isprintable():
            told.append(f"{word}\t{plain}\n" if not word or (plain and shell != "bash") else f"{word}\n")
    return "".join(told)


def _offers(before: list[str], begun: str, paths: Paths | None) -> list[Offer]:
    if not before or before == ["help"]:
        if begun.startswith("-"):
            return [*_flags(grammar.VERBS["status"]), ("--version", "the versions of schedq, Python and SQLite")]
        return _first_words()
    first = before[0]
    if first == "help":
        return _inside(before[1]) if len(before) == 2 else []
    if first in grammar.GROUPS and (len(before) == 1 or before[1].startswith("-")):
        default = grammar.GROUPS[first][1]
        if begun.startswith("-") or len(before) > 1:
            return _of_verb(grammar.VERBS[f"{first} {default}"], before[1:], begun, paths) if default else HELP
        return _inside(first)
    verb, rest = grammar.verb_of(before)
    return _of_verb(verb, rest, begun, paths) if verb else []


def _first_words() -> list[Offer]:
    about = {name: verb.summary for name, verb in grammar.VERBS.items()}
    about |= {name: told for name, (told, _) in grammar.GROUPS.items()}
    return [*((name, about[name]) for name in grammar.words()), ("help", "Show the help of a verb.")]


def _inside(group: str) -> list[Offer]:
    return [(name.split(" ")[1], verb.summary) for name, verb in grammar.VERBS.items() if name.startswith(group + " ")]


HELP: list[Offer] = [("--help", "show what it takes")]


def _flags(verb: Verb, given: set[str] | None = None) -> list[Offer]:
    left = [option for option in verb.options if option.many or option.key not in (given or ())]
    return [*((option.flag, option.help) for option in left), *HELP]


def _of_verb(verb: Verb, rest: list[str], begun: str, paths: Paths | None) -> list[Offer]:
    """What may stand after these words of a verb, by its options and arguments."""
    named = {flag: option for option in verb.options for flag in (option.flag, option.short) if flag}
    plain: list[str] = []
    given: set[str] = set()
    wanting: Option | None = None
    ended = False
    for at, word in enumerate(rest):
        if wanting is not None:
            wanting = None
        elif ended or not word.startswith("-") or word == "-":
            if not ended and len(plain) < len(verb.arguments) and verb.arguments[len(plain)].rest:
                return _offers(rest[at:], begun, paths)
            plain.append(word)
        elif word == "--":
            ended = True
        else:
            option = named.get(word.partition("=")[0] if word.startswith("--") else word[:2])
            if option is not None:
                given.add(option.key)
                wanting = option if option.metavar and word in (option.flag, option.short) else None
    if wanting is not None:
        return naming.values(verb, wanting, plain, begun, paths)
    if begun.startswith("--") and "=" in begun and not ended:
        flag, _, value = begun.partition("=")
        found = named.get(flag)
        values = naming.values(verb, found, plain, value, paths) if found and found.metavar else []
        return [(f"{flag}={word}", about) for word, about in values if word]
    if begun.startswith("-") and not ended:
        return _flags(verb, given)
    argument = verb.arguments[min(len(plain), len(verb.arguments) - 1)] if verb.arguments else None
    if argument is None or (len(plain) >= len(verb.arguments) and not argument.many):
        return [] if verb.arguments or begun else _flags(verb, given)
    if argument.rest:
        return _first_words()
    return naming.words(verb, argument.metavar, plain, begun, paths)


def carry_out(words: list[str]) -> int:
    """Print what the last word can become; 0, whatever happens."""
    told = lines(answer(words), os.environ.get(VARIABLE, ""))
    try:
        os.write(1, told.encode("utf-8", "surrogateescape"))
    except OSError:
        pass
    return 0
