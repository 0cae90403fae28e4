"""The commands that a report ends with: its facts put before the rule, and the answer made fit to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace

from scheduler.clock import stamp
from scheduler.model.command import EXEC
from scheduler.night.causes import causes
from scheduler.night.report import Job, Report, Step, Why
from scheduler.night.words import clean
from scheduler.rules.advice import LETTERS, Failure, Morning, next_steps
from scheduler.rules.expectation import FILES

VERBS = {
    "check": "result", "parent_failed": "show", "input_changed": "show", "later_expired": "show", "refused": "show",
}  # fmt: skip
"""The verb that tells most of a job that ended so; of any other the worker's own words do."""


def with_steps(report: Report) -> Report:
    """The report with the three commands that this night needs."""
    steps = tuple(Step(f"schedq {command}", why) for command, why in next_steps(morning(report)))
    return replace(report, steps=steps)


def morning(report: Report) -> Morning:
    """What the rule is asked about a report."""
    bad = {job.id: job for provider in report.providers for job in provider.jobs if job.became in ("failed", "refused")}
    failures = [_failure(why, bad) for _, why in causes(report.providers) if why.became != "cancelled"]
    waiting = [why.first_id for provider in report.providers for why in provider.waits if why.became != "held"]
    running = [job.id for provider in report.providers for job in provider.jobs if job.became == "running"]
    good = [
        job
        for each in report.providers
        for job in each.jobs
        if job.became in ("passed", "succeeded") and not job.pruned
    ]
    under = [
        (provider.name, part.used_gib, part.declared_gib)
        for provider in report.providers
        for part in provider.memory
        if part.judged in ("under", "undeclared") and part.used_gib is not None and provider.slug != EXEC
    ]
    those, page = _those(report)
    waits = [job.id for each in report.providers for job in each.jobs if job.became in ("running", "waiting")]
    held = [job.id for each in report.providers for job in each.jobs if job.became == "held"]
    exact = report.batch is not None
    return Morning(
        those=those, page=page, exact=exact, named=_named(bad.values()),
        awaited="" if exact and not held else spans(waits), scheduler=report.scheduler,
        open=report.tally.open - report.tally.unjudged,
        first_open_id=min(waiting or running or held, default=None),
        failures=tuple(failures),
        broken=tuple(dict.fromkeys(each.slug for each in report.providers if each.broken is not None)),
        underdeclared=tuple({each[0]: each for each in under}.values()),
        good=len(good), good_id=good[0].id if good else None, held=len(held),
        held_those="" if exact else spans(held) or f"{those} --state held",
    )  # fmt: skip


def _failure(why: Why, bad: Mapping[int, Job]) -> Failure:
    """A reason as the rule takes it. What never ran has no log; what a worker refused it refuses again."""
    job = bad.get(why.first_id)
    ran = job is not None and job.run_s is not None
    verb = VERBS.get(why.kind, "log") if ran else "show"
    if why.kind == "check" and why.text.startswith(f"{FILES} "):
        verb = "artifacts"
    if job is not None and job.pruned:
        verb = "show"
    timeout_s = None
    if job is not None and job.timeout_s is not None:
        timeout_s = max(each.timeout_s for each in bad.values() if each.timeout_s is not None)
    return Failure(why.kind, why.count, why.first_id, verb, final=why.became == "refused" and ran, timeout_s=timeout_s)


def _named(bad: Iterable[Job]) -> dict[str, str]:
    """The jobs of each kind that another try may change, where there is room to name them."""
    found: dict[str, list[int]] = {}
    for job in bad:
        if job.became != "refused" or job.run_s is None:
            found.setdefault(job.kind, []).append(job.id)
    return {kind: told for kind, ids in found.items() if (told := spans(ids))}


def spans(ids: Iterable[int]) -> str:
    """These jobs as verbs take them, like `3-9,12`; "" for none, and for more than LETTERS have room for."""
    found: list[list[int]] = []
    for each in sorted(set(ids)):
        if found and each == found[-1][1] + 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    told = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:LETTERS])
    return told if len(told) <= LETTERS else ""


def _those(report: Report) -> tuple[str, str]:
    """How verbs are told which jobs a report is about, and the call that makes it a page for a browser."""
    if report.batch is None:
        since, first_s = f"--since {stamp(report.begin_s)[:19]}Z", report.first_s
        all_of_it = spans(job.id for each in report.providers for job in each.jobs)
        those = all_of_it or (since if first_s is None else f"--since {stamp(first_s)[:19]}Z")
        return those, f"report {since} --html report.html"
    word = shlex.quote(clean(report.batch, 400))
    if report.batch.startswith("-"):
        return f"--batch={word}", f"report --html report.html -- {word}"
    return f"--batch {word}", f"report {word} --html report.html"
