"""The morning page on a terminal: lines of 50 to 80 columns, what went wrong before what went well."""

from __future__ import annotations

import os

from scheduler.cli.say import counted, cut, fill, gib, page_width, paint, span, wrap
from scheduler.cli.tables import Column, Table
from scheduler.night.causes import causes
from scheduler.night.counts import Count, of_cases, of_providers
from scheduler.night.memory import HOLDS_S
from scheduler.night.report import Comparison, PoolNight, ProviderNight, Report, Tally, Times, Why
from scheduler.night.words import between, moment, percent, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_WHYS, MOST_CASES, MOST_CHANGES, MOST_ROWS = 10, 12, 6, 40
BLOCKS, RAMP = " ▁▂▃▄▅▆▇█", " .:-=+*#%@"
COLOURS = {"failed": "red", "refused": "red", "cancelled": "yellow"}


def page(report: Report) -> list[str]:
    """The whole page."""
    lines = [*_head(report), *_providers(report), *_whys(report), *_waits(report), *_cases(report)]
    lines += [*_memory(report), *_pools(report.pools, report), *_against(report.against), *_breakers(report)]
    return [*lines, *_steps(report)]


def verdict(report: Report) -> str:
    """The whole of it in one line."""
    mark = f"{report.tally.good} of {counted(report.tally.jobs, 'job')} good" if report.tally.jobs else "nothing"
    return f"{report.title}: {mark}" + (f" ({told(report.tally)})" if report.tally.jobs else "")


def told(tally: Tally) -> str:
    """A tally in words: what there is of it, the good first; `no job` for nothing."""
    words = [
        (tally.passed, "passed"), (tally.succeeded, "succeeded"), (tally.failed, "failed"),
        (tally.refused, "refused"), (tally.cancelled, "cancelled"), (tally.running, "running"),
        (tally.waiting, "waiting"), (tally.held, "held"), (tally.unjudged, "not checked yet"),
    ]  # fmt: skip
    return ", ".join(f"{count} {word}" for count, word in words if count) or "no job"


def _head(report: Report) -> list[str]:
    tally = report.tally
    colour = "red" if tally.bad else "yellow" if tally.open else "green"
    mark = f"{tally.good} of {counted(tally.jobs, 'job')} good" if tally.jobs else "nothing"
    title, *rest = wrap(f"{report.title}: {mark}", "")
    lines = [paint(each, "bold") for each in (title, *rest)]
    if tally.jobs:
        lines += [paint(each, colour) for each in wrap(told(tally), "")]
    lines += wrap(between(report.begin_s, report.end_s) + ("" if not tally.open else ", not over yet"), "")
    lines += [paint(each, "dim") for each in wrap(_usage(report), "")] if tally.jobs else []
    return lines


def _usage(report: Report) -> str:
    usage, whole_s = report.usage, report.end_s - report.begin_s
    parts = [
        (usage.running_s, "something ran"), (usage.loading_s, "only loading"),
        (usage.idle_waited_s, "idle while jobs waited"), (usage.idle_s, "idle"),
    ]  # fmt: skip
    of_time = ", ".join(f"{word} {percent(part_s, whole_s)}" for part_s, word in parts if part_s > 0.005 * whole_s)
    starts = f"{counted(report.cold_starts, 'cold start')}, {counted(report.warm_hits, 'warm hit')}"
    retries = ", " + ("1 retry" if report.retries == 1 else f"{report.retries} retries") if report.retries else ""
    return f"{of_time}; {starts}{retries}"


def _providers(report: Report) -> list[str]:
    if not report.providers:
        return []
    columns = of_providers(report)
    table = Table(
        Column("provider", 19, least=9), *_columns(columns), Column("cold", 6, right=True, drop=2),
        Column("warm", 7, right=True, drop=3), Column("retries", 8, right=True, drop=1),
    )  # fmt: skip
    lines = ["", table.head()]
    ordered = sorted(report.providers, key=lambda each: (not each.tally.bad, not each.tally.open, each.name))
    for each in ordered[:MOST_ROWS]:
        starts = (_number(count) for count in (each.cold_starts, each.warm_hits, each.retries))
        lines.append(table.row(each.name, *_cells(columns, each.tally), *starts))
    if len(ordered) > MOST_ROWS:
        lines += wrap(f"and {len(ordered) - MOST_ROWS} more providers; --html FILE and --json have all", "")
    return [*lines, *_of_time(ordered[:MOST_ROWS])]


