"""What became of the time: something ran, was only loaded, or nothing went on, and then whether jobs waited."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.night.report import Usage

STEPS = 120
"""Steps of a night in its pictures."""

Spans = list[tuple[float, float]]


def joined(spans: Iterable[tuple[float, float]], begin_s: float, end_s: float) -> Spans:
    """Spans cut to the time, those that touch made one, in their order."""
    found: Spans = []
    from_s, to_s = begin_s, begin_s
    for since_s, until_s in sorted(spans):
        if until_s <= to_s:
            continue
        if since_s > to_s:
            if to_s > from_s:
                found.append((from_s, to_s))
            from_s = since_s
        to_s = until_s
        if to_s >= end_s:
            to_s = end_s
            break
    if to_s > from_s:
        found.append((from_s, to_s))
    return found


def usage_of(ran: Spans, loaded: Spans, waited: Spans, begin_s: float, end_s: float) -> Usage:
    """The time from begin to end, divided: what runs goes before what loads, what loads before what waits."""
    running = joined(ran, begin_s, end_s)
    loading = joined([*running, *loaded], begin_s, end_s)
    waiting = joined([*loading, *joined(waited, begin_s, end_s)], begin_s, end_s)
    running_s, loading_s, waiting_s = map(_length, (running, loading, waiting))
    whole_s = max(0.0, end_s - begin_s)
    return Usage(running_s, loading_s - running_s, waiting_s - loading_s, max(0.0, whole_s - waiting_s))


def _length(spans: Spans) -> float:
    return sum(until_s - since_s for since_s, until_s in spans)
