"""Whether a reply and its output files are what a validation case expects, and what differs, in words.

An expectation maps places to rules. A place is a JSON pointer into the reply; its rule is a value (equal, as JSON has
it: 1 is 1.0 and is not true), or a table: {value, abs, rel} (numbers in it may differ by so much, also inside lists),
{min, max} (both included), {exists}. `files` maps globs below the outputs to true, false or {exists, min_bytes,
sha256}. Decimals are compared as they are written: 1.1 is 1.0 within 0.1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

FILES = "files"
VALUE_KEYS = ("value", "abs", "rel", "min", "max", "exists")
FILE_KEYS = ("exists", "min_bytes", "sha256")
SHOWN, NAMED = 100, 8
ENDINGS = ("passed", "failed", "refused", "did not run", "not judged", "waits")
"""How a case can stand, see `standing`."""


@dataclass(frozen=True)
class Fault:
    """One expectation that is not met: where, what was expected there, what was found."""

    place: str
    expected: str
    found: str


@dataclass(frozen=True)
class File:
    """An output file: its path below the outputs, its size, and, where it was asked for, its sha256."""

    path: str
    bytes: int
    sha256: str = ""


@dataclass(frozen=True)
class Outputs:
    """What lies in a job's outputs: every path, and the files that each glob of an expectation matches."""

    there: tuple[str, ...] = ()
    matching: Mapping[str, tuple[File, ...]] = field(default_factory=dict)


def judge(expect: Mapping[str, Any], reply: Any, outputs: Outputs) -> list[Fault]:
    """What of an expectation is not met, in its order; [] = the case passed."""
    found: list[Fault] = []
    for place, wanted in expect.items():
        if place == FILES:
            for glob, rule in file_rules(wanted).items():
                found += _files(glob, rule, outputs)
        else:
            found += _value(place, wanted if isinstance(wanted, dict) else {"value": wanted}, reply)
    return found


def file_rules(wanted: Any) -> dict[str, dict[str, Any]]:
    """The rule of each glob, whichever way `files` was written."""
    given = wanted if isinstance(wanted, dict) else dict.fromkeys(wanted, True)
    return {glob: rule if isinstance(rule, dict) else {"exists": rule} for glob, rule in given.items()}


def globs(expect: Mapping[str, Any]) -> dict[str, bool]:
    """The globs that files are looked for by, and whether these have to be hashed."""
    return {glob: "sha256" in rule for glob, rule in file_rules(expect.get(FILES, {})).items()}


def standing(state: str, outcome: str | None, verdict: str | None) -> str:
    """How a case stands by its job's state and outcome and its check's verdict: one of ENDINGS.

    `failed` = it ran and its expectations are not met; `did not run` = it has no answer that could be judged.
    """
    if state == "succeeded":
        return verdict or "not judged"
    if state == "refused" or (state == "failed" and outcome == "refused"):
        return "refused"
    return "did not run" if state in ("failed", "cancelled", "timed_out") else "waits"


def _value(place: str, rule: Mapping[str, Any], reply: Any) -> Iterator[Fault]:
    there, value = _at(reply, place)
    said = place or "the reply"
    if not there:
        if rule.get("exists") is not False:
            yield Fault(said, _expected(rule), str(value))
        return
    if rule.get("exists") is False:
        yield Fault(said, "nothing", shown(value))
        return
    if "value" in rule:
        apart = _apart(rule["value"], value, rule.get("abs", 0), rule.get("rel", 0))
        if apart is not None:
            more = f"; {apart}" if apart else ""
            yield Fault(said, _expected(rule), shown(value) + more)
    if ("min" in rule or "max" in rule) and not _within(value, rule.get("min"), rule.get("max")):
        yield Fault(said, _expected(rule), shown(value) + ("" if _is_number(value) else ", which is no number"))


def _at(reply: Any, pointer: str) -> tuple[bool, Any]:
    """(True, what a JSON pointer leads to), or (False, where it stops and what is there)."""
    value, at = reply, ""
    for part in pointer.split("/")[1:]:
        word = part.replace("~1", "/").replace("~0", "~")
        index = int(word) if word.isascii() and word.isdigit() and len(word) < 10 and word == str(int(word)) else -1
        if isinstance(value, dict) and word in value:
            value = value[word]
        elif isinstance(value, list) and 0 <= index < len(value):
            value = value[index]
        else:
            return False, f"nothing at {pointer}; at {at or 'the top'} there {_there(value)}"
        at += "/" + part
    return True, value


