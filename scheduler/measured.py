"""What the host saw workers use, and what follows from it when an attempt ends: kept, charged, said.

Everything here happens in the transaction that ends the attempt. A worker keeps what a large job made it take, so that
what is seen with a smaller one after it says nothing of that one, and is not kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import seconds
from scheduler.model.command import EXEC
from scheduler.model.host import Host
from scheduler.model.machine import Holding, Machine, device_part
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider
from scheduler.rules import disks
from scheduler.rules.figures import plain, pool_name
from scheduler.rules.peaks import TAUGHT_BY, bucket_of
from scheduler.store import leases, peaks, queue, workers

Parts = tuple[float | None, float | None]
"""What of a device and what of host memory, GiB; None = not seen."""


@dataclass(frozen=True)
class Measured:
    """One turn's look at what workers use. `machine` is the last snapshot, None = there was none yet.

    `lowered` is what workers are charged now whose charge was taken back in this turn, GiB by pool.
    """

    host: Host
    host_id: str
    machine: Machine | None = None
    lowered: dict[int, dict[str, float]] = field(default_factory=dict)

    def ended(self, tx: Connection, job: Any, outcome: Outcome, provider: Provider, at: str) -> Outcome:
        """Keep what an attempt used and lower its worker's charge to that; the outcome, with figures if it ran out.

        One that a full disk may have caused is tried again later, uncounted; a command never is.
        """
        worker = workers.row(tx, job.worker_id) if job.worker_id is not None else None
        if job.slug == EXEC:
            return outcome
        outcome = disks.excused(outcome, self.machine, job.laters)
        if worker is None:
            return outcome
        used = self.host.peaks(worker.id, worker.bucket is not None)
        charges = leases.by_pool(tx, worker.id)
        bucket = bucket_of(job.size)
        if used and outcome.kind in TAUGHT_BY and bucket >= (worker.bucket or 0):
            self._keep(tx, worker, at, used, provider, bucket=bucket, job=job, outcome=outcome.kind)
        if not outcome.unsent:
            workers.measured(tx, worker.id, bucket=max(bucket, worker.bucket or 0))
        if outcome.kind == "over_budget":
            return self._told(outcome, used, charges, job)
        if worker.state == "ready" and not worker.alone:
            self._lower(tx, worker.id, used, charges, provider, at)
        return outcome

    @property
    def disk_full(self) -> str:
        """That a disk of the queue's own is full, as a sentence; "" if none is."""
        return disks.full(self.machine)

    def told(self, tx: Connection, job: Any, outcome: Outcome) -> Outcome:
        """The outcome of a job whose worker ran out before it was sent anything, with the figures of that worker."""
        return self._told(outcome, self.host.peaks(job.worker_id, False), leases.by_pool(tx, job.worker_id), job)

    def idle(self, tx: Connection, worker_id: int, provider: Provider, at: str) -> None:
        """Keep what a worker holds after its load, before it is sent anything: what it needs whatever it is asked.

        Of one that was sent something before nothing is kept: its framework may hold what that job made it take. Nor
        while the last snapshot is older than the end of its load.
        """
        worker = workers.row(tx, worker_id)
        holding = self.machine.ours.get(worker_id) if self.machine is not None else None
        if worker is None or holding is None or worker.mode == "oneshot" or worker.bucket is not None:
            return
        if self.machine is None or not worker.ready_at or self.machine.at_s < seconds(worker.ready_at):
            return
        held = {pool: part.used_gib for pool, part in holding.parts.items() if part.seen}
        if "unified" in held and provider.policy == "required":
            on_device_gib = _on_device_gib(holding, self.machine)
            if on_device_gib is None:
                del held["unified"]
            else:
                held[device_part("unified")] = on_device_gib
        if held:
            self._keep(tx, worker, at, held, provider, bucket=None, job=None, outcome="")

    def _keep(
        self, tx: Connection, worker: Any, at: str, used: dict[str, float], provider: Provider, *, bucket: int | None,
        job: Any, outcome: str,
    ) -> None:  # fmt: skip
        device_gib, host_gib = self.parts(worker.id, used, provider)
        peaks.add(
            tx, worker.slug, worker.variant, self.host_id, at, bucket=bucket, device_gib=device_gib, host_gib=host_gib,
            device=self._devices(worker.device or ""), job_id=job.id if job is not None else None,
            attempt=job.attempt if job is not None else None, worker_id=worker.id, outcome=outcome,
        )  # fmt: skip

    def parts(self, worker_id: int, used: dict[str, float], provider: Provider) -> Parts:
        """What was used by pool, as what of a device (of several the most on one) and what of host memory.

        On unified memory only their sum is charged: what of the largest sum was never the device's is the host's. Where
        a host does not tell that part, the last snapshot does.
        """
        on_device = [gib for pool, gib in used.items() if pool.startswith("device:")]
        device_gib, host_gib = (max(on_device) if on_device else None), used.get("host")
        if "unified" not in used:
            return (device_gib if provider.policy == "required" else None), host_gib
        whole_gib = used["unified"]
        if provider.policy != "required":
            return None, whole_gib
        if device_part("unified") in used:
            device_gib = min(whole_gib, used[device_part("unified")])
            return device_gib, whole_gib - device_gib
        holding = self.machine.ours.get(worker_id) if self.machine is not None else None
        part = holding.parts.get("unified") if holding is not None else None
        seen_gib = part.used_gib - part.on_device_gib if part is not None and part.seen else provider.ram_gib
        host_gib = min(whole_gib, max(0.0, seen_gib))
        return whole_gib - host_gib, host_gib

    def _devices(self, pools: str) -> str:
        """The names of the devices of these pools, each once."""
        found = [self.machine.pool(pool) for pool in pools.split(",")] if self.machine is not None and pools else []
        return ", ".join(dict.fromkeys(pool.name or pool.id for pool in found if pool is not None))

    def _lower(
        self, tx: Connection, worker_id: int, used: dict[str, float], charges: dict[str, float], provider: Provider,
        at: str,
    ) -> None:  # fmt: skip
        """What was raised for a larger job goes back to what was measured, and never below what is declared."""
        for pool, charged_gib in charges.items():
            seen_gib = used.get(pool)
            if seen_gib is None:
                continue
            least_gib = max(seen_gib, _declared_gib(pool, provider))
            if least_gib < charged_gib:
                leases.resize(tx, worker_id, pool, least_gib, at)
                self.lowered[worker_id] = leases.by_pool(tx, worker_id)

    def _told(self, outcome: Outcome, used: dict[str, float], charges: dict[str, float], job: Any) -> Outcome:
        """What was used, charged and free, beside what the worker or the guard said."""
        figures = []
        for pool, charge_gib in charges.items():
            free = self.machine.pool(pool) if self.machine is not None else None
            left = free.free.value if free is not None else None
            seen = f"{plain(used[pool], 2)} GiB used" if pool in used else "use not seen"
            there = f", {plain(left, 2)} GiB free" if left is not None and math.isfinite(left) else ""
            figures.append(f"{pool_name(pool)}: {seen} of {plain(charge_gib, 2)} GiB charged{there}")
        said = outcome.text.rstrip(" :") or "it ran over its budget"
        text = f"{said} ({'; '.join(figures)})" if figures else said
        if job.behind is not None:
            again = "" if job.measures else " as well"
            text = f"it ran out of memory alone{again}, with all that its pool could give: {text}"
        return replace(outcome, text=text)


