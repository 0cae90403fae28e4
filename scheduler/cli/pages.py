"""The status page for people, and its tables of pools and workers; lines of 50 to 80 columns, as the terminal has."""

from __future__ import annotations

from scheduler.cli import ahead, diskline, motion
from scheduler.cli.joblines import (
    BEGIN,
    COLOURS,
    LIVE,
    OVER,
    WAITING,
    drawn,
    ended_as,
    grouped,
    progress,
    provider,
    why,
)
from scheduler.cli.joblines import begin as begin
from scheduler.cli.say import cut, fill, gib, page_width, paint, soon, span, width, wrap
from scheduler.cli.tables import Column, Table
from scheduler.clock import seconds
from scheduler.rules.figures import pool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

SHOWN_RUNNING, SHOWN_ENDED, SHOWN_GROUPS = 20, 5, 20
BESIDE, BESIDE_LEAST = 22, 12
"""Columns beside a running job's name and time, below them if fewer."""
EMPTY = (
    "The queue is empty. What can be asked: schedq providers list",
    "                    A first request:   schedq run PROVIDER --example",
)


UNUSED = (
    "nothing was ever queued here; a first request: schedq run capiti --example",
    "what else can be asked: schedq providers; the scheduler for a night: schedq up",
)
"""The whole page before there is a queue."""


def status(whole: Row) -> list[str]:
    """The status page."""
    seen = [whole.get(key) for key in ("facts_at", "pools", "workers", "jobs", "counts", "schedules", "paused_at")]
    if not any(seen) and not whole["scheduler"]["running"]:
        return [line for each in UNUSED for line in wrap(each, "")]
    jobs, now = whole["jobs"], seconds(whole["at"])
    lines = [*_scheduler(whole["scheduler"], now), *_stopped(whole, now), *pools(whole, now)]
    if whole["workers"]:
        lines += ["", *workers(whole["workers"])]
    lines += _others(whole.get("others") or [])
    lines += motion.unreturned(whole.get("unreturned") or [], now)
    lines += motion.acting(whole, now)
    lines += diskline.lines(whole, now)
    lines += ahead.lines(whole, now)
    running = [job for job in jobs if job["state"] in LIVE]
    waiting = [job for job in jobs if job["state"] in WAITING]
    ended = [job for job in jobs if job["state"] not in LIVE + WAITING]
    counts = whole.get("counts") or {}
    if running:
        lines += ["", _head("running", max(len(running), sum(counts.get(each, 0) for each in LIVE)))]
        lines += [line for job in running[:SHOWN_RUNNING] for line in _running(job, now)]
        lines += _more(len(running) - SHOWN_RUNNING)
    if waiting:
        lines += ["", _head("waiting", max(len(waiting), sum(counts.get(each, 0) for each in WAITING)))]
        lines += _waiting(waiting, now)
        lines += _more(int(whole.get("waiting_more") or 0) + int(whole.get("held_more") or 0))
    if ended:
        newest = sorted(ended, key=lambda job: job["ended_at"] or "", reverse=True)
        lines += ["", paint("recently ended", "bold"), *(_ended(job, now) for job in newest[:SHOWN_ENDED])]
    lines += _over(counts, whole.get("refused_by_worker", 0))
    if not jobs:
        roomy = page_width() >= max(map(len, EMPTY))
        lines += ["", *(EMPTY if roomy else wrap(". ".join(" ".join(each.split()) for each in EMPTY), ""))]
    return lines


def _over(counts: Row, refused: int | None) -> list[str]:
    """How many ended as what, as the report counts them: `refused` of the failed ones were by their workers."""
    over = {state: counts.get(state, 0) for state in OVER}
    if refused is None:
        over = {"failed or refused": over.pop("failed") + over.pop("refused"), **over}
    else:
        over |= {"failed": over["failed"] - refused, "refused": over["refused"] + refused}
    over = {state: count for state, count in over.items() if count}
    if not over:
        return []
    told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in over.items())
    first = next(iter(over))
    which = "them" if len(over) == 1 else f"the {first.replace('_', ' ')}"
    return ["", *wrap(f"{told}; schedq status --state {first.replace(' or ', ',')} lists {which}", "")]


def _head(word: str, count: int) -> str:
    return paint(word, "bold") + f" ({count})"


def _more(count: int) -> list[str]:
    return [f"       and {count} more"] if count > 0 else []


def _scheduler(scheduler: Row, now: float) -> list[str]:
    if not scheduler["running"]:
        return [paint("no scheduler runs; start it: schedq up", "yellow")]
    since = scheduler.get("since_at")
    up = f", up for {span(now - seconds(since))}" if since else ""
    first = ", the first since the machine was started anew" if scheduler.get("rebooted") else ""
    return wrap(f"scheduler {scheduler.get('pid') or '(pid unknown)'}{up}{first}", "")


def _stopped(whole: Row, now: float) -> list[str]:
    """That an operator paused or drains the queue, since when, and what ends it."""
    there = whole["workers"] or any(job["state"] in LIVE for job in whole["jobs"])
    word, at = ("drained", whole.get("drained_at")) if whole.get("drained_at") else ("paused", whole.get("paused_at"))
    word = "draining" if word == "drained" and there else word
    told = f"{word} for {span(now - seconds(at))}: nothing new starts; schedq queue resume ends that" if at else ""
    return [paint(line, "yellow") for line in wrap(told, "")]


