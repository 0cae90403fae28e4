"""A report as JSON for programs: what the page shows, and the figures behind it, without its single good jobs."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from scheduler.clock import stamp
from scheduler.night.report import ProviderNight, Report, Tally
from scheduler.night.words import clean

SCHEMA_VERSION = 1


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON-able values: stamps, seconds, GiB."""
    return {
        "schema_version": SCHEMA_VERSION, "batch": report.batch, "at": stamp(report.at_s),
        "begin_at": stamp(report.begin_s), "end_at": stamp(report.end_s), "exit_code": report.exit_code,
        "counts": tally(report.tally), "cold_starts": report.cold_starts, "warm_hits": report.warm_hits,
        "retries": report.retries, "usage": asdict(report.usage),
        "scheduler": {"running": report.scheduler},
        "providers": [_provider(each) for each in report.providers],
        "pools": [
            {
                "id": pool.id, "capacity_gib": pool.capacity_gib, "reserve_gib": pool.reserve_gib,
                "most_charged_gib": pool.most_charged_gib, "most_used_gib": pool.most_used_gib,
                "points": [{"at": stamp(point.at_s), **_but(asdict(point), "at_s")} for point in pool.points],
            }
            for pool in report.pools
        ],
        "against": asdict(report.against) if report.against is not None else None,
        "next": [asdict(step) for step in report.steps],
    }  # fmt: skip


def tally(found: Tally) -> dict[str, int]:
    """A tally with its sums: jobs, good, bad, open."""
    sums = {"jobs": found.jobs, "good": found.good, "bad": found.bad, "open": found.open}
    return {**sums, **{each.name: getattr(found, each.name) for each in fields(found)}}


def _provider(found: ProviderNight) -> dict[str, Any]:
    return {
        "name": found.name, "slug": found.slug, "counts": tally(found.tally),
        "cases": [
            {
                "name": case.name, "counts": tally(case.tally), "run": asdict(case.run),
                "why": [asdict(why) for why in case.why],
            }
            for case in found.cases
        ],
        "why": [asdict(why) for why in found.whys], "waits": [asdict(why) for why in found.waits],
        "queue": asdict(found.queue), "load": asdict(found.load), "run": asdict(found.run),
        "cold_starts": found.cold_starts, "warm_hits": found.warm_hits, "retries": found.retries,
        "charged_gib": found.charged_gib, "memory": [asdict(part) for part in found.memory],
        "breakers": [{"at": stamp(at_s), "text": text} for at_s, text in found.opened], "broken": found.broken,
        "bad_jobs": [
            {
                "id": job.id, "name": clean(job.name), "case": clean(job.case), "became": job.became, "kind": job.kind,
                "text": job.text,
            }
            for job in found.jobs
            if job.became in ("failed", "refused")
        ],
    }  # fmt: skip


def _but(found: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != key}
