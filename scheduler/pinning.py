"""Drafts made into inputs: what they take is read when its job has ended, kept, and put in; the whole is then checked.

Reads results and outputs, and stages what is kept beside the content; the queue is written by whoever asked.
"""

from __future__ import annotations

import json
import os
from typing import Any

from scheduler import catalog, outputs, request
from scheduler.clock import local_day, seconds
from scheduler.config import Paths
from scheduler.errors import Corrupt, InvalidInput, Refused, StoreError, Temporary, UsageError
from scheduler.inputs import drafts, formats
from scheduler.inputs.sources import read
from scheduler.store import content
from scheduler.store import drafts as stored
from scheduler.taking import Later, Made, Unmet, found, kept_file, limit, path_of, refuse_large, staged, what_of, who

__all__ = ["Made", "made"]

INLINE_MAX = 16 << 10
"""A value of so many bytes of JSON is kept with its draft, a larger one in the content."""


def made(paths: Paths, job_id: int) -> Made | None:
    """Take what there is by now for the draft of a job, and make its input once all is there; None if none waits."""
    draft = stored.opened(paths, job_id)
    if draft is None:
        return None
    answer = Made(job_id)
    try:
        _make(paths, draft, answer)
    except Unmet as error:
        answer.fault = "parent_failed", str(error)
    except (InvalidInput, Refused, UsageError) as error:
        answer.fault = "refused", str(error)
    except Corrupt as error:
        answer.fault = "parent_failed", str(error)
    except (OSError, Temporary, StoreError, Later) as error:
        answer.put_off = str(error)
    if answer.columns is None:
        answer.data = None
    return answer


def _make(paths: Paths, draft: stored.Draft, answer: Made) -> None:
    pins = dict(draft.pins)
    limit("input_max_mib"), limit("inputs_copy_max_gib")
    for number, ref in enumerate(draft.refs):
        parent = draft.parents[ref["job"]]
        if parent is None:
            raise Unmet(f"job {ref['job']}, from which its input takes {what_of(ref)}, is not in this queue any more")
        if str(number) not in pins and parent["state"] == "succeeded":
            pins[str(number)] = answer.pins[str(number)] = _pinned(paths, ref, parent, answer)
    if len(pins) == len(draft.refs):
        _put_together(paths, draft, pins, answer)


def _pinned(paths: Paths, ref: dict[str, Any], parent: dict[str, Any], answer: Made) -> dict[str, Any]:
    """One reference, kept: `json`, a value as text; or `sha256` of a piece of the content, `name` if it is a file."""
    if "file" in ref:
        return kept_file(paths, found(paths, ref, parent), answer, as_path=ref["as"] == "path", by=parent)
    value = _value(paths, ref, parent)
    if ref["as"] == "path":
        if not isinstance(value, str) or not value:
            raise Unmet(
                f"{who(parent)}: at {ref['pointer'] or 'the top'} of its result is {formats.shortened(value)}, and at"
                f" {ref['at']} a file is named"
            )
        return kept_file(paths, path_of(paths, value, parent), answer, as_path=True, by=parent)
    text = json.dumps(value, ensure_ascii=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value)
        data = text.encode()
    if len(data) <= INLINE_MAX:
        return {"json": text}
    return {"sha256": staged(paths, data, answer), "bytes": len(data)}


def _value(paths: Paths, ref: dict[str, Any], parent: dict[str, Any]) -> Any:
    reply = stored.reply(paths, parent)
    if parent["pruned_at"] is not None:
        day = local_day(seconds(parent["pruned_at"]))
        raise Unmet(f"{who(parent)} was pruned on {day}, and its input takes {what_of(ref)}")
    if reply is None:
        gone = "gave no result" if parent["answered"] is not None else "has no result any more (was it pruned?)"
        raise Unmet(f"{who(parent)} {gone}, and its input takes {what_of(ref)}")
    try:
        return outputs.at_pointer(json.loads(reply), ref["pointer"])
    except UsageError as error:
        raise Unmet(f"{who(parent)}: {error}") from None


