"""What a gate says to those who wait at it: by what they need, how many parents are open, and how many went bad."""

from __future__ import annotations

SHUT, THROUGH, BROKEN = "shut", "through", "broken"

FAILS, HELD = "parent_failed", "park"
"""The events of a child whose gate is broken."""


def ruling(need: str, open: int, bad: int) -> str:
    """`broken`: it can never open, a parent that had to succeed did not; `shut`: not yet; `through`: they may go."""
    if need == "ok" and bad > 0:
        return BROKEN
    return SHUT if open > 0 else THROUGH


def broken_for(on_parent: str) -> str:
    """The event of a child at a broken gate, by what it asked for (--on-parent)."""
    return HELD if on_parent == "hold" else FAILS
