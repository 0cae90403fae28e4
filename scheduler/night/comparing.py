"""A report beside an earlier one: what fails now and did not, what passes again, what is slower, what needs more."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.night.report import BAD, GOOD, Case, Changed, Comparison, Job, Over, ProviderNight, Report, Slower
from scheduler.night.words import clean

SLOWER, SLOWER_S = 1.3, 2.0
"""A median run is slower when it takes so many times as long, and so many seconds more."""


def compared(report: Report, before: Report) -> Comparison:
    """What changed since `before`. Cases are matched by provider and case, other jobs by provider and name.

    Of several jobs with one name, it failed if one of them did not succeed.
    """
    old, new = _outcomes(before), _outcomes(report)
    both = [key for key in new if key in old]
    return Comparison(
        against=before.title, compared=len(both), gone=sum(1 for key in old if key not in new),
        newly_failing=tuple(
            _changed(key, new[key], old[key]) for key in both if new[key].became in BAD and old[key].became in GOOD
        ),
        newly_passing=tuple(
            _changed(key, new[key], old[key]) for key in both if new[key].became in GOOD and old[key].became in BAD
        ),
        slower=tuple(sorted(_slower(report, before), key=lambda each: each.before_s / each.now_s)),
        over=tuple(_over(report, before)),
    )  # fmt: skip


def _outcomes(report: Report) -> dict[tuple[str, str], Job]:
    """Each case or named job that ended, with one that speaks for it."""
    found: dict[tuple[str, str], Job] = {}
    for provider in report.providers:
        for job in provider.jobs:
            key = (provider.name, job.case or job.name)
            if job.became in BAD or (job.became in GOOD and (key not in found or found[key].became not in BAD)):
                found[key] = job
    return found


def _changed(key: tuple[str, str], now: Job, before: Job) -> Changed:
    return Changed(key[0], clean(key[1]), now.id, before.id, clean(now.text if now.became in BAD else before.text))


def _slower(report: Report, before: Report) -> Iterator[Slower]:
    """Of a provider with validation cases each of them, since they differ; of any other the provider as a whole."""
    old = {each.name: each for each in before.providers}
    for provider in report.providers:
        was = old.get(provider.name)
        if was is None:
            continue
        if not provider.cases:
            yield from _pair(provider.name, "", provider, was)
        cases = {case.name: case for case in was.cases}
        for case in provider.cases:
            if case.name in cases:
                yield from _pair(provider.name, case.name, case, cases[case.name])


def _pair(provider: str, case: str, now: ProviderNight | Case, was: ProviderNight | Case) -> Iterator[Slower]:
    now_s, before_s = now.run.median_s, was.run.median_s
    if now_s is not None and before_s is not None and now_s > before_s * SLOWER and now_s > before_s + SLOWER_S:
        yield Slower(provider, case, before_s, now_s)


def _over(report: Report, before: Report) -> Iterator[Over]:
    old = {(each.name, part.part) for each in before.providers for part in each.memory if part.judged == "under"}
    for provider in report.providers:
        for part in provider.memory:
            if part.judged == "under" and part.declared_gib is not None and part.used_gib is not None:
                known = (provider.name, part.part) in old
                yield Over(provider.name, part.part, part.declared_gib, part.used_gib, known)