def _put_together(paths: Paths, draft: stored.Draft, pins: dict[str, Any], answer: Made) -> None:
    """The input, made of its draft and what that took, checked as it would have been at submit."""
    job = draft.job
    slug = f"{job['slug']}:{job['variant']}" if job["variant"] else job["slug"]
    try:
        spec = catalog.load(paths).spec(slug)
    except UsageError as error:
        raise Later(str(error)) from None
    if job["revision"] and spec["revision"] != job["revision"]:
        raise Later(
            f"it was submitted for revision {job['revision'][:12]} of {slug}, and {spec['revision'][:12]} is here; put"
            f" the first one back, or schedq update --repin {job['id']}"
        )
    places = {ref["at"]: (ref, pins[str(number)]) for number, ref in enumerate(draft.refs)}
    files = dict(job["files"])
    if "" in places:
        data, name, value = _whole(paths, spec, job, *places[""], answer)
    else:
        kind = "yaml" if job["input_name"].lower().endswith((".yaml", ".yml")) else "json"
        whole = request.parsed(kind, draft.input, "the input")
        value = drafts.filled(whole, lambda at: _given(paths, *places[at], answer))
        data, name = _encoded(value), job["input_name"]
    for at, (ref, pin) in places.items():
        if ref["as"] == "path":
            files[at] = {key: each for key, each in pin.items() if key != "name"}
    _name_files(paths, draft, spec["input"]["files"], value, files, answer)
    refuse_large(len(data), f"{name}, made of its parents' results,")
    shown = f"{name}, made of {_sources(draft)}"
    answer.columns = request.check(spec, data, name, None, job["params"], paths, shown, named=files)
    answer.data = data if len(data) <= content.INLINE_MAX else None
    if answer.data is None:
        staged(paths, data, answer)


def _whole(
    paths: Paths, spec: dict[str, Any], job: dict[str, Any], ref: dict[str, Any], pin: dict[str, Any], answer: Made
) -> tuple[bytes, str, Any]:
    """(bytes, file name, value) of an input that is all a value or a file of another job."""
    accept, stem = spec["input"]["accept"], os.path.splitext(job["input_name"])[0]
    if "name" in pin:
        data, name = _bytes(paths, pin, answer), str(pin["name"])
    else:
        value = _given(paths, ref, pin, answer)
        data = _text(value, ref) if isinstance(value, str) else _encoded(value)
        name = stem + formats.sniffed(data, accept)
    kind = formats.KINDS.get(formats.suffix(name, accept))
    return data, name, request.parsed(kind, data, name) if kind in ("json", "yaml") else None


def _given(paths: Paths, ref: dict[str, Any], pin: dict[str, Any], answer: Made) -> Any:
    """What stands in an input for a reference: the value, a file's path, or its text."""
    if "json" in pin:
        return json.loads(pin["json"])
    if ref["as"] == "path":
        return pin["path"]
    data = _bytes(paths, pin, answer)
    if "name" not in pin:
        return json.loads(data)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{pin['name']} (job {ref['job']}) would stand at {ref['at']} as text, and its byte {error.start} is not"
            " UTF-8"
        ) from None


def _text(value: str, ref: dict[str, Any]) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"job {ref['job']} {what_of(ref)} would be the input, and its character {error.start} is no text"
        ) from None


def _bytes(paths: Paths, pin: dict[str, Any], answer: Made) -> bytes:
    sha256 = pin["sha256"]
    refuse_large(pin["bytes"], str(pin.get("name", "what it takes")))
    staged = answer.staged.get(sha256)
    return content.read(paths, sha256) if staged is None else read(staged)[0]


def _name_files(
    paths: Paths, draft: stored.Draft, rules: list[Any], value: Any, files: dict[str, Any], answer: Made
) -> None:
    """Keep the files that a value names which came from a parent: from that one's outputs, where it says no more."""
    for rule in rules:
        pattern, words = (rule, ()) if isinstance(rule, str) else (rule["pointer"], rule["except"])
        for pointer, path in request.found_at(value, pattern):
            source = [ref for ref in draft.refs if pointer.startswith(ref["at"] + "/") or not ref["at"]]
            if pointer in files or path is None or path in words or not source:
                continue
            parent = draft.parents[source[0]["job"]]
            if not isinstance(path, str) or not path or parent is None:
                raise InvalidInput(f"at {pointer}: must be the path of a file, not {formats.shortened(path)}")
            kept = kept_file(paths, path_of(paths, path, parent), answer, as_path=True, by=parent)
            files[pointer] = {key: each for key, each in kept.items() if key != "name"}


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _sources(draft: stored.Draft) -> str:
    return ", ".join(dict.fromkeys(f"job {ref['job']} {what_of(ref)}" for ref in draft.refs[:4]))
