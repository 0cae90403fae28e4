"""The pictures of a night as inline SVG: the memory of each pool, and what ran when. All share one line of time.

They stretch to the page's width: whatever is text stands beside them, so that it keeps its size on a phone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from itertools import groupby

from scheduler.night.memory import HOLDS_S
from scheduler.night.report import Mark, Point, PoolNight, ProviderNight, Report
from scheduler.night.words import clean, moment
from scheduler.rules.figures import gib

WIDE, HIGH = 1000.0, 200.0
LEVELS = 5
LANE_HIGH, FAILED_HIGH = 20.0, 5.0
MOST_LANES = 40
AXIS_STEPS = 4
DAY_S, BRIEF_S = 86400.0, 1200.0


def memory(report: Report) -> Iterator[str]:
    """A picture of each pool: charged and used against capacity and reserve, with what happened meanwhile."""
    for pool in report.pools:
        yield (
            f'<h3><span class="name">{escape(clean(pool.name))}</span>: {gib(pool.capacity_gib)} GiB, reserve '
            f'{gib(pool.reserve_gib)} <span class="soft">{escape(pool.most)}</span></h3>'
        )
        yield '<div class="chart">'
        yield from _scale(pool)
        yield from _pool(pool, report)
        yield axis(report)
        yield "</div>"
    kinds = {mark.kind for mark in report.marks}
    yield '<p class="key"><span><i class="b-load"></i>charged</span><span><i class="b-run"></i>used</span>'
    yield '<span><i class="b-reserve"></i>reserve</span>'
    for kind, word in (("start", "a worker starts"), ("failure", "jobs fail"), ("breaker", "a breaker opens")):
        if kind in kinds:
            yield f'<span><i class="tick t-{kind}"></i>{word}</span>'
    yield "</p>"


def axis(report: Report) -> str:
    """The times below a picture; with its day wherever that is another one than before."""
    told, day = [], None
    whole_s = report.end_s - report.begin_s
    steps = max(1, min(AXIS_STEPS, int(whole_s)))  # a second apart at least, so that no two are the same
    for step in range(steps + 1):
        at_s = report.begin_s + whole_s * step / steps
        date = datetime.fromtimestamp(at_s).date()
        long, brief = whole_s > DAY_S, whole_s < BRIEF_S
        told.append(f"<span>{escape(moment(at_s, day=date != day and long, second=brief))}</span>")
        day = date
    return f'<div class="axis" aria-hidden="true">{"".join(told)}</div>'


def _scale(pool: PoolNight) -> Iterator[str]:
    top = pool.capacity_gib or 1.0
    free = 100.0 * pool.reserve_gib / top
    middle = f'<span style="top:50%">{gib(top / 2)}</span>'
    below = f'<span style="top:{free:.1f}%">{gib(top - pool.reserve_gib)}</span>' if free > 12 else ""
    yield f'<div class="ticks"><span class="top" style="top:0">{gib(top)} GiB</span>{below}{middle}'
    yield '<span class="end" style="top:100%">0</span></div>'


def _pool(pool: PoolNight, report: Report) -> Iterator[str]:
    title = f"Memory of {clean(pool.name)}: charged and used over time"
    yield (
        f'<svg class="pool" viewBox="0 0 {WIDE:g} {HIGH:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">'
    )
    top_gib = pool.capacity_gib or 1.0
    for share in (0.25, 0.5, 0.75):
        yield _line("l-grid", 0, HIGH * share, WIDE, HIGH * share)
    for name, kind in (("charged_gib", "a-charged"), ("used_gib", "a-used")):
        for some in _runs(pool.points, name):
            yield f'<path class="{kind}" d="{_area(some, name, top_gib, report)}"/>'
    if pool.reserve_gib:
        yield f'<rect class="a-reserve" x="0" y="0" width="{WIDE:g}" height="{HIGH * pool.reserve_gib / top_gib:.1f}"/>'
    for mark in report.marks:
        yield _mark(mark, report)
    yield "</svg>"


def _runs(points: Sequence[Point], name: str) -> Iterator[list[Point]]:
    """Points between which nothing is missing: a value that was read, and not long after the one before."""
    some: list[Point] = []
    for point in points:
        if some and (getattr(point, name) is None or point.at_s - some[-1].at_s > HOLDS_S):
            yield some
            some = []
        if getattr(point, name) is not None:
            some.append(point)
    if some:
        yield some


def _area(points: Sequence[Point], name: str, top_gib: float, report: Report) -> str:
    """An area in steps: what was seen holds until the next look."""
    x = [_x(point.at_s, report) for point in points]
    parts = [f"M{x[0]:.1f} {HIGH:g}"]
    for number, point in enumerate(points):
        y = HIGH * (1.0 - min(1.0, max(0.0, getattr(point, name)) / top_gib))
        parts.append(f"V{y:.1f}H{x[number + 1] if number + 1 < len(x) else x[number] + 1.0:.1f}")
    return "".join([*parts, f"V{HIGH:g}Z"])


def _mark(mark: Mark, report: Report) -> str:
    x = _x(mark.at_s, report)
    y = {"start": (HIGH - 14, HIGH), "failure": (0, 14), "breaker": (0, HIGH)}[mark.kind]
    return _line(f"l-{mark.kind}", x, y[0], x, y[1], f"{moment(mark.at_s)} {mark.text}")


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> str:
    told = f"<title>{escape(clean(title))}</title>" if title else ""
    return (
        f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'vector-effect="non-scaling-stroke">{told}</line>'
    )


def _x(at_s: float, report: Report) -> float:
    return WIDE * min(1.0, max(0.0, (at_s - report.begin_s) / max(1e-9, report.end_s - report.begin_s)))


def lanes(report: Report) -> Iterator[str]:
    """A lane a provider: the more it ran, the darker; failures below, in red."""
    shown = [each for each in report.providers if any(each.lane)]
    if not shown:
        return
    yield '<div class="chart">'
    for each in shown[:MOST_LANES]:
        yield f'<div class="label name" title="{escape(clean(each.name))}">{escape(clean(each.name))}</div>'
        yield _lane(each)
    yield axis(report)
    yield "</div>"
    if len(shown) > MOST_LANES:
        yield f'<p class="soft">and {len(shown) - MOST_LANES} more providers</p>'
    yield '<p class="key"><span><i class="b-run"></i>runs; the darker, the more of the time</span>'
    if any(any(each.failed_at) for each in shown):
        yield '<span><i class="b-bad"></i>jobs fail</span>'
    yield "</p>"


def _lane(provider: ProviderNight) -> str:
    steps = len(provider.lane)
    wide = WIDE / steps
    most = max(1.0, *provider.lane)
    levels = [0 if value <= 0 else max(1, round(LEVELS * min(1.0, value / most))) for value in provider.lane]
    paths: dict[int, list[str]] = {}
    at = 0
    for level, those in groupby(levels):
        length = sum(1 for _ in those)
        if level:
            paths.setdefault(level, []).append(
                f"M{at * wide:.1f} 0h{length * wide:.1f}v{LANE_HIGH:g}h-{length * wide:.1f}z"
            )
        at += length
    drawn = [
        f'<path class="r-run" opacity="{level / LEVELS:.2g}" d="{"".join(some)}"/>' for level, some in paths.items()
    ]
    failed = [
        f"M{n * wide:.1f} {LANE_HIGH - FAILED_HIGH:g}h{wide:.1f}v{FAILED_HIGH:g}h-{wide:.1f}z"
        for n, count in enumerate(provider.failed_at)
        if count
    ]
    if failed:
        drawn.append(f'<path class="r-bad" d="{"".join(failed)}"/>')
    label = f"when {clean(provider.name)} ran"
    return (
        f'<svg class="lane" viewBox="0 0 {WIDE:g} {LANE_HIGH:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{"".join(drawn)}</svg>'
    )
