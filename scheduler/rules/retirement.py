"""Which workers end now whatever waits: too long silent, cancelled, aged, outdated, or because the scheduler leaves.

Nothing here makes room; that is rules.eviction. A busy worker ends only by its own job: cancelled, out of time, or
`down --now` (P8).
"""

from __future__ import annotations

from collections.abc import Collection

from scheduler.model.plan import Abort, Retire, Snapshot, Waiting, WorkerView
from scheduler.model.provider import Provider
from scheduler.rules import explain
from scheduler.rules.breaker import OWN_TIME
from scheduler.rules.figures import pool_name
from scheduler.rules.order import disk_low

SHOWN_WITHIN_S = 30.0
"""How long a keeper may take to be seen in the process table: 13 ms at most was measured (E27), and machines swap."""


def stops(
    snapshot: Snapshot, wanted: Collection[tuple[str, str]], fresh: Collection[tuple[str, str]] = ()
) -> list[Abort | Retire]:
    """What ends now, by worker id. `wanted`: the (slug, variant) of providers whose jobs may be sent now; `fresh`:
    those of them whose next job goes to a worker that has served nothing.
    """
    found = []
    for worker in sorted(snapshot.workers, key=lambda w: w.id):
        key = (worker.slug, worker.variant)
        stop = _stop(snapshot, worker, key in wanted, key in fresh)
        if stop is not None:
            found.append(stop)
    return found


def _stop(snapshot: Snapshot, worker: WorkerView, wanted: bool, fresh: bool) -> Abort | Retire | None:
    provider = snapshot.providers.get((worker.slug, worker.variant))
    known = provider or Provider(worker.slug, worker.variant)
    if worker.state not in ("parked", "starting", "ready", "busy"):
        return None
    if snapshot.stopping:
        return Abort(worker.id, "`down --now` stops every worker", "interrupted")
    if worker.state == "busy":
        return _busy(worker, known)
    if worker.raised:
        return None  # it is lowered first, or sent
    if worker.job_id is not None or worker.state in ("parked", "starting"):
        return _coming_up(snapshot, worker, known)
    if snapshot.draining:
        return Retire(worker.id, "the scheduler is going down")
    if worker.retire_after:
        return Retire(worker.id, worker.retire_after, worker.pinned)
    if fresh and worker.jobs_served and not worker.alone:
        return Retire(worker.id, f"the next case of {known.name} is to have an unused worker", worker.pinned)
    if snapshot.drained and not any(each.state == "busy" for each in snapshot.workers):
        return Retire(worker.id, "the queue is drained, and nothing runs any more")
    if worker.alone and not any(next_serves(worker, each) for each in snapshot.alone):
        return Retire(worker.id, "it was started for jobs that run alone, with all that its pool can give")
    if worker.mode == "oneshot" and worker.jobs_served:
        return Retire(worker.id, "its one job is done")
    if provider is not None and worker.revision != provider.revision:
        return Retire(worker.id, f"the manifest of {provider.name} changed; it serves the one before", worker.pinned)
    astray = _astray(snapshot, worker)
    if astray:
        return Retire(worker.id, f"{pool_name(astray)} is left alone, or not there any more", worker.pinned)
    aged = known.idle_timeout_s > 0 and worker.idle_s >= known.idle_timeout_s
    if aged and not wanted and not worker.pinned:
        return Retire(worker.id, f"idle for idle_timeout_s = {known.idle_timeout_s:.0f} s")
    return None


def next_serves(worker: WorkerView, job: Waiting) -> bool:
    """Whether a worker that was started for jobs that run alone can take the next one of them too."""
    of = (worker.slug, worker.variant, worker.revision)
    serves = worker.mode != "oneshot" and of == (job.slug, job.variant, job.revision)
    return worker.alone and serves and not (job.fresh and worker.jobs_served)


def takes(worker: WorkerView, job: Waiting) -> bool:
    """Whether a worker of its provider can be sent this job now: it is free, and, if the job asks for that, unused."""
    free = worker.state == "ready" and worker.job_id is None and not worker.raised
    return free and not (job.fresh and worker.jobs_served)


def _astray(snapshot: Snapshot, worker: WorkerView) -> str:
    """A device that it is on and that nothing is placed on any more; "" while that cannot be told."""
    machine = snapshot.machine
    if machine.accelerators.failed:
        return ""
    return next((pool for pool in worker.charges if pool.startswith("device:") and machine.pool(pool) is None), "")


def _busy(worker: WorkerView, provider: Provider) -> Abort | None:
    if worker.cancel:
        return Abort(worker.id, "it was asked to be cancelled", "cancelled")
    if worker.deadline_in_s is not None and worker.deadline_in_s <= 0:
        return Abort(worker.id, OWN_TIME, "timed_out")
    if worker.alive_s >= provider.request_timeout_s > 0:
        silent = f"no sign of life for request_timeout_s = {provider.request_timeout_s:.0f} s"
        return Abort(worker.id, silent, "timed_out")
    return None


def _coming_up(snapshot: Snapshot, worker: WorkerView, provider: Provider) -> Abort | None:
    bound = worker.job_id is not None
    if worker.retire_after and worker.state in ("parked", "starting") and not bound:
        return Abort(worker.id, worker.retire_after)
    if snapshot.draining or ((snapshot.paused or snapshot.drained) and bound):
        what = "the scheduler is going down" if snapshot.draining else "the queue was paused"
        return Abort(worker.id, f"{what} before the request was sent")
    if bound and disk_low(snapshot):
        return Abort(worker.id, explain.low_disk(snapshot.machine))
    if worker.state == "parked" and not worker.shown and worker.state_s >= SHOWN_WITHIN_S:
        return Abort(worker.id, f"its keeper could not be seen within {SHOWN_WITHIN_S:.0f} s")
    if worker.state == "starting" and worker.alive_s >= provider.start_timeout_s > 0:
        return Abort(
            worker.id,
            f"no sign of life for start_timeout_s = {provider.start_timeout_s:.0f} s while starting",
            "timed_out",
        )
    return None
