"""`status` and `show`: the queue, the jobs that are named, or one of them; once, or live."""

from __future__ import annotations

from scheduler.cli import ids as names
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.joblines import WAITING
from scheduler.clock import monotonic_s, seconds
from scheduler.config import Paths
from scheduler.errors import UsageError
from scheduler.store import peek, turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

SHOWN, LEAST_SHOWN = 200, 20
"""Jobs in a table for people, on a terminal that is drawn anew no more than fit; of more, those on a worker and the
last."""

FORETELL_S = 10.0
"""How often it is looked at when a batch will end, while it is watched."""


class Asked:
    """What one call of `status` asks for, and can ask for again."""

    def __init__(self, call: Call, paths: Paths) -> None:
        self.call, self.paths = call, paths
        self.in_full = call.flag("json") or call.flag("csv")
        self.chosen: list[int] | None = None
        self.trouble = ""
        self._more, self._ends_in_s, self._foretold_s = False, None, None  # type: bool, float | None, float | None

    def look(self) -> Row:
        """What `status --json` says now; the jobs are those that were asked for, if any were."""
        some = self._choose()
        whole = peek.status(self.paths)
        if some is not None:
            whole["jobs"] = _jobs(self.paths, some, asked=bool(self.call.many("ids")))
        if self.call.text("batch"):
            whole["batch"] = self._batch(self.call.text("batch") or "")
        if not self.in_full:
            _point_to_logs(self.paths, whole["jobs"])
        self.trouble = self._trouble(whole)
        return whole

    def _choose(self) -> list[int] | None:
        """The jobs to show of those that were asked for; None if none were."""
        if self.in_full:
            self.chosen = names.chosen(self.call, self.paths)
            return self.chosen
        from scheduler.cli import paging
        from scheduler.store import glanced

        given = names.asked(self.call) if self.call.flag("watch") else {}
        if given:  # again and again: those that are shown are read, and no others
            most = min(SHOWN, max(LEAST_SHOWN, paging.rows())) if say.is_terminal() else SHOWN
            self.chosen, self._more = glanced.some(self.paths, given, most)
            self.chosen = self.chosen or names.found(given, self.paths)
        else:
            self.chosen = names.chosen(self.call, self.paths)
            self._more = len(self.chosen or ()) > SHOWN
        return None if self.chosen is None else glanced.some_of(self.paths, self.chosen, SHOWN)

    def _batch(self, name: str) -> Row | None:
        """The counts of a batch, and when it will end, as that was foretold at most FORETELL_S ago."""
        from scheduler.store import whole_batch

        at_s = monotonic_s()
        passed_s = FORETELL_S if self._foretold_s is None else at_s - self._foretold_s
        found = whole_batch.batch(self.paths, name, foretold=passed_s >= FORETELL_S)
        if found is not None and passed_s >= FORETELL_S:
            self._ends_in_s, self._foretold_s = found["ends_in_s"], at_s
        elif found is not None and found["open"] and self._ends_in_s is not None:
            found["ends_in_s"] = max(0.0, self._ends_in_s - passed_s)
        return found

    def _trouble(self, whole: Row) -> str:
        """What is the matter with the scheduler, and what to do; empty if nothing is, or the page says it itself."""
        if not whole["scheduler"]["running"]:
            return "no scheduler runs; start it: schedq up" if self.in_full or self.chosen is not None else ""
        stopped = turnstile.stopped_scheduler(self.paths)
        if stopped is not None:
            return turnstile.about_stopped(stopped)
        from scheduler.cli import asking

        at, facts_at = whole["at"], whole["facts_at"]
        return asking.glance(self.paths, seconds(at) - seconds(facts_at) if facts_at else None)

    def page(self, whole: Row) -> list[str]:
        """The page of what was seen."""
        from scheduler.cli import jobpages, pages

        if self.chosen is None:
            return pages.status(whole)
        head = [*jobpages.batch(whole["batch"], seconds(whole["at"])), ""] if whole.get("batch") else []
        return head + jobpages.jobs(whole["jobs"], seconds(whole["at"]))

    def page_with_trouble(self, whole: Row) -> list[str]:
        """The same, under what is the matter with the scheduler; of chosen jobs those first that run, then wait."""
        if self.chosen is not None:
            whole = {**whole, "jobs": sorted(whole["jobs"], key=_live_first)}
        told = [say.paint(line, "yellow") for line in say.wrap(self.trouble, "")]
        told += [say.paint(ONLY_SOME, "dim")] * self._more
        return [*told, *[""] * bool(told), *self.page(whole)]

    def left_out(self) -> int:
        """How many of the jobs that were asked for the page does not show."""
        return 0 if self.in_full else max(0, len(self.chosen or ()) - SHOWN)


