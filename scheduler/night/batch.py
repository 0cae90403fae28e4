"""A file of jobs, made into rows of the queue: each row with its own provider, input and options, or its fault.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os

from scheduler import asked, given
from scheduler.asked import Asking, Common
from scheduler.client import Client
from scheduler.errors import InvalidInput, SchedqError, UsageError
from scheduler.inputs.formats import parse_json, shortened
from scheduler.inputs.jobs_file import PARAM, JobsFile, where
from scheduler.settable import duration_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OWN = ("provider", "input", "inline", "name", "key", "after")
"""What is a row's own. What else it says many rows say alike: that is read once for all of them."""

YES, NO = ("true", "yes", "1"), ("false", "no", "0")


class Batch:
    """The rows of one file as they are checked. `base` are the options of the call, which a row may override."""

    def __init__(self, client: Client, slug: str, base: dict[str, Any], *, resume: bool = False) -> None:
        self._client, self._slug, self._base = client, slug, base
        self._specs: dict[str, dict[str, Any] | SchedqError] = {}
        self._commons: dict[object, Common] = {}
        self._folder = ""
        self.asking = Asking(client.paths, resume=resume)

    def add_all(self, jobs: JobsFile, tell: Callable[[int], None] | None = None) -> None:
        """Check every row of a file; what is wrong with each is in the faults of `asking`."""
        self._folder = jobs.folder
        self.asking.faults += jobs.faults
        for row in jobs.refused:
            self.asking.note_refused(row.get("key"), row.get("name"))
        for done, (line, row) in enumerate(jobs.rows):
            try:
                self._add(line, row, jobs.stem)
            except SchedqError as error:
                self.asking.faults.append((line, where(line), error))
                self.asking.note_refused(row.get("key"), row.get("name"))
            asked.told(tell, done)
        self.asking.refuse_taken()

    def specs(self) -> list[dict[str, Any]]:
        """What each provider declares that a row asks for."""
        return [spec for spec in self._specs.values() if isinstance(spec, dict)]

    def _add(self, line: int, row: dict[str, Any], stem: str) -> None:
        spec = self._spec(row.get("provider"))
        self.asking.refuse_never(spec)
        common = self._common(spec, row)
        name, key = given.text("name", row.get("name")), given.text("key", row.get("key"))
        source = self._source(row)
        inline = isinstance(source, bytes)
        if inline and not name and not common.name:
            name = key if key and "/" not in key else f"{stem}-{line}"
        before = len(self.asking.rows)
        self.asking.add(line, common, source, where(line), name=name, key=key)
        if row.get("after") is not None and len(self.asking.rows) > before:
            made = self.asking.rows[-1]
            made["beside"] = {**(made.get("beside") or {}), "own": words(row["after"])}

    def _spec(self, slug: object) -> dict[str, Any]:
        slug = slug if slug is not None else self._slug
        if not isinstance(slug, str) or not slug:
            raise UsageError("names no provider; write one into the key provider, or name it before --from")
        if slug not in self._specs:
            try:
                self._specs[slug] = self._client.spec(slug)
            except SchedqError as error:
                self._specs[slug] = error
        spec = self._specs[slug]
        if isinstance(spec, SchedqError):
            raise spec
        return spec

    def _source(self, row: dict[str, Any]) -> Any:
        """What a row has for an input: the path of a file, or the bytes that it has itself."""
        path, value = row.get("input"), row.get("inline")
        if (path is None) == (value is None):
            both = "has both input and inline; keep one" if path is not None else "has no input"
            raise UsageError(f"{both}: input is the path of a file, or the document itself; inline is the document")
        value = value if path is None else path
        if isinstance(path, str):
            if path in ("", "-"):
                raise UsageError(f"input = {path!r}: must be the path of a file, or the document itself")
            return os.path.join(self._folder, os.path.expanduser(path))
        if isinstance(value, str):
            return value.encode()
        if not isinstance(value, dict | list):
            raise UsageError(f"inline = {shortened(value, 40)}: must be the document itself, an object, a list or text")
        return as_bytes(value)

    def _common(self, spec: dict[str, Any], row: dict[str, Any]) -> Common:
        own = {key: value for key, value in row.items() if key not in OWN}
        after = row.get("after")
        which = spec["slug"], spec["variant"], repr(own) if own else "", "" if after is None else repr(after)
        if which not in self._commons:
            options = {**self._base, **options_of(own, self._base, self._folder)}
            if after is not None:
                options["after"] = [*(self._base.get("after") or ()), *words(after)]
            if len(self._commons) >= KEPT:
                self._commons.clear()
            try:
                self._commons[which] = self.asking.common(spec, options)
            except UsageError as error:
                raise given.of_params(error) if any(key.startswith("params") for key in own) else error from None
        return self._commons[which]


