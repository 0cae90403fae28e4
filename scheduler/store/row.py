"""A job's row as a submitter gives it: which columns it may know, and what the others are.

Standard library only: imported by the fast paths.
"""

from __future__ import annotations

from operator import itemgetter

from scheduler.store import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULTS: dict[str, object] = {
    "slug": None, "variant": "", "name": "", "user": "", "host_id": "", "state": "queued", "blocked": None,
    "priority": 0, "batch": None, "key": None, "params": "{}", "input_sha256": "", "input_name": "",
    "input_kind": "", "input_bytes": 0, "files": "{}", "size": None, "revision": "", "out": None,
    "timeout_s": None, "max_attempts": None, "on_lost": "requeue", "retry_on": None, "submitted_at": "",
    "not_before_at": None, "behind": None, "measures": 0, "input": None,
}  # fmt: skip
"""The columns that a submitter may know, in the order of the INSERT; a row needs at least `slug`."""

INSERT = f"INSERT INTO jobs (id, {', '.join(DEFAULTS)}) VALUES (?{', ?' * len(DEFAULTS)})"

_EXTRA = frozenset({"data", "overwrite"})
_KNOWN = frozenset(DEFAULTS) | _EXTRA

values = itemgetter(*DEFAULTS)
"""The values of a completed row, in the order of the INSERT after the id."""


def completed(row: dict[str, Any], defaults: dict[str, object]) -> dict[str, Any]:
    """The row with every column, `data` and `overwrite`; TypeError for a column that a submitter does not know.

    A None is the column's default; `user` and `host_id` are never taken from the row.
    """
    if not row.keys() <= _KNOWN or not row.get("slug"):
        wrong = sorted(row.keys() - _KNOWN)
        raise TypeError(f"a job's row has no column {wrong[0]}" if wrong else "a job's row needs a slug")
    if None in row.values():
        row = {column: value for column, value in row.items() if value is not None}
    whole: dict[str, Any] = {"data": None, "overwrite": False, **defaults, **row}
    whole["user"], whole["host_id"] = defaults["user"], defaults["host_id"]
    if whole["data"] is not None and not whole["input_sha256"]:
        whole["input_sha256"] = identity.digest(whole["data"])
    return whole


def same(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two completed rows ask for the same thing."""
    return all(row[c] == other[c] for c in ("slug", "variant", "input_sha256")) and equal(
        row["params"], other["params"]
    )


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values, as text or not, mean the same."""
    import json

    first, second = (json.loads(each) if isinstance(each, str) else each for each in (one, other))
    return bool(first == second)


def as_text(value: Any) -> str:
    """A JSON object as it is stored."""
    if not value:
        return "{}"
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:  # bytes of a command that are no UTF-8: they come back as they were
        text = json.dumps(value, separators=(",", ":"))
    return text