def _of_time(providers: Sequence[ProviderNight]) -> list[str]:
    """What the jobs of each provider took."""
    timed = [each for each in providers if each.queue.count or each.load.count or each.run.count]
    if not timed:
        return []
    table = Table(
        Column("median/longest", 19, least=14), Column("in the queue", 16, right=True, least=13),
        Column("load", 16, right=True, least=13, drop=1), Column("run", 16, right=True, least=13),
    )  # fmt: skip
    rows = (table.row(each.name, *map(_times, (each.queue, each.load, each.run))) for each in timed)
    return ["", table.head(), *rows]


def _columns(columns: Sequence[Count]) -> list[Column]:
    """A column for each of these counts, as wide as its head."""
    return [Column(each.head, max(7, len(each.head) + 1), right=True, least=len(each.head) + 1) for each in columns]


def _cells(columns: Sequence[Count], tally: Tally) -> list[tuple[str, str]]:
    colours = {"good": "green" if tally.good == tally.jobs else "", "bad": "red", "open": "yellow"}
    return [(_number(each.of(tally)), colours[each.kind] if each.of(tally) else "") for each in columns]


def _number(count: int) -> str:
    return str(count) if count else "-"


def _times(times: Times) -> str:
    if times.median_s is None:
        return "-"
    median, most = short(times.median_s), short(times.most_s)
    return median if median == most else f"{median}/{most}"


def _whys(report: Report) -> list[str]:
    """What went wrong, the most frequent first, whichever provider it was."""
    found = causes(report.providers)
    if not found:
        return []
    lines = ["", paint("what went wrong", "bold")]
    for providers, why in found[:MOST_WHYS]:
        lines += _why(providers, why)
    left = len(found) - MOST_WHYS
    return [*lines, *(wrap(f"and {left} other reasons; --html FILE and --json have all", "") if left > 0 else [])]


def _why(providers: tuple[str, ...], why: Why) -> list[str]:
    what = "" if why.became == "failed" or why.text.startswith(why.became) else f"{why.became}: "
    kind = why.kind.replace("_", " ")
    kind = "" if kind in ("", "error", why.became) or why.text.startswith(kind) else f"{kind}: "
    first, *rest = wrap(f"{why.count} x  {what}{kind}{why.text}", "    ", page_width() - 2)
    lines = [f"  {paint(first[4:], COLOURS.get(why.became, ''))}", *(f"  {each}" for each in rest)]
    whose = (
        providers[0] if len(providers) == 1 else f"{providers[0]} and {counted(len(providers) - 1, 'other provider')}"
    )
    named = f"job {why.first_id}" + (f", {why.first_name}" if why.first_name else "")
    first_job = f"first {named}" if why.count > 1 else named
    return [*lines, paint(cut(f"      {whose}; {first_job}", page_width()), "dim")]


def _waits(report: Report) -> list[str]:
    tally = report.tally
    if not tally.open:
        return []
    lines = ["", paint(f"not ended ({tally.open})", "bold")]
    groups: dict[tuple[str, str], list[tuple[ProviderNight, Why]]] = {}
    for each in report.providers:
        for why in each.waits:
            groups.setdefault((why.kind, why.text if why.kind != "busy" else each.name), []).append((each, why))
        if each.tally.running:
            lines.append(f"  {each.name}: {counted(each.tally.running, 'job')} running")
        if each.tally.unjudged:
            lines.append(f"  {each.name}: {counted(each.tally.unjudged, 'job')} succeeded, not checked yet")
    for those in list(groups.values())[:MOST_WHYS]:
        count, (provider, why) = sum(each.count for _, each in those), those[0]
        others = f" and {counted(len(those) - 1, 'other provider')}" if len(those) > 1 else ""
        verb = "held" if why.became == "held" else "waits" if count == 1 else "wait"
        lines += wrap(f"{provider.name}{others}: {counted(count, 'job')} {verb}: {why.text}", "  ")
    return lines


