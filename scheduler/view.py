"""What the plan may see: one Snapshot, read inside the transaction whose change it gates.

Ages are counted on the monotonic clock from what this process saw itself. After a restart patience with a worker
(`state_since`, `alive_at`) begins anew; how long it was idle, how long a job was head and what is left of a deadline
start from the stored stamps, once, so that a wall clock that jumps shortens or stretches at most one wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from scheduler.clock import SystemClock, seconds
from scheduler.model.machine import Machine, nearest
from scheduler.model.plan import Breaker, LeaseView, Snapshot, Waiting, Wish, WorkerView
from scheduler.model.provider import NOTHING, Learned, Provider
from scheduler.rules.peaks import bucket_of
from scheduler.store import alone, breakers, checks, leases, peaks, queue, raises, wishes, workers
from scheduler.store import heads as store_heads

SHOW_AGAIN_S = 10.0
"""How long a keeper may take to show what its worker is charged before it is asked again."""


@dataclass
class Memory:
    """What the loop remembers of time between ticks, by worker or job id; monotonic seconds."""

    state_since: dict[int, float] = field(default_factory=dict)
    idle_since: dict[int, float] = field(default_factory=dict)
    alive_at: dict[int, float] = field(default_factory=dict)
    deadline: dict[int, float] = field(default_factory=dict)
    head_since: dict[int, float] = field(default_factory=dict)
    loading_since: dict[int, float] = field(default_factory=dict)
    sent_at: dict[int, float] = field(default_factory=dict)
    raised: dict[int, float] = field(default_factory=dict)
    """When it was asked that a worker's raised charges be shown; infinity = they are."""
    wish_after: dict[tuple[str, str], float] = field(default_factory=dict)
    order: tuple[tuple[str, str], ...] = ()

    def forget(self, worker_id: int) -> None:
        """A worker is gone."""
        for table in (
            self.state_since,
            self.idle_since,
            self.alive_at,
            self.deadline,
            self.loading_since,
            self.sent_at,
            self.raised,
        ):
            table.pop(worker_id, None)

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """What is remembered within counts only if it ends well: a transaction that is rolled back did not happen."""
        before = {name: dict(kept) if isinstance(kept, dict) else kept for name, kept in vars(self).items()}
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise


@dataclass(frozen=True)
class Orders:
    """What the operator wants of this scheduler, and the one knob of order."""

    overtake_s: float = 900.0
    strict: bool = False
    draining: bool = False
    stopping: bool = False


def snapshot(
    tx: Connection,
    machine: Machine,
    providers: dict[tuple[str, str], Provider],
    memory: Memory,
    clock: SystemClock,
    orders: Orders,
    heads: list[Any],
    live: list[Any],
) -> Snapshot:
    """Everything the plan may see now. Costs O(providers + live workers), never O(queue).

    `heads` and `live` are rows of `store.queue`, read in this transaction.
    """
    now, wall = clock.monotonic_s(), clock.now_s()
    submitted_at = queue.last_submitted_at(tx)
    victims = store_heads.victims(tx)
    known = peaks.known(tx, machine.host_id)
    used, behind = _Used(known, peaks.sizes(tx, _ids(heads)) if known else {}), alone.firsts(tx)
    fresh = checks.fresh(tx, [*_ids(heads), *(row.id for row in behind)])
    waiting = tuple(_waiting(row, victims.get(row.id), memory, now, wall, used, fresh) for row in heads)
    lonely = tuple(_lonely(row, memory, now, wall, used, fresh) for row in behind)
    if machine.destinations is not None:
        outs = store_heads.destinations(tx, [each.job_id for each in (*waiting, *lonely)])
        waiting, lonely = _placed(waiting, outs, machine), _placed(lonely, outs, machine)
    since = (each for each in (*waiting, *lonely) if each.head_for_s is not None)
    memory.head_since = {each.job_id: now - (each.head_for_s or 0.0) for each in since}
    bound = {row.worker_id: row for row in live if row.worker_id is not None}
    charged: dict[int, dict[str, float]] = {}
    rows = list(leases.charged(tx))
    for lease in rows:
        charged.setdefault(lease.worker_id, {})[lease.pool] = lease.charge_gib
    living = workers.live(tx)
    alive = {row.id for row in living}
    views = tuple(_worker(row, bound.get(row.id), charged.get(row.id, {}), memory, now, wall) for row in living)
    wished = _wishes(tx, memory, now)
    to_pin = {(wish.slug, wish.variant) for wish in wished if wish.pin}
    views = tuple(replace(v, pinned=True) if (v.slug, v.variant) in to_pin and v.state == "ready" else v for v in views)
    loose = tuple(
        LeaseView(row.worker_id, row.slug, row.pool, row.charge_gib, row.state, row.returning_at or "", row.text or "")
        for row in rows
        if row.worker_id not in alive
    )
    return Snapshot(
        machine=machine,
        providers=providers,
        waiting=waiting,
        workers=views,
        leases=loose,
        breakers=_breakers(tx, wall),
        overtake_s=orders.overtake_s,
        strict=orders.strict,
        quiet_s=max(0.0, wall - seconds(submitted_at)) if submitted_at else math.inf,
        order=memory.order,
        wishes=wished,
        draining=orders.draining,
        stopping=orders.stopping,
        paused=queue.paused(tx),
        drained=queue.drained(tx),
        alone=lonely,
    )


