"""A verdict: every number that a decision was made from, and the ruling that follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.machine import Held, Reading

NEVER = frozenset({"undeclared", "no_device", "too_big"})


@dataclass(frozen=True)
class Demand:
    """What one more worker would cost. `device_gib` None = no budget was declared."""

    slug: str
    variant: str = ""
    policy: str = "none"
    device_gib: float | None = 0.0
    host_gib: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class PoolEvidence:
    """Everything known of one pool that the demand would come out of. GiB.

    `closed` says why the guard admits nothing there now, "" = it does not mind.
    """

    pool: str
    kind: str
    demand_gib: float
    capacity: Reading
    reserve_gib: float
    held: tuple[Held, ...]
    live: Reading
    charged_gib: float
    owed_gib: float
    closed: str = ""


@dataclass(frozen=True)
class Evidence:
    """All that a ruling rests on: `rule(evidence)` gives the same ruling again.

    `placement` is the place that the ruling is about, `places` how many there were.
    """

    demand: Demand
    placement: tuple[PoolEvidence, ...]
    accelerators: Reading
    competing: int | None
    holdings_missing: str = ""
    places: int = 1


@dataclass(frozen=True)
class Verdict:
    """The evidence, and `admit` or the first gate that closed."""

    evidence: Evidence
    ruling: str

    @property
    def admit(self) -> bool:
        """Whether one more worker may be started now."""
        return self.ruling == "admit"

    @property
    def never(self) -> bool:
        """Whether waiting cannot help (P6)."""
        return self.ruling in NEVER
