"""JSON schemas (draft 7): read, compiled to code, and explained when a value does not fit.

Slow: imported when a manifest changed or a value was refused. A schema stands for itself: references lead
into the same file, and nothing is fetched. A value is never changed; defaults are read from the schema, not
filled in by the validator.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any, NoReturn

import fastjsonschema
from fastjsonschema import JsonSchemaValueException

from scheduler import readable
from scheduler.errors import BrokenManifest, InvalidInput
from scheduler.inputs.cache import MOST_BYTES
from scheduler.inputs.formats import parse_json, shortened
from scheduler.inputs.sound import COUNTS, LISTS_OF_SCHEMAS, faults, step

TYPE_WORDS = {
    "string": "text", "number": "a number", "integer": "a whole number", "boolean": "true or false",
    "object": "an object", "array": "a list", "null": "null",
}  # fmt: skip


def read(path: str) -> dict[str, Any]:
    """The schema of a file. BrokenManifest names file and pointer of what is wrong with it."""
    try:
        found = parse_json(readable.read(path, MOST_BYTES).decode("utf-8"), path)
    except InvalidInput as error:
        raise BrokenManifest(f"{error}; correct this JSON schema") from None
    except OSError as error:
        raise BrokenManifest(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BrokenManifest(f"{path}: byte {error.start} is not UTF-8, which JSON must be; save it as UTF-8") from None
    if not isinstance(found, dict):
        raise BrokenManifest(f"{path}: a JSON schema is an object, and this is {shortened(found)}")
    wrong = faults(found)
    if wrong:
        raise BrokenManifest("\n".join(f"{path}: at {pointer or 'the top'}: {why}" for pointer, why in wrong[:5]))
    return found


def _fetch(uri: str) -> NoReturn:
    raise ValueError(f"the reference {uri!r} leads out of this file")


SEALED = dict.fromkeys(("", "http", "https", "file", "ftp", "urn", "tag"), _fetch)


def _at_home(schema: dict[str, Any]) -> Any:
    """The schema without its own `$id`, references to that made local: the compiled function is then `validate`."""
    own = str(schema.get("$id", "")).rstrip("#")

    def local(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: value.removeprefix(own) if own and key == "$ref" and isinstance(value, str) else local(value)
                for key, value in node.items()
            }
        return [local(each) for each in node] if isinstance(node, list) else node

    found = local(schema)
    for key in ("$id", "id"):
        if isinstance(found.get(key), str):
            del found[key]
    return found


def compiled(path: str) -> CodeType:
    """A schema file as code that defines `validate`, in need of no library. BrokenManifest if it is broken."""
    schema = _at_home(read(path))
    try:
        source = _source(schema)
        body = "\n".join(line for line in source.split("\n") if not line.startswith(("import ", "from ", "VERSION =")))
        return compile(body, path, "exec", dont_inherit=True, optimize=0)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError, SyntaxError) as error:
        raise BrokenManifest(f"{path}: at the top: this JSON schema cannot be used: {error}") from None


def _source(schema: Any) -> str:
    """A schema as Python. With brief errors, which `explain` makes long; fastjsonschema 2.22 has none for `const`."""
    try:
        return str(fastjsonschema.compile_to_code(schema, SEALED, use_default=False, detailed_exceptions=False))
    except KeyError:
        return str(fastjsonschema.compile_to_code(schema, SEALED, use_default=False))


def explain(path: str, value: Any, change: Callable[[Any], Any] | None = None) -> tuple[str, str]:
    """Where and why a value does not fit the schema in a file: (JSON pointer, words). ("", "") if it fits.

    `change`: what is made of the schema first.
    """
    seen = os.stat(path)
    key = path, change, seen.st_mtime_ns, seen.st_size, seen.st_ino
    if key not in _made:
        schema = _at_home(read(path))
        schema = schema if change is None else change(schema)
        _made.clear()
        _made[key] = schema, _checker(schema)
    return _explained(_made[key][0], value, 0, _made[key][1])


_made: dict[object, tuple[Any, Callable[[], Callable[[Any], Any]]]] = {}
"""The schema that was asked about last, and what checks a value by it."""


def _checker(schema: Any) -> Callable[[], Callable[[Any], Any]]:
    return cache(lambda: fastjsonschema.compile(schema, SEALED, use_default=False))


def _explained(
    schema: Any, value: Any, level: int, checker: Callable[[], Callable[[Any], Any]] | None = None
) -> tuple[str, str]:
    try:
        (checker or _checker(schema))()(value)
    except JsonSchemaValueException as error:
        at, found = _place(error, value)
        return _words(error, at, found, schema, level)
    except RecursionError:
        return "", "is nested too deep to be checked"
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, SyntaxError) as error:
        return "", f"cannot be checked: {error}"
    return "", ""


def _place(error: JsonSchemaValueException, value: Any) -> tuple[str, Any]:
    """The pointer of the value that an error is about: its name as rendered, and the very object."""
    best: tuple[str, Any] = ("", value)
    waiting = [("data", "", value)]
    while waiting:
        name, pointer, node = waiting.pop()
        if name == error.name:
            best = (pointer, node)
            if node is error.value:
                return best
        if not str(error.name).startswith(name):
            continue
        if isinstance(node, dict):
            waiting += [(f"{name}.{key}", f"{pointer}/{step(key)}", child) for key, child in node.items()]
        elif isinstance(node, list):
            waiting += [(f"{name}[{index}]", f"{pointer}/{index}", child) for index, child in enumerate(node)]
    return best


def _words(error: JsonSchemaValueException, at: str, found: Any, schema: Any, level: int) -> tuple[str, str]:
    is_now = shortened(given(found))
    rule, declared = error.rule, error.definition if isinstance(error.definition, dict) else {}
    limit = declared.get(rule)
    if rule == "required" and isinstance(found, dict):
        lacking = [name for name in limit or [] if name not in found]
        return at, f"lacks {_named(lacking)}{_meant(lacking, found)}"
    if rule == "additionalProperties" and isinstance(found, dict):
        return at, _unknown_keys(found, declared)
    if rule == "type":
        kinds = limit if isinstance(limit, list) else [limit]
        return (
            at,
            f"must be {' or '.join(TYPE_WORDS.get(str(each), str(each)) for each in kinds)}, not {is_now}",
        )
    if rule == "enum":
        return at, f"must be one of {', '.join(shortened(each, 30) for each in limit or [])}, not {is_now}"
    if rule == "const":
        return at, f"must be {shortened(limit)}, not {is_now}"
    if rule in COUNTS and isinstance(found, str | list | dict):
        return at, _count(str(rule), int(limit or 0), found)
    if rule in LISTS_OF_SCHEMAS and isinstance(limit, list) and level < 4:
        return _of_several(str(rule), at, limit, found, schema, level)
    if rule == "pattern" and isinstance(found, str):
        return at, f"must match pattern {limit}, and is {is_now}{_strange(str(limit), found)}"
    says = str(error.message)
    name = str(error.name)
    says = says[len(name) :].strip() if says.startswith(name) else says
    return at, f"{says or 'does not fit'}, and is {is_now}"


def _strange(pattern: str, found: str) -> str:
    """The first character that a text of one kind of characters may not have: `: "t" at 7 is none of these`."""
    kind = re.fullmatch(r"\^(\[[^\]\\]+\])[+*]\$", pattern)
    for place, letter in enumerate(found if kind else "", 1):
        if kind and not re.match(kind[1], letter):
            return f": {shortened(letter)} at {place} is none of these"
    return ""


def _count(rule: str, limit: int, found: str | list[Any] | dict[str, Any]) -> str:
    """What a text, list or object has too few or too many of."""
    whole = given(found)
    few = rule.startswith("min")
    noun = COUNTS[rule] + ("" if limit == 1 else "s")
    return f"must have at {'least' if few else 'most'} {limit} {noun}, and has {len(whole)}: {shortened(whole)}"


def given(found: Any) -> Any:
    """A value without what was laid into it from elsewhere: what its `own` keys are, where it says so."""
    own = getattr(found, "own", None)
    return found if own is None else {key: found[key] for key in found if key in own}


def _meant(lacking: list[str], found: dict[str, Any]) -> str:
    import difflib

    keys = list(given(found))
    near = difflib.get_close_matches(lacking[0], keys, n=1) if lacking else []
    if near:
        return f"; is {shortened(near[0])} meant to be it?"
    return f"; it has {_named(keys)}" if keys else "; it is empty"


def _unknown_keys(found: dict[str, Any], declared: dict[str, Any]) -> str:
    import difflib

    known = list(declared.get("properties", {}))
    patterns = list(declared.get("patternProperties", {}))
    odd = [key for key in found if key not in known and not any(re.search(each, key) for each in patterns)]
    near = difflib.get_close_matches(odd[0], known, n=1) if odd else []
    told = [f"known: {_named(known)}"] if known else []
    told += [f"{'others' if known else 'keys'} match {' or '.join(patterns[:8])}"] if patterns else []
    hint = f"did you mean {shortened(near[0])}?" if near else "; ".join(told) or "none is known"
    return f"has no key {_named(odd)}; {hint}"


def _of_several(rule: str, at: str, forms: list[Any], found: Any, schema: Any, level: int) -> tuple[str, str]:
    """Why a value is none of several forms: the form that it comes nearest to, or each form's reason."""
    shared = {
        key: schema[key] for key in ("definitions", "$defs", "$schema") if isinstance(schema, dict) and key in schema
    }
    told = [_explained({**shared, "allOf": [form]}, found, level + 1) for form in forms]
    failed = [each for each in told if each[1]]
    if len(failed) < len(forms):
        return (
            at,
            f"fits {len(forms) - len(failed)} of {len(forms)} forms and must fit exactly one; it is "
            + shortened(given(found)),
        )
    deepest = max(failed, key=lambda each: each[0].count("/"))
    if deepest[0] or len(failed) == 1:
        return at + deepest[0], deepest[1] + (f" (the nearest of {len(forms)} forms)" if len(forms) > 1 else "")
    reasons = list(dict.fromkeys(words for _, words in failed))
    return at, f"fits none of {len(forms)} forms: " + "; or: ".join(reasons[:6])


def _named(names: list[str]) -> str:
    few = ", ".join(shortened(str(name), 30) for name in names[:8])
    return few + (f" and {len(names) - 8} more" if len(names) > 8 else "")