def learned(
    providers: dict[tuple[str, str], Provider], rows: dict[tuple[str, str], Any], before: dict[tuple[str, str], Any]
) -> dict[tuple[str, str], Provider]:
    """The providers with what loading and running took so far. `before` keeps the last answer, by provider."""
    found = {}
    for key, provider in providers.items():
        row = rows.get(key)
        if row is None:
            found[key] = provider
            continue
        seen = (provider, row.loads, row.load_s, row.runs, row.run_s)
        kept = before.get(key)
        if kept is None or kept[0] != seen:
            load_s, run_s = (row.load_s if row.loads else None), (row.run_s if row.runs else None)
            kept = before[key] = seen, replace(provider, load_s=load_s, run_s=run_s, served=row.runs)
        found[key] = kept[1]
    return found


def _age(table: dict[int, float], key: int, stamp: str | None, now: float, wall: float) -> float:
    if key not in table:
        table[key] = now - max(0.0, wall - seconds(stamp)) if stamp else now
    return max(0.0, now - table[key])


@dataclass(frozen=True)
class _Used:
    """What jobs were seen to use, by their bucket, and the sizes of those that are looked at."""

    known: dict[tuple[str, str, int], Learned]
    sizes: dict[int, float | None]

    def of(self, slug: str, variant: str, job_id: int | None) -> Learned:
        """What was learned of jobs of the size of this one."""
        if not self.known or job_id is None:
            return NOTHING
        return self.known.get((slug, variant, bucket_of(self.sizes.get(job_id))), NOTHING)


def _placed(those: tuple[Waiting, ...], outs: dict[int, str], machine: Machine) -> tuple[Waiting, ...]:
    """Waiting jobs with the room on the disk of their destination; one that nobody has looked at yet is not known."""
    placed = []
    for each in those:
        if each.job_id in outs:
            disk = nearest(machine.destinations or {}, outs[each.job_id].rpartition("/")[0])
            room = (None, machine.disk_reserve_gib) if disk is None else (disk.free_gib, disk.reserve_gib)
            each = replace(each, out=room)
        placed.append(each)
    return tuple(placed)


def _ids(heads: list[Any]) -> list[int]:
    return [job_id for row in heads for job_id in (row.id, row.next_id) if job_id is not None]


def _lonely(row: Any, memory: Memory, now: float, wall: float, used: _Used, fresh: frozenset[int]) -> Waiting:
    """One of the first of the jobs that run alone."""
    since = row.head_since_at
    return Waiting(
        slug=row.slug,
        variant=row.variant,
        job_id=row.id,
        priority=row.priority,
        count=1,
        head_for_s=None if since is None else _age(memory.head_since, row.id, since, now, wall),
        revision=row.revision,
        learned=used.known.get((row.slug, row.variant, bucket_of(row.size)), NOTHING),
        alone="measure" if row.measures else "again",
        behind=row.behind,
        batch=row.batch or "",
        fresh=row.id in fresh,
    )


def _waiting(
    row: Any,
    victims: tuple[int, ...] | None,
    memory: Memory,
    now: float,
    wall: float,
    used: _Used,
    fresh: frozenset[int],
) -> Waiting:
    head_for_s = None
    if row.head_since_at is not None:
        head_for_s = _age(memory.head_since, row.id, row.head_since_at, now, wall)
    return Waiting(
        slug=row.slug,
        variant=row.variant,
        job_id=row.id,
        priority=row.priority,
        count=row.count,
        head_for_s=head_for_s,
        victims=victims,
        following=None if row.next_id is None else (row.next_priority, row.next_id),
        revision=row.revision,
        learned=used.of(row.slug, row.variant, row.id),
        following_learned=used.of(row.slug, row.variant, row.next_id),
        fresh=row.id in fresh,
        following_fresh=row.next_id in fresh,
    )


def _worker(row: Any, job: Any, charges: dict[str, float], memory: Memory, now: float, wall: float) -> WorkerView:
    state_s = _age(memory.state_since, row.id, row.created_at, now, wall)
    idle_s = (
        _age(memory.idle_since, row.id, row.idle_since_at, now, wall) if row.state == "ready" and job is None else 0.0
    )
    deadline, raising = memory.deadline.get(row.id), raises.of(row)
    return WorkerView(
        id=row.id,
        slug=row.slug,
        variant=row.variant,
        revision=row.revision,
        state=row.state,
        charges=charges,
        job_id=job.id if job is not None else None,
        attempt=job.attempt if job is not None else None,
        idle_s=idle_s,
        state_s=state_s,
        alive_s=max(0.0, now - memory.alive_at.get(row.id, now - state_s)),
        deadline_in_s=deadline - now if deadline is not None else None,
        jobs_served=row.jobs_served,
        retire_after=row.retire_after or "",
        pinned=bool(row.pinned),
        shown=row.keeper_pid is not None,
        cancel=job is not None and job.cancel_requested_at is not None,
        mode=row.mode,
        host_gib=raising.get("host_gib", row.host_gib),
        alone=bool(row.alone),
        before=raising.get("before", {}),
        raised=_raised(row, memory, now),
    )


def _raised(row: Any, memory: Memory, now: float) -> str:
    """Whether what its charges were raised to can be seen by all; after a restart that is not known."""
    asked_s = memory.raised.get(row.id, -math.inf)
    if not row.raising:
        return ""
    return "shown" if asked_s == math.inf else "asked" if now - asked_s < SHOW_AGAIN_S else "unasked"


def _wishes(tx: Connection, memory: Memory, now: float) -> tuple[Wish, ...]:
    rows = [((row.slug, row.variant), bool(row.pinned)) for row in wishes.wanted(tx)]
    return tuple(Wish(*key, pin, max(0.0, memory.wish_after.get(key, now) - now)) for key, pin in rows)


def _breakers(tx: Connection, wall: float) -> dict[str, Breaker]:
    open_ones = {}
    for row in breakers.opened(tx):
        wait_s = max(0.0, seconds(row.next_try_at) - wall) if row.next_try_at else 0.0
        open_ones[row.slug] = Breaker(row.slug, row.failures, row.last_error or "", wait_s)
    return open_ones
