"""What workers said, made fit for a report: one line, nothing that moves a cursor, and what reads alike told alike."""

from __future__ import annotations

import re
from functools import lru_cache

from scheduler.clock import seconds
from scheduler.rules.figures import elapsed as elapsed
from scheduler.rules.figures import span

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x1f\x7f-\x9f]")
UNSHOWN = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufffe\uffff]")
NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b|\d+(?:\.\d+)?")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
NAMED = re.compile(r"[^\s,;:()\[\]{}=]*(?:\d|/)[^\s,;:()\[\]{}=]*|\b[A-Z]\b")
STAMP = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z\b")
SHOWN, LEAST_NAME = 160, 3
ALIKE_WORDS = 9


@lru_cache(4096)
def clean(text: str, most: int = SHOWN) -> str:
    """Text on one line, without escape sequences, control and direction characters, and at most that long."""
    text = " ".join(UNSHOWN.sub("", ESCAPES.sub(" ", text[: 8 * most])).split())
    return text if len(text) <= most else text[: most - 2].rstrip() + ".."


@lru_cache(4096)
def alike(text: str) -> str:
    """What texts have in common that say the same of different jobs: their first words, any number for another."""
    return " ".join(NUMBER.sub("#", clean(text)).split(" ")[:ALIKE_WORDS]).casefold()


@lru_cache(4096)
def same_reason(text: str, name: str = "") -> str:
    """What reasons have in common that differ in numbers or names only: in words with a digit, in what stands in
    quotes, in paths, in single capitals (a chain), and in the job's own name.
    """
    text = clean(text)
    if len(name) >= LEAST_NAME:
        text = text.replace(clean(name), "#")
    return " ".join(NAMED.sub("#", QUOTED.sub("#", text)).split(" ")[:ALIKE_WORDS]).casefold()


def short(seconds: float | None) -> str:
    """A time span in as few letters as it takes: `0.4s`, `3m12s`, `2h05m`; `-` if it is not known."""
    return elapsed(seconds).replace(" ", "")


def moment(at_s: float, *, day: bool = False, second: bool = False) -> str:
    """An instant on this machine's clock: `22:04`, `Sun 29 Nov 22:04`, or with its `second` `22:04:09`."""
    from datetime import datetime

    there = datetime.fromtimestamp(at_s)
    if second:
        return f"{there:%H:%M:%S}"
    return f"{there:%a} {there.day} {there:%b %H:%M}" if day else f"{there:%H:%M}"


def in_local_time(text: str) -> str:
    """Text with this machine's own time in the place of each UTC stamp."""
    return STAMP.sub(_local, text)


def _local(found: re.Match[str]) -> str:
    try:
        return moment(seconds(found.group()), day=True)
    except (ValueError, OverflowError, OSError):
        return found.group()


def between(begin_s: float, end_s: float) -> str:
    """A time as people say it: from when to when, and how long that is."""
    from datetime import datetime

    one_day = datetime.fromtimestamp(begin_s).date() == datetime.fromtimestamp(end_s).date()
    return f"{moment(begin_s, day=True)} to {moment(end_s, day=not one_day)} ({span(end_s - begin_s)})"


def percent(part: float, whole: float) -> str:
    """A share in whole percent; what is not nothing is not 0, and what is not all is not 100."""
    if whole <= 0 or part <= 0:
        return "0 %"
    share = 100.0 * part / whole
    return "<1 %" if share < 1 else f"{min(99, round(share)) if part < whole else 100} %"
