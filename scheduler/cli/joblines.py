"""How lines about one job begin and what they say of its progress: for every page that lists jobs."""

from __future__ import annotations

from scheduler.cli.say import fill, span
from scheduler.cli.stamps import locally
from scheduler.clock import now_s, seconds
from scheduler.model.command import called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

OVER = ("failed", "timed_out", "refused", "cancelled", "succeeded")
LIVE, WAITING = ("admitted", "running"), ("queued", "held")
BEGIN = 46
"""Columns of a job's id, provider and name."""

COLOURS = {"succeeded": "green", "failed": "red", "timed_out": "red", "refused": "red", "cancelled": "yellow"}


def provider(row: Row) -> str:
    """A job's or a worker's provider, with its variant."""
    slug, variant = str(row["slug"]), row.get("variant") or ""
    return called(slug, variant) if ":" not in slug else slug


def named(row: Row) -> str:
    """What a job is called in a list: a validation case by its case, any other by its name."""
    return str(row.get("case") or row["name"])


def begin(job: Row, room: int = BEGIN) -> str:
    """How a line of a job begins: id, provider and name, in BEGIN columns or the `room` that there is."""
    return beginning(str(job["id"]), provider(job), named(job), room)


def beginning(id: str, provider: str, name: str, room: int) -> str:
    """The same of cells that are given, for the head of a table too."""
    names = min(room, BEGIN) - 9
    left = 17 * names // (BEGIN - 9)
    return f"{id:>6}  {fill(provider, left)} {fill(name, names - left)}"


def ended_as(row: Row) -> str:
    """What a job is said to be, or to have ended as: what its worker refused is refused, as the report counts it."""
    kind = row.get("outcome_kind") or (row.get("outcome") or {}).get("kind")
    return "refused" if row["state"] == "failed" and kind == "refused" else str(row["state"])


def progress(job: Row) -> tuple[str, str, str]:
    """How far a running job is: what is done of what (`6/40`), the time that is left, the worker's own word.

    Of a rest below a second nothing is said: it is over at a glance, or nobody knows.
    """
    told = job.get("progress") or {}
    done, total = told.get("done"), told.get("total")
    count = "" if done is None else f"{done:g}/{total:g}" if total else f"{done:g}"
    rest_s = job.get("ends_in_s")
    left = "" if rest_s is None or rest_s < 1 else f"{span(rest_s)} left"
    return count, left, str(told.get("message") or "")


def at_a_glance(job: Row) -> str:
    """One job on one line: its state, for how long, how far it is."""
    since = job["started_at"] if job["state"] == "running" and job["started_at"] else job["submitted_at"]
    state = "waits" if job["state"] in WAITING else "starting" if job["state"] == "admitted" else job["state"]
    words = [f"job {job['id']} {state} {span(now_s() - seconds(since))}"]
    if job["state"] == "running":
        words += filter(None, progress(job))
    return ", ".join(words)


def grouped(jobs: list[Row], alike: tuple[str, ...] = ()) -> list[list[Row]]:
    """Waiting jobs by their reason, in the order of the first of each; who waits behind one shares that one's.

    `alike`: rulings of which one job's sentence stands for all of its provider.
    """
    groups: dict[object, list[Row]] = {}
    of: dict[int, object] = {}
    for job in jobs:
        reason = job.get("reason") or {}
        own = (provider(job), reason.get("ruling"), None if reason.get("ruling") in alike else reason.get("text"))
        of[job["id"]] = key = of.get(reason.get("behind") or 0, own)
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def why(job: Row) -> str:
    """Why a job waits, in words; that no scheduler runs is the page's to say, once."""
    reason = job.get("reason") or {}
    if reason.get("ruling") == "scheduler_down":
        return f"the last scheduler said: {reason['last']}" if reason.get("last") else ""
    return once(reason.get("ruling") or "", reason.get("text") or "")


def bar(done: float, total: float, columns: int) -> str:
    """How much of something is done, as a bar in so many columns and a percentage behind it: `[###---]  50%`."""
    part = min(1.0, max(0.0, done / total)) if total > 0 else 0.0
    full = int(part * (columns - 2))
    return f"[{'#' * full}{'-' * (columns - 2 - full)}] {int(part * 100):>3}%"


def drawn(job: Row, columns: int) -> str:
    """The bar of a running job whose worker says how much of how much is done; empty of any other."""
    told = job.get("progress") or {}
    done, total = told.get("done"), told.get("total")
    return bar(done, total, columns) if total and done is not None else ""


def once(word: str, text: str) -> str:
    """`word: text`, and the text alone where that begins with the word."""
    text = locally(text)
    return text if text.startswith(word) else f"{word}: {text}".rstrip(": ")
