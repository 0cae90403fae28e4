"""Where a job's outputs go: the destination that --out names, what is there already, and what a pointer names.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os

from scheduler.clock import now_at
from scheduler.errors import Refused, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def destination(template: str, slug: str, name: str, batch: str) -> str:
    """The absolute path that an --out template names; {id} stays in it until the id is known."""
    values = {"slug": slug, "name": name.replace("/", "_"), "batch": batch.replace("/", "_"), "id": "{id}"}
    made, rest = "", template
    while rest:
        before, brace, rest = rest.partition("{")
        made += before
        if not brace:
            break
        field, closed, rest = rest.partition("}")
        if not closed or field not in values:
            raise UsageError(f"--out {template!r}: {{{field}}} is none of {{name}} {{id}} {{slug}} {{batch}}")
        if not values[field]:
            raise UsageError(f"--out {template!r} needs a --{field}")
        made += values[field]
    return os.path.abspath(os.path.expanduser(made))


def refuse_taken(rows: list[dict[str, Any]], *, may_exist: bool) -> None:
    """Refused if two rows have one `out`, if it exists (unless it may), or if it cannot be made."""
    seen: dict[str, str] = {}
    for row in rows:
        out = row["out"]
        if not out or "{id}" in out:
            continue
        if out in seen:
            raise Refused(
                f"{seen[out]} and {row['input_name']} would both go to {out}; "
                "put {name} or {id} into --out so that each has its own"
            )
        seen[out] = row["input_name"]
        if os.path.lexists(out) and not may_exist:
            raise Refused(f"the destination {out} exists; choose another --out, or --overwrite it")
        there = os.path.dirname(out)
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
            raise Refused(f"the destination {out} cannot be made: {there} is not a folder that you may write to")


def maker(folder: str) -> int | None:
    """The job that made the outputs in a folder, as its job.json has it; None if that does not tell."""
    import json

    try:
        with open(os.path.join(folder, "job.json"), "rb") as file:
            return int(json.load(file)["job"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def set_aside(out: str) -> tuple[str, str] | None:
    """Move what is at a destination to a name beside it: (destination, that name), None if nothing is there."""
    if not os.path.lexists(out):
        return None
    aside = f"{out}.before-{now_at().replace(':', '').replace('.', '-')}"
    try:
        os.rename(out, aside)
    except OSError as error:
        raise Refused(
            f"{out} cannot be overwritten: it cannot be moved aside ({error.strerror}); nothing was changed"
        ) from None
    return out, aside


def at_pointer(value: Any, pointer: str) -> Any:
    """The part of a JSON value at a pointer (RFC 6901). UsageError says where it stops and what is there."""
    if pointer and not pointer.startswith("/"):
        raise UsageError(f"pointer {pointer!r} does not begin with /; write it like /designs/0/score")
    at = ""
    for part in pointer.split("/")[1:]:
        word = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and word in value:
            value = value[word]
        elif isinstance(value, list) and word.isdecimal() and int(word) < len(value):
            value = value[int(word)]
        else:
            raise UsageError(f"the reply has nothing at {pointer!r}: {at or 'its top'} {_has(value)}")
        at += "/" + part
    return value


def _has(value: Any) -> str:
    if isinstance(value, dict):
        return "has " + (", ".join(list(map(str, value))[:12]) or "no keys")
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is a {type(value).__name__}"
