"""The pools written down while something is going on, for the picture of a night; what is old is forgotten."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.clock import stamp
from scheduler.rules import sampling
from scheduler.store import samples

FORGET_EVERY_S = 3600.0


class Sampled:
    """What one scheduler wrote down last."""

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._forgot_s: float | None = None
        self._pools: list[dict[str, Any]] = []
        self._busy = False

    def ends(self, busy: bool) -> bool:
        """Whether nothing goes on any more since the last row: that, too, belongs into the picture."""
        return self._busy and not busy

    def keep(self, tx: Connection, host_id: str, facts: dict[str, Any], wall_s: float, *, busy: bool) -> None:
        """Write down a snapshot (as `status` has it), if that is due. `wall_s`: now. `busy`: something goes on."""
        if not busy and not self._busy:
            return
        pools = sampling.figures_of(facts)
        since_s = float("inf") if self._at_s is None else abs(wall_s - self._at_s)
        if not busy or sampling.is_due(self._pools, pools, since_s):
            samples.put(tx, host_id, stamp(wall_s), pools)
            self._at_s, self._pools = wall_s, pools
        self._busy = busy
        if self._forgot_s is None or abs(wall_s - self._forgot_s) >= FORGET_EVERY_S:
            samples.forget(tx, stamp(max(0.0, wall_s - sampling.KEPT_S)))
            self._forgot_s = wall_s

    def doubt(self) -> None:
        """The last row may not have been written."""
        self._at_s, self._busy = None, True
