"""Stored stamps as people read them: on this machine's own clock, with its zone. What programs read stays UTC."""

from __future__ import annotations

from scheduler.clock import local_stamp, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re


def local(at: str) -> str:
    """A stored stamp on this machine's clock, to the second: `2026-11-29 22:00:00 CET`; text that is none, as it is."""
    try:
        return local_stamp(seconds(at))
    except (ValueError, OverflowError, OSError):
        return at


def locally(text: str) -> str:
    """A sentence with each stamp in it as `local` has it; one that is part of a name or a path stays as it is."""
    if "Z" not in text or "T" not in text:
        return text
    import re

    return re.sub(r"(?<![\w/.-])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z(?![\w/-])", _local, text)


def _local(found: re.Match[str]) -> str:
    return local(found.group())
