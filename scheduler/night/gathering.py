"""A night gathered from the queue: one walk over the attempts of its jobs, and what stands beside them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.errors import NoSuchJob
from scheduler.model.command import EXEC, called
from scheduler.night import measured, memory
from scheduler.night.because import because
from scheduler.night.piles import Pile
from scheduler.night.report import ProviderNight, Report, Tally, Why
from scheduler.night.usage import STEPS, usage_of
from scheduler.night.words import alike, clean, in_local_time
from scheduler.rules.breaker import OWN_TIME
from scheduler.store import peek, reports
from scheduler.wake import scheduler_runs

MARGIN_S = 60.0
"""A peak is written down, and a worker leaves, a little after what it was for."""

LOOKED_INTO = 50
"""Earlier batches whose cases are looked at."""

LIVE = {"admitted": "running", "running": "running", "queued": "waiting", "held": "held"}


def gathered(paths: Paths, batch: str | None, since_s: float | None = None) -> Report:
    """The report of a batch, or of what was submitted or ended since then and all that has not ended. NoSuchJob."""
    at_s, runs = now_s(), scheduler_runs(paths)

    def question(connection: Any) -> Report | None:
        if batch is not None and reports.batch(connection, batch) is None:
            return None
        with _uncollected():
            return _report(connection, paths, batch, since_s, at_s, runs)

    found = peek.looked(paths, question, None)
    if found is not None:
        return found
    if batch is not None:
        raise _missing(paths, batch)
    nothing = usage_of([], [], [], at_s, at_s)
    return Report(None, at_s, since_s or at_s, at_s, Tally(), (), (), (), nothing, runs, since_s=since_s)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looks for circles of garbage: there are none, and among 100,000 jobs they cost a second."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _missing(paths: Paths, batch: str) -> NoSuchJob:
    import difflib

    near = difflib.get_close_matches(batch, newest(paths, 1000), n=1)
    hint = f"did you mean {near[0]}?" if near else "schedq report --since 20:00 has all jobs since then"
    return NoSuchJob(f"no job has the batch {clean(batch)!r} in the queue at {paths.home}; {hint}")


def newest(paths: Paths, most: int = 1) -> list[str]:
    """The batches that were begun last, the newest first."""
    return peek.looked(paths, lambda connection: reports.earlier(connection, "9", most), [])


def became(case: str | None, verdict: str | None, state: str, outcome: str | None) -> str:
    """What became of a job, one of report.WORDS: a validation case by its check, any other by how it ended."""
    if state in LIVE:
        return LIVE[state]
    if case is not None and verdict == "passed":
        return "passed"
    if state == "succeeded":
        return "succeeded" if case is None else "failed" if verdict == "failed" else "unjudged"
    if state == "refused" or outcome == "refused":
        return "refused"
    return "cancelled" if state == "cancelled" else "failed"


def _pile_up(found: Iterable[tuple[Any, ...]], at_s: float) -> dict[tuple[str, str], Pile]:
    """The jobs by provider, each once, with all that its attempts took."""
    piles: dict[tuple[str, str], Pile] = {}
    for _, attempts in groupby(found, key=itemgetter(0)):
        rows = list(attempts)
        row = rows[0]
        job_id, slug, variant, name, state, _, outcome, text, submitted_s, started_s, ended_s, case, verdict = row[:13]
        key = (slug, "" if slug == EXEC else variant)
        pile = piles.get(key)
        if pile is None:
            pile = piles[key] = Pile(*key)
        word = became(case, verdict, state, outcome)
        kind, why = because(state, outcome, text, verdict if case is not None else None, row[13], row[24])
        timeout_s = row[24] if text == OWN_TIME else None
        ran_s = pile.attempts(rows, at_s, bad=word in ("failed", "refused"), live=state in ("running", "admitted"))
        pile.job(job_id, name, case, word, kind, why, ran_s, pruned=bool(row[23]), timeout_s=timeout_s)
        free_s = row[21] if row[21] is not None and (started_s is None or row[21] <= started_s) else submitted_s
        if started_s is not None:
            pile.queued_s.append(max(0.0, started_s - free_s))
        pile.seen(submitted_s, ended_s)
        if word in ("waiting", "held"):
            pile.waits((word, variant, row[5]), job_id, case or name)
        if word != "held" and not row[22] and kind != "parent_failed":
            pile.waited.append((free_s, at_s if ended_s is None else ended_s))
    return piles


def _report(connection: Any, paths: Paths, batch: str | None, since_s: float | None, at_s: float, runs: bool) -> Report:
    since = "" if since_s is None else stamp(since_s)
    piles = _pile_up(reports.jobs(connection, batch, since), at_s)
    begin_s = min((pile.begin_s for pile in piles.values()), default=at_s if since_s is None else since_s)
    first_s = begin_s if piles else None
    if since_s is not None:
        begin_s = max(since_s, begin_s)
    any_open = any(pile.open for pile in piles.values())
    end_s = at_s if any_open else max((pile.end_s for pile in piles.values()), default=at_s)
    end_s = max(end_s, begin_s + 1.0)
    waits = reports.reasons(connection, [first for pile in piles.values() for first in pile.first_waiting()], runs)
    span_s = (begin_s, end_s + MARGIN_S)
    workers = [each for each in reports.workers(connection, *span_s) if (each[1], each[2]) in piles or each[1] == EXEC]
    charges = reports.charges(connection, *span_s)
    opened = reports.incidents(connection, *span_s)
    broken = reports.broken(connection)
    declared = measured.Declared(paths)
    found = []
    for (slug, variant), pile in sorted(piles.items()):
        name = called(slug, variant)
        own = [each for each in workers if each[1] == slug and (slug == EXEC or each[2] == variant)]
        found.append(
            ProviderNight(
                name=name, slug=slug, tally=pile.tally, whys=pile.whys(), waits=_waits(pile, waits), cases=pile.cases(),
                queue=measured.times(pile.queued_s), load=measured.times(pile.loads_s), run=measured.times(pile.runs_s),
                cold_starts=pile.cold, warm_hits=pile.warm, retries=pile.retries,
                charged_gib=max((charges[each[0]] for each in own if each[0] in charges), default=None),
                memory=declared.beside(name, reports.peaks(connection, slug, variant, *span_s)),
                opened=tuple((when_s, clean(in_local_time(text))) for when_s, whose, text in opened if whose == slug),
                broken=clean(in_local_time(broken[slug])) if slug in broken else None,
                lane=pile.lane(begin_s, end_s, STEPS), failed_at=pile.failed_at(begin_s, end_s, STEPS), jobs=pile.jobs,
            )
        )  # fmt: skip
    samples = reports.samples(connection, begin_s - MARGIN_S, span_s[1])
    intervals = [each for pile in piles.values() for each in pile.ran]
    loads = [(each[3], each[4] if each[4] is not None else each[5] or at_s) for each in workers]
    waited = [each for pile in piles.values() for each in pile.waited]
    return Report(
        batch=batch, at_s=at_s, begin_s=begin_s, end_s=end_s, tally=_sum(each.tally for each in found),
        providers=tuple(found), pools=memory.pools(samples, reports.leases(connection, begin_s, end_s), begin_s, end_s),
        marks=memory.marks(workers, found, begin_s, end_s), scheduler=runs,
        usage=usage_of(intervals, loads, waited, begin_s, end_s), since_s=since_s, first_s=first_s,
    )  # fmt: skip


def _waits(pile: Pile, reasons: dict[int, dict[str, str]]) -> tuple[Why, ...]:
    told = []
    for (word, _, _), (count, first_id, name) in pile.waiting.items():
        reason = reasons.get(first_id) or {}
        kind, text = reason.get("ruling", ""), reason.get("text", "")
        told.append(Why(word, kind, clean(text or "the scheduler has not looked at it yet"), count, first_id, name))
    return tuple(told)


def _sum(tallies: Iterable[Tally]) -> Tally:
    total: dict[str, int] = {}
    for tally in tallies:
        for word, count in vars(tally).items():
            total[word] = total.get(word, 0) + count
    return Tally(**total)


def earlier(paths: Paths, batch: str) -> str | None:
    """The newest batch before this one that has all of its validation cases, else any of them; of a batch without
    cases the newest that is called the same but for numbers. None if there is none.
    """

    def question(connection: Any) -> str | None:
        row = reports.batch(connection, batch)
        if row is None:
            return None
        own = reports.cases(connection, batch)
        if not own:
            before = reports.earlier(connection, row["first_at"])
            return next((name for name in before if alike(name) == alike(batch)), None)
        for name in reports.earlier(connection, row["first_at"], LOOKED_INTO):
            if own <= reports.cases(connection, name):
                return name
        return reports.shares_a_case(connection, batch, own)

    return peek.looked(paths, question, None)
