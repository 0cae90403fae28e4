"""Whose turn it is: priority (higher first), then id, over the first waiting job of each provider.

The *head* is the first that could be helped: not paused, not of a broken or missing provider, and not one that would
be refused even if every worker of ours had gone. Its window opens at the first tick after whose decisions it still
waits and closes `overtake_s` later; until then others may use the room that it cannot fill, afterwards nothing new
starts before it. So the head is sent no later than: the closing, then the end of what ran when the window closed,
then its victims' memory being back, plus its own load (P7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.model.command import called
from scheduler.model.plan import Snapshot, Waiting, WorkerView
from scheduler.model.verdict import Verdict
from scheduler.rules import explain
from scheduler.rules.admission import Claim, Standing, leavers
from scheduler.rules.peaks import demand_for
from scheduler.rules.reclaim import lacking

PRESENT = ("parked", "starting", "ready", "busy")
Key = tuple[str, str]

PAUSED = "the queue is paused: what runs goes on, and nothing new is sent or started until `schedq queue resume`"
DRAINED = (
    "the queue is drained: what runs ends, then its workers retire, and nothing new is sent or started until "
    "`schedq queue resume`"
)


@dataclass(frozen=True)
class Line:
    """The waiting line: who may go, in order, and why the others may not, as (ruling, its sentence or verdict)."""

    eligible: tuple[Waiting, ...]
    excluded: dict[Key, tuple[str, str | Verdict]]

    @property
    def head(self) -> Waiting | None:
        """The first that may go."""
        return self.eligible[0] if self.eligible else None


def line(snapshot: Snapshot, claims: Sequence[Claim]) -> Line:
    """Who may go now, and who may not."""
    eligible: list[Waiting] = []
    excluded: dict[Key, tuple[str, str | Verdict]] = {}
    tried: set[str] = set()
    now = Standing(snapshot.machine, claims)
    alone = Standing(snapshot.machine, claims, away=leavers(claims))
    for waiting in sorted(snapshot.waiting, key=lambda w: (-w.priority, w.job_id)):
        closed = kept_out(snapshot, waiting, now, alone)
        if closed is None and waiting.slug in snapshot.breakers:
            if waiting.slug in tried:
                closed = ("breaker", explain.broken(snapshot.breakers[waiting.slug], name_of(waiting)))
            tried.add(waiting.slug)
        if closed is None:
            eligible.append(waiting)
        else:
            excluded[waiting.slug, waiting.variant] = closed
    return Line(tuple(eligible), excluded)


def name_of(waiting: Waiting) -> str:
    """`slug`, or `slug:variant`."""
    return called(waiting.slug, waiting.variant)


def place_of(waiting: Waiting) -> tuple[int, int, int]:
    """Where a job stands: by priority, then id; one that runs alone right behind what was there at its return."""
    return -waiting.priority, waiting.behind if waiting.alone else waiting.job_id, int(bool(waiting.alone))


def window_closed(head: Waiting, overtake_s: float) -> bool:
    """Whether the head has been overtaken for as long as it may; one that was never head before has waited 0 s."""
    return (head.head_for_s or 0.0) >= overtake_s


def present(snapshot: Snapshot, key: Key) -> list[WorkerView]:
    """The workers of a provider that serve, or will serve, its revision, by id."""
    provider = snapshot.providers.get(key)
    revision = provider.revision if provider is not None else ""
    return sorted(
        (
            w
            for w in snapshot.workers
            if (w.slug, w.variant) == key and w.state in PRESENT and w.revision == revision and not w.alone
        ),
        key=lambda w: w.id,
    )


def disk_low(snapshot: Snapshot) -> bool:
    """Whether a disk of the queue's own has less than is kept free."""
    return is_low(snapshot.machine.disk_free_gib, snapshot.machine.disk_reserve_gib)


def is_low(free_gib: float | None, reserve_gib: float) -> bool:
    """Whether a disk has less than is kept free; one that could not be read is taken to be full."""
    return reserve_gib > 0 if free_gib is None else free_gib < reserve_gib


def kept_out(
    snapshot: Snapshot, waiting: Waiting, now: Standing | None = None, alone: Standing | None = None
) -> tuple[str, str | Verdict] | None:
    """Why a job may not go whatever the order: (ruling, its sentence or verdict), None = it may.

    `now` and `alone` are what it must fit beside, as it is and with every worker of ours gone; None = not asked.
    One that the file cache alone would keep out then may go: the cache can be given back.
    """
    name, key = name_of(waiting), (waiting.slug, waiting.variant)
    if snapshot.draining or snapshot.stopping:
        return (
            "scheduler_down",
            "the scheduler is going down and starts nothing new; `schedq up` goes on with the queue",
        )
    if snapshot.paused or snapshot.drained or waiting.paused:
        return "paused", waiting.paused or (DRAINED if snapshot.drained else PAUSED)
    if disk_low(snapshot):
        return "disk", explain.low_disk(snapshot.machine)
    if waiting.out is not None and is_low(*waiting.out):
        return "disk", explain.disk_full(*waiting.out, explain.DESTINATION)
    provider = snapshot.providers.get(key)
    if provider is None or not provider.installed:
        return "not_installed", explain.not_installed(name, provider)
    breaker = snapshot.breakers.get(waiting.slug)
    if breaker is not None and (breaker.next_try_in_s > 0 or _on_trial(snapshot, waiting.slug)):
        return "breaker", explain.broken(breaker, name)
    if now is None or alone is None or present(snapshot, key):
        return None
    demand = demand_for(provider, waiting.learned, snapshot.machine)
    then = alone.decide(demand)
    if then.admit or lacking(then, snapshot.machine) is not None:
        return None
    verdict = now.decide(demand)
    return None if verdict.admit else (verdict.ruling, verdict)


def _on_trial(snapshot: Snapshot, slug: str) -> bool:
    return any(w.slug == slug and (w.state in ("parked", "starting", "busy") or w.job_id) for w in snapshot.workers)
