"""The machine and the queue as they stand this moment, for whoever asks beside the scheduler: `machine` and `room`.

Reads only. What a scheduler would decide now is decided on the same values that its loop has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.clock import SystemClock
from scheduler.config import Paths, Settings
from scheduler.host.machine.accelerators import Accelerators
from scheduler.host.machine.snapshot import MachineIdentity, Snapshots
from scheduler.host.served import Served
from scheduler.host.workers.tree import boot_id
from scheduler.model.machine import Machine
from scheduler.model.plan import Snapshot
from scheduler.model.provider import Provider
from scheduler.store import identity, queue, schedulers
from scheduler.store.engine import Store
from scheduler.store.kept import is_made
from scheduler.view import Memory, Orders, snapshot

DRIVER_S = 15.0
"""How long a driver has to answer: its devices may have to be woken, and nobody asks it a second time."""


@dataclass(frozen=True)
class Look:
    """What was seen, and the id of the queue; "" where there is none yet."""

    queue_id: str
    snapshot: Snapshot


def look(paths: Paths, settings: Settings) -> Look:
    """Probe the machine and read the queue; within `DRIVER_S` and a few seconds, whatever hangs."""
    served = Served(paths)
    providers = served.providers()
    store = Store(paths) if is_made(paths) else None
    try:
        queue_id = _queue_id(store)
        machine = _machine(paths, settings, queue_id, served)
        return Look(queue_id, _seen(store, machine, providers))
    finally:
        if store is not None:
            store.close()


def _queue_id(store: Store | None) -> str:
    if store is None:
        return ""
    with store.read() as tx:
        return schedulers.queue_id(tx)


def _machine(paths: Paths, settings: Settings, queue_id: str, served: Served) -> Machine:
    who = MachineIdentity(boot_id(), identity.host_id())
    snapshots = Snapshots(
        paths.home, settings, who, queue_id=queue_id, budget_of=served.budget_of,
        accelerators=Accelerators(within_s=DRIVER_S),
    )  # fmt: skip
    try:
        return snapshots.take()
    finally:
        snapshots.close()


def _seen(store: Store | None, machine: Machine, providers: dict[tuple[str, str], Provider]) -> Snapshot:
    if store is None:
        return Snapshot(machine, providers, (), ())
    with store.read() as tx:
        heads: list[Any] = queue.heads(tx)
        return snapshot(tx, machine, providers, Memory(), SystemClock(), Orders(), heads, queue.claims(tx))