ONLY_SOME = "those on a worker and the last of the others"


def _live_first(job: Row) -> tuple[int, float, int]:
    """Running ones, then those that wait, each in their order; then those that ended, the last one first."""
    ended_s = seconds(job["ended_at"]) if job["ended_at"] else 0.0
    return 2 if ended_s else int(job["state"] in WAITING), -ended_s, job["id"]


def status(call: Call) -> int:
    """The whole queue, or the jobs that are named."""
    asked = Asked(call, Paths())
    _refuse_mixed(call)
    if call.flag("watch"):
        from scheduler.cli import watching

        step_s = watching.every_s(call.duration_s("every"))
        return watching.watch(asked.paths, asked.look, asked.page_with_trouble, step_s, json=call.flag("json"))
    whole = asked.look()
    if call.flag("json"):
        say.out(say.document(whole))
    elif call.flag("csv"):
        from scheduler.cli import sheets

        text = sheets.head() + sheets.body(whole["jobs"], seconds(whole["at"]))
        say.data(text.encode("utf-8", "backslashreplace"))
    elif asked.chosen is None:
        say.out("\n".join(asked.page(whole)))
    else:
        from scheduler.cli import paging

        paging.out(asked.page(whole))
    if asked.left_out():
        say.note(f"{SHOWN} of {len(asked.chosen or ())} jobs, {ONLY_SOME}; --json has all, and so has --csv")
    if asked.trouble:
        say.note(asked.trouble)
    return 0


def _refuse_mixed(call: Call) -> None:
    """UsageError for options that do not go together."""
    if call.text("every") and not call.flag("watch"):
        raise UsageError("--every says how often --watch draws; give both, or neither")
    if not call.flag("csv"):
        return
    for other in ("json", "watch"):
        if call.flag(other):
            raise UsageError(f"--csv and --{other} do not go together; give one of them")
    if not call.many("ids") and not names.filters(call):
        raise UsageError("--csv is a list of jobs: give ids or filters like --batch, or take schedq history --csv")


def _jobs(paths: Paths, chosen: list[int], *, asked: bool) -> list[Row]:
    """These jobs as `show` tells them. NoSuchJob for one that was asked for by its id and is not there."""
    found = peek.jobs(paths, chosen)
    if asked and len(found) < len(chosen):
        there = {job["id"] for job in found}
        peek.job(paths, next(each for each in chosen if each not in there))
    return found


def show(call: Call) -> int:
    """Everything of one job."""
    paths = Paths()
    job = peek.job(paths, names.one(call.text("id") or "", paths))
    if call.flag("json"):
        say.out(say.document(job))
    else:
        from scheduler.cli import jobpages

        _point_to_logs(paths, [job])
        say.out("\n".join(jobpages.job(job)))
    return 0


def _point_to_logs(paths: Paths, jobs: list[Row]) -> None:
    """Add to the reason of each job whose provider is broken where its worker's words are, if it left any."""
    for job in jobs:
        if (job.get("reason") or {}).get("ruling") == "breaker":
            from scheduler.cli import reading

            whole = job if "attempts" in job else peek.job(paths, job["id"])
            job["reason"] = {**job["reason"], "text": reading.why({**whole, "reason": job["reason"]}, paths)}
