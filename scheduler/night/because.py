"""Why a job ended as it did, in the words that a report and a table have for it."""

from __future__ import annotations

import json

from scheduler.rules.breaker import OWN_TIME
from scheduler.rules.figures import span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENDED_BADLY = ("failed", "timed_out", "refused", "cancelled")


def because(
    state: str, outcome: str | None, text: str | None, verdict: str | None, faults: str | None, timeout_s: float | None
) -> tuple[str, str]:
    """(the kind, why): `check` and what its check found where a job succeeded that has not passed; ("", "") if all is
    well. A job that took longer than it was given is told with how long that was.
    """
    if state == "succeeded":
        return ("check", faults_of(faults)) if verdict == "failed" else (outcome or "", text or "")
    if outcome == "timed_out" and text == OWN_TIME and timeout_s is not None:
        return outcome, f"it took longer than its --timeout of {span(timeout_s)}"
    return outcome or "", text or ""


def told(state: str, kind: str, text: str) -> str:
    """The same in one text, for a cell; "" for what did not end badly."""
    if state not in ENDED_BADLY and kind != "check":
        return ""
    kind = "" if kind in ("error", "check", state) else kind.replace("_", " ")
    return f"{kind}: {text}" if kind and text and not text.startswith(kind) else text or kind


def faults_of(text: str | None) -> str:
    """What a check found, as one text; what was cut off on its way here is taken as it is."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return str(text)
    if not isinstance(found, list):
        return str(found)
    said = [_fault(each) if isinstance(each, dict) else str(each) for each in found]
    return (said[0] + (f" (and {len(said) - 1} more)" if len(said) > 1 else "")) if said else "its check failed"


def _fault(fault: dict[str, Any]) -> str:
    return f"{fault.get('place')}: expected {fault.get('expected')}, found {fault.get('found')}"
