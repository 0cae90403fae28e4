"""What is told of an incident, and what became of it: what the loop and whoever tells it say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

COMMAND, URL = "command", "url"
"""Who can be told: the operator's command, and a webhook."""


@dataclass(frozen=True)
class Notice:
    """One incident that is to be told. `body` is what is sent; `took`: who has it already."""

    incident_id: int
    event: str
    body: dict[str, Any]
    took: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """Who has it by now, and why somebody has not: "" if everybody has. No secret is in it."""

    incident_id: int
    took: tuple[str, ...]
    error: str


class Teller(Protocol):
    """Who tells, off the loop's thread, one incident after the other; what became of each comes back by `over`."""

    def wants(self, event: str) -> bool:
        """Whether anybody is to be told of such an event."""

    def tell(self, notice: Notice) -> None:
        """Tell everybody who has not been told of it."""

    def over(self) -> list[Told]:
        """What became of those that were tried since this was asked."""
