"""Rows of the queue as a host is given them: an attempt's request, and a worker to take over."""

from __future__ import annotations

from typing import Any

from scheduler.model.host import Adopt, Assignment, Task
from scheduler.rules.peaks import on_device_gib
from scheduler.store import queue


def adoption(row: Any, job: Any, charges: dict[str, float] | None = None) -> Adopt:
    """A live worker's row and the job that is bound to it, for a host that just came up. `charges` by pool, GiB.

    One that was parked when its scheduler ended is ended: nothing was spent on it yet.
    """
    assignment = None
    if job is not None and job.state == "running":
        assignment = Assignment(job.id, job.attempt, job.out or "", task_of(job, row, job.attempt, None))
    return Adopt(
        worker_id=row.id,
        slug=row.slug,
        variant=row.variant,
        revision=row.revision,
        mode=row.mode,
        state="retiring" if row.state == "parked" else row.state,
        boot_id=row.boot_id or "",
        keeper_pid=row.keeper_pid,
        keeper_started=row.keeper_started,
        leader_pid=row.leader_pid,
        leader_started=row.leader_started,
        assignment=assignment,
        device=row.device or "",
        charges=charges or {},
    )


def task_of(job: Any, worker: Any, attempt: int, body: bytes | None, charges: dict[str, float] | None = None) -> Task:
    """A job's row as the request of one attempt; `body` is the input's bytes, None where only the fence matters.

    `worker` is the row of its worker, `charges` what that is charged for while it is on it, by pool, GiB; None = as
    before.
    """
    return Task(
        worker_id=worker.id,
        job_id=job.id,
        attempt=attempt,
        slug=job.slug,
        variant=job.variant,
        name=job.name,
        user=job.user,
        batch=job.batch or "",
        params=queue.json_object(job.params),
        input_name=job.input_name,
        input_kind=job.input_kind,
        input_sha256=job.input_sha256,
        input=body,
        files=queue.json_object(job.files),
        out=job.out or "",
        deadline_s=job.timeout_s,
        charges=charges or {},
        device_gib=on_device_gib(charges or {}, worker.host_gib or 0.0),
        device=worker.device or "",
        driver=worker.driver or "",
    )
