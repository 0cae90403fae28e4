"""`status --watch`: the status page, live. The queue is looked at when it has changed, and now and then besides."""

from __future__ import annotations

import os
import select

from scheduler.cli import say
from scheduler.clock import local_second, monotonic_s, now_s, seconds, stamp
from scheduler.config import Paths
from scheduler.errors import SchedqError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = dict[str, Any]
    Look = Callable[[], Row]
    Draw = Callable[[Row], list[str]]

EVERY_S, LEAST_S, LOOK_S = 2.0, 0.1, 15.0
"""How often the page is drawn unless told; how often at most; after how long the queue is looked at unasked."""

SPARED, KEPT = ("recently ended", "elsewhere"), ("pool", "worker")
"""Parts of the status page that go where the terminal has no room, the first one first: before others are cut to a few
lines, and after that.
"""

LASTING = ("scheduler", "counts", "waiting_more", "held_more", "paused_at", "drained_at", "notices")
"""What of the status page is news when it is something else; the rest is told with it, or passes by itself."""


def every_s(given: float | None) -> float:
    """How often the page is drawn, in seconds. UsageError if that is too often to be read."""
    if given is not None and given < LEAST_S:
        raise UsageError(f"--every {given:g}s is too often to be read; at least {LEAST_S:g}s")
    return EVERY_S if given is None else given


class Sight:
    """The queue as it was last seen, looked at again when its database has changed or LOOK_S have passed."""

    def __init__(self, paths: Paths, look: Look) -> None:
        self._files = paths.database, paths.database + "-wal", paths.lock_scheduler, paths.wake_socket
        self._look = look
        self._mark: list[tuple[int, int, int] | None] = []
        self._seen: Row = {}
        self._at_s = 0.0
        self.fault = ""

    def seen(self) -> Row:
        """The queue as it is, its times told at this moment; `fault` says why it could not be looked at, if so."""
        mark, at_s = [_mark(each) for each in self._files], monotonic_s()
        if mark != self._mark or at_s - self._at_s >= LOOK_S or self.fault:
            try:
                self._seen, self.fault = self._look(), ""
            except SchedqError as error:
                if not self._seen:
                    raise
                self.fault = str(error)
            self._mark, self._at_s = mark, at_s
        return aged(self._seen, at_s - self._at_s)


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def aged(whole: Row, passed_s: float) -> Row:
    """What was seen, as it is told so much later: less time is left, and more has passed."""
    if passed_s <= 0:
        return whole
    return {
        **whole,
        "at": stamp(seconds(whole["at"]) + passed_s),
        "jobs": [_job_aged(job, passed_s) for job in whole["jobs"]],
        "workers": [{**each, "idle_s": _more(each.get("idle_s"), passed_s)} for each in whole["workers"]],
        **({"batch": _less(whole["batch"], passed_s)} if whole.get("batch") else {}),
    }


def _job_aged(job: Row, passed_s: float) -> Row:
    return _less(job, passed_s) if job.get("ends_in_s") is not None or job.get("starts_in_s") is not None else job


def _less(row: Row, passed_s: float) -> Row:
    times = {key: max(0.0, row[key] - passed_s) for key in ("starts_in_s", "ends_in_s") if row.get(key) is not None}
    return {**row, **times}


def _more(idle_s: float | None, passed_s: float) -> float | None:
    return None if idle_s is None else idle_s + passed_s


def watch(paths: Paths, look: Look, draw: Draw, step_s: float, *, json: bool) -> int:
    """Show what `look` sees as `draw` tells it, until somebody leaves; the exit code.

    On a terminal in place, elsewhere again after each change; as JSON a line after each change.
    """
    sight = Sight(paths, look)
    if json or not say.is_terminal():
        return _printed(sight, draw, step_s, json=json)
    return _drawn(sight, draw, step_s)


def _drawn(sight: Sight, draw: Draw, step_s: float) -> int:
    from scheduler.cli.screens import Screen, fitted

    with Screen() as screen:
        due_s, width, page = 0.0, 0, list[str]()
        while screen.left is None:
            columns, rows = screen.size()
            if monotonic_s() >= due_s or width != columns:
                due_s, width = monotonic_s() + step_s, columns
                page = draw(sight.seen())
            shown, left_out = fitted(page, rows - 1, SPARED, KEPT)
            screen.draw([*shown, *[""] * (rows - 1 - len(shown)), _foot(step_s, left_out, sight.fault, columns)])
            screen.wait(due_s - monotonic_s())
        return screen.left


def _foot(step_s: float, left_out: int, fault: str, columns: int) -> str:
    if fault:
        return say.paint(say.cut(f"schedq: {fault}", columns), "red")
    told = f"{local_second(now_s())}  every {step_s:g}s, q leaves"
    if left_out:
        told += f"; {say.counted(left_out, 'line')} left out"
    return say.paint(say.cut(told, columns), "dim")


def _printed(sight: Sight, draw: Draw, step_s: float, *, json: bool) -> int:
    """Print what is seen as often as it is something else. Quiet when nobody reads it any more."""
    last: object = None
    while True:
        whole = sight.seen()
        news = essence(whole)
        if news != last:
            if json:
                say.out(say.document(whole, indent=False))
            else:
                say.out("\n".join(([""] if last is not None else []) + draw(whole)))
            last = news
        if _unread(step_s):
            raise say.Quiet(say.BROKEN_PIPE)


def essence(whole: Row) -> Row:
    """What was seen without what only passes: times, ages, and figures that are read anew all the time."""
    guard, reclaim, batch = (whole.get(key) or {} for key in ("guard", "reclaim", "batch"))
    return {
        **{key: whole.get(key) for key in LASTING},
        "jobs": [_news(job) for job in whole["jobs"]],
        "workers": [(each["id"], each["state"]) for each in whole["workers"]],
        "pools": [(each["id"], each["charged_gib"]) for each in whole["pools"]],
        "others": [each.get("pid") for each in whole["others"]],
        "unreturned": [(each["worker_id"], each["pool"], each["state"]) for each in whole.get("unreturned") or ()],
        "guard": [each.get("pool") for each in guard.get("closed") or ()],
        "reclaim": bool(reclaim.get("running")),
        "disk": bool((whole.get("disk") or {}).get("of")),
        "batch": [batch.get(key) for key in ("jobs", "open", "succeeded")],
    }


def _news(job: Row) -> Row:
    """A job without its times; of its reason only which it is: the figures in the text are read anew all the time."""
    told = {key: job.get(key) for key in ("id", "state", "attempt", "priority", "outcome_kind")}
    ruling = (job.get("reason") or {}).get("ruling")
    progress = job.get("progress") or {}
    return {**told, "ruling": ruling, "progress": [progress.get(key) for key in ("done", "total", "message")]}


def _unread(for_s: float) -> bool:
    """Wait; whether the reader of stdout has gone meanwhile."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _fd, event in poll.poll(int(for_s * 1000)))
