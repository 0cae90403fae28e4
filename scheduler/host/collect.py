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
from scheduler.host import publishing
from scheduler.host.workers import regular
from scheduler.host.workers.protocol import TOLD
from scheduler.host.workers.records import last_line
from scheduler.model.command import EXEC
from scheduler.model.exhaustion import ran_out
from scheduler.model.host import Task
from scheduler.model.outcome import (
    EXIT_LATER,
    EXIT_NO_ACCELERATOR,
    EXIT_REFUSED,
    LATER_S,
    LATEST_S,
    SOONEST_S,
    TERMINATED,
    TOLD_WORDS,
    Outcome,
    exit_words,
    later_s,
)

LOG_LOOKED_AT = 64 << 10

REASONS = {
    "refused": "refused",
    "over_budget": "over_budget",
    "no_accelerator": "no_accelerator",
    "input_changed": "input_changed",
}
UNTAKEN = ("busy", "leaving")
"""Why a worker takes no request: nothing of that one was begun."""


@dataclass(frozen=True)
class Collected:
    """An attempt's end: outcome, the reply's bytes for the record, the destination of its outputs."""

    outcome: Outcome
    reply: bytes | None = None
    destination: str = ""
    exiting: bool = False
    untaken: bool = False
    versions: dict[str, str] | None = None


def collect(
    paths: Paths, spec: dict[str, Any], task: Task, facts: dict[str, Any], umask: int = 0o077, unstored: str = ""
) -> Collected:
    """Read an attempt's stored reply, look for its outputs and publish them; whatever was said, it is an outcome.

    `unstored` is what its keeper said that kept it from storing one. Where the provider's manifest is gone its mode is
    "": the reply says itself whether it is a command's.
    """
    place = attempts.desk(paths, task.job_id, task.attempt, task.input_name)
    try:
        data = regular.content(place.reply_path)
        stored = json.loads(data, parse_constant=_no_number, parse_float=_finite)
        if not isinstance(stored, dict):
            raise ValueError("it is no JSON object")
        oneshot = spec["mode"] == "oneshot" or (not spec["mode"] and stored.get("oneshot") is True)
        if spec.get("slug") == EXEC:
            outcome, result = _command(stored, place)
        else:
            outcome, result = _oneshot(stored, place) if oneshot else _resident(stored)
    except RecursionError:
        return Collected(Outcome("no_reply", "the worker's reply cannot be read: it is nested too deep"))
    except OSError as error:
        text = unstored or f"the worker's reply cannot be read: {place.reply_path}: {error.strerror}"
        return Collected(Outcome("no_reply", clean(text)))
    except ValueError as error:
        return Collected(Outcome("no_reply", clean(f"the worker's reply cannot be read: {error}")))
    exiting = bool(stored.get("exiting")) or stored.get("reason") == "worker_exiting" or outcome.kind == "over_budget"
    if outcome.kind == "no_reply":
        return _without_reply(stored, outcome)
    if outcome.unsent:
        return Collected(outcome, untaken=True)
    if outcome.kind != "ok":
        return Collected(outcome, None if result is None else _reply(result, ""), exiting=exiting)
    destination, trouble = publishing.published(paths, task, place)
    if trouble is not None:
        return Collected(trouble, _reply(result, ""), exiting=exiting)
    if not destination:
        missing = publishing.missing_outputs(spec, place.out_dir)
        if missing:
            text = f"the worker said ok and wrote no {', '.join(missing)}; see its log"
            swallowed = _swallowed(place) if oneshot else ""
            if swallowed:  # E21: a command that ran out of memory and ended well all the same
                return Collected(Outcome("over_budget", f"{text}: {swallowed}", outcome.exit_code), exiting=exiting)
            return Collected(Outcome("no_outputs", text, outcome.exit_code), exiting=exiting)
        records = {"job.json": facts, "result.json": result}
        try:
            destination, trouble = publishing.publish(paths, task, place, records, umask)
        except OSError as error:
            text = f"the outputs could not be put in place: {attempts.told(error)}"
            if facts.get("tried"):
                return Collected(attempts.outside(text), _reply(result, place.out_dir), exiting=exiting)
            attempts.keep_answer(place, spec.get("revision") or "")
            return Collected(attempts.outside(f"{text}; they stay in {place.out_dir}"), exiting=exiting)
        if trouble is not None:
            return Collected(trouble, _reply(result, place.out_dir), exiting=exiting)
    return Collected(outcome, _reply(result, destination), destination, exiting)


def _swallowed(place: attempts.Desk) -> str:
    """The last line of a command's log that says that memory ran out; "" = none does."""
    try:
        said = regular.tail(place.log_path, LOG_LOOKED_AT).decode(errors="replace")
    except OSError:
        return ""
    return next((clean(line.strip(), 500) for line in reversed(said.splitlines()) if ran_out(line)), "")


