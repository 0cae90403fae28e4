"""What a program gives a Client, as the queue takes it; what is something else is refused by name, value and need.

Standard library only: imported by the fast paths.
"""

from __future__ import annotations

import os

from scheduler.config import LONGEST_S, SHORTEST_S
from scheduler.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any

    Input = dict[str, Any] | list[Any] | bytes | bytearray | memoryview | str | os.PathLike[str]
    Params = dict[str, Any] | Sequence[str] | None
    Labels = dict[str, Any] | Sequence[str] | None
    Begin = str | datetime | None
    After = int | str | Sequence[int | str] | None

VALUE = "input.json"
"""What an input that is a JSON value is called, where a worker wants a file."""

LONGEST_LABEL = 200

BIGGEST = (1 << 63) - 1
"""The largest whole number that the database keeps."""


def refusal(what: str, value: object, needed: str) -> UsageError:
    """The error for an argument that is not what it must be; an option of the command line is named as it is spelt."""
    shown = value if what.startswith("--") and isinstance(value, str) else repr(value)
    if len(shown) > 60:
        shown = f"{shown[:50]}... ({len(shown)} characters)"
    return UsageError(f"{what}{' ' if what.startswith('--') else ' = '}{shown}: must be {needed}")


def text(what: str, value: object) -> str:
    """Text that can be stored and shown; None is none. UsageError for another type, a NUL, or what is not UTF-8."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise refusal(what, value, "text")
    if "\0" in value:
        raise refusal(what, value, "text without a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refusal(what, value, "text that is UTF-8") from None
    return value


def batch(value: object) -> str:
    """The name of a batch, "" for none. UsageError for one that cannot be shown and typed again as it is."""
    name = text("batch", value)
    if not name.isprintable():
        raise refusal("batch", value, "a name without line ends and other characters that cannot be seen")
    return name


def path(what: str, value: object) -> str:
    """A path as text, also of a pathlib.Path; None is none."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, os.PathLike):
        found = os.fspath(value)
        if isinstance(found, str):
            return found
    raise refusal(what, value, "a path: text or a pathlib.Path")


def whole(what: str, value: object, least: int = -BIGGEST - 1, needed: str = "") -> int:
    """A whole number that the database can keep, `least` or more."""
    needed = needed or f"a whole number between {least} and {BIGGEST}"
    index = getattr(type(value), "__index__", None)
    if index is None or isinstance(value, bool):
        raise refusal(what, value, needed)
    number = int(index(value))
    if not least <= number <= BIGGEST:
        raise refusal(what, value, needed)
    return number


def seconds(what: str, value: object, least_s: float = 0.0) -> float | None:
    """A time span in seconds, None for no limit; at most a hundred years."""
    if value is None:
        return None
    needed = f"a number of seconds between {least_s:g} and {LONGEST_S:.0f}, or None for no limit"
    if isinstance(value, bool) or not isinstance(value, int | float) or not least_s <= value <= LONGEST_S:
        raise refusal(what, value, needed)
    return float(value)


def attempt_s(value: object) -> float | None:
    """How long an attempt may take, in seconds: a millisecond at least."""
    return seconds("timeout_s", value, SHORTEST_S)


