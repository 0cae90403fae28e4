"""The tables of a night's page: providers, what changed, declared and measured memory, validation cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from scheduler.night.counts import Count, of_cases, of_providers
from scheduler.night.report import Case, Comparison, ProviderNight, Report, Tally, Times
from scheduler.night.words import clean, short
from scheduler.rules.figures import counted, gib

MOST_CHANGES, MOST_CASES = 20, 60
WORDS = {
    "under": ("bad", "uses more than is declared"), "over": ("open", "declares far more than it uses"),
    "undeclared": ("open", "not declared"), "fits": ("good", "fits"),
}  # fmt: skip


def _text(word: str, most: int = 160) -> str:
    return escape(clean(word, most))


def _head(*columns: tuple[str, str]) -> str:
    cells = "".join(f'<th class="{kind}" scope="col">{escape(word)}</th>' for word, kind in columns)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>'


END = "</tbody></table></div>"


def _row(*cells: tuple[str, str]) -> str:
    return "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for cell, kind in cells) + "</tr>"


def _below(text: str, wide: int, kind: str = "") -> str:
    """A row below another, over so many columns: what has no room beside it on a phone."""
    return f'<tr class="below {kind}"><td class="say" colspan="{wide}"><div>{text}</div></td></tr>'


def _count(count: int, colour: str, kind: str = "n") -> tuple[str, str]:
    return (f"{count:,}", f"{kind} {colour}") if count else ("-", f"{kind} zero")


def _times(times: Times, kind: str = "n") -> tuple[str, str]:
    if times.median_s is None:
        return "-", f"{kind} zero"
    median, most = escape(short(times.median_s)), escape(short(times.most_s))
    return (median if median == most else f'{median} <span class="soft">/ {most}</span>'), kind


def bar(tally: Tally) -> str:
    """What became of some jobs, as a bar."""
    parts = ((tally.good, "b-good"), (tally.bad, "b-bad"), (tally.open, "b-open"))
    drawn = (f'<i class="{kind}" style="width:{100 * n / tally.jobs:.1f}%"></i>' for n, kind in parts if n)
    return f'<div class="bar">{"".join(drawn)}</div>'


def providers(report: Report) -> Iterator[str]:
    """A row a provider, those with failures first."""
    columns = of_providers(report)
    yield _head(
        ("provider", ""), ("", "wide"), *((each.head, "n") for each in columns), ("queue", "n wide"),
        ("load", "n wide"), ("run", "n wide"), ("cold", "n wide"), ("warm", "n wide"), ("retries", "n wide"),
    )  # fmt: skip
    for each in sorted(report.providers, key=lambda each: (not each.tally.bad, not each.tally.open, each.name)):
        tally = each.tally
        yield _row(
            (_text(each.name), "name"), (bar(tally), "wide"), *_counts(columns, tally),
            _times(each.queue, "n wide"), _times(each.load, "n wide"), _times(each.run, "n wide"),
            _count(each.cold_starts, "", "n wide"), _count(each.warm_hits, "", "n wide"),
            _count(each.retries, "", "n wide"),
        )  # fmt: skip
    yield END
    yield '<p class="soft">Times: the median / the longest.</p>'


def _counts(columns: Sequence[Count], tally: Tally) -> list[tuple[str, str]]:
    return [_count(each.of(tally), each.kind) for each in columns]


def against(found: Comparison) -> Iterator[str]:
    """What fails, passes, or takes longer than the time before."""
    yield f'<p class="soft">{found.compared:,} in both{f", {found.gone:,} only there" if found.gone else ""}</p>'
    for word, changed, colour in (
        ("Newly failing", found.newly_failing, "bad"), ("Newly passing", found.newly_passing, "good")
    ):  # fmt: skip
        if not changed:
            continue
        yield f'<h3 class="{colour}">{word} ({len(changed):,})</h3>'
        yield _head(("provider", ""), ("case", ""), ("job", "n"))
        for each in changed[:MOST_CHANGES]:
            yield _row((_text(each.provider), "name"), (_text(each.name), "name say"), (str(each.id), "n"))
            if each.text:
                yield _below(("" if colour == "bad" else "it was: ") + _text(each.text), 3)
        yield END
        if len(changed) > MOST_CHANGES:
            yield f'<p class="soft">and {len(changed) - MOST_CHANGES:,} more</p>'
    if found.slower:
        yield f'<h3 class="open">Slower ({len(found.slower):,})</h3>'
        yield _head(("provider", ""), ("case", ""), ("median run", "n"), ("was", "n"), ("times", "n wide"))
    for slow in found.slower[:MOST_CHANGES]:
        factor = f"{slow.now_s / slow.before_s:.1f} x" if slow.before_s else "-"
        yield _row(
            (_text(slow.provider), "name"), (_text(slow.case) or "-", "name"), (escape(short(slow.now_s)), "n"),
            (escape(short(slow.before_s)), "n"), (factor, "n wide open"),
        )  # fmt: skip
    if found.slower:
        yield END
    if len(found.slower) > MOST_CHANGES:
        yield f'<p class="soft">and {len(found.slower) - MOST_CHANGES:,} more</p>'
    for over in found.over:
        since = "already" if over.before else "newly"
        yield (
            f'<p><span class="bad">{since} over declared</span>: <span class="name">{_text(over.provider)}</span>, '
            f"{gib(over.used_gib)} GiB of {over.part} memory, {gib(over.declared_gib)} declared</p>"
        )
    if not (found.newly_failing or found.newly_passing or found.slower):
        yield "<p>Nothing that fails, passes, or takes longer than it did.</p>"


def declared(report: Report) -> Iterator[str]:
    """What is declared beside what was used, for whatever was measured."""
    yield _head(
        ("provider", ""), ("part", ""), ("declared", "n"), ("charged in all", "n wide"), ("used at most", "n"),
        ("budget that would do", "n wide"), ("", "wide"),
    )  # fmt: skip
    rows = [(each, part) for each in report.providers for part in each.memory if part.judged]
    order = list(WORDS)
    told: set[str] = set()
    for each, part in sorted(rows, key=lambda row: (order.index(row[1].judged), row[0].name)):
        colour, word = WORDS[part.judged]
        charged = "" if each.charged_gib is None or each.name in told else gib(each.charged_gib)
        told.add(each.name)
        budget = "-" if part.declared_gib is None else gib(part.declared_gib)
        word += "" if part.tonight else ' <span class="soft">(measured before)</span>'
        yield _row(
            (_text(each.name), "name"), (part.part, ""), (budget, "n"), (charged, "n wide"), (gib(part.used_gib), "n"),
            (f"{part.budget_gib:g}" if part.budget_gib is not None else "-", "n wide"), (word, f"{colour} wide"),
        )  # fmt: skip
        yield _below(f'<span class="{colour}">{word}</span>', 4, "phone")
    yield END


def cases(report: Report) -> Iterator[str]:
    """The cases of each provider; those of a provider that has a failure are unfolded."""
    columns = of_cases(report)
    for each in sorted(report.providers, key=lambda each: (not each.tally.bad, each.name)):
        if not each.cases:
            continue
        bad = sum(1 for case in each.cases if case.tally.bad)
        word = f'<span class="bad">{bad} of {len(each.cases)} failed</span>' if bad else _all_good(each)
        summary = f'<summary><span class="name">{_text(each.name)}</span> {word}</summary>'
        yield f"<details{' open' if bad else ''}>{summary}<div>"
        yield _head(("case", ""), *((count.head, "n") for count in columns), ("run", "n wide"))
        for case in sorted(each.cases, key=lambda case: (not case.tally.bad, not case.tally.open))[:MOST_CASES]:
            yield from _case(case, columns)
        yield END
        if len(each.cases) > MOST_CASES:
            yield f'<p class="soft">and {len(each.cases) - MOST_CASES} more</p>'
        yield "</div></details>"


def _all_good(provider: ProviderNight) -> str:
    if provider.tally.open:
        return f'<span class="open">{provider.tally.open} not ended</span>'
    return f'<span class="good">{counted(len(provider.cases), "case")} passed</span>'


def _case(case: Case, columns: Sequence[Count]) -> Iterator[str]:
    why = "; ".join(f"{each.count} x {_text(each.text)} (job {each.first_id})" for each in case.why[:3])
    more = f" and {len(case.why) - 3} other reasons" if len(case.why) > 3 else ""
    counted_up = _counts(columns, case.tally)
    yield _row((_text(case.name), "name say"), *counted_up, _times(case.run, "n wide"))
    if why:
        yield _below(why + more, len(columns) + 2)
