"""Where a job's outputs go: the destination that --out names, what is there already, and what a pointer names.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os

from scheduler.clock import local_stamp, now_at, seconds
from scheduler.config import absolute
from scheduler.errors import Pruned, Refused, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KERNELS = ("/proc", "/sys")
ID_DIGITS = 12
"""How long an id may become: what is checked before it is known."""

PLACEHOLDERS = ("name", "id", "slug", "batch")
"""What an --out may name in braces."""

ROOM_BELOW = 512
"""Bytes of a path that are left for what is written below a destination."""


def destination(template: str, slug: str, name: str, batch: str) -> str:
    """The absolute path that an --out template names, its parent without links; {id} stays in it until it is known.

    What fills a placeholder names one entry and never a way. UsageError for what is no path or no placeholder.
    """
    values = {"slug": entry(slug), "name": entry(name), "batch": entry(batch), "id": "{id}"}
    made, rest = "", _from_home(template)
    while rest:
        before, brace, rest = rest.partition("{")
        made += before
        if not brace:
            break
        field, closed, rest = rest.partition("}")
        if not closed or field not in values:
            raise _no_placeholder(template, field)
        if not values[field]:
            raise UsageError(f"--out {template!r} needs a --{field}")
        made += values[field]
    if "\0" in made or not _is_text(made):
        raise UsageError(f"--out {template!r} is no path: it holds a NUL character or bytes that are not UTF-8")
    path = absolute(made, "--out")
    if not _is_text(path):
        raise UsageError(f"--out {template!r} leads to {path!r}, whose bytes are not UTF-8; give one that is")
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def refuse_template(template: str) -> None:
    """UsageError for an --out that names in braces what no job has: whatever the jobs are, none can have it."""
    rest = template
    while "{" in rest:
        field, closed, rest = rest.partition("{")[2].partition("}")
        if not closed or field not in PLACEHOLDERS:
            raise _no_placeholder(template, field)


def _no_placeholder(template: str, field: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(field, PLACEHOLDERS, n=1)
    hint = f"; did you mean {{{near[0]}}}?" if near else ""
    return UsageError(f"--out {template!r}: {{{field}}} is none of {{name}} {{id}} {{slug}} {{batch}}{hint}")


def entry(value: str) -> str:
    """A value as the name of one entry of a folder: no `/` in it, not `.` or `..`, and no `~` at its start.

    `{id}` in it is not the job's id, which is filled in later.
    """
    word = value.replace("/", "_").replace("{id}", "_id_")
    if not word.strip("."):
        return "_" * len(word)
    return "_" + word[1:] if word[0] == "~" else word


def _from_home(template: str) -> str:
    whole = os.path.expanduser(template)
    if whole[:1] == "~":
        raise UsageError(f"--out {template!r}: {whole.split('/')[0]} is nobody's home; write ./~ for such a name")
    return whole


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_taken(rows: list[dict[str, Any]], home: str, *, may_exist: bool) -> None:
    """Refused if two rows have one `out`, if it exists (unless it may), or if it may not or cannot be made.

    `home` is the queue's own folder.
    """
    taken = Taken(home)
    for row in rows:
        taken.refuse(row, may_exist=may_exist)


class Taken:
    """The destinations of one call's rows. `home` is the queue's own folder."""

    def __init__(self, home: str) -> None:
        self._kept, self._results = Kept(home), os.path.realpath(os.path.join(home, "results"))
        self._seen: dict[str, str] = {}

    def refuse(self, row: dict[str, Any], *, may_exist: bool) -> None:
        """Refused if an earlier row has this `out`, if it exists (unless it may), or may not or cannot be made."""
        out = row["out"]
        if not out:
            return
        self._kept.refuse(out)
        name, below, _ = out.removeprefix(f"{self._results}/").partition("/")
        if name.isdigit():
            raise Refused(
                f"the destination {out} {'lies in' if below else 'is'} that of job {name}; give another --out"
            )
        if "{id}" not in out:
            if out in self._seen:
                raise Refused(
                    f"would go to {out}, where the outputs of {self._seen[out]} go; put {{name}} or {{id}} into --out"
                    " so that each has its own"
                )
            self._seen[out] = row.get("where") or row["input_name"]
            if os.path.lexists(out) and not may_exist:
                raise Refused(f"the destination {out} exists; choose another --out, or --overwrite it")
        _refuse_unmakeable(out.replace("{id}", "0" * ID_DIGITS))


def refuse_kept(out: str, home: str) -> None:
    """Refused if a destination is, holds or lies in what no job may take the place of: see Kept."""
    Kept(home).refuse(out)


class Kept:
    """What no job may take the place of, as one call finds it; `home` is the queue's own folder.

    That is the queue's folder (its `results` can be written into), the user's home, the current folder, and what
    these lie in.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        kept = [(home, "the queue itself"), (os.path.expanduser("~"), "your home folder")]
        try:
            kept.append((os.getcwd(), "the folder that you are in"))
        except FileNotFoundError:
            pass
        self._kept = [(path, what, {path, os.path.realpath(path)}) for path, what in kept]
        self._inside = [(inside, os.path.join(inside, "results")) for inside in {home, os.path.realpath(home)}]

    def refuse(self, out: str) -> None:
        """Refused if a destination is, holds or lies in one of these."""
        outs = {out, os.path.realpath(out)}
        for path, what, places in self._kept:
            if any(_lies_in(each, place) for each in places for place in outs):
                raise Refused(f"the destination {out} cannot be used: {what} lies in it ({path}); give another --out")
        for inside, results in self._inside:
            if any(_lies_in(place, inside) and (place == results or not _lies_in(place, results)) for place in outs):
                raise Refused(
                    f"the destination {out} cannot be used: it lies in the folder of the queue itself ({self._home});"
                    " give another --out"
                )


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _refuse_unmakeable(out: str) -> None:
    """Refused if it is known by now that nothing can be put at a destination."""
    there = os.path.dirname(out)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise Refused(f"the destination {out} cannot be made: {there} is not a folder that you may write to")
    if any(_lies_in(there, each) for each in KERNELS):
        raise Refused(f"the destination {out} cannot be made: {there} is the kernel's and keeps no files")
    longest, deepest = os.pathconf(there, "PC_NAME_MAX"), os.pathconf(there, "PC_PATH_MAX") - ROOM_BELOW
    size = len(out.encode())
    for name in out[len(there) :].split("/"):
        if len(name.encode()) > longest:
            raise Refused(
                f"the destination {there.rstrip('/')}/... cannot be made: the name {name[:40]}... in it has"
                f" {len(name.encode())} bytes, and {there} takes {longest}; give a shorter --out or --name"
            )
    if size > deepest:
        raise Refused(
            f"the destination {out[:60]}... cannot be made: it has {size} bytes, and a path of {deepest} leaves room"
            " for what is written below it; give a shorter --out"
        )