def pools(whole: Row, now: float) -> list[str]:
    """A table of pools."""
    found = whole["pools"]
    if not found:
        return wrap("pools: not recorded yet; the scheduler reads the machine when it starts", "")
    table = Table(
        Column("pool, GiB", 22, least=7), Column("capacity", 9, right=True), Column("reserve", 9, right=True),
        Column("charged", 9, right=True), Column("owed", 8, right=True), Column("live", 8, right=True),
        Column("source", 13, before=2, drop=1),
    )  # fmt: skip
    lines = ["", table.head()]
    for pool in found:
        source = str(pool.get("live_source") or "").removeprefix("/proc/meminfo ")
        if pool.get("kind") == "device":
            source = source.partition(" ")[0]
        if pool["live_gib"] is None:
            source = "unreadable"
        figures = (gib(pool[f"{key}_gib"]) for key in ("capacity", "reserve", "charged", "owed", "live"))
        lines.append(table.row(pool_name(pool["id"]), *figures, source))
    at = whole.get("facts_at")
    if at and now - seconds(at) > 5:
        lines.append(paint(f"as of {span(now - seconds(at))} ago", "dim"))
    return lines


def _others(others: list[Row]) -> list[str]:
    """Who else holds a model here: other queues' workers, and workers that no queue started."""
    if not others:
        return []
    table = Table(
        Column("elsewhere", 19, least=10), Column("user", 10, before=1, drop=1), Column("pid", 8, before=1, right=True),
        Column("pool", 14, before=2, least=8), Column("charge", 9, right=True), Column("used", 8, right=True),
    )  # fmt: skip
    lines = ["", table.head()]
    for other in others[:5]:
        name, user = str(other.get("name") or other.get("command") or "?"), str(other.get("user") or "-")
        pool = pool_name(str(other.get("pool") or ""))
        figures = gib(other.get("charge_gib")), gib(other.get("used_gib"))
        lines.append(table.row(name, user, str(other["pid"] or "-"), pool, *figures))
    return lines + _more(len(others) - 5)


def workers(rows: list[Row]) -> list[str]:
    """A table of workers."""
    table = Table(
        Column("worker", 6, right=True), Column("provider", 19, before=2, least=10), Column("state", 10, before=1),
        Column("pid", 8, right=True, drop=1), Column("charge", 9, right=True), Column("used", 8, right=True, drop=3),
        Column("idle", 9, right=True), Column("jobs", 6, right=True, drop=2),
    )  # fmt: skip
    lines = [table.head()]
    for row in rows:
        charges = row["charges"]
        charge = sum(each["charge_gib"] or 0.0 for each in charges)
        used = [each["used_gib"] for each in charges if each.get("used_gib") is not None]
        lines.append(
            table.row(
                str(row["id"]), provider(row), state_of(row), str(row.get("pid") or "-"), gib(charge),
                gib(sum(used) if used else None), span(row.get("idle_s")), str(row.get("jobs_served") or 0),
            )
        )  # fmt: skip
    return lines


def state_of(row: Row) -> str:
    """A worker's state; that of one which no signal ends is `unkillable`."""
    return "unkillable" if row.get("unkillable") else str(row["state"])


def _running(job: Row, now: float) -> list[str]:
    since = job.get("started_at") or job["submitted_at"]
    took = span(now - seconds(since)) if job["state"] == "running" else "starting"
    count, left, said = progress(job)
    how_far = ", ".join(filter(None, (count, left)))
    below, room = said, min(BESIDE, page_width() - BEGIN - 12)
    beside = how_far
    if room < BESIDE_LEAST:
        below = "; ".join(filter(None, (how_far, said)))
        beside, below, room = "", "  ".join(filter(None, (drawn(job, 12), below))), -2
    elif drawn(job, 12):
        beside, below = drawn(job, room - 5), "; ".join(filter(None, (how_far, said)))
    elif width(beside) > room:
        beside, below = count, "; ".join(filter(None, (left, said)))
    lines = [f"{begin(job, page_width() - 12 - room)} {took:>9}  {cut(beside, max(0, room))}".rstrip()]
    return lines + ([paint(cut(" " * 8 + below, page_width()), "dim")] if below else [])


def _waiting(jobs: list[Row], now: float) -> list[str]:
    groups, lines = grouped(jobs, alike=("after",)), []
    for members in groups[:SHOWN_GROUPS]:
        first = members[0]
        others = f"+{len(members) - 1} more" if len(members) > 1 else ""
        waited = span(now - seconds(first["submitted_at"]))
        lines.append(f"{begin(first, page_width() - 22)} {waited:>9}  {others}".rstrip())
        expected = "" if first.get("starts_in_s") is None else f"; expected in {soon(first['starts_in_s'])}"
        unseen = "" if first.get("reason") else "the scheduler has not looked at it yet"
        lines += wrap((why(first) or unseen) + expected, " " * 8)
    return lines + _more(len(groups) - SHOWN_GROUPS)


def _ended(job: Row, now: float) -> str:
    ago = f"{span(now - seconds(job['ended_at']))} ago" if job.get("ended_at") else ""
    state = paint(fill(ended_as(job).replace("_", " "), 10), COLOURS.get(job["state"], ""))
    return f"{begin(job, page_width() - 24)} {state} {ago:>12}".rstrip()
