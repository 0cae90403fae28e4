"""The errors for what is not in a queue. Standard library only."""

from __future__ import annotations

from scheduler.errors import NoSuchJob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scheduler.config import Paths


def missing(ids: list[int], paths: Paths) -> NoSuchJob:
    """The error for ids that are not in this queue."""
    named = ", ".join(str(each) for each in ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    return NoSuchJob(
        f"no job {named} in the queue at {paths.home}; `schedq status` lists those that wait and run, "
        "`schedq status --state succeeded --since 24h` those that ended so"
    )


def missing_queue(paths: Paths) -> NoSuchJob:
    """The error where a queue is needed and none was made yet."""
    return NoSuchJob(f"there is no queue at {paths.home} yet; the first `schedq submit` makes it")
