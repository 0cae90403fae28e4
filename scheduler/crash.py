"""Named points between two durable effects, where a crash is worth trying. No-ops: the fault suite arms them.

Standard library only; used everywhere, imports nothing of ours.
"""

from __future__ import annotations


def crashpoint(name: str) -> None:
    """A place where the process may die; does nothing by itself."""
