"""From argv to values by the table of verbs, without a framework; and what every verb is given: a Call."""

from __future__ import annotations

from scheduler.cli.grammar import nearest
from scheduler.cli.options import Option, Verb
from scheduler.errors import UsageError


class Call:
    """One call of a verb: its values by key, as they were typed."""

    __slots__ = ("values", "verb")

    def __init__(self, verb: str, values: dict[str, object]) -> None:
        self.verb, self.values = verb, values

    def flag(self, key: str) -> bool:
        """Whether a flag was given."""
        return bool(self.values.get(key))

    def text(self, key: str) -> str | None:
        """The value of an option or of a single argument, None if it was not given."""
        value = self.values.get(key)
        return None if value is None else str(value)

    def many(self, key: str) -> list[str]:
        """All values of what can be given again."""
        value = self.values.get(key)
        return [str(each) for each in value] if isinstance(value, list) else []

    def whole(self, key: str) -> int | None:
        """A whole number, None if it was not given. UsageError if it is none, or more than the database keeps."""
        value = self.text(key)
        if value is None:
            return None
        flag, digits = f"--{key.replace('_', '-')}", value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit()):
            raise UsageError(f"{flag} {value!r} is not a whole number")
        if len(digits) > 19 or not -BIGGEST - 1 <= int(value) <= BIGGEST:
            raise UsageError(f"{flag} {value[:40]!r} is out of bounds; between {-BIGGEST - 1} and {BIGGEST}")
        return int(value)

    def duration_s(self, key: str) -> float | None:
        """A duration in seconds, None if it was not given. UsageError without a unit."""
        value = self.text(key)
        if value is None:
            return None
        from scheduler.config import duration_s

        return duration_s(value, f"--{key.replace('_', '-')}")


BIGGEST = (1 << 63) - 1
MAY_BE_EMPTY = ("--pointer",)
"""The pointer to the whole document is the empty one."""


def _refuse_unusable(option: Option, value: str) -> None:
    if not value and option.flag not in MAY_BE_EMPTY:
        raise UsageError(f"{option.flag} is empty; give it a {option.metavar}, or leave it out")
    try:
        value.encode()
    except UnicodeEncodeError:
        if option.metavar != "PATH":
            raise UsageError(f"{option.flag} {value!r} is no text: its bytes are not UTF-8") from None


def _file_named(word: str) -> str:
    import os

    if not os.path.lexists(word):
        return ""
    return f"; the file of that name is meant by ./{word}, or by {word} after --"


def parse(verb: Verb, argv: list[str]) -> Call:
    """The values that argv gives to a verb's arguments and options; options may come anywhere before `--`."""
    named: dict[str, Option] = {}
    for option in verb.options:
        named[option.flag] = option
        if option.short:
            named[option.short] = option
    values: dict[str, object] = {}
    plain: list[str] = []
    at, end = 0, len(argv)
    while at < end:
        word = argv[at]
        at += 1
        if word == "--":
            plain.extend(argv[at:])
            break
        if len(word) < 2 or word[0] != "-":
            if len(plain) < len(verb.arguments) and verb.arguments[len(plain)].rest:
                plain.extend(argv[at - 1 :])
                break
            plain.append(word)
            continue
        if word[1] == "-":
            flag, equals, given = word.partition("=")
            attached: str | None = given if equals else None
        else:
            flag, attached = word[:2], word[2:] or None
        found = named.get(flag)
        if found is None:
            hint = _file_named(word) or nearest(flag, list(named)) or (_see(verb) if named else "; it takes none")
            if verb.arguments and word[1] != "-" and " after --" not in hint:
                hint += "; a value that begins with - stands after --"
            raise UsageError(f"{verb.name} has no option {flag}{hint}")
        if not found.metavar:
            if attached is None:
                values[found.key] = True
                continue
            if word[1] == "-":
                raise UsageError(f"{flag} takes no value, and {attached!r} was given; write {flag} alone")
            values[found.key] = True
            at -= 1
            argv = [*argv[:at], "-" + attached, *argv[at + 1 :]]
            continue
        if attached is None:
            if at >= end:
                raise UsageError(f"{flag} needs a value: {flag} {found.metavar}")
            attached = argv[at]
            at += 1
        _refuse_unusable(found, attached)
        if found.many:
            values.setdefault(found.key, []).append(attached)  # type: ignore[attr-defined]
        else:
            values[found.key] = attached
    _place(verb, plain, values)
    return Call(verb.name, values)


LISTED = {
    "SLUG": "; schedq providers list shows them", "ID": "; schedq status shows them",
    "ID|SLUG": "; schedq workers shows them", "SCHEDULE": "; schedq schedule shows them",
}  # fmt: skip
"""Where the words that an argument takes are listed, by its metavar."""


def _see(verb: Verb) -> str:
    return f"; schedq {verb.name} --help shows what it takes"


def _place(verb: Verb, plain: list[str], values: dict[str, object]) -> None:
    rest = plain
    for argument in verb.arguments:
        take = len(rest) if argument.many else min(1, len(rest))
        if take < argument.least:
            where = LISTED.get(argument.metavar) or _see(verb)
            raise UsageError(f"{verb.name} needs {argument.metavar} ({argument.help}){where}")
        if argument.many:
            values[argument.key] = rest[:take]
        elif take:
            values[argument.key] = rest[0]
        rest = rest[take:]
    if rest:
        raise UsageError(f"{verb.name} does not take {rest[0]!r}{_see(verb)}")


def carry_out(verb: Verb, call: Call) -> int:
    """Import the verb's function and answer with its exit code."""
    module, _, function = verb.run.partition(":")
    code = getattr(__import__("scheduler.cli." + module, fromlist=[function]), function)(call)
    return int(code or 0)
