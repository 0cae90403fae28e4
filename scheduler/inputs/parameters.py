"""Parameters of a request: `NAME=VALUE`, typed by the provider's params schema, defaults filled in.

Imported by the fast paths: standard library only. The schema itself is read only when a parameter is given.
"""

from __future__ import annotations

import json

from scheduler.errors import BrokenManifest, InvalidInput, UsageError
from scheduler.inputs.formats import parse_json, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Misfit = Callable[[str, str, Any], tuple[str, str]]


ORDER = ("null", "boolean", "integer", "number", "array", "object", "string")


class Parameters(dict):  # type: ignore[type-arg]
    """The parameters of a request by name, defaults filled in; `given` are those that somebody asked for."""

    given: frozenset[str] = frozenset()


def typed(spec: dict[str, Any], given: list[str], misfit: Misfit) -> Parameters:
    """The parameters that these words mean. UsageError names parameter, value and what is allowed."""
    asked = spec["input"]
    rules = _rules(asked["params"]) if given and asked["params"] else {}
    found: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--param {shortened(word)} has no value; write it as NAME=VALUE")
        if asked["params"] is None:
            raise UsageError(f"--param {shortened(name)}: {spec['slug']} takes no parameters; leave it out")
        if name not in rules:
            raise UsageError(_unknown(name, rules, spec["slug"]))
        if name in found:
            raise UsageError(f"--param {name} is given twice; keep one")
        found[name] = _value(name, text, rules[name])
    made = Parameters({**asked["defaults"], **found})
    made.given = frozenset(found)
    if asked["params_validator"]:
        pointer, why = misfit(asked["params_validator"], asked["params"], dict(made))
        if why and pointer:
            name = pointer.split("/")[1].replace("~1", "/").replace("~0", "~")
            inside = pointer.removeprefix(f"/{pointer.split('/')[1]}")
            said = shortened(made.get(name), 40)
            raise UsageError(
                f"--param {name}={said}{': at ' + inside if inside else ''}: {why}{_allowed(name, rules)}"
                + _quoted(made.get(name))
            )
        if why:
            raise UsageError(
                f"the parameters of {spec['slug']} do not fit together: {why}; add what lacks with --param"
            )
    return made


def _quoted(value: object) -> str:
    """What to do about quotation marks that are a part of a refused text, where the shell left some; else empty."""
    marked = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return "; the quotation marks are part of it: leave them out, a text is written as it is" if marked else ""


def _rules(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = parse_json(file.read(), path)
        return dict(found.get("properties", {}))
    except (OSError, ValueError, AttributeError, InvalidInput) as error:
        raise BrokenManifest(f"{path}: cannot be read as the schema of parameters: {error}") from None


def _unknown(name: str, rules: dict[str, Any], slug: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, rules, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"--param {shortened(name)}: {slug} has no such parameter{hint}; it has {', '.join(sorted(rules)) or 'none'}"


def _kinds(rule: Any) -> list[str]:
    """The JSON types that a parameter may have, in the order in which its text is tried."""
    rule = rule if isinstance(rule, dict) else {}
    declared = rule.get("type")
    kinds = declared if isinstance(declared, list) else [declared] if declared else []
    for each in [*rule.get("anyOf", []), *rule.get("oneOf", [])] if not kinds else []:
        kinds += _kinds(each)
    if not kinds:
        words = [*rule.get("enum", []), *([rule["const"]] if "const" in rule else []), rule.get("default")]
        names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
        kinds = [names[type(each)] for each in words if type(each) in names] or [
            "null",
            "boolean",
            "number",
            "array",
            "object",
            "string",
        ]
    return [each for each in ORDER if each in kinds]


def _value(name: str, text: str, rule: Any) -> Any:
    kinds = _kinds(rule)
    for kind in kinds:
        try:
            return _as(kind, text)
        except (ValueError, RecursionError, InvalidInput):
            continue
    words = {
        "integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null",
        "array": "a JSON list, like [1, 2]", "object": 'a JSON object, like {"a": 1}', "string": "text",
    }  # fmt: skip
    raise UsageError(
        f"--param {name}={shortened(text, 40).strip(chr(34))}: must be {' or '.join(words[each] for each in kinds)}"
        + _allowed(name, {name: rule})
    )


def _as(kind: str, text: str) -> Any:
    """The text as a value of one JSON type. ValueError if it is none."""
    plain = text.strip()
    if kind == "string":
        text.encode()
        return text
    if kind == "null" and plain == "null":
        return None
    if kind == "boolean" and plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    if kind == "integer" and plain.lstrip("+-").isdigit() and plain.isascii():
        return int(plain)
    if kind == "number" and plain.isascii() and "_" not in plain:
        number = float(plain)
        if number - number == 0.0:
            return int(plain) if plain.lstrip("+-").isdigit() else number
    if kind in ("array", "object"):
        value = parse_json(text, "it")
        if isinstance(value, list if kind == "array" else dict):
            return value
    raise ValueError(text)


def _allowed(name: str, rules: dict[str, Any]) -> str:
    """The bounds of a parameter, for a message; empty if it has none."""
    rule = rules.get(name)
    if not isinstance(rule, dict):
        return ""
    if "enum" in rule:
        return (
            f"; allowed: {', '.join(json.dumps(each, ensure_ascii=False).strip(chr(34)) for each in rule['enum'][:20])}"
        )
    low, high = rule.get("minimum"), rule.get("maximum")
    if low is not None and high is not None:
        return f"; allowed: {low} to {high}"
    if low is not None or high is not None:
        return f"; allowed: {f'{low} or more' if low is not None else f'{high} or less'}"
    return ""
