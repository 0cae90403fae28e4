"""A job after each job of a batch: `--each-after`, child i after parent i.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler import after, asked
from scheduler.errors import NoSuchJob, UsageError
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from scheduler.config import Paths

PARENT = "{parent}"
"""What stands in a key for the id of the job that each comes after."""


def parents(paths: Paths, batch: str) -> list[tuple[int, str]]:
    """(id, name) of the jobs that a batch has by now, by id. NoSuchJob if it has none."""
    ids = peek.ids(paths, {"batch": batch})
    if not ids:
        from difflib import get_close_matches

        near = get_close_matches(batch, peek.names(paths, batch)[0] or [], n=1)
        hint = f"did you mean {near[0]}?" if near else "submit that first"
        raise NoSuchJob(f"--each-after {batch}: no job has the batch {batch!r} yet; {hint}")
    jobs = peek.briefly(paths, ids)
    return [(job_id, str(jobs[job_id]["name"])) for job_id in ids if job_id in jobs]


def add(
    asking: asked.Asking,
    common: asked.Common,
    sources: list[Any],
    text: str,
    paths: Paths,
    tell: Callable[[int], None] | None = None,
) -> int:
    """Ask for one job after each of a batch, with its own input or all with the same one; how many that are.

    A child has its parent's name unless it is given one. UsageError for another number of inputs, or one key for all;
    that of two with one key is in the faults of `asking`.
    """
    batch, need = after.one_batch(text)
    found = parents(paths, batch)
    if len(sources) not in (1, len(found)):
        jobs = f"{len(found)} job{'s' * (len(found) != 1)}"
        raise UsageError(
            f"--each-after {batch} takes one input for every job of it, or one for all; it has {jobs}, and"
            f" {len(sources)} inputs were given"
        )
    if len(found) > 1 and common.key and "{name}" not in common.key and PARENT not in common.key:
        raise UsageError(
            f"--key without {{name}} or {PARENT} in it is one job's, and {batch} has {len(found)} jobs; use --batch"
        )
    each = sources if len(sources) == len(found) else sources * len(found)
    keyed: dict[str, int] = {}
    for index, (source, (job_id, name)) in enumerate(zip(each, found, strict=True)):
        before = len(asking.rows)
        asking.add(index, common, source, name=common.name or name)
        if len(asking.rows) > before:
            row = asking.rows[-1]
            beside = row.get("beside") or {}
            words = [*beside.get("after", ()), f"{job_id}:{need}"]
            row["beside"] = {**beside, "after": words, "own": words[-1:], "parent": job_id}
            if row["key"]:
                row["key"] = row["key"].replace(PARENT, str(job_id))
                other = keyed.setdefault(row["key"], job_id)
                if other != job_id:
                    asking.refuse_last(_one_key(row["key"], batch, other, job_id))
        asked.told(tell, index)
    return len(found)


def _one_key(key: str, batch: str, one: int, other: int) -> UsageError:
    return UsageError(
        f"jobs {one} and {other} of {batch} would have children with one key, {key!r}, so one of them would get none;"
        f" put {PARENT} into --key, the id of what each comes after"
    )
