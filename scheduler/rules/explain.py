"""Why a job waits, in a sentence: what was asked, what stands in the way in numbers, what to do next.

Numbers are shown with two decimals, or as many as keep what was compared true: nothing here says that 56.0 does not
fit 56.0. No seconds that pass stand in a text, so that it changes only when something did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scheduler.model.command import called
from scheduler.model.machine import Held, Machine, Reading, is_amount
from scheduler.model.plan import Breaker, Waiting, WorkerView
from scheduler.model.provider import Provider
from scheduler.model.verdict import Demand, PoolEvidence, Verdict
from scheduler.rules.admission import beyond_gib, over_gib, short_gib
from scheduler.rules.figures import figures, plain, pool_name, usual
from scheduler.rules.room import fits

NAMED = 4


def gib(value: float) -> str:
    """GiB for reading, where nothing is compared: two decimals at most, none that say nothing."""
    return plain(value, 2)


def sentence(verdict: Verdict) -> str:
    """What a verdict means for whoever waits for it."""
    return _TEXTS[verdict.ruling](verdict)


def not_installed(name: str, provider: Provider | None) -> str:
    """There is no manifest, or no environment, for this provider."""
    if provider is None:
        return (
            f"the running scheduler has no manifest of {name} on its search path; put it back there, or schedq restart "
            "with the SCHEDQ_MANIFESTS that has it, and its jobs go on, or cancel them"
        )
    return provider.not_installed_text or f"{name} is not installed; run `schedq install {provider.slug}`"


def broken(breaker: Breaker, name: str) -> str:
    """The provider failed in a row, or asked for another time, and is left alone for a while."""
    if breaker.failures == 0:
        what = f"{name} asked to be tried later, and nothing of it failed"
    else:
        what = f"{name} failed " + ("once" if breaker.failures == 1 else f"{breaker.failures} times in a row")
    last = f"; the last {'error' if breaker.failures else 'word'}: {breaker.last_error}" if breaker.last_error else ""
    then = "it is tried again by itself, with one job at first"
    return f"{what}{last}; {then if breaker.next_try_in_s > 0 else 'one job tries it again now'}"


def occupied(worker: WorkerView, provider: Provider, *, fresh: bool = False) -> tuple[str, str]:
    """(ruling, text) for a job whose provider's workers are all taken. `fresh`: it goes to one that served nothing."""
    if worker.state in ("parked", "starting"):
        told = f"; loading usually takes {usual(provider.load_s)}" if provider.load_s is not None else ""
        return "starting", f"worker {worker.id} of {provider.name} is starting; the job is sent when it is ready{told}"
    running = f"job {worker.job_id}" if worker.job_id is not None else "another job"
    told = f", which usually takes {usual(provider.run_s)}" if provider.run_s is not None else ""
    then = "this goes to a new worker after it" if fresh else "one request at a time, this is next"
    return "busy", f"worker {worker.id} of {provider.name} has {running}{told}; {then}"


def too_few_cores(name: str, threads: int, in_use: int, cores: int) -> str:
    """Busy and starting workers take the cores that this one would compute on."""
    if threads > cores:
        need = f"more than the {_counted(cores, 'core')}: it runs alone, when the {in_use} that others compute on "
        need += _free(in_use)
    else:
        need = f"and others compute on {in_use} of the {_counted(cores, 'core')}: it starts when {threads} "
        need += _free(threads)
    return f"{name} computes with {_counted(threads, 'thread')}, {need}"


def reserved(name: str, head: Waiting) -> str:
    """The room is kept for the job that is first, which has been overtaken for as long as it may."""
    return (
        f"{name} waits behind job {head.job_id} of {_slug(head)}, which is first and was overtaken as long as overtake "
        "allows: its room is being made, and this would take some of it"
    )


def victim(name: str, worker_id: int, head: Waiting) -> str:
    """The provider's worker has to go for a head whose window has closed."""
    return (
        f"worker {worker_id} of {name} makes room for job {head.job_id} of {_slug(head)}, which is first and was "
        "overtaken as long as overtake allows; this goes on when there is room again"
    )


def would_delay(name: str, head: Waiting) -> str:
    """It would fit now, but what it takes would be missing when the first job's room is there."""
    return (
        f"{name} would fit now and still hold its room when job {head.job_id} of {_slug(head)}, which is first, could "
        "start; it starts beside or after that"
    )


def beside(name: str) -> str:
    """It would fit, but not beside the room that is being made for somebody else."""
    return f"{name} would take room that idle workers are giving back for another job; it starts beside or after that"


def first_in_line(name: str, head: Waiting) -> str:
    """Strict order: nobody starts before everybody earlier."""
    return f"{name} waits for job {head.job_id} of {_slug(head)}: the order is strict, nobody overtakes"


def started_now(provider: Provider) -> str:
    """Its worker was started for the job before it in this moment."""
    return f"a worker of {provider.name} is being started for the job before this one; this is next"


def told(why: str | Verdict) -> str:
    """A sentence that was said already, or the one that a verdict means."""
    return why if isinstance(why, str) else sentence(why)


