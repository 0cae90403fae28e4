"""`schedq plan`: the queue as it is now, in the order in which it is expected to run."""

from __future__ import annotations

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.joblines import named
from scheduler.cli.say import soon, wrap
from scheduler.cli.tables import Column, Table
from scheduler.config import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHOWN, LISTED = 40, 100_000


def plan(call: Call) -> int:
    """Print when each job is expected to start and to end."""
    from scheduler.store import peek

    found = peek.planned(Paths(), LISTED if call.flag("json") else SHOWN)
    if call.flag("json"):
        say.out(say.document(found))
        return 0
    for line in page(found):
        say.out(line)
    if not found["scheduler"]["running"] and found["jobs"]:
        say.note("no scheduler runs for this queue, so nobody knows when; `schedq up` starts one")
    return 0


def page(found: dict[str, Any]) -> list[str]:
    """The plan for people: a line a job, soonest first."""
    jobs = found["jobs"]
    if not jobs and not found["blocked"]:
        return ["nothing runs and nothing waits"]
    table = Table(
        Column("id", 6, right=True), Column("provider", 17, before=2, least=7), Column("name", 20, before=1, least=7),
        Column("state", 13, before=1, least=8), Column("starts in", 9, before=1, right=True),
        Column("ends in", 9, before=1, right=True, least=7),
    )  # fmt: skip
    lines = [table.head(), *(_line(job, table) for job in jobs[:SHOWN])]
    unknown = any(job["state"] == "queued" and job["starts_in_s"] is None for job in jobs[:SHOWN])
    more = len(jobs) - len(jobs[:SHOWN]) + found["waiting_more"]
    told: list[str] = []
    if more:
        told.append(f"and {more} more, later")
    if found["blocked"]:
        told.append(f"and {found['blocked']} that may not start yet (schedq status says why)")
    if unknown and found["scheduler"]["running"]:
        told.append("? = nobody can tell yet; schedq status says what stands in the way")
    ends = [job["ends_in_s"] for job in jobs]
    if ends and None not in ends and not more:
        told.append(f"all of it is expected to be done in {soon(max(ends))}")
    return lines + [line for text in told for line in wrap(text, " " * 7)]


def _line(job: dict[str, Any], table: Table) -> str:
    name = f"{job['slug']}:{job['variant']}" if job["variant"] else str(job["slug"])
    state = "starting" if job["state"] == "admitted" else job["state"]
    state = "waiting" if state == "queued" else state
    starts = "-" if job["state"] == "running" else _in(job["starts_in_s"])
    return table.row(str(job["id"]), name, named(job), state, starts, _in(job["ends_in_s"]))


def _in(seconds: float | None) -> str:
    return "?" if seconds is None else soon(seconds)
