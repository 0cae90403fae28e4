"""What outlives its worker: what the host is told of that, and when it is asked again.

A lease returns by evidence alone (P3). The host looks at every snapshot and says what it found; here it is told which
leases those are: at once when there is one more or one less, and now and then, so that nothing that was told is lost.
The environment of a command goes with its end; one that a crash left behind is found now and then.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds
from scheduler.model.host import Host, Loose
from scheduler.store import commands, leases

AGAIN_S = 5.0

SWEEP_S = 600.0
"""How often it is looked for environments whose command has ended."""


def loose(tx: Connection, clock: SystemClock) -> list[Loose]:
    """The workers of which nothing lives and whose charges are still out, as a host is given them; by id."""
    by_worker: dict[int, list[Any]] = {}
    for row in leases.loose(tx):
        by_worker.setdefault(row.worker_id, []).append(row)
    return [_of(rows, clock.now_s()) for rows in by_worker.values()]


def _of(rows: list[Any], now_s: float) -> Loose:
    first = rows[0]
    since_s = min((seconds(row.returning_at) for row in rows if row.returning_at), default=now_s)
    known = first.leader_pid is not None and first.leader_started is not None
    return Loose(
        worker_id=first.worker_id,
        slug=first.slug,
        boot_id=first.boot_id or "",
        before_gib={row.pool: row.before_gib for row in rows},
        gone_for_s=max(0.0, now_s - since_s),
        device=first.device or "",
        pids=((first.leader_pid, first.leader_started),) if known else (),
    )


class Watch:
    """One loop's questions about them: read inside its transaction, asked after the commit."""

    def __init__(self, host: Host, clock: SystemClock) -> None:
        self._host, self._clock = host, clock
        self._told: frozenset[tuple[int, str]] = frozenset()
        self._told_at = clock.monotonic_s()
        self._rows: list[Loose] | None = None
        self._swept_at = clock.monotonic_s()
        self._commands: set[str] | None = None

    def read(self, tx: Connection, charged: frozenset[tuple[int, str]]) -> None:
        """`charged` are the (worker, pool) of all leases without a worker, as they were read in this transaction."""
        due = bool(charged) and self._clock.monotonic_s() - self._told_at >= AGAIN_S
        self._rows = loose(tx, self._clock) if due or charged != self._told else None
        self._commands = commands.live(tx) if self._clock.monotonic_s() - self._swept_at >= SWEEP_S else None

    def ask(self) -> None:
        """Tell the host which they are, if it is time."""
        if self._commands is not None:
            self._swept_at = self._clock.monotonic_s()
            self._host.keep_environments(self._commands)
        if self._rows is None:
            return
        rows, self._rows = self._rows, None
        self._host.watch_return(rows)
        self._told = frozenset((row.worker_id, pool) for row in rows for pool in row.before_gib)
        self._told_at = self._clock.monotonic_s()
