"""A report as Markdown, for a pull request or a chat: what became of providers and cases, what went wrong, memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from scheduler.night.causes import causes
from scheduler.night.counts import Count, of_cases, of_providers
from scheduler.night.report import Comparison, ProviderNight, Report, Tally, Times
from scheduler.night.words import between, clean, moment, short
from scheduler.rules.figures import counted, gib

MOST_ROWS, MOST_WHYS, MOST_CHANGES = 60, 40, 20
SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~@$&-])")


def markdown(report: Report) -> Iterator[str]:
    """The page, line by line. Nothing that a job or a worker says is markup in it."""
    tally = report.tally
    yield f"## {escaped(report.title)}: {tally.good} of {counted(tally.jobs, 'job')} good"
    yield ""
    yield f"{between(report.begin_s, report.end_s)}. {words(tally)}. " + (
        f"{counted(report.cold_starts, 'cold start')}, {counted(report.warm_hits, 'warm hit')}, "
        f"{report.retries} retries."
    )
    if report.providers:
        yield from _providers(report)
    yield from _whys(report.providers)
    yield from _cases(report)
    if report.against is not None:
        yield from _against(report.against)
    yield from _memory(report)
    yield from _breakers(report)
    yield from ("", "### Next", "", "```sh", *(step.command for step in report.steps), "```")


def words(tally: Tally) -> str:
    """What became of the jobs, in words."""
    found = [f"{count} {word}" for word, count in vars(tally).items() if count]
    return ", ".join(found).replace("unjudged", "not checked yet") or "no job"


def escaped(text: str, most: int = 160) -> str:
    """Text that says in Markdown what it says."""
    return SPECIAL.sub(r"\\\1", clean(text, most))


def _providers(report: Report) -> Iterator[str]:
    columns = of_providers(report)
    yield ""
    yield from _head("provider", *(each.head for each in columns), "cold", "warm", "queue", "load", "run")
    ordered = sorted(report.providers, key=lambda each: (not each.tally.bad, not each.tally.open, each.name))
    for each in ordered[:MOST_ROWS]:
        times = (_times(found) for found in (each.queue, each.load, each.run))
        yield _row(escaped(each.name), *_counts(columns, each.tally), each.cold_starts, each.warm_hits, *times)
    if len(ordered) > MOST_ROWS:
        yield from ("", f"and {len(ordered) - MOST_ROWS} more")
    yield from ("", "Times: the median / the longest.")


def _head(first: str, *others: str) -> Iterator[str]:
    yield _row(first, *others)
    yield "|---|" + "--:|" * len(others)


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _counts(columns: Sequence[Count], tally: Tally) -> list[object]:
    return [each.of(tally) or "-" for each in columns]


def _cases(report: Report) -> Iterator[str]:
    """Validation cases, those that did not pass first."""
    found = [(each, case) for each in report.providers for case in each.cases]
    if not found:
        return
    columns = of_cases(report)
    passed = sum(case.tally.good == case.tally.jobs for _, case in found)
    yield from ("", f"### Validation cases: {passed} of {len(found)} passed", "")
    yield from _head("case", *(each.head for each in columns), "run", "why")
    ordered = sorted(found, key=lambda row: (not row[1].tally.bad, not row[1].tally.open))
    for each, case in ordered[:MOST_ROWS]:
        why = escaped(case.why[0].text) + f" (job {case.why[0].first_id})" if case.why else ""
        name = escaped(f"{each.name} {case.name}")
        yield _row(name, *_counts(columns, case.tally), _times(case.run), why)
    if len(ordered) > MOST_ROWS:
        yield from ("", f"and {len(ordered) - MOST_ROWS} more")


def _memory(report: Report) -> Iterator[str]:
    """What was charged and used at most of each pool, and what is declared too small."""
    if report.pools:
        yield from ("", "### Memory", "")
    for pool in report.pools:
        yield (f"- {escaped(pool.name)}: {gib(pool.capacity_gib)} GiB, reserve {gib(pool.reserve_gib)}; {pool.most}")
    over = [(each, part) for each in report.providers for part in each.memory if part.judged == "under"]
    if over:
        yield from ("", "### Over what is declared", "")
    for each, part in over:
        yield (
            f"- {escaped(each.name)}: {gib(part.used_gib)} GiB of {part.part} memory used, "
            f"{gib(part.declared_gib)} declared"
        )


def _breakers(report: Report) -> Iterator[str]:
    found = sorted((at_s, each.name, text) for each in report.providers for at_s, text in each.opened)
    broken = {each.slug: each.broken for each in report.providers if each.broken is not None}
    if found or broken:
        yield from ("", "### Breakers", "")
    for at_s, name, text in found[-MOST_CHANGES:]:
        yield f"- {moment(at_s)} {escaped(name)} opened: {escaped(text)}"
    for slug, text in broken.items():
        yield f"- {escaped(slug)} is open now: {escaped(text)}"


def _times(times: Times) -> str:
    return "-" if times.median_s is None else f"{short(times.median_s)} / {short(times.most_s)}"


def _whys(providers: tuple[ProviderNight, ...]) -> Iterator[str]:
    found = causes(providers)
    waits = [((each.name,), why) for each in providers for why in each.waits]
    if not found and not waits:
        return
    yield from ("", "### What did not go well", "")
    for names, why in [*found, *waits][:MOST_WHYS]:
        whose = escaped(names[0]) + (f" and {counted(len(names) - 1, 'other provider')}" if len(names) > 1 else "")
        yield f"- {why.count} {why.became}: {escaped(why.text)} ({whose}, first: job {why.first_id})"
    if len(found) + len(waits) > MOST_WHYS:
        yield f"- and {len(found) + len(waits) - MOST_WHYS} other reasons"


def _against(found: Comparison) -> Iterator[str]:
    yield from ("", f"### Against {escaped(found.against)} ({found.compared} in both)", "")
    for word, changed in (("newly failing", found.newly_failing), ("newly passing", found.newly_passing)):
        for each in changed[:MOST_CHANGES]:
            text = f": {escaped(each.text)}" if each.text and word == "newly failing" else ""
            yield f"- {word}: {escaped(each.provider)} {escaped(each.name)} (job {each.id}){text}"
        if len(changed) > MOST_CHANGES:
            yield f"- {word}: and {len(changed) - MOST_CHANGES} more"
    for slow in found.slower[:MOST_CHANGES]:
        name = escaped(f"{slow.provider} {slow.case}".rstrip())
        yield f"- slower: {name}: median run {short(slow.now_s)}, was {short(slow.before_s)}"
    if not (found.newly_failing or found.newly_passing or found.slower):
        yield "- nothing that fails, passes, or takes longer than it did"