KEPT = 10_000
"""So many different sets of options are kept at once."""


def as_bytes(value: Any) -> bytes:
    """A JSON value as `Client.submit` writes one that it is given."""
    import json

    return json.dumps(value).encode()


def options_of(row: dict[str, Any], base: dict[str, Any], folder: str) -> dict[str, Any]:
    """The options of a job that a row says, typed as a Client takes them; cells of a table are texts.

    UsageError names key and value of what is none.
    """
    made: dict[str, Any] = {}
    params = {key.removeprefix(PARAM): value for key, value in row.items() if key.startswith(PARAM)}
    for key, value in row.items():
        if value is None or key.startswith(PARAM):
            continue
        if key in ("priority", "max_attempts"):
            made[key] = _whole(key, value)
        elif key in ("hold", "overwrite"):
            made[key] = _yes_or_no(key, value)
        elif key == "timeout":
            made["timeout_s"] = _timeout_s(value)
        elif key == "labels":
            more = [each.strip() for each in value.replace(";", ",").split(",")] if isinstance(value, str) else value
            made[key] = list(dict.fromkeys([*(base.get("labels") or ()), *given.labels(more)]))
        elif key == "params":
            params = {**_object(value), **params}
        elif key == "out":
            made[key] = os.path.join(folder, os.path.expanduser(given.text(key, value)))
        else:
            made[key] = value
    if params:
        words = given.assignments(params)
        names = {word.partition("=")[0] for word in words}
        made["params"] = [each for each in base.get("params") or () if each.partition("=")[0] not in names] + words
    return made


def words(value: object) -> list[str]:
    """What a job comes after, as a list of words; in a text a name with a blank in it stands in double quotes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, str):
        if '"' not in value:
            return value.replace(";", " ").split()
        import re

        return [each.replace('"', "") for each in re.findall(r'(?:"[^"]*"|[^\s;"])+', value)]
    if isinstance(value, list) and all(isinstance(each, int | str) and not isinstance(each, bool) for each in value):
        return [str(each) for each in value]
    raise UsageError(f"after = {shortened(value, 40)}: must be a job's id, a batch, a key or a name, or a list of them")


def _whole(key: str, value: object) -> int:
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal() and value.isascii():
        return given.whole(key, int(value))
    return given.whole(key, value)


def _yes_or_no(key: str, value: object) -> bool:
    if isinstance(value, str) and value.lower() in YES + NO:
        return value.lower() in YES
    return given.flag(key, value)


def _timeout_s(value: object) -> float:
    if not isinstance(value, str):
        raise given.refusal("timeout", value, "a duration with its unit, like 90s or 2h")
    seconds = duration_s(value, "timeout")
    if seconds == 0.0:
        raise UsageError(f"timeout {value} would end every attempt at once; give it 1ms or more")
    return seconds


def _object(value: object) -> dict[str, Any]:
    try:
        found = parse_json(value, "params") if isinstance(value, str) else value
    except InvalidInput as error:
        raise UsageError(str(error)) from None
    if not isinstance(found, dict):
        raise given.refusal("params", value, 'an object, like {"seed": 1}')
    return found