def _cases(report: Report) -> list[str]:
    """Validation cases with what became of them and why, those that did not pass first, and how many did."""
    found = [(each, case) for each in report.providers for case in each.cases]
    if not found:
        return []
    ordered = sorted(found, key=lambda row: (not row[1].tally.bad, not row[1].tally.open))
    passed = sum(case.tally.good == case.tally.jobs for _, case in found)
    columns = of_cases(report)
    table = Table(Column("case", 30, least=9), *_columns(columns), Column("run", 14, right=True, drop=1))
    lines = ["", paint(f"validation cases: {passed} of {len(found)} passed", "bold"), table.head()]
    for each, case in ordered[:MOST_CASES]:
        lines.append(table.row(f"{each.name} {case.name}", *_cells(columns, case.tally), _times(case.run)))
        if case.why:
            lines.append(paint(cut(f"    {case.why[0].text}", page_width()), "dim"))
    left = sum(1 for _, case in ordered[MOST_CASES:] if case.tally.good < case.tally.jobs)
    more = len(found) - MOST_CASES
    named = f"{left} of them not passed" if left else "all passed"
    return [*lines, *(wrap(f"and {more} more, {named}; --html FILE and --json have all", "") if more > 0 else [])]


def _memory(report: Report) -> list[str]:
    """Where what is declared is not what was measured; the others in a word."""
    found = [(each, part) for each in report.providers for part in each.memory if part.judged]
    odd = [(each, part) for each, part in found if part.judged != "fits"]
    if not found:
        return []
    if not odd:
        return ["", *wrap(f"memory: {counted(len(found), 'budget')} measured, none too small or far too large", "")]
    table = Table(
        Column("memory, GiB", 22, least=10), Column("part", 8), Column("declared", 10, right=True),
        Column("used at most", 14, right=True), Column("", 22, before=2, least=12, drop=1),
    )  # fmt: skip
    words = {"under": "more than declared", "over": "far less than declared", "undeclared": "not declared"}
    lines = ["", table.head()]
    for each, part in odd[:MOST_CASES]:
        colour = "red" if part.judged == "under" else "yellow"
        declared = "-" if part.declared_gib is None else gib(part.declared_gib)
        lines.append(table.row(each.name, part.part, declared, gib(part.used_gib), (words[part.judged], colour)))
    left = len(odd) - MOST_CASES
    return [*lines, *([f"and {left} more"] if left > 0 else [])]


def _pools(pools: Sequence[PoolNight], report: Report) -> list[str]:
    """A line of blocks for each pool: what was charged, against the most that was charged or used of it."""
    lines: list[str] = []
    for pool in pools:
        text = f"{pool.name}: {gib(pool.capacity_gib)} GiB, reserve {gib(pool.reserve_gib)}; {pool.most}"
        picture = _picture(pool, report)
        scale = f"; the line below is {gib(_scale_gib(pool))} GiB high" if picture else ""
        lines += ["", *wrap(text + scale, "")]
        lines += [picture] if picture else []
    if any(_picture(pool, report) for pool in pools):
        brief = report.end_s - report.begin_s < 60.0 * page_width()
        begin, end = (moment(at_s, second=brief) for at_s in (report.begin_s, report.end_s))
        lines.append(paint(f"{begin}{end:>{page_width() - len(begin)}}", "dim"))
    return lines


def _scale_gib(pool: PoolNight) -> float:
    """What a whole block stands for: the most that was charged or used."""
    return max(pool.most_charged_gib, pool.most_used_gib or 0.0)