def flag(what: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise refusal(what, value, "True or False")
    return value


def policy(on_lost: object, max_attempts: object, retry_on: object, *, typed: bool = False) -> dict[str, Any]:
    """The columns of a job for what it says itself of being tried again; what is None follows its provider's manifest.

    `retry_on` are outcomes as words, or one text of them with commas; `none`, or none at all: no outcome is. `typed`:
    they are options of the command line, and errors name them so.
    """
    columns: dict[str, Any] = {}
    names = ("--on-lost", "--max-attempts", "--retry-on") if typed else ("on_lost", "max_attempts", "retry_on")
    if max_attempts is not None:
        columns["max_attempts"] = whole(names[1], max_attempts, 1)
    if on_lost is not None:
        from scheduler.rules.retry import ON_LOST

        if on_lost not in ON_LOST:
            raise refusal(names[0], on_lost, f"one of {', '.join(ON_LOST)}")
        columns["on_lost"] = on_lost
    if retry_on is not None:
        from scheduler.rules.retry import POLICY_MAY_RETRY

        asked = retry_on.split(",") if isinstance(retry_on, str) else retry_on
        words = list(dict.fromkeys(map(str, asked))) if hasattr(asked, "__iter__") else [""]
        words = [] if words == ["none"] else words
        if not set(words) <= set(POLICY_MAY_RETRY):
            raise refusal(names[2], retry_on, f"some of {', '.join(POLICY_MAY_RETRY)}, or none")
        columns["retry_on"] = ",".join(words)
    return columns


def job_id(value: object, what: str = "id") -> int:
    """The id of one job."""
    return whole(what, value, 0, "a job's id, a whole number as submit gives them")


def job_ids(value: object) -> list[int]:
    """The ids of jobs, once each and in order: one id, or several of them."""
    if getattr(type(value), "__index__", None) is not None:
        return [job_id(value, "ids")]
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise refusal("ids", value, "a job's id or a list of them, whole numbers")
    return list(dict.fromkeys(job_id(each, "ids") for each in value))


def inputs(value: object) -> list[Any]:
    """The inputs of several jobs. UsageError for what is one input, or would be taken apart into characters."""
    if isinstance(value, str | bytes | bytearray | memoryview | dict | os.PathLike) or not hasattr(value, "__iter__"):
        raise refusal("inputs", value, "a list of inputs; for one there is submit")
    return list(value)


def assignments(params: object) -> list[str]:
    """Parameters as `NAME=VALUE`, of a dict or of such words."""
    if params is None:
        return []
    if isinstance(params, dict):
        return [f"{text('params', name)}={_value(name, value)}" for name, value in params.items()]
    if isinstance(params, str | bytes) or not hasattr(params, "__iter__"):
        raise refusal("params", params, "a dict, or a list of NAME=VALUE")
    words = list(params)
    for word in words:
        if not isinstance(word, str):
            raise refusal("params", word, "a dict, or a list of NAME=VALUE")
    return words


def _value(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return _as_json(value)
    except _NoJson as error:
        raise refusal(f"params[{name!r}]", value, f"a JSON value ({error})") from None


class _NoJson(ValueError):
    pass


def _as_json(value: object) -> str:
    """A value as JSON text. _NoJson says why it is none: a type, a key that is no text, itself inside."""
    import json

    try:
        written = json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, TypeError) else "it holds itself, or is nested too deep"
        raise _NoJson(why) from None
    level = [value]
    while level:
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                for key in each:
                    if not isinstance(key, str):
                        raise _NoJson(f"the key {key!r} is no text")
                below += each.values()
            elif isinstance(each, list | tuple):
                below += each
        level = below
    return written


def source(value: Any) -> tuple[bytes, str, str | None, str]:
    """An input's bytes, its file's name, the folder that it lies in (None = none), and what it is called in messages.

    UsageError for what is no path, bytes or JSON document, or a path that cannot be read.
    """
    from scheduler import request

    if isinstance(value, str | os.PathLike):
        given = path("input", value)
        return (*request.read(given), "" if given == "-" else request.quoted(given))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), "input", None, "the input"
    if not isinstance(value, dict | list):
        raise refusal("input", value, "a path, the bytes of a file, or a JSON document (a dict or a list)")
    try:
        return _as_json(value).encode(), VALUE, None, "the input"
    except _NoJson as error:
        raise refusal("input", value, f"a JSON document ({error})") from None


def of_params(error: UsageError) -> UsageError:
    """The same refusal of parameters that came as a dict and not as words of a command line."""
    return type(error)(str(error).replace("--param ", "params: ").replace("with --param", "to params"))


def labels(value: object, what: str = "labels") -> list[str]:
    """Labels of a job, once each: `NAME` or `NAME=VALUE`, as a list of texts or a dict. UsageError for what is none."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = [f"{name}={each}" if each not in (None, "") else name for name, each in value.items()]
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise refusal(what, value, "a list of NAME or NAME=VALUE")
    found: dict[str, None] = {}
    for each in list(value):
        word = text(what, each).strip()
        name = word.partition("=")[0]
        if not name or name != name.strip() or not word.isprintable() or "," in word or len(word) > LONGEST_LABEL:
            need = f"NAME or NAME=VALUE, printable, without a comma, of at most {LONGEST_LABEL} characters"
            raise refusal(what, each, need)
        found[word] = None
    return list(found)


def after(value: object) -> list[str]:
    """What a job comes after: an id, or a text or several as `--after` takes them. UsageError for what can be none."""
    from scheduler.after import words

    needed = "a job's id, a text like 7:any or night, or a list of these"
    if isinstance(value, str | int):
        value = [value]
    if isinstance(value, bytes | dict) or not hasattr(value, "__iter__"):
        raise refusal("after", value, needed)
    found = []
    for each in value:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise refusal("after", each, needed)
        found.append(text("after", str(each)))
        words(found[-1])
    return found


def begin(value: object, what: str = "begin") -> str | None:
    """The stamp before which a job is not to begin, of a text as `--begin` takes it or a datetime; None for at once.

    UsageError for a datetime without its zone, and for what begins_at refuses.
    """
    if value is None:
        return None
    from scheduler.begin import begins_at

    if isinstance(value, str):
        return begins_at(text(what, value), what)
    if getattr(value, "tzinfo", None) is None or not hasattr(value, "isoformat"):
        raise refusal(what, value, "a text like 22:00, 2h or 2026-11-29T22:00, or a datetime with its zone")
    return begins_at(value.isoformat(), what)