def _there(value: Any) -> str:
    if isinstance(value, dict):
        names = [str(name) for name in value]
        return f"{'is' if len(names) == 1 else 'are'} {_some(names)}" if names else "is an empty table"
    if isinstance(value, list):
        return f"is a list of {len(value)}"
    return f"is {shown(value)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def shown(value: Any) -> str:
    """A value as JSON has it, cut after 100 characters."""
    if isinstance(value, list | dict) and len(value) > SHOWN:
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _expected(rule: Mapping[str, Any]) -> str:
    words = []
    if "value" in rule:
        near = [f"{rule['abs']!r}"] if rule.get("abs") else []
        near += [f"{float(rule['rel']) * 100:.15g} %"] if rule.get("rel") else []
        words.append(shown(rule["value"]) + (f" +- {' or '.join(near)}" if near else ""))
    if "min" in rule and "max" in rule:
        words.append(f"{rule['min']!r} to {rule['max']!r}")
    elif "min" in rule:
        words.append(f"at least {rule['min']!r}")
    elif "max" in rule:
        words.append(f"at most {rule['max']!r}")
    return " and ".join(words) or ("nothing" if rule.get("exists") is False else "something")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _exact(value: float) -> Fraction:
    """A number as it is written: 0.1 is a tenth. Only of finite ones."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def _within(value: Any, least: float | None, most: float | None) -> bool:
    if not _is_number(value) or value != value:
        return False
    if isinstance(value, float) and math.isinf(value):
        return least is None if value < 0 else most is None
    exact = _exact(value)
    return (least is None or exact >= _exact(least)) and (most is None or exact <= _exact(most))


def _apart(wanted: Any, value: Any, by: float, part: float, at: str = "") -> str | None:
    """None = alike; else where the first difference is and what it is, "" at the top."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        for name in (*wanted, *(each for each in value if each not in wanted)):
            here = f"{at}/{name}"
            if name not in value:
                return f"{here} is not there"
            if name not in wanted:
                return f"{here} is there, which was not expected"
            apart = _apart(wanted[name], value[name], by, part, here)
            if apart is not None:
                return apart
        return None
    if isinstance(wanted, list) and isinstance(value, list):
        if len(wanted) != len(value):
            return f"{at or 'it'} has {len(value)} entries, not {len(wanted)}"
        pairs = enumerate(zip(wanted, value, strict=True))
        return next((a for n, (w, v) in pairs if (a := _apart(w, v, by, part, f"{at}/{n}")) is not None), None)
    if _is_number(wanted) and _is_number(value):
        alike = _near(wanted, value, by, part)
    else:
        alike = type(wanted) is type(value) and bool(wanted == value)
    if alike:
        return None
    return f"{at} is {shown(value)}, not {shown(wanted)}" if at else ""


def _near(wanted: float, value: float, by: float, part: float) -> bool:
    if wanted != wanted or value != value:
        return False
    if math.inf in (abs(wanted), abs(value)):
        return wanted == value
    exact = _exact(wanted)
    return abs(_exact(value) - exact) <= max(_exact(by), _exact(part) * abs(exact))


def _files(glob: str, rule: Mapping[str, Any], outputs: Outputs) -> Iterator[Fault]:
    place, found = f"{FILES} {glob}", outputs.matching.get(glob, ())
    if rule.get("exists") is False:
        if found:
            yield Fault(place, "no file", _some([file.path for file in found]))
        return
    if not found:
        there = f"there {'is' if len(outputs.there) == 1 else 'are'} {_some(outputs.there)}"
        yield Fault(place, _wanted_file(rule), f"none; {there if outputs.there else 'there are no outputs'}")
        return
    least, sha256 = rule.get("min_bytes"), rule.get("sha256")
    small = [file for file in found if least is not None and file.bytes < least]
    if small:
        told = f"{small[0].path} has {small[0].bytes}" + (f", and {len(small) - 1} more are small" * (len(small) > 1))
        yield Fault(place, f"at least {least} bytes", told)
    other = [file for file in found if sha256 is not None and file.sha256 != sha256]
    if other:
        more = f", and {len(other) - 1} more differ" * (len(other) > 1)
        yield Fault(place, f"sha256 {sha256}", f"{other[0].path} has {other[0].sha256}{more}")


def _wanted_file(rule: Mapping[str, Any]) -> str:
    least = rule.get("min_bytes")
    return "a file" + (f" of at least {least} bytes" if least else "") + (" of this sha256" * ("sha256" in rule))