def evicting(why: str | Verdict, worker_ids: Sequence[int]) -> str:
    """A verdict's sentence, and who is stopped to change it."""
    text = told(why)
    if not worker_ids:
        return f"{text}; workers that are on their way out give back enough"
    who = f"workers {_listed(worker_ids)} make" if len(worker_ids) > 1 else f"worker {worker_ids[0]} makes"
    return f"{text}; idle {who} room for it now"


def clearing(verdict: Verdict, pool_id: str, gib_lacking: float) -> str:
    """The file cache alone stands in the way, and is being given back."""
    if verdict.admit:
        text = (
            f"{_name(verdict.evidence.demand)} fits, and its framework takes what is free of {pool_name(pool_id)} for "
            "all that there is"
        )
    else:
        text = sentence(verdict)
    return f"{text}; {gib(gib_lacking)} GiB of the file cache are being turned into free memory for it"


def reclaiming(pool_id: str, gib_lacking: float) -> str:
    """What was begun for a job that only the file cache keeps waiting."""
    return f"{gib(gib_lacking)} GiB of the file cache are being turned into free memory of {pool_name(pool_id)}"


DESTINATION = "its destination (--out)"


def disk_full(free_gib: float | None, reserve_gib: float, what: str = "the state folder") -> str:
    """Nothing starts on a disk that is nearly full. `what` lies on it."""
    if free_gib is None:
        return f"the free space of {what} could not be read: nothing starts on an unknown disk"
    _, free, kept, _ = figures([free_gib], reserve_gib)
    room = "there" if what == DESTINATION else "(schedq prune --older-than 30d --dry-run shows what would go)"
    then = "it goes on" if what == DESTINATION else "jobs go on"
    return f"the disk of {what} has {free} GiB free and {kept} GiB stay reserved; make room {room}, then {then}"


def low_disk(machine: Machine) -> str:
    """The same of the tightest of the queue's own disks."""
    return disk_full(machine.disk_free_gib, machine.disk_reserve_gib, machine.disk_of)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _free(count: int) -> str:
    return "is free" if count == 1 else "are free"


def _slug(waiting: Waiting) -> str:
    return called(waiting.slug, waiting.variant)


def _name(demand: Demand) -> str:
    return called(demand.slug, demand.variant)


def _source(reading: Reading) -> str:
    return f" ({reading.source})" if reading.source else ""


def _admitted(verdict: Verdict) -> str:
    said = []
    for place in verdict.evidence.placement:
        asked = (place.demand_gib, place.charged_gib, place.reserve_gib)
        parts, total, capacity, _ = figures(asked, place.capacity.value or 0.0)
        sums = f"{parts[0]} GiB beside {parts[1]} charged and {parts[2]} reserved"
        said.append(f"{sums} are {total} of {capacity} GiB of {pool_name(place.pool)}")
    return f"{_name(verdict.evidence.demand)} fits: " + "; ".join(said)


def _undeclared(verdict: Verdict) -> str:
    demand = verdict.evidence.demand
    if demand.policy == "required" and demand.device_gib is None:
        return (
            f"{_name(demand)} declares no vram_budget_gb, and a provider is admitted on a measured budget "
            f"or not at all; `schedq measure {_name(demand)} --write` runs its validation cases alone, guarded, and "
            "puts what they use into your config.toml"
        )
    what, said = ("ram_budget_gb", demand.host_gib)
    if is_amount(said):
        what, said = ("vram_budget_gb", demand.device_gib or 0.0)
    return (
        f"{_name(demand)} declares {what} = {said}, which is no amount of memory; write GiB, 0 or more, in its manifest"
    )


def _no_device(verdict: Verdict) -> str:
    source = _source(verdict.evidence.accelerators)
    return (
        f"{_name(verdict.evidence.demand)} requires an accelerator and this machine has none{source}; "
        "a job of it waits until there is one"
    )


def _unreadable(verdict: Verdict) -> str:
    evidence = verdict.evidence
    required = evidence.demand.policy == "required"
    missing = [evidence.holdings_missing] if evidence.holdings_missing else []
    if required and evidence.accelerators.value is None:
        missing.append(f"accelerators: {evidence.accelerators.missing or 'not read'}")
    for place in evidence.placement:
        for what, reading in (("capacity", place.capacity), ("live", place.live)):
            if reading.value is None or not math.isfinite(reading.value):
                missing.append(f"{what} of {pool_name(place.pool)}: {reading.missing or 'not read'}")
    told = "; ".join(missing) or "this machine shows no pool that it could use"
    return f"{_name(evidence.demand)} is not started on what cannot be read: {told}; looked at again at every snapshot"


