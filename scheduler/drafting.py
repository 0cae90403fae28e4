"""An input as it is submitted: checked whole, or, if it takes results of earlier jobs, as far as it is known by now.

Imported by the fast paths: standard library only, and what a draft needs is loaded when there is one.
"""

from __future__ import annotations

import os

from scheduler import request
from scheduler.errors import InvalidInput
from scheduler.inputs import formats
from scheduler.inputs.cache import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths

MARK = b"$from"


def check(
    spec: dict[str, Any],
    data: bytes,
    input_name: str,
    folder: str | None,
    params: dict[str, Any],
    paths: Paths,
    shown: str = "",
) -> dict[str, Any]:
    """As request.check; a draft's answer has `beside` too, with its references.

    InvalidInput for what is wrong whatever the results will be. The rest is checked when they are there.
    """
    if MARK in data:
        made = _draft(spec, data, input_name, folder, params, shown)
        if made is not None:
            return made
    return request.check(spec, data, input_name, folder, params, paths, shown)


def _draft(
    spec: dict[str, Any], data: bytes, name: str, folder: str | None, params: dict[str, Any], shown: str
) -> dict[str, Any] | None:
    """The row of a draft, None if it is none."""
    from scheduler.inputs import drafts

    asked, accept = spec["input"], spec["input"]["accept"]
    if folder is None and "." not in name:
        name += ".json" if data.lstrip()[:1] in (b"{", b"[") else formats.sniffed(data, accept)
    kind = formats.KINDS.get(os.path.splitext(name)[1].lower())
    if kind not in ("json", "yaml"):
        return None
    what = shown or request.quoted(name)
    value = request.parsed(kind, data, what)
    refs = drafts.references(value, what)
    if not refs:
        return None
    counts, files, size = dict(params), {}, float(len(data))  # type: dict[str, Any], dict[str, Any], float
    if refs[0]["at"] == "":
        refs[0]["as"] = "input"
        _refuse_suffix(refs[0], accept, what, spec["slug"])
    else:
        ending = formats.suffix(name, accept)
        if not formats.accepted(ending, accept):
            raise InvalidInput(
                f"{what} is a {ending} file, and {spec['slug']} takes {', '.join(accept)}; a draft of such a file is a"
                f" document that is nothing but {drafts.FORMS}"
            )
        blank = drafts.filled(value, lambda _at: None)
        request.refuse_apart(asked, blank, what)
        counts = request.counting(params, asked["defaults"], value)
        _say_kinds(refs, asked["files"], value)
        files = request.files_of(asked["files"], blank, folder, what)
        size = request.size_of(asked["size"], blank, len(data))
        if asked["validator"]:
            from scheduler.inputs.schema import explain

            whole = request.laid_over(value, counts, asked["shared"])
            pointer, why = explain(asked["schema"], whole, drafts.tolerant)
            if why:
                raise InvalidInput(
                    f"{what}: at {pointer or 'the top'}: {why}; {spec['slug']} accepts what"
                    f" {request.quoted(asked['schema'])} describes (what $from stands for is checked when its job has"
                    " ended)"
                )
    return {
        "input_name": name, "input_kind": kind, "input_sha256": sha256(data), "input_bytes": len(data),
        "files": files, "size": size, "params": counts, "beside": {"draft": {"refs": refs}},
    }  # fmt: skip


def _refuse_suffix(ref: dict[str, Any], accept: list[str], what: str, slug: str) -> None:
    """A file that becomes the input must be one that the provider takes, as far as its name is known."""
    file = ref.get("file", "")
    ending = formats.suffix(file, accept)
    if not file or any(each in ending for each in "*?[") or not ending:
        return
    if not formats.accepted(ending, accept):
        raise InvalidInput(
            f"{what}: the file {request.quoted(file)} is a {ending} file, and {slug} takes {', '.join(accept)}"
        )


def _say_kinds(refs: list[dict[str, Any]], rules: list[Any], value: Any) -> None:
    """Say what each reference becomes: a `path` where the provider takes files, else a `value`."""
    patterns = [rule if isinstance(rule, str) else rule["pointer"] for rule in rules]
    paths = {pointer for pattern in patterns for pointer, _ in request.found_at(value, pattern)}
    for ref in refs:
        ref["as"] = "path" if ref["at"] in paths else "value"
