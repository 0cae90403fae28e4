"""A report as JUnit XML, for whoever shows test results: a suite a provider, a test a validation case or a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from scheduler.clock import stamp
from scheduler.night.report import Job, ProviderNight, Report
from scheduler.night.words import clean

UNUSABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, however it is written."""

FAILING = ("check", "error", "no_outputs", "refused")
"""Kinds of a failure that the job itself is the cause of; others are errors of what runs it."""

NAME, MOST_LETTERS = 200, 2000


def junit(report: Report) -> Iterator[str]:
    """The document, line by line."""
    tally = report.tally
    errors = sum(_errors(each) for each in report.providers)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<testsuites name={_attribute("schedq " + report.title)} tests="{tally.jobs}"'
        f' failures="{_failures(report.providers)}" errors="{errors}" skipped="{tally.cancelled}"'
        f' time="{report.end_s - report.begin_s:.3f}">'
    )
    for each in report.providers:
        yield from _suite(each, report)
    yield "</testsuites>"


def _suite(provider: ProviderNight, report: Report) -> Iterator[str]:
    whole_s = sum(job.run_s or 0.0 for job in provider.jobs)
    yield (
        f'  <testsuite name={_attribute(provider.name)} tests="{provider.tally.jobs}"'
        f' failures="{_failures((provider,))}" errors="{_errors(provider)}" skipped="{provider.tally.cancelled}"'
        f' time="{whole_s:.3f}" timestamp="{stamp(report.begin_s)[:19]}">'
    )
    times: dict[str, int] = {}
    for job in provider.jobs:
        name = clean(job.case or job.name, NAME) or str(job.id)
        times[name] = times.get(name, 0) + 1
        yield from _test(job, name if times[name] == 1 else f"{name} ({times[name]})", provider)
    yield "  </testsuite>"


def _test(job: Job, name: str, provider: ProviderNight) -> Iterator[str]:
    head = f'    <testcase name={_attribute(name)} classname={_attribute(provider.name)} time="{job.run_s or 0.0:.3f}"'
    verdict = _verdict(job)
    if verdict is None:
        yield head + "/>"
        return
    element, message = verdict
    yield head + ">"
    if element == "skipped":
        yield f"      <skipped message={_attribute(message)}/>"
    else:
        words = ", ".join(dict.fromkeys(filter(None, (job.became, job.kind))))
        text = _text(f"job {job.id}: {words}\n{message}\nschedq show {job.id}")
        kind = _attribute(job.kind or job.became)
        yield f"      <{element} type={kind} message={_attribute(message)}>{text}</{element}>"
    yield "    </testcase>"


def _verdict(job: Job) -> tuple[str, str] | None:
    """The element that a test has which did not pass, and what it says; None for one that passed."""
    if job.became in ("passed", "succeeded"):
        return None
    if job.became == "cancelled":
        return "skipped", clean(job.text, MOST_LETTERS) or "cancelled"
    if job.became in ("failed", "refused"):
        return "failure" if _is_failure(job) else "error", clean(job.text, MOST_LETTERS) or job.became
    return "error", f"it has not ended: {'not checked yet' if job.became == 'unjudged' else job.became}"


def _is_failure(job: Job) -> bool:
    return job.became == "refused" or job.kind in FAILING


def _failures(providers: tuple[ProviderNight, ...]) -> int:
    return sum(1 for each in providers for job in each.jobs if job.became in ("failed", "refused") and _is_failure(job))


def _errors(provider: ProviderNight) -> int:
    return provider.tally.failed + provider.tally.refused + provider.tally.open - _failures((provider,))


def _attribute(text: str) -> str:
    return quoteattr(UNUSABLE.sub("", clean(text, MOST_LETTERS)))


def _text(text: str) -> str:
    return escape(UNUSABLE.sub("", text))