def unsent(tx: Connection, measured: Measured | None, job_id: int, text: str, *, ran_out: bool) -> tuple[str, Outcome]:
    """(event, outcome) of a job whose worker ended before it was sent anything: its claim is given back.

    Given up if it ran out of memory and was alone already: over its budget with all that its pools can give.
    """
    job = queue.row(tx, job_id) if ran_out else None
    if job is None or job.behind is None:
        return "give_back", Outcome("interrupted", text)
    outcome = Outcome("over_budget", text)
    return "give_up", outcome if measured is None else measured.told(tx, job, outcome)


def _on_device_gib(holding: Holding, machine: Machine) -> float | None:
    """What drivers say that a holder's processes hold on devices, together; None if one of them is not told."""
    pids = {pid for pid, _ in holding.listed}
    used = [tenant.used_gib for device in machine.devices for tenant in device.tenants if tenant.pid in pids]
    told = [gib for gib in used if gib is not None]
    return math.fsum(told) if told and len(told) == len(used) else None


def _declared_gib(pool: str, provider: Provider) -> float:
    device_gib = (provider.vram_gib or 0.0) if provider.policy == "required" else 0.0
    if pool == "unified":
        return device_gib + provider.ram_gib
    return provider.ram_gib if pool == "host" else device_gib