def maker(folder: str) -> int | None:
    """The job that made the outputs in a folder, as its job.json has it; None if that does not tell, or of a try."""
    import json

    try:
        with open(os.path.join(folder, "job.json"), "rb") as file:
            facts = json.load(file)
        return None if facts.get("tried") else int(facts["job"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def pruned(job: dict[str, Any], folder: str) -> Pruned:
    """The error for the result of a job that was pruned; `folder` is where its outputs are, "" = nowhere any more."""
    at = local_stamp(seconds(str(job["pruned_at"])))
    stay = f"; its outputs stay at {folder}" if folder and os.path.isdir(folder) else ""
    return Pruned(
        f"job {job['id']} {job['state'].replace('_', ' ')}, and was pruned on {at}: its result"
        f" is gone{stay}; schedq show {job['id']} has what is still known"
    )


def set_aside(out: str, before: Callable[[str], None] = lambda _aside: None) -> tuple[str, str] | None:
    """Move what is at a destination to a name beside it: (destination, that name), None if nothing is there.

    `before` is called with that name before anything is moved. Refused: it cannot be moved.
    """
    if not os.path.lexists(out):
        return None
    folder, name = os.path.split(out)
    mark = f".before-{now_at().replace(':', '').replace('.', '-')}"
    try:
        room = os.pathconf(folder, "PC_NAME_MAX") - len(mark)
        stem = name if len(os.fsencode(name)) <= room else os.fsencode(name)[:room].decode(errors="ignore")
        aside = os.path.join(folder, stem + mark)
    except OSError as error:
        raise _unmoved(out, error) from None
    before(aside)
    try:
        os.rename(out, aside)
    except OSError as error:
        raise _unmoved(out, error) from None
    return out, aside


def _unmoved(out: str, error: OSError) -> Refused:
    return Refused(f"{out} cannot be overwritten: it cannot be moved aside ({error.strerror}); nothing was changed")


def at_pointer(value: Any, pointer: str) -> Any:
    """The part of a JSON value at a pointer (RFC 6901). UsageError says where it stops and what is there."""
    if pointer and not pointer.startswith("/"):
        raise UsageError(f"pointer {pointer!r} does not begin with /; write it like /designs/0/score")
    from scheduler.inputs.formats import is_index

    at = ""
    for part in pointer.split("/")[1:]:
        word = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and word in value:
            value = value[word]
        elif isinstance(value, list) and is_index(word) and int(word) < len(value):
            value = value[int(word)]
        else:
            raise UsageError(f"the reply has nothing at {pointer!r}: {at or 'its top'} {_has(value)}")
        at += "/" + part
    return value


def _has(value: Any) -> str:
    if isinstance(value, dict):
        return "has " + (", ".join(list(map(str, value))[:12]) or "no keys")
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is a {type(value).__name__}"
