"""Whether a JSON schema (draft 7) is one: what is wrong with it, by its place, before it is compiled.

A schema stands for itself: references lead into the same file, and end. Slow: imported when a manifest changed.
"""

from __future__ import annotations

import re
from typing import Any

from scheduler.inputs.formats import shortened

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
OF_SCHEMAS = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf")
A_SCHEMA = ("additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else")
COUNTS = {
    "minLength": "character", "maxLength": "character", "minItems": "item", "maxItems": "item",
    "minProperties": "key", "maxProperties": "key",
}  # fmt: skip
HERE = ("not", "if", "then", "else")
"""Of the same value as the schema that they stand in, like LISTS_OF_SCHEMAS."""

NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def faults(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """What is wrong with a schema: (JSON pointer, words). Empty = it can be compiled."""
    found: list[tuple[str, str]] = []
    _walk(schema, "", schema, found)
    return found


def _walk(node: Any, at: str, root: dict[str, Any], found: list[tuple[str, str]]) -> None:
    if isinstance(node, bool):
        return
    if not isinstance(node, dict):
        found.append((at, f"a schema is an object, true or false, not {shortened(node)}"))
        return
    for key, value in node.items():
        here = f"{at}/{step(key)}"
        why = _fault(key, value, root) or (_circle(node, root) if key == "$ref" else "")
        if why:
            found.append((here, why))
        elif key in OF_SCHEMAS:
            for name, child in value.items():
                if key == "dependencies" and isinstance(child, list):
                    continue
                if key == "patternProperties" and not _is_expression(name):
                    found.append((f"{here}/{step(name)}", f"{shortened(name)} is not a regular expression"))
                _walk(child, f"{here}/{step(name)}", root, found)
        elif key in LISTS_OF_SCHEMAS or (key == "items" and isinstance(value, list)):
            for index, child in enumerate(value):
                _walk(child, f"{here}/{index}", root, found)
        elif key in A_SCHEMA or key == "items":
            _walk(value, here, root, found)


def _fault(key: str, value: Any, root: dict[str, Any]) -> str:
    """What is wrong with one keyword's own value; empty if nothing."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "type":
        kinds = value if isinstance(value, list) else [value]
        wrong = [each for each in kinds if each not in TYPES]
        return (
            f"type {shortened(wrong[0] if wrong else value)} is none of {', '.join(TYPES)}"
            if wrong or not kinds
            else ""
        )
    if key in OF_SCHEMAS:
        return "" if isinstance(value, dict) else f"{key} must be an object of schemas, not {shortened(value)}"
    if key in LISTS_OF_SCHEMAS:
        return "" if isinstance(value, list) and value else f"{key} must be a list of schemas, not {shortened(value)}"
    if key == "required":
        good = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return "" if good else f"required must be a list of names, not {shortened(value)}"
    if key == "enum":
        return "" if isinstance(value, list) and value else f"enum must be a list of values, not {shortened(value)}"
    if key in COUNTS:
        return "" if number and value >= 0 and value == int(value) else f"{key} must be a count, not {shortened(value)}"
    if key in NUMBERS:
        good = number and (key != "multipleOf" or value > 0)
        return (
            "" if good else f"{key} must be a number{' above 0' if key == 'multipleOf' else ''}, not {shortened(value)}"
        )
    if key == "pattern":
        good = isinstance(value, str) and _is_expression(value)
        return "" if good else f"pattern {shortened(value)} is not a regular expression"
    if key == "$ref":
        return _reference_fault(value, root)
    return ""


def _reference_fault(value: Any, root: dict[str, Any]) -> str:
    if not isinstance(value, str):
        return f"$ref must be text, not {shortened(value)}"
    own = str(root.get("$id", "")).rstrip("#")
    inside = value.removeprefix(own) if own else value
    if not inside.startswith("#"):
        return f"$ref {shortened(value)} leads out of this file; put what it means under #/definitions"
    try:
        target = _target(value, root)
    except LookupError:
        return f"$ref {shortened(value)}: there is no such place in this schema"
    good = isinstance(target, dict | bool)
    return "" if good else f"$ref {shortened(value)}: what stands there is no schema, but {shortened(target)}"


def _target(reference: str, root: dict[str, Any]) -> Any:
    """What a reference into this schema leads to. LookupError if there is no such place."""
    own = str(root.get("$id", "")).rstrip("#")
    node: Any = root
    for part in (reference.removeprefix(own) if own else reference)[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isdecimal():
            node = node[int(name)]
        elif isinstance(node, dict):
            node = node[name]
        else:
            raise LookupError(name)
    return node


def _circle(start: dict[str, Any], root: dict[str, Any]) -> str:
    """Why a schema with a reference is asked again about the very value that it is asked about; empty if it is not."""
    waiting, seen = [start], {id(start)}
    while waiting:
        for schema in _of_the_same_value(waiting.pop(), root):
            if schema is start:
                return f"$ref {shortened(start['$ref'])} leads back to itself for the same value; it never ends"
            if id(schema) not in seen:
                seen.add(id(schema))
                waiting.append(schema)
    return ""


def _of_the_same_value(node: dict[str, Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas that decide about the value that this one decides about; beside a reference nothing counts."""
    if "$ref" in node:
        try:
            found = [_target(str(node["$ref"]), root)]
        except LookupError:
            return []
    else:
        lists = [node[key] for key in LISTS_OF_SCHEMAS if isinstance(node.get(key), list)]
        asked = node.get("dependencies")
        found = [node.get(key) for key in HERE] + list(asked.values() if isinstance(asked, dict) else ())
        found += [child for each in lists for child in each]
    return [each for each in found if isinstance(each, dict)]


def _is_expression(text: str) -> bool:
    try:
        re.compile(text.replace("$", r"\Z"))
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def step(name: object) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")