def _too_big(verdict: Verdict) -> str:
    demand = verdict.evidence.demand
    if not verdict.evidence.placement:
        devices = verdict.evidence.accelerators
        there = f"{gib(devices.value or 0.0)}{_source(devices)}"
        return f"{_name(demand)} needs {demand.count} devices at once and this machine has {there}: fewer than that"
    place = max(verdict.evidence.placement, key=beyond_gib)
    parts, total, capacity, _ = figures((place.demand_gib, place.reserve_gib), place.capacity.value or 0.0)
    return (
        f"{_name(demand)} needs {parts[0]} GiB of {pool_name(place.pool)} and {parts[1]} GiB stay reserved: {total} "
        f"GiB, more than all of its {capacity} GiB{_source(place.capacity)}; it can never start unless machine or "
        "budget change"
    )


def _unknown_holding(verdict: Verdict) -> str:
    for place in verdict.evidence.placement:
        names = [each.name for each in place.held if each.charge_gib is None]
        if names:
            return (
                f"{_name(verdict.evidence.demand)} needs {gib(place.demand_gib)} GiB of {pool_name(place.pool)}, and "
                f"{_listed(names)} may hold memory there that nobody declared, so nothing can be summed; "
                "say what it holds (schedq machine declare PID --vram G --ram G), or stop it"
            )
    return f"{_name(verdict.evidence.demand)} waits for a holder whose budget nobody declared"


def _pool_full(verdict: Verdict) -> str:
    lacking = _lacking(verdict, over_gib)
    needs, starts = [], []
    for place in lacking:
        asked = (place.demand_gib, place.reserve_gib, place.charged_gib)
        parts, total, capacity, short = figures(asked, place.capacity.value or 0.0)
        needs.append(
            f"{parts[0]} GiB of {pool_name(place.pool)}{_nearest(verdict)}, {parts[1]} GiB stay reserved and "
            f"{parts[2]} GiB are charged ({_holders(place)}): {total} GiB of {capacity}"
        )
        starts.append(f"{short} GiB" + (f" of {pool_name(place.pool)}" if len(lacking) > 1 else ""))
    together = "; and ".join(needs)
    return f"{_name(verdict.evidence.demand)} needs {together}; it starts when {' and '.join(starts)} are given back"


def _no_room_now(verdict: Verdict) -> str:
    for place in verdict.evidence.placement:
        if place.closed:
            wants = f"{_name(verdict.evidence.demand)} needs {gib(place.demand_gib)} GiB of {pool_name(place.pool)}"
            return f"{wants}, and the guard admits nothing there now: {place.closed}"
    lacking = _lacking(verdict, short_gib)
    needs, starts = [], []
    for place in lacking:
        asked = (place.demand_gib, place.reserve_gib, place.owed_gib)
        parts, total, live, short = figures(asked, place.live.value or 0.0)
        owed = f", {parts[2]} GiB are still owed to holders that have not touched all of theirs"
        there = f"{live} GiB are there now{_source(place.live)}{_counts(place, verdict.evidence.competing)}"
        needs.append(
            f"{parts[0]} GiB of {pool_name(place.pool)}{_nearest(verdict)} and {parts[1]} GiB stay reserved"
            f"{owed if place.owed_gib else ''}: {total} GiB, and {there}"
        )
        starts.append(f"{short} GiB more" + (f" of {pool_name(place.pool)}" if len(lacking) > 1 else ""))
    together = "; and ".join(needs)
    return f"{_name(verdict.evidence.demand)} needs {together}; it starts when {' and '.join(starts)} are free"


def _lacking(verdict: Verdict, lacks: Callable[[PoolEvidence], float]) -> list[PoolEvidence]:
    """The pools of its place that are too full, all of them: a worker of several devices waits for each."""
    places = verdict.evidence.placement
    return [place for place in places if not fits((lacks(place),), 0.0)] or [max(places, key=lacks)]


def _counts(place: PoolEvidence, competing: int | None) -> str:
    """Why less counts of host memory than what is available: somebody could win the cache's part first (E3, E4)."""
    if place.kind == "device" or competing == 0:
        return ""
    alone = "; free memory alone counts, not what the cache would give back, while"
    if competing is None:
        return f"{alone} who else loads or computes could not be counted"
    return f"{alone} {competing} {'worker loads or computes' if competing == 1 else 'workers load or compute'}"


def _nearest(verdict: Verdict) -> str:
    """Which of several places is told of: the one that lacks least."""
    return f" (of {verdict.evidence.places} places the one that lacks least)" if verdict.evidence.places > 1 else ""


def _holders(place: PoolEvidence) -> str:
    held: list[Held] = sorted((h for h in place.held if h.charge_gib), key=lambda h: -(h.charge_gib or 0.0))
    return _listed([f"{h.name} {gib(h.charge_gib or 0.0)}" for h in held])


def _listed(names: Sequence[object]) -> str:
    more = len(names) - NAMED
    return ", ".join(map(str, names[:NAMED])) + (f" and {more} more" if more > 0 else "")


_TEXTS = {
    "admit": _admitted, "undeclared": _undeclared, "no_device": _no_device, "unreadable": _unreadable,
    "too_big": _too_big, "unknown_holding": _unknown_holding, "pool_full": _pool_full, "no_room_now": _no_room_now,
}  # fmt: skip
