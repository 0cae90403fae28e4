"""A night as numbers: which providers there are, and which jobs arrive when. Read from JSON, checked before it is run.

{"capacity_gib", "reserve_gib",
 "providers": {SLUG: {"budget_gib", "cold_s", "warm_s"}},         warm_s: unknown at first unless given
 "jobs": [{"id", "slug", "arrives_s", "run_s", "priority"}],      in order of submission; priority 0 unless given
 "lower_bound_s"}                                                  computed if it is missing

A key that is a slip of one of these is an error, any other is let be.
"""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scheduler.errors import Refused, UsageError

MOST_BYTES = 64 << 20
MOST = 1e12
"""No night has a figure as large as this, in GiB or in seconds; sums of them stay finite."""
NIGHT = ("capacity_gib", "reserve_gib", "providers", "jobs", "lower_bound_s")
PROVIDER = ("budget_gib", "cold_s", "warm_s")
JOB = ("id", "slug", "arrives_s", "run_s", "priority")


@dataclass(frozen=True)
class Simulated:
    """A provider of a night: GiB while it is there, seconds to load, seconds that a run usually takes."""

    budget_gib: float
    cold_s: float
    warm_s: float | None


@dataclass(frozen=True)
class Arrival:
    """A job of a night. Seconds since the night began; what it takes is known to nobody before it ends."""

    id: int
    slug: str
    arrives_s: float
    run_s: float
    priority: int = 0


@dataclass(frozen=True)
class Trace:
    """One night."""

    capacity_gib: float
    reserve_gib: float
    providers: dict[str, Simulated]
    jobs: tuple[Arrival, ...]
    lower_bound_s: float


def read(text: str, name: str) -> Trace:
    """The night that `text` describes. UsageError names the file, where in it, and what is wrong."""
    try:
        raw = json.loads(text)
    except RecursionError:
        raise UsageError(f"{name} is not a trace: it is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{name} is not a trace: an object with capacity_gib, reserve_gib, providers and jobs")
    _refuse_slips(raw, NIGHT, name, "")
    capacity_gib = _number(raw, "capacity_gib", name, "", least=0.0)
    reserve_gib = _number(raw, "reserve_gib", name, "", least=0.0)
    providers = {slug: _provider(slug, each, name) for slug, each in _mapping(raw, "providers", name).items()}
    rows = raw.get("jobs")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{name}: jobs must be a list with at least one job")
    jobs = tuple(_job(n, row, providers, name) for n, row in enumerate(rows))
    _ordered(jobs, name)
    usable_gib = capacity_gib - reserve_gib
    if usable_gib <= 0:
        raise Refused(
            f"{name}: capacity_gib {capacity_gib:g} less reserve_gib {reserve_gib:g} leaves nothing to use; give the "
            "trace more capacity"
        )
    for slug in sorted({job.slug for job in jobs}):
        if providers[slug].budget_gib > usable_gib:
            raise Refused(
                f"{slug} needs {providers[slug].budget_gib:g} GiB and {capacity_gib:g} - {reserve_gib:g} reserved = "
                f"{usable_gib:g} GiB can be used: this night cannot end; give the trace more capacity or leave it out"
            )
    told = raw.get("lower_bound_s")
    bound_s = lower_bound_s(providers, jobs, usable_gib)
    if told is not None:
        bound_s = _number(raw, "lower_bound_s", name, "", least=0.0)
    return Trace(capacity_gib, reserve_gib, providers, jobs, bound_s)


def lower_bound_s(providers: dict[str, Simulated], jobs: tuple[Arrival, ...], usable_gib: float) -> float:
    """The seconds that no schedule can end before: the largest of area, chain and last arrival.

    Area: all work and each used provider's load once, in GiB x seconds, over what can be used. Chain: one provider's
    load and all its jobs, one after the other, from its first arrival.
    """
    used = {job.slug for job in jobs}
    area = math.fsum(providers[job.slug].budget_gib * job.run_s for job in jobs)
    area += math.fsum(providers[slug].budget_gib * providers[slug].cold_s for slug in used)
    chains = []
    for slug in used:
        mine = [job for job in jobs if job.slug == slug]
        work_s = math.fsum(job.run_s for job in mine)
        chains.append(min(job.arrives_s for job in mine) + providers[slug].cold_s + work_s)
    return max(area / usable_gib, *chains, *(job.arrives_s + job.run_s for job in jobs))


def _provider(slug: str, raw: Any, name: str) -> Simulated:
    where = f"providers.{slug}."
    if not slug.isprintable() or not slug.strip():
        raise UsageError(f"{name}: {slug!r} is no provider's name; use letters, digits and _")
    if not isinstance(raw, dict):
        raise UsageError(f"{name}: providers.{slug} must be an object with budget_gib and cold_s")
    _refuse_slips(raw, PROVIDER, name, where)
    warm_s = None if raw.get("warm_s") is None else _number(raw, "warm_s", name, where, least=0.0)
    return Simulated(
        _number(raw, "budget_gib", name, where, least=0.0), _number(raw, "cold_s", name, where, least=0.0), warm_s
    )


def _job(n: int, raw: Any, providers: dict[str, Simulated], name: str) -> Arrival:
    where = f"jobs[{n}]."
    if not isinstance(raw, dict):
        raise UsageError(f"{name}: jobs[{n}] must be an object with id, slug, arrives_s and run_s")
    _refuse_slips(raw, JOB, name, where)
    number, slug, priority = raw.get("id"), raw.get("slug"), raw.get("priority", 0)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise UsageError(f"{name}: {where}id is {number!r}; it must be a whole number from 1")
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise UsageError(f"{name}: {where}priority is {priority!r}; it must be a whole number")
    if abs(priority) > 1 << 31:
        raise UsageError(f"{name}: {where}priority is {priority}; it must be between -2147483648 and 2147483648")
    if not isinstance(slug, str) or slug not in providers:
        raise UsageError(f"{name}: {where}slug is {slug!r}, which is not among its providers")
    arrives_s = _number(raw, "arrives_s", name, where, least=0.0)
    return Arrival(number, slug, arrives_s, _number(raw, "run_s", name, where, least=0.0), priority)


def _refuse_slips(raw: dict[str, Any], ours: tuple[str, ...], name: str, where: str) -> None:
    for key in raw.keys() - set(ours):
        near = difflib.get_close_matches(key.lower().replace("-", "_"), ours, n=1, cutoff=0.8)
        if near:
            raise UsageError(f"{name}: {where}{key} = {raw[key]!r}: unknown key; did you mean {near[0]}?")


def _ordered(jobs: tuple[Arrival, ...], name: str) -> None:
    for before, after in pairwise(jobs):
        if after.id <= before.id or after.arrives_s < before.arrives_s:
            raise UsageError(
                f"{name}: job {after.id} (arrives at {after.arrives_s:g} s) stands behind job {before.id} "
                f"({before.arrives_s:g} s); jobs must stand in the order of submission, ids and arrivals rising"
            )


def _mapping(raw: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    found = raw.get(key)
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{name}: {key} must be an object with at least one entry")
    return found


def _number(raw: dict[str, Any], key: str, name: str, where: str, least: float | None = None) -> float:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}..."
        raise UsageError(f"{name}: {where}{key} is {shown}; it must be a number of at most {MOST:g}")
    if least is not None and value < least:
        raise UsageError(f"{name}: {where}{key} is {value!r}; it must be at least {least:g}")
    return float(value)
