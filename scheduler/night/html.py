"""A report as one HTML file: no script, nothing from elsewhere, readable on a screen, on a phone and in print.

Whatever a job, a worker or a provider is called or says is escaped text; the page forbids itself everything but style.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from scheduler.night.causes import causes
from scheduler.night.html_pictures import lanes, memory
from scheduler.night.html_style import STYLE
from scheduler.night.html_tables import against, cases, declared, providers
from scheduler.night.report import Report, Why
from scheduler.night.words import between, clean, moment, percent
from scheduler.rules.figures import counted, span

MOST_CAUSES, MOST_WAITS, NAME = 60, 30, 48
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(report: Report) -> Iterator[str]:
    """The document, piece by piece."""
    title = f"{clean(report.title)}: {report.tally.good} of {report.tally.jobs} good"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    for part in (_head(report), _wrong(report), _waits(report), _compared(report), _providers(report), _night(report),
                 _memory(report), _cases(report), _breakers(report), _steps(report)):  # fmt: skip
        for line in part:
            yield line + "\n"
    made = escape(f"{moment(report.at_s, day=True)}")
    yield f"<footer>schedq report, {made}; times are this machine's own, memory is GiB</footer>\n"
    yield "</main>\n</body>\n</html>\n"


def text(word: str, most: int = 160) -> str:
    """What somebody else wrote, as text of the page."""
    return escape(clean(word, most))


def _head(report: Report) -> Iterator[str]:
    tally = report.tally
    yield f"<h1>{text(report.title)}</h1>"
    over = "" if not tally.open else ' <span class="open">not over yet</span>'
    yield f'<p class="soft">{escape(between(report.begin_s, report.end_s))}{over}</p>'
    yield '<div class="tiles">'
    yield _tile(tally.good, "passed" if tally.passed and not tally.succeeded else "good", "good" if tally.good else "")
    for count, word in ((tally.failed, "failed"), (tally.refused, "refused"), (tally.cancelled, "cancelled")):
        if count or word == "failed":
            yield _tile(count, word, "bad" if count else "")
    for count, word in (
        (tally.running, "running"), (tally.waiting, "waiting"), (tally.held, "held"),
        (tally.unjudged, "not checked yet"),
    ):  # fmt: skip
        if count:
            yield _tile(count, word, "open")
    yield _tile(report.cold_starts, "cold starts")
    yield _tile(report.warm_hits, "warm hits")
    if report.retries:
        yield _tile(report.retries, "retries")
    yield "</div>"
    yield from _usage(report)


def _tile(count: int, word: str, colour: str = "") -> str:
    return f'<div class="tile"><b class="{colour}">{count:,}</b><span>{escape(word)}</span></div>'


def _usage(report: Report) -> Iterator[str]:
    usage, whole_s = report.usage, report.end_s - report.begin_s
    if not report.tally.jobs or whole_s <= 0:
        return
    parts = [
        (usage.running_s, "b-run", "something ran"), (usage.loading_s, "b-load", "only loading"),
        (usage.idle_waited_s, "b-wait", "idle while jobs waited"), (usage.idle_s, "b-idle", "idle"),
    ]  # fmt: skip
    there = [each for each in parts if each[0] > 0]
    bars = "".join(f'<i class="{kind}" style="width:{100 * part / whole_s:.2f}%"></i>' for part, kind, _ in there)
    keys = "".join(
        f'<span><i class="{kind}"></i>{word} {span(part)} ({escape(percent(part, whole_s))})</span>'
        for part, kind, word in there
    )
    yield f'<h3>The time of this machine</h3><div class="bar">{bars}</div><p class="key">{keys}</p>'


def _wrong(report: Report) -> Iterator[str]:
    found = causes(report.providers)
    if not found:
        return
    yield '<h2>What went wrong</h2><ul class="causes">'
    for names, why in found[:MOST_CAUSES]:
        yield _cause(names, why)
    yield "</ul>"
    if len(found) > MOST_CAUSES:
        left = found[MOST_CAUSES:]
        yield f'<p class="soft">and {len(left)} other reasons of {sum(why.count for _, why in left)} jobs</p>'


def _cause(names: tuple[str, ...], why: Why) -> str:
    whose = ", ".join(f'<span class="name">{text(name)}</span>' for name in names[:4])
    more = f" and {counted(len(names) - 4, 'more provider')}" if len(names) > 4 else ""
    named = f" ({text(why.first_name, NAME)})" if why.first_name else ""
    first = f"job {why.first_id}{named}" if why.count == 1 else f"first: job {why.first_id}{named}"
    kind = why.kind.replace("_", " ") if why.kind not in ("", "error", why.became) else why.became
    colour = "open" if why.became == "cancelled" else "bad"
    return (
        f'<li><span class="count {colour}">{why.count:,}</span><span class="say">'
        f'<span class="tag {colour}">{text(kind)}</span>{text(why.text)}</span>'
        f'<span class="sub say">{whose}{more}; {first}</span></li>'
    )


def _waits(report: Report) -> Iterator[str]:
    rows = [(each, why) for each in report.providers for why in each.waits]
    running = [each for each in report.providers if each.tally.running or each.tally.unjudged]
    if not rows and not running:
        return
    yield '<h2>Not ended</h2><ul class="causes">'
    for each in running:
        count, word = (
            (each.tally.running, "running") if each.tally.running else (each.tally.unjudged, "not checked yet")
        )
        yield _open(count, word, each.name, "")
    groups: dict[tuple[str, str, str], list[tuple[str, Why]]] = {}
    for each, why in rows:
        key = (why.became, why.kind, each.name if why.kind == "busy" else why.text)
        groups.setdefault(key, []).append((each.name, why))
    for those in list(groups.values())[:MOST_WAITS]:
        name, why = those[0]
        others = f" and {counted(len(those) - 1, 'other provider')}" if len(those) > 1 else ""
        yield _open(sum(each.count for _, each in those), why.became, name, why.text, others)
    yield "</ul>"


def _open(count: int, word: str, name: str, said: str, others: str = "") -> str:
    return (
        f'<li><span class="count open">{count:,}</span><span class="say"><span class="tag open">{escape(word)}</span>'
        f'{text(said, 400)}</span><span class="sub"><span class="name">{text(name)}</span>{others}</span></li>'
    )


def _compared(report: Report) -> Iterator[str]:
    if report.against is not None:
        yield f"<h2>Against {text(report.against.against)}</h2>"
        yield from against(report.against)


def _providers(report: Report) -> Iterator[str]:
    if report.providers:
        yield "<h2>Providers</h2>"
        yield from providers(report)


def _night(report: Report) -> Iterator[str]:
    if report.pools or any(any(each.lane) for each in report.providers):
        yield "<h2>Through the night</h2>"
    if report.pools:
        yield from memory(report)
    yield from lanes(report)


def _memory(report: Report) -> Iterator[str]:
    if any(part.judged for each in report.providers for part in each.memory):
        yield "<h2>Memory, declared against measured</h2>"
        yield from declared(report)


def _cases(report: Report) -> Iterator[str]:
    if any(each.cases for each in report.providers):
        yield "<h2>Validation cases</h2>"
        yield from cases(report)


def _breakers(report: Report) -> Iterator[str]:
    found = sorted((at_s, each.name, word) for each in report.providers for at_s, word in each.opened)
    broken = {each.slug: each.broken for each in report.providers if each.broken is not None}
    if not found and not broken:
        return
    yield "<h2>Breakers</h2><ul>"
    for at_s, name, word in found[-MOST_WAITS:]:
        yield f'<li class="say">{escape(moment(at_s))} <span class="name">{text(name)}</span> opened: {text(word)}</li>'
    for slug, word in broken.items():
        yield f'<li class="say bad"><span class="name">{text(slug)}</span> is open now: {text(word)}</li>'
    yield "</ul>"


def _steps(report: Report) -> Iterator[str]:
    yield '<h2>Next</h2><div class="steps">'
    for step in report.steps:
        yield f"<div><pre>{escape(step.command)}</pre><p>{text(step.why)}</p></div>"
    yield "</div>"
