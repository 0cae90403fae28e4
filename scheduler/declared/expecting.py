"""What a validation case may expect: what is wrong with an `expect` table, by its key and in words.

An expectation that nobody understands is never judged, and its case would pass: so each is an error.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from typing import Any

from scheduler.declared.declaration import shown
from scheduler.rules.expectation import FILE_KEYS, FILES, VALUE_KEYS

SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
FORMS = "a value, {value, abs, rel}, {min, max} or {exists}"


def unmeant(expect: dict[str, Any], at: str) -> Iterator[str]:
    """What is wrong with an expectation that is written at the key `at`, each a sentence that begins with its key."""
    for place, rule in expect.items():
        where = f"{at}.{place}" if place else f'{at}.""'
        if place == FILES:
            yield from _files(rule, where)
        elif place and not place.startswith("/"):
            near = difflib.get_close_matches(place.lower(), [FILES], n=1, cutoff=0.7)
            fix = "did you mean files?" if near else f'write "/{place}", the place in the reply, or files'
            yield f"{where} = {shown(rule)}: is no JSON pointer; {fix}"
        elif isinstance(rule, dict):
            yield from _rule(rule, where)


def _rule(rule: dict[str, Any], where: str) -> Iterator[str]:
    if not rule.keys() & {*VALUE_KEYS} and not any(_near(key, VALUE_KEYS) for key in rule):
        fix = "write {value = {...}} to expect a table, else {min, max} or {exists}"
        yield f"{where} = {shown(rule)}: says nothing to expect; {fix}"
        return
    yield from _strays(rule, where, VALUE_KEYS, f"an expectation is {FORMS}")
    for key in ("abs", "rel", "min", "max"):
        if key in rule and not _is_number(rule[key]):
            yield f"{where}.{key} = {shown(rule[key])}: must be a number; write {key} = 0.5, without quotes"
            return
    yield from _exists(rule, where)
    if ("abs" in rule or "rel" in rule) and "value" not in rule:
        key = "abs" if "abs" in rule else "rel"
        yield f"{where}.{key} = {shown(rule[key])}: how near to what? add value, or write {{min, max}}"
    for key in ("abs", "rel"):
        if rule.get(key, 0) < 0:
            yield f"{where}.{key} = {shown(rule[key])}: must be at least 0"
    if "min" in rule and "max" in rule and rule["min"] > rule["max"]:
        yield f"{where}.min = {shown(rule['min'])}: is above max = {shown(rule['max'])}; swap them"
    if "value" in rule and ("min" in rule or "max" in rule):
        yield f"{where} = {shown(rule)}: has a value and a range; keep one of them"


def _files(wanted: Any, where: str) -> Iterator[str]:
    if isinstance(wanted, list) and all(isinstance(each, str) for each in wanted):
        wanted = dict.fromkeys(wanted, True)
    if not isinstance(wanted, dict):
        yield f'{where} = {shown(wanted)}: must be a table of globs, like {{"*.cif" = {{min_bytes = 100}}}}, or a list'
        return
    for glob, rule in wanted.items():
        here = f"{where}.{glob}"
        if not glob or os.path.isabs(glob) or ".." in glob.split("/"):
            yield f"{here} = {shown(rule)}: leads out of the output folder; write it relative to that"
        if isinstance(rule, bool):
            continue
        if not isinstance(rule, dict) or not rule:
            yield f"{here} = {shown(rule)}: must be true, false, or a table of {', '.join(FILE_KEYS)}"
            continue
        yield from _strays(rule, here, FILE_KEYS, f"of a file there is {', '.join(FILE_KEYS)}")
        yield from _exists(rule, here)
        least = rule.get("min_bytes", 0)
        if not isinstance(least, int) or isinstance(least, bool) or least < 0:
            yield f"{here}.min_bytes = {shown(least)}: must be a whole number, at least 0"
        if "sha256" in rule and not (isinstance(rule["sha256"], str) and SHA256.fullmatch(rule["sha256"])):
            yield f"{here}.sha256 = {shown(rule['sha256'])}: write the 64 hex digits that sha256sum prints"


def _exists(rule: dict[str, Any], where: str) -> Iterator[str]:
    if "exists" not in rule:
        return
    if not isinstance(rule["exists"], bool):
        yield f"{where}.exists = {shown(rule['exists'])}: must be true or false"
    elif not rule["exists"] and len(rule) > 1:
        other = next(key for key in rule if key != "exists")
        yield f"{where}.exists = false: nothing is to be there, and {other} says of what is; keep one of them"


def _strays(rule: dict[str, Any], where: str, ours: tuple[str, ...], there_is: str) -> Iterator[str]:
    for key, value in rule.items():
        if key not in ours:
            near = _near(key, ours)
            yield f"{where}.{key} = {shown(value)}: unknown key; " + (f"did you mean {near}?" if near else there_is)


def _near(key: str, ours: tuple[str, ...]) -> str:
    known = {"minimum": "min", "maximum": "max", "equals": "value", "equal": "value", "tolerance": "abs", "atol": "abs"}
    known |= {"rtol": "rel", "present": "exists", "exist": "exists", "bytes": "min_bytes", "size": "min_bytes"}
    plain = key.lower().replace("-", "_")
    near = difflib.get_close_matches(plain, ours, n=1, cutoff=0.6)
    return known[plain] if known.get(plain) in ours else near[0] if near else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
