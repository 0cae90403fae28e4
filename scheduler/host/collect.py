"""What a stored reply means: the outcome of an attempt, its result, and where its outputs went.

Exit codes and `reason` words are a contract with every worker (DESIGN 7), also with those that know nothing
of schedq; a reply that cannot be read is an outcome, not an error of ours.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.model.host import Task
from scheduler.model.outcome import EXIT_LATER, EXIT_NO_ACCELERATOR, EXIT_REFUSED, Outcome, exit_words

LATER_S = 60.0
SOONEST_S, LATEST_S = 1.0, 43_200.0
"""How soon and how late a worker that asks for another time is tried again, whatever it says."""

REASONS = {
    "refused": "refused",
    "over_budget": "over_budget",
    "no_accelerator": "no_accelerator",
    "input_changed": "input_changed",
}


@dataclass(frozen=True)
class Collected:
    """An attempt's end: outcome, the reply's bytes for the record, the destination of its outputs."""

    outcome: Outcome
    reply: bytes | None = None
    destination: str = ""
    exiting: bool = False
    versions: dict[str, str] | None = None


def collect(paths: Paths, spec: dict[str, Any], task: Task, facts: dict[str, Any], umask: int = 0o077) -> Collected:
    """Read an attempt's stored reply, look for its outputs and publish them; whatever was said, it is an outcome."""
    place = attempts.desk(paths, task.job_id, task.attempt, task.input_name)
    try:
        with open(place.reply_path, "rb") as file:
            stored = json.load(file, parse_constant=_no_number)
        if not isinstance(stored, dict):
            raise ValueError("it is no JSON object")
        oneshot = spec["mode"] == "oneshot"
        outcome, result = _oneshot(stored, place.log_path) if oneshot else _resident(stored)
    except RecursionError:
        return Collected(Outcome("no_reply", "the worker's reply cannot be read: it is nested too deep"))
    except (OSError, ValueError) as error:
        return Collected(Outcome("no_reply", clean(f"the worker's reply cannot be read: {error}")))
    exiting = bool(stored.get("exiting")) or stored.get("reason") == "worker_exiting"
    if outcome.kind != "ok":
        return Collected(outcome, exiting=exiting)
    missing = attempts.missing_outputs(spec, place.out_dir)
    if missing:
        text = f"the worker said ok and wrote no {', '.join(missing)}; see its log"
        return Collected(Outcome("no_outputs", text, outcome.exit_code), exiting=exiting)
    try:
        destination, trouble = attempts.publish(paths, task, place, {"job.json": facts, "result.json": result}, umask)
    except OSError as error:
        text = f"the outputs could not be put in place: {attempts.told(error)}; they stay in {place.out_dir}"
        return Collected(attempts.outside(text), exiting=exiting)
    if trouble is not None:
        return Collected(trouble, exiting=exiting)
    if result is None:
        result = {"outputs": _listing(destination)}
    return Collected(outcome, json.dumps(result, separators=(",", ":")).encode(), destination, exiting)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def clean(text: object, most: int = 2000) -> str:
    """What a worker said, fit to be stored and shown: no control characters but line ends, no half characters."""
    whole = str(text)[:most].encode(errors="replace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in whole)


def _code(value: object) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and -255 <= value <= 255
    return value if known and isinstance(value, int) else None


def _later_s(value: object) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return min(max(float(value), SOONEST_S), LATEST_S)
    return LATER_S


def _resident(stored: dict[str, Any]) -> tuple[Outcome, Any]:
    if stored.get("ok") is True:
        return Outcome("ok"), stored["result"] if "result" in stored else _rest(stored)
    text = clean(stored.get("error") or "the worker reported a failure and did not say which")
    reason, code = str(stored.get("reason") or ""), _code(stored.get("exit_code"))
    if stored.get("no_reply") or reason == "no_reply":
        return Outcome("no_reply", text, code), None
    if reason == "later" or code == EXIT_LATER:
        return Outcome("error", text, code, _later_s(stored.get("retry_after_s"))), None
    if reason in REASONS:
        return Outcome(REASONS[reason], text, code), None
    if code == EXIT_REFUSED:
        return Outcome("refused", text, code), None
    if code == EXIT_NO_ACCELERATOR:
        return Outcome("no_accelerator", text, code), None
    return Outcome("error", text, code), None


def _oneshot(stored: dict[str, Any], log_path: str) -> tuple[Outcome, Any]:
    code = _code(stored.get("exit_code"))
    if stored.get("no_reply"):
        return Outcome("no_reply", clean(stored.get("error") or "the command left no exit status"), code), None
    if code == 0:
        return Outcome("ok", "", 0), stored.get("result")
    last = last_line(log_path)
    text = f"{exit_words(code)}" + (f": {last}" if last else "")
    if code == EXIT_REFUSED:
        return Outcome("refused", last or text, code), None
    if code == EXIT_NO_ACCELERATOR:
        return Outcome("no_accelerator", last or text, code), None
    if code == EXIT_LATER:
        return Outcome("error", last or text, code, LATER_S), None
    if code is None:
        return Outcome("lost", clean(stored.get("error") or "nobody recorded the command's exit status"), None), None
    return Outcome("crashed" if code < 0 else "error", text, code), None


def _rest(stored: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stored.items() if key not in ("ok", "job", "attempt")}


def _listing(destination: str) -> list[dict[str, Any]]:
    rows = []
    for root, _folders, files in os.walk(destination or os.devnull):
        for name in sorted(files):
            path = os.path.join(root, name)
            rows.append({"path": os.path.relpath(path, destination), "bytes": os.path.getsize(path)})
    return sorted(rows, key=lambda row: str(row["path"]))


def last_line(log_path: str, most: int = 4096) -> str:
    """The last line that says something in a log, without control characters; empty if there is none."""
    try:
        with open(log_path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - most))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = next((line for line in reversed(lines) if line.strip()), "")
    return "".join(c for c in said.strip() if c.isprintable())[:500]
