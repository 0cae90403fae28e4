"""What rows of one call bring with them, kept by content: inputs too large for a row, and the files that inputs name.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler.config import Paths, settings
from scheduler.store import content
from scheduler.store.row import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Brought:
    """The content of one call's rows, on its way into the queue's folder."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._staged: dict[str, str] = {}
        self._placed: set[str] = set()

    def stage(self, rows: list[dict[str, Any]]) -> None:
        """What takes time and can be done before the queue is locked: parameters written out, large inputs and named
        files copied.

        A file that is too large to copy is marked `pinned`. Refused for one that is no longer what was checked.
        """
        limit_bytes = None
        for row in rows:
            if not isinstance(row["params"], str):
                row["params"] = as_text(row["params"])
            if _large(row):
                self._stage(row["input_sha256"], *_input(row))
            if isinstance(row["files"], str) or not row["files"]:
                continue
            if limit_bytes is None:
                limit_bytes = settings().number("inputs_copy_max_gib") * (1 << 30)
            for entry in row["files"].values():
                if entry["bytes"] > limit_bytes:
                    entry["pinned"] = True
                if not entry.get("pinned"):
                    self._stage(entry["sha256"], entry["path"], row["input_name"] or "the input")

    def discard(self) -> None:
        """Remove what was staged and is not needed."""
        for staged in self._staged.values():
            content.discard(staged)
        self._staged.clear()

    def keep(self, row: dict[str, Any]) -> None:
        """Put what a row brings in its place, inside the turnstile, and make its columns what the database takes.

        What is put there is durable after `settle`.
        """
        if row["data"] is not None:
            row["input_bytes"] = len(row["data"])
        if _large(row):
            self._place(row["input_sha256"], *_input(row))
        elif row["data"] is not None:
            row["input"] = row["data"]
        if not isinstance(row["params"], str):
            row["params"] = as_text(row["params"])
        if not isinstance(row["files"], str):
            for entry in row["files"].values():
                if not entry.get("pinned"):
                    self._place(entry["sha256"], entry["path"], "the input")
            row["files"] = as_text(row["files"])

    def settle(self) -> None:
        """Make durable what was put in its place, before a row that names it is."""
        content.settle_all(self._paths, self._placed)

    def _stage(self, sha256: str, what: str | bytes, said_by: str) -> None:
        if sha256 not in self._staged and not content.present(self._paths, sha256):
            if isinstance(what, bytes):
                self._staged[sha256] = content.stage_bytes(self._paths, what)
            else:
                self._staged[sha256] = content.stage(self._paths, what, sha256, said_by)

    def _place(self, sha256: str, what: str | bytes, said_by: str) -> None:
        if sha256 not in self._placed:
            self._stage(sha256, what, said_by)  # for what was pruned since it was looked for
            if sha256 in self._staged:
                content.name(self._paths, self._staged[sha256], sha256)
                del self._staged[sha256]
            self._placed.add(sha256)


def _large(row: dict[str, Any]) -> bool:
    """Whether the input is kept beside the row."""
    return row["source"] is not None or (row["data"] is not None and len(row["data"]) > content.INLINE_MAX)


def _input(row: dict[str, Any]) -> tuple[str | bytes, str]:
    """(the bytes of an input, or the file that has them; who names that file)."""
    return (row["data"] if row["source"] is None else row["source"]), "the call"
