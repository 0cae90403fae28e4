"""Memory while it is in use: the guard and the way to reclaim the file cache, joined to this host's readings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scheduler.config import Paths, Settings
from scheduler.host.machine.accelerators import Accelerators
from scheduler.host.machine.guard import PERIOD_S, Guard
from scheduler.host.machine.levels import Asking
from scheduler.host.machine.oom import Kills
from scheduler.host.machine.outside import Toucher
from scheduler.host.machine.reclaim import Reclaim, own_database
from scheduler.host.machine.sampler import Sampler
from scheduler.host.machine.usage import Usage
from scheduler.host.served import Served
from scheduler.model.host import HostEvent
from scheduler.model.machine import Machine


class Watching:
    """One host's guard and reclaim. `stop` ends a worker's tree; `served` knows the files that manifests name.

    Whoever puts an event of a worker's end before the loop passes it through `kills`.
    """

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        queue_id: str,
        sampler: Sampler,
        stop: Callable[[int, float, str], None],
        emit: Callable[[HostEvent], None],
        served: Served,
    ) -> None:
        self._sampler, self.kills = sampler, Kills(emit)
        self._devices = Accelerators(within_s=2.0)
        self._usage = Usage(paths)
        self.guard = Guard(
            stop, emit, self._latest, acts=settings.text("guard") == "on", tend=self._tend,
            asking=Asking(self._devices.read, PERIOD_S),
        )  # fmt: skip
        self.reclaim = Reclaim(
            emit, sampler.refresh, mode=settings.text("reclaim"), command=settings.text("reclaim_command"),
            files=served.files, pids=self.guard.pids, quiet=self.guard.quiet,
            alone=lambda: sampler.latest().competing == 0, touch=Toucher(queue_id, paths.home),
            never=lambda: own_database(paths.home),
        )  # fmt: skip

    def open(self) -> None:
        """Begin to watch."""
        self.guard.open()
        self._usage.open()

    def close(self) -> None:
        """Let go of everything."""
        self._usage.close()
        self.reclaim.close()
        self.guard.close()
        self._devices.close()

    def loads(self, worker_id: int) -> None:
        """A worker starts now."""
        self.guard.let_go(worker_id)
        self.reclaim.stand_back()

    def computes(self, worker_id: int, charges: dict[str, float]) -> str:
        """A worker is given a request; why it cannot be, or ""."""
        leaving = self.guard.sent(worker_id, charges)
        self.reclaim.stand_back()
        return leaving

    def reclaims(self, pool_id: str, gib: float, job_id: int | None) -> None:
        """Turn so much of the file cache into free memory."""
        pool = self._sampler.latest().pool(pool_id)
        self.reclaim.ask(pool_id, gib, pool.reserve_gib if pool is not None else 0.0, job_id)

    def _latest(self) -> Machine:
        """The last snapshot, as the guard asks for it, every second while a worker starts or is busy."""
        self.kills.look()
        return self._sampler.latest()

    def seen(self) -> Machine:
        """The newest snapshot, with what guard and reclaim say of it."""
        machine, closed = self._sampler.latest(), self.guard.closed()
        notes = (*machine.notes, *self.guard.notes(), *self.reclaim.notes())
        measured_at = str((self._usage.latest() or {}).get("at") or "")
        return replace(machine, closed=closed, reclaim=self.reclaim.word, notes=notes, measured_at=measured_at)

    def facts(self) -> dict[str, Any]:
        """What `status` shows of both, and of what the queue's folder takes."""
        return {"guard": self.guard.facts(), "reclaim": self.reclaim.facts(), "usage": self._usage.latest()}

    def _tend(self, worker_ids: list[int], free_gib: float, reserve_gib: float) -> None:
        self.reclaim.tend(worker_ids, free_gib, reserve_gib)
