"""Values whose defaults admit, so that a test overrides the one thing that it is about. GiB and seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler.model.machine import Charge, Holding, Machine, Pool, Reading
from scheduler.model.plan import Breaker, LeaseView, Snapshot, Waiting, WorkerView
from scheduler.model.provider import Provider
from scheduler.model.verdict import Demand
from scheduler.rules.admission import Claim


def reading(value: float | None = 100.0, source: str = "test", missing: str = "") -> Reading:
    """A number that was read; None = a probe that failed."""
    return Reading(value, source, missing or ("it did not answer" if value is None else ""))


def pool(
    id: str = "host",
    capacity: float | None = 64.0,
    *,
    reserve: float = 2.0,
    free: float | None = -1.0,
    available: float | None = -1.0,
) -> Pool:
    """An empty pool: as much free and available as it has, unless told otherwise (None = unreadable)."""
    live = [capacity if value == -1.0 else value for value in (free, available)]
    return Pool(
        id, id.partition(":")[0], reading(capacity), reserve, reading(live[0], "free"), reading(live[1], "available")
    )


def card(uuid: str = "GPU-1", capacity: float | None = 80.0, *, vendor: str = "NVIDIA", **over: Any) -> Pool:
    """The pool of a discrete device."""
    there = {key: over.pop(key) for key in ("free", "available") if key in over}
    made = pool(f"device:{uuid}", capacity, reserve=over.pop("reserve", 0.5), **there)
    return replace(made, name="H100", vendor=vendor, seen_as=uuid, **over)


def machine(*pools: Pool, **over: Any) -> Machine:
    """A machine that was read without fault: 64 GiB of host memory, no accelerator, nobody on it, 8 cores."""
    kinds = {p.kind for p in pools}
    devices = float(sum(p.kind in ("device", "unified") for p in pools))
    base = Machine(
        0.0, "boot", "here", 8, pools or (pool(),), reading(devices), disk_free_gib=100.0, disk_reserve_gib=5.0
    )
    if "device" in kinds and "host" not in kinds:
        base = replace(base, pools=(*pools, pool()))
    return replace(base, **over)


def unified(capacity: float = 121.0, *, reserve: float = 4.0, **over: Any) -> Machine:
    """A machine with one unified pool, like a GB10."""
    live = {key: over.pop(key) for key in ("free", "available") if key in over}
    return machine(pool("unified", capacity, reserve=reserve, **live), **over)


def demand(
    device: float | None = 0.0, host: float = 1.0, *, slug: str = "boltz", count: int = 1, **over: Any
) -> Demand:
    """What one more worker would cost; it requires a device where it asks for device memory."""
    policy = over.pop("policy", "none" if device == 0.0 else "required")
    return Demand(slug, "", policy, device, host, count)


def claim(worker_id: int = 1, *, host_gib: float = 0.0, gone: bool = False, **charges: float) -> Claim:
    """A worker of ours that is charged; `charges` by pool id."""
    return Claim(worker_id, f"w{worker_id}", charges, host_gib, gone=gone)


def holding(*charges: Charge, name: str = "esm", pid: int = 500, worker_id: int | None = None) -> Holding:
    """A worker of somebody else, or of ours by its id."""
    return Holding(name, pid, "bob", charges or (Charge("host", 1.0, 1.0, "host"),), worker_id)


def provider(slug: str = "boltz", vram: float | None = 0.0, ram: float = 1.0, **over: Any) -> Provider:
    """An installed resident provider of one thread; it requires a device where it asks for device memory."""
    policy = "none" if vram == 0.0 else "required"
    return Provider(slug, revision="r", policy=policy, vram_gib=vram, ram_gib=ram, **over)


def waiting(slug: str = "boltz", job_id: int = 1, **over: Any) -> Waiting:
    """The first waiting job of a provider."""
    values: dict[str, Any] = {"variant": "", "priority": 0, "count": 1, "revision": "r", **over}
    return Waiting(slug=slug, job_id=job_id, **values)


def worker(id: int = 1, slug: str = "boltz", state: str = "ready", gib: float = 1.0, **over: Any) -> WorkerView:
    """A live worker, charged on `host` unless told otherwise."""
    values: dict[str, Any] = {"variant": "", "revision": "r", "charges": {"host": gib}, **over}
    return WorkerView(id=id, slug=slug, state=state, **values)


def lease(worker_id: int = 90, gib: float = 1.0, state: str = "returning", pool: str = "host") -> LeaseView:
    """A charge whose worker is gone."""
    return LeaseView(worker_id, "ghost", pool, gib, state)


def broken(slug: str = "boltz", next_try_in_s: float = 30.0) -> Breaker:
    """An open breaker."""
    return Breaker(slug, 3, "weights are not there", next_try_in_s)


def snapshot(*parts: object, machine: Machine | None = None, **over: Any) -> Snapshot:
    """A snapshot of these providers, waiting jobs, workers, leases and breakers, in any order."""
    providers = [part for part in parts if isinstance(part, Provider)]
    return Snapshot(
        machine=machine or globals()["machine"](),
        providers={(p.slug, p.variant): p for p in providers},
        waiting=tuple(part for part in parts if isinstance(part, Waiting)),
        workers=tuple(part for part in parts if isinstance(part, WorkerView)),
        leases=tuple(part for part in parts if isinstance(part, LeaseView)),
        breakers={part.slug: part for part in parts if isinstance(part, Breaker)},
        **over,
    )
