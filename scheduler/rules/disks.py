"""What a full disk excuses: what ends while there is no room, or says that there was none, is nobody's fault."""

from __future__ import annotations

from dataclasses import replace

from scheduler.model.machine import Machine
from scheduler.model.outcome import Outcome
from scheduler.rules.explain import low_disk
from scheduler.rules.order import is_low

AGAIN_S = 60.0
"""How long is waited before an attempt is made again that a full disk may have ended."""

SAID_AGAIN = 3
"""How often a job is tried later that says so while our own disks have room: what was full may be its own."""

EXCUSED = ("error", "crashed", "no_reply", "no_outputs")
"""Outcomes that a full disk can cause."""

SAYS_SO = ("no space left on device", "disk quota exceeded", "[errno 28]", "[errno 122]")


def full(machine: Machine | None, text: str = "") -> str:
    """That a disk of the queue's own is full, or was by what was said, as a sentence; "" if neither."""
    if machine is not None and is_low(machine.disk_free_gib, machine.disk_reserve_gib):
        return low_disk(machine)
    said = text.lower()
    return "it says that a disk was full" if any(words in said for words in SAYS_SO) else ""


def excused(outcome: Outcome, machine: Machine | None, laters: int = 0) -> Outcome:
    """The outcome of an attempt, tried again later and not counted where a full disk may be why it ended so.

    `laters`: how often its job was put off before.
    """
    if outcome.kind not in EXCUSED or outcome.later:
        return outcome
    why = full(machine, outcome.text)
    if not why or (laters >= SAID_AGAIN and not full(machine)):
        return outcome
    text = f"{outcome.text or outcome.kind}; not counted: {why.partition(';')[0]}"
    return replace(outcome, kind="error", text=text, retry_after_s=AGAIN_S)
