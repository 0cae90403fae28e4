"""A job's row as a submitter gives it: which columns it may know, and what the others are.

Standard library only: imported by the fast paths.
"""

from __future__ import annotations

from operator import itemgetter

from scheduler.store import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEFAULTS: dict[str, object] = {
    "slug": None, "variant": "", "name": "", "user": "", "host_id": "", "state": "queued", "blocked": None,
    "priority": 0, "batch": None, "key": None, "params": "{}", "input_sha256": "", "input_name": "",
    "input_kind": "", "input_bytes": 0, "files": "{}", "size": None, "revision": "", "out": None,
    "timeout_s": None, "max_attempts": None, "on_lost": "requeue", "retry_on": None, "submitted_at": "",
    "not_before_at": None, "behind": None, "measures": 0, "on_parent": "fail", "input": None,
}  # fmt: skip
"""The columns that a submitter may know, in the order of the INSERT; a row needs at least `slug`."""

INSERT = f"INSERT INTO jobs (id, {', '.join(DEFAULTS)}) VALUES (?{', ?' * len(DEFAULTS)})"

ELSE: dict[str, object] = {"data": None, "source": None, "overwrite": False, "beside": None, "where": None}
"""What comes with a row beside its columns."""

_KNOWN = frozenset(DEFAULTS) | frozenset(ELSE)

values = itemgetter(*DEFAULTS)
"""The values of a completed row, in the order of the INSERT after the id."""


def completed(row: dict[str, Any], defaults: dict[str, object]) -> dict[str, Any]:
    """The row with every column and what comes beside them; TypeError for a column that it must not set.

    A None is the column's default; `user` and `host_id` are never taken from the row.
    """
    if not row.keys() <= _KNOWN or not row.get("slug"):
        wrong = sorted(row.keys() - _KNOWN)
        raise TypeError(f"a job's row has no column {wrong[0]}" if wrong else "a job's row needs a slug")
    if None in row.values():
        row = {column: value for column, value in row.items() if value is not None}
    whole: dict[str, Any] = {**ELSE, **defaults, **row}
    whole["user"], whole["host_id"] = defaults["user"], defaults["host_id"]
    if whole["data"] is not None and not whole["input_sha256"]:
        whole["input_sha256"] = identity.digest(whole["data"])
    return whole


def same(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two completed rows ask for the same thing."""
    return all(row[c] == other[c] for c in ("slug", "variant", "input_sha256")) and equal(
        row["params"], other["params"]
    )


def after_alike(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two completed rows come after the same jobs, as these were named."""
    one, two = row["beside"] or {}, other["beside"] or {}
    return all(one.get(what) == two.get(what) for what in ("after", "parent"))


def draft_asks(row: dict[str, Any]) -> str:
    """What a draft's row asks for beside its document, as text that is the same for the same: its parameters, and whom
    `parent` means in it."""
    import json

    beside = row["beside"]
    parent = any(ref["job"] == "parent" for ref in beside["draft"]["refs"])
    params = row["params"] if isinstance(row["params"], str) else as_text(row["params"])
    whom = (beside.get("parent") or [str(each) for each in beside.get("after") or ()]) if parent else None
    return str(json.dumps([json.loads(params), whom], sort_keys=True))


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values, as text or not, mean the same."""
    import json

    first, second = (json.loads(each) if isinstance(each, str) else each for each in (one, other))
    return bool(first == second)


_encode: list[Callable[[Any], str]] = []
"""The way to JSON, once it was needed."""


def as_text(value: Any) -> str:
    """A JSON object as it is stored."""
    if not value:
        return "{}"
    import json

    if not _encode:
        _encode.append(json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode)
    try:
        text = _encode[0](value)
        text.encode()
    except UnicodeEncodeError:  # bytes of a command that are no UTF-8: they come back as they were
        text = json.dumps(value, separators=(",", ":"))
    return text
