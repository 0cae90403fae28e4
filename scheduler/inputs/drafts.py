"""Drafts: inputs that take results of earlier jobs, `{"$from": JOB, "pointer": P}` or `{"$from": JOB, "file": F}`.

Such an object may stand anywhere in a JSON or YAML document, or be all of it. What is written is read and checked here;
which job it means, and what that answered, is found elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.errors import InvalidInput
from scheduler.inputs.formats import shortened

MARK = "$from"
KEYS = (MARK, "pointer", "file")
FORMS = '{"$from": JOB, "pointer": "/..."} or {"$from": JOB, "file": "..."}'


def references(value: Any, what: str) -> list[dict[str, Any]]:
    """Each reference of a document, in its order: {at, job, pointer} or {at, job, file}.

    `at` is where it stands, "" for the whole; `job` a word. InvalidInput for one that is not written as it must be.
    """
    found: list[dict[str, Any]] = []
    _walk(value, "", lambda at, node: found.append(_read(at, node, what)))
    return found


def filled(value: Any, give: Callable[[str], Any]) -> Any:
    """The document with what `give` answers for its place (a JSON pointer) instead of each reference."""
    return _walk(value, "", lambda at, _node: give(at))


def _walk(node: Any, at: str, act: Callable[[str, dict[str, Any]], Any]) -> Any:
    if isinstance(node, dict):
        if MARK in node:
            return act(at, node)
        return {key: _walk(each, f"{at}/{_escaped(str(key))}", act) for key, each in node.items()}
    if isinstance(node, list):
        return [_walk(each, f"{at}/{index}", act) for index, each in enumerate(node)]
    return node


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _read(at: str, node: dict[str, Any], what: str) -> dict[str, Any]:
    def wrong(why: str) -> InvalidInput:
        return InvalidInput(f"{what}: at {at or 'the top'}: {why}; write {FORMS}")

    job = node[MARK]
    if isinstance(job, bool) or not isinstance(job, int | str) or not str(job).strip():
        raise wrong(f"$from names a job by id, last, parent or the key of another row, and is {shortened(job)}")
    odd = [str(key) for key in node if key not in KEYS]
    if odd:
        raise wrong(f"beside $from stands {shortened(odd[0])}, which means nothing there")
    if "pointer" in node and "file" in node:
        raise wrong("takes a pointer or a file, not both")
    if "file" in node:
        return {"at": at, "job": str(job).strip(), "file": _file(node["file"], wrong)}
    pointer = node.get("pointer", "")
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise wrong(f"the pointer must be text like /designs/0/score, and is {shortened(pointer)}")
    return {"at": at, "job": str(job).strip(), "pointer": pointer}


def _file(file: Any, wrong: Callable[[str], InvalidInput]) -> str:
    if not isinstance(file, str) or not file.strip() or "\0" in file:
        raise wrong(f"the file must be a name in the job's outputs, and is {shortened(file)}")
    parts = file.split("/")
    if file.startswith(("/", "~")) or ".." in parts:
        raise wrong(f"the file must lie in the job's outputs, and {shortened(file)} leads out of them")
    return file


def tolerant(schema: Any) -> Any:
    """A JSON schema that asks of a draft what this one asks of its input, and takes a reference for anything.

    What depends on a value that is not there (oneOf, not, if) is asked only as far as it holds whatever that will be.
    """
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, part in schema.items():
        if key in NAMED and isinstance(part, dict):
            made[key] = {name: _or_reference(each) for name, each in part.items()}
        elif key in WITHIN:
            made[key] = [_or_reference(each) for each in part] if isinstance(part, list) else _or_reference(part)
        elif key in ("allOf", "anyOf") and isinstance(part, list):
            made[key] = [*made.get(key, []), *(tolerant(each) for each in part)]
        elif key == "oneOf" and isinstance(part, list):
            made.setdefault("allOf", []).append({"anyOf": [tolerant(each) for each in part]})
        elif key not in UNKNOWN:
            made[key] = part
    return made


NAMED = ("properties", "patternProperties", "definitions", "$defs")
WITHIN = ("items", "additionalItems", "additionalProperties", "contains")
UNKNOWN = ("not", "if", "then", "else", "dependencies", "uniqueItems")


def _or_reference(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {"if": {"type": "object", "required": [MARK]}, "then": {}, "else": tolerant(schema)}
