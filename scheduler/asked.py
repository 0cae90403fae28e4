"""What is asked of a queue, made into rows of it: one request after the other, each checked, nothing written.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os

from scheduler import after, drafting, given, outputs, request
from scheduler.config import Paths
from scheduler.errors import AcceleratorAbsent, Refused, SchedqError, UsageError
from scheduler.inputs.sources import refuse_large
from scheduler.rules import never
from scheduler.store import content, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Spec = dict[str, Any]

OPTIONS: dict[str, Any] = {
    "params": None, "name": "", "priority": 0, "key": "", "batch": "", "timeout_s": None, "out": "",
    "overwrite": False, "hold": False, "on_lost": None, "max_attempts": None, "retry_on": None, "labels": None,
    "begin": None, "after": None, "on_parent": None,
}  # fmt: skip
"""What may be asked of a job beside its provider and its input, and what it is unless it is asked for."""

FILLED = ("name", "slug", "batch")
"""What a key may name in braces."""


class Common:
    """What rows with the same options have in common, typed and checked once for all of them."""

    def __init__(self, spec: Spec, options: dict[str, Any], resume: bool) -> None:
        unknown = options.keys() - OPTIONS.keys()
        if unknown:
            raise TypeError(f"a job has no option {sorted(unknown)[0]}; it has {', '.join(OPTIONS)}")
        asked = {**OPTIONS, **options}
        self.name, self.key = given.text("name", asked["name"]), given.text("key", asked["key"])
        self.batch, self.out = given.batch(asked["batch"]), given.path("out", asked["out"])
        outputs.refuse_template(self.out)
        overwrite, priority = given.flag("overwrite", asked["overwrite"]), given.whole("priority", asked["priority"])
        timeout_s = given.attempt_s(asked["timeout_s"])
        state = "held" if given.flag("hold", asked["hold"]) else "queued"
        policy = given.policy(asked["on_lost"], asked["max_attempts"], asked["retry_on"])
        begin_at, labels = given.begin(asked["begin"]), given.labels(asked["labels"])
        params = asked["params"]
        try:
            self.values = request.parameters(spec, given.assignments(params))
        except UsageError as error:
            raise given.of_params(error) if isinstance(params, dict) else error from None
        if resume and not self.batch:
            raise UsageError("--resume needs a batch: --batch NAME, or the key batch in each row of the file")
        self.spec, self.may_exist = spec, overwrite or bool(self.key) or resume
        self.beside: dict[str, Any] = {"labels": labels} if labels else {}
        if asked["after"] is not None and asked["after"] != "" and (comes_after := given.after(asked["after"])):
            self.beside["after"] = comes_after
        self.columns = {
            "slug": spec["slug"], "variant": spec["variant"], "revision": spec["revision"],
            "priority": priority, "batch": self.batch or None, "timeout_s": timeout_s,
            "state": state, "max_attempts": spec["retry"]["max_attempts"],
            "on_lost": spec["retry"]["on_lost"], "overwrite": overwrite, "not_before_at": begin_at,
            "blocked": "begin" if begin_at and state == "queued" else None,
            "on_parent": after.on_parent(asked["on_parent"]), **policy,
        }  # fmt: skip


class Asking:
    """The rows of one call as they are made, and which of its requests cannot be queued."""

    def __init__(self, paths: Paths, *, resume: bool = False) -> None:
        self._paths, self._resume = paths, resume
        self.rows: list[dict[str, Any]] = []
        self.asked_as: list[tuple[int, Common]] = []
        """Of each row: which of the requests it is, and what that has in common with others."""
        self.faults: list[tuple[int, str, SchedqError]] = []
        self.refused: list[dict[str, Any]] = []
        """Key and name of the requests that cannot be queued: others of the call may come after these."""
        self._taken = outputs.Taken(paths.home)
        self._never: dict[tuple[str, str], SchedqError | None] = {}

    def common(self, spec: Spec, options: dict[str, Any]) -> Common:
        """What these options are for this provider. UsageError names the one that is not what it must be."""
        return Common(spec, options, self._resume)

    def add(self, index: int, common: Common, source: Any, where: str = "", *, name: str = "", key: str = "") -> None:
        """Check one request and add its row, or its fault.

        `where` is what errors call it, `name` and `key` are its own, where the options in common do not name them.
        """
        try:
            row = self._row(common, source, where, name or common.name, key or common.key)
        except SchedqError as error:
            self.faults.append((index, where or (source if isinstance(source, str) else "the input"), error))
            self.note_refused(key or common.key, name or common.name, common.columns)
            return
        self.rows.append(row)
        self.asked_as.append((index, common))

    def _row(self, common: Common, source: Any, where: str, name: str, key: str) -> dict[str, Any]:
        data, input_name, folder, shown = given.source(source)
        if not isinstance(source, str):
            refuse_large(data, _shown(source, shown, where))
        row = drafting.check(
            common.spec, data, input_name, folder, common.values, self._paths, _shown(source, shown, where)
        )
        if len(data) > content.INLINE_MAX and folder is not None and not row.get("beside"):
            row["source"] = os.path.abspath(given.path("input", source))  # read again where it is kept: not all at once
        else:
            row["data"] = data
        row["name"] = name or os.path.splitext(row["input_name"])[0]
        row.update(common.columns)
        row["where"] = where or (source if isinstance(source, str) else None)
        row["key"] = _filled(key, row) if key else None
        if common.beside:
            row["beside"] = {**(row.get("beside") or {}), **common.beside}
        row["out"] = outputs.destination(common.out, row["slug"], row["name"], common.batch) if common.out else None
        return row

    def refuse_last(self, error: SchedqError) -> None:
        """Make a fault of the row that was added last."""
        row, (index, _) = self.rows.pop(), self.asked_as.pop()
        self.faults.append((index, row["where"] or row["name"], error))
        self.note_refused(row["key"], row["name"])

    def note_refused(self, key: object, name: object, columns: dict[str, Any] | None = None) -> None:
        """Remember what a request is called that cannot be queued."""
        name = name if isinstance(name, str) else ""
        key = _filled(key, {**dict.fromkeys(FILLED), **(columns or {}), "name": name}) if isinstance(key, str) else ""
        self.refused.append({"key": key or name or None, "name": name, "where": None, "beside": None})

    def refuse_taken(self) -> None:
        """Make a fault of each row whose destination another row has, or that may not or cannot be made."""
        rows, asked_as = self.rows, self.asked_as
        self.rows, self.asked_as = [], []
        for row, as_ in zip(rows, asked_as, strict=True):
            try:
                self._taken.refuse(row, may_exist=as_[1].may_exist)
            except SchedqError as error:
                self.faults.append((as_[0], row["where"] or row["name"], error))
                self.note_refused(row["key"], row["name"])
                continue
            self.rows.append(row)
            self.asked_as.append(as_)

    def refuse_never(self, spec: Spec) -> None:
        """Refused or AcceleratorAbsent for what can never start on this machine, by what was last seen of it."""
        which = spec["slug"], spec["variant"]
        if which not in self._never:
            self._never[which] = refusal(self._paths, spec)
        error = self._never[which]
        if error is not None:
            raise error


def refusal(paths: Paths, spec: Spec) -> SchedqError | None:
    """Why a provider can never start on this machine, by what was last seen of it; None if it can."""
    ruling, text = never.ruling(spec, peek.facts(paths) or {})
    if not ruling:
        return None
    where = spec.get("where", f" (schedq providers show {spec['slug']} has what it declares)")
    kind = AcceleratorAbsent if ruling == "no_device" else Refused
    return kind(f"{ruling}: {text}; nothing was queued{where}")


def _shown(source: Any, shown: str, where: str) -> str:
    """What errors call an input: as it was given, or its row where it has no name of its own."""
    return shown if isinstance(source, str | os.PathLike) and shown else where or shown


def _filled(key: str, row: dict[str, Any]) -> str:
    """A key with what it names in braces filled in."""
    if "{" in key:
        for field in FILLED:
            key = key.replace(f"{{{field}}}", str(row[field] or ""))
    return key


def told(tell: Callable[[int], None] | None, done: int) -> None:
    """Say how many are through, now and then."""
    if tell is not None and done % TOLD == 0:
        tell(done)


TOLD = 500
"""Requests between two looks at who is told how far it is."""