def _without_reply(stored: dict[str, Any], outcome: Outcome) -> Collected:
    """An attempt that nothing was answered to: begun or not, and whether its worker was told to end from outside."""
    if stored.get("untaken") is True and stored.get("no_reply") is True:
        text = f"nothing of it was begun: {outcome.text}"
        return Collected(Outcome("interrupted", text, unsent=True), untaken=True)
    if stored.get("why") == TOLD or outcome.exit_code in TERMINATED:
        return Collected(Outcome("lost", f"{TOLD_WORDS}: {outcome.text}", outcome.exit_code))
    return Collected(outcome)


def _reply(result: Any, folder: str) -> bytes:
    """The answer as it is kept; of a worker that gave none, the list of what lies in its folder of outputs."""
    answer = {"outputs": _listing(folder)} if result is None else result
    return json.dumps(answer, separators=(",", ":")).encode()


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _finite(word: str) -> float:
    number = float(word)
    return number if math.isfinite(number) else float(_no_number(word))


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
        return Outcome("ok"), _answer(stored)
    text = clean(stored.get("error") or "the worker reported a failure and did not say which")
    reason, code = str(stored.get("reason") or ""), _code(stored.get("exit_code"))
    if stored.get("no_reply") or reason == "no_reply":
        return Outcome("no_reply", text, code), None
    if reason == "later" or code == EXIT_LATER:
        return Outcome("error", text, code, _later_s(stored.get("retry_after_s"))), None
    if reason in UNTAKEN:
        return Outcome("interrupted", f"nothing of it was begun: {text}", unsent=True), None
    if reason in REASONS:
        return Outcome(REASONS[reason], text, code), None
    if code == EXIT_REFUSED:
        return Outcome("refused", text, code), None
    if code == EXIT_NO_ACCELERATOR:
        return Outcome("no_accelerator", text, code), None
    return Outcome("over_budget" if ran_out(text) else "error", text, code), None


def _oneshot(stored: dict[str, Any], place: attempts.Desk) -> tuple[Outcome, Any]:
    code = _code(stored.get("exit_code"))
    if stored.get("no_reply"):
        return Outcome("no_reply", clean(stored.get("error") or "the command left no exit status"), code), None
    if code == 0 and stored.get("result_error"):
        text = f"the command ended well and its result.json {stored['result_error']}; see {place.out_dir}"
        return Outcome("error", clean(text), 0), None
    if code == 0:
        return Outcome("ok", "", 0), stored.get("result")
    last = last_line(place.log_path)
    text = f"{exit_words(code)}" + (f": {last}" if last else "")
    if code == EXIT_REFUSED:
        return Outcome("refused", last or text, code), None
    if code == EXIT_NO_ACCELERATOR:
        return Outcome("no_accelerator", last or text, code), None
    if code == EXIT_LATER:
        return Outcome("error", last or text, code, later_s(last)), None
    if code is None:
        return Outcome("lost", clean(stored.get("error") or "nobody recorded the command's exit status"), None), None
    if ran_out(last):
        return Outcome("over_budget", text, code), None
    return Outcome("crashed" if code < 0 else "error", text, code), None


def _command(stored: dict[str, Any], place: attempts.Desk) -> tuple[Outcome, Any]:
    """How a command ended: by its exit code, or by what its keeper was told to stop it for."""
    code = _code(stored.get("exit_code"))
    result = None if code is None else {"exit_code": code if code >= 0 else 128 - code}
    if stored.get("no_reply"):
        return Outcome("error", clean(stored.get("error") or "the command could not be started"), code), result
    kind, _, said = str(stored.get("stopped") or "").partition(": ")
    if kind in ("cancelled", "interrupted", "over_budget", "timed_out"):
        return Outcome(kind, clean(said), code), result
    if code == 0:
        return Outcome("ok", "", 0), result
    if code is None:
        return Outcome("lost", "nobody recorded the command's exit status", None), None
    last = last_line(place.log_path)
    text = f"exit {code}" if code > 0 else exit_words(code)
    return Outcome("error" if code > 0 else "crashed", f"{text}: {last}" if last else text, code), result


def _answer(stored: dict[str, Any]) -> Any:
    """What was answered: `result` where nothing of its own stands beside it, as the kit replies; else all but `ok`."""
    if "result" in stored and stored.keys() <= {"ok", "result", "exiting"}:
        return stored["result"]
    return {key: value for key, value in stored.items() if key != "ok"}


def _listing(destination: str) -> list[dict[str, Any]]:
    """What the worker wrote: all files but job.json, our record of the job."""
    rows = []
    for root, _folders, files in os.walk(destination or os.devnull):
        for name in sorted(files):
            path = os.path.join(root, name)
            rows.append({"path": os.path.relpath(path, destination), "bytes": os.lstat(path).st_size})
    rows = [row for row in rows if row["path"] != "job.json"]
    return sorted(rows, key=lambda row: str(row["path"]))