def _picture(pool: PoolNight, report: Report) -> str:
    wide = page_width()
    ramp = BLOCKS if _draws() else RAMP
    levels = [0.0] * wide
    whole_s = max(1.0, report.end_s - report.begin_s)
    last, last_s = 0.0, float("-inf")
    points = iter(pool.points)
    point = next(points, None)
    for column in range(wide):
        until_s, most = report.begin_s + (column + 1) * whole_s / wide, None
        while point is not None and point.at_s <= until_s:
            last, last_s = point.charged_gib, point.at_s
            most = max(most or 0.0, last)
            point = next(points, None)
        if most is None and until_s - whole_s / wide - last_s <= HOLDS_S:
            most = last
        levels[column] = (most or 0.0) / _scale_gib(pool) if most else 0.0
    top = len(ramp) - 1
    return "".join(ramp[0 if level <= 0 else max(1, min(top, round(level * top)))] for level in levels).rstrip()


def _draws() -> bool:
    """Whether whoever reads this is known to read more than ASCII."""
    words = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    return "utf" in words.lower()


def _against(found: Comparison | None) -> list[str]:
    if found is None:
        return []
    title = wrap(f"against {found.against} ({found.compared} in both)", "")
    lines = ["", *(paint(each, "bold") for each in title)]
    for word, changed, colour in (
        ("newly failing", found.newly_failing, "red"), ("newly passing", found.newly_passing, "green")
    ):  # fmt: skip
        if changed:
            lines.append("  " + paint(f"{word} ({len(changed)})", colour))
        for each in changed[:MOST_CHANGES]:
            text = f": {each.text}" if word == "newly failing" and each.text else ""
            lines.append(cut(f"    {each.provider} {each.name} (job {each.id}){text}", page_width()))
        lines += _more(len(changed))
    if found.slower:
        lines.append("  " + paint(f"slower ({len(found.slower)})", "yellow"))
    for slow in found.slower[:MOST_CHANGES]:
        name = f"{slow.provider} {slow.case}".rstrip()
        factor = slow.now_s / slow.before_s if slow.before_s else 0.0
        times = f"median run {span(slow.now_s)}, was {span(slow.before_s)}" + (f" (x {factor:.1f})" if factor else "")
        lines.append(cut(f"    {name}: {times}", page_width()))
    lines += _more(len(found.slower))
    for over in found.over[:MOST_CHANGES]:
        since = "already" if over.before else "newly"
        text = f"{since} over declared: {over.provider}, {gib(over.used_gib)} of {over.part} memory"
        lines += wrap(f"{text}, {gib(over.declared_gib)} GiB declared", "  ")
    if not (found.newly_failing or found.newly_passing or found.slower):
        lines += wrap("nothing that fails, passes, or takes longer than it did", "  ")
    return lines


def _more(count: int) -> list[str]:
    return [f"    and {count - MOST_CHANGES} more"] if count > MOST_CHANGES else []


def _breakers(report: Report) -> list[str]:
    found = [(at_s, each, text) for each in report.providers for at_s, text in each.opened]
    lines = ["", paint("breakers", "bold")]
    for at_s, each, text in sorted(found, key=lambda row: row[0])[-MOST_CHANGES:]:
        lines += wrap(f"{moment(at_s)} {each.name} opened: {text}", "  ")
    for slug, text in {each.slug: each.broken for each in report.providers if each.broken is not None}.items():
        lines += [paint(line, "red") for line in wrap(f"{slug} is open: {text}", "  ")]
    return lines if len(lines) > 2 else []


def _steps(report: Report) -> list[str]:
    """The three commands: beside what they are for, or above it where both do not fit on a line."""
    lines = ["", paint("next", "bold")]
    wide = max((len(step.command) for step in report.steps), default=0)
    if wide + 2 + max((len(step.why) for step in report.steps), default=0) + 2 <= page_width():
        return [*lines, *(f"  {fill(step.command, wide)}  {paint(step.why, 'dim')}" for step in report.steps)]
    for step in report.steps:
        lines += [f"  {step.command}", *(paint(each, "dim") for each in wrap(step.why, " " * 6))]
    return lines
