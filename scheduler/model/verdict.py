"""A verdict: every number that a decision was made from, and the ruling that follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.machine import Reading

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
class Held:
    """One holder's part of one pool: charged, used so far, and what it will still touch (owed). GiB."""

    name: str
    charge_gib: float | None
    used_gib: float
    owed_gib: float


@dataclass(frozen=True)
class PoolEvidence:
    """Everything known of one pool that the demand would come out of. GiB."""

    pool: str
    kind: str
    demand_gib: float
    capacity: Reading
    reserve_gib: float
    held: tuple[Held, ...]
    live: Reading
    charged_gib: float
    owed_gib: float


@dataclass(frozen=True)
class Evidence:
    """All that a ruling rests on: `rule(evidence)` gives the same ruling again."""

    demand: Demand
    placement: tuple[PoolEvidence, ...]
    accelerators: Reading
    competing: int | None
    holdings_missing: str = ""


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
