"""Why a job waits that runs alone, or whose warm worker is charged too little for it: in the manner of `explain`."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.model.command import EXEC, called
from scheduler.model.plan import Waiting, WorkerView
from scheduler.model.verdict import Verdict
from scheduler.rules.explain import gib, sentence
from scheduler.rules.figures import pool_name


def raising(verdict: Verdict, worker: WorkerView, waiting: Waiting, more: Mapping[str, float]) -> str:
    """A warm worker is charged less than jobs of this size were seen to use, and the rest does not fit now."""
    lacks = " and ".join(
        f"{gib(worker.charges[pool])} GiB of {pool_name(pool)}, and this job is charged "
        f"{gib(worker.charges[pool] + more_gib)} GiB"
        for pool, more_gib in more.items()
    )
    return (
        f"worker {worker.id} is charged {lacks}, the most that {waiting.learned.runs} runs of its size used; for the "
        f"difference: {sentence(verdict)}"
    )


def other_revision(name: str, wanted: str, here: str) -> str:
    """A job is pinned to what decides its answer, and here is something else."""
    return (
        f"was submitted for revision {wanted[:12]} of {name}, and revision {here[:12]} is here now; put the first one "
        "back, or move the job to the one that is here (schedq update --repin)"
    )


def waits_alone(job: Waiting) -> str:
    """What a job that runs alone waits for, whatever stands before it."""
    if job.slug == EXEC:
        return f"job {job.job_id} asked to be alone where it runs (--exclusive)"
    what = "is run to be measured" if job.alone == "measure" else "ran over its budget and is tried once more"
    return f"job {job.job_id} of {_slug(job)} {what}, alone and with all that its pool can give"


def stands_behind(job: Waiting, first: Waiting) -> str:
    """Its turn comes after everything of its priority that was there when it was put back."""
    return f"{waits_alone(job)}, behind everything else of its priority: job {first.job_id} of {_slug(first)} is first"


def alone_beside(job: Waiting, worker: WorkerView) -> str:
    """A worker of ours is still there that has to end first."""
    if worker.pinned:
        what = f"is pinned there: schedq workers unpin {worker.id} lets it go"
    elif worker.job_id is not None:
        what = f"has job {worker.job_id} there, and that ends first"
    else:
        what = f"is {worker.state} there, and what waits for it goes first"
    return f"{waits_alone(job)}: worker {worker.id} of {called(worker.slug, worker.variant)} {what}"


def alone_soon(job: Waiting) -> str:
    """What idles on its placement makes room for it now."""
    return f"{waits_alone(job)}: what idles there makes room for it now"


def _slug(waiting: Waiting) -> str:
    return called(waiting.slug, waiting.variant)
