"""`schedq machine` and `schedq room`: this machine as it is now, and whether one more worker would fit on it."""

from __future__ import annotations

from scheduler import catalog, config
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.say import fill, gib, paint, span, wrap
from scheduler.config import Paths
from scheduler.rules.figures import pool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from scheduler.model.machine import Holding, Machine, Reading
    from scheduler.model.plan import Snapshot
    from scheduler.model.provider import Provider

FITS, NEVER, NOT_NOW = 0, 3, 75


def show(call: Call) -> int:
    """Print pools, readings, holders and co-tenants, as they are read now."""
    from scheduler.host.machine.facts import facts
    from scheduler.look import look
    from scheduler.store import peek

    seen = look(Paths(), config.settings()).snapshot
    if call.flag("json"):
        leases = _leases(seen)
        found = {"schema_version": 1, **facts(seen.contested, leases, _loose(seen)), **_details(seen.machine)}
        found["unreturned"] = _unreturned(seen)
        recorded = peek.status(Paths())
        found |= {key: recorded.get(key, {}) for key in ("guard", "reclaim")}
        say.out(say.document(found))
        return 0
    for line in _page(seen):
        say.out(line)
    return 0


def room(call: Call) -> int:
    """Print whether there is memory for one more worker of a provider now, and what would change it.

    Exit 0 there is, 3 never, 75 not now. Pauses, breakers and max_workers are not looked at.
    """
    from dataclasses import replace

    from scheduler.host.machine.attribution import NOBODY, told_of_nobody
    from scheduler.look import look
    from scheduler.rules import explain
    from scheduler.rules.admission import claims_of, decide
    from scheduler.rules.evidence import as_json
    from scheduler.rules.placement import demand_of
    from scheduler.rules.reclaim import lacking
    from scheduler.rules.remedy import remedy
    from scheduler.rules.whatif import fits_if

    asked = call.text("slug") or ""
    spec = catalog.load(Paths()).spec(asked)
    seen = look(Paths(), config.settings()).snapshot
    provider = seen.providers[spec["slug"], spec["variant"]]
    claims = claims_of(seen)
    verdict = decide(demand_of(provider), seen.machine, claims)
    changes = remedy(verdict, seen.machine, claims, seen.workers)
    text = explain.sentence(verdict)
    if call.flag("json"):
        document = {
            "schema_version": 1, "slug": spec["slug"], "variant": spec["variant"], "ruling": verdict.ruling,
            "admit": verdict.admit, "never": verdict.never, "evidence": as_json(verdict), "text": text,
            "fits_if": [_change(each) for each in changes], "fits_if_text": fits_if(changes),
        }  # fmt: skip
        say.out(say.document(document))
    else:
        words = [f"memory: {text}", fits_if(changes)]
        say.out("\n".join(line for each in words if each for line in wrap(each, "")))
    if changes and all(each.what in ("retire", "return") for each in changes):
        say.note("note: for a job that needs the room the scheduler does that by itself")
    cache = lacking(verdict, replace(seen.machine, reclaim="ready"))
    if cache is not None and config.settings().text("reclaim") != "off":
        say.note(
            f"note: for a job the scheduler turns {gib(cache[1])} GiB of the file cache into free memory by itself"
        )
    if any(held.name == NOBODY for place in verdict.evidence.placement for held in place.held):
        for note in told_of_nobody(seen.machine.holdings, seen.machine.devices):
            say.note(f"note: {note}")
    _beside(seen, provider)
    return FITS if verdict.admit else NEVER if verdict.never else NOT_NOW


def _change(change: Any) -> dict[str, Any]:
    return {**vars(change), "gib": dict(change.gib)}


def _beside(seen: Snapshot, provider: Provider) -> None:
    """What beside memory decides about a job of this provider: said, and no part of the answer."""
    from scheduler.rules.placement import most_workers

    if not provider.installed:
        say.note(f"note: {provider.not_installed_text}")
    own = [w for w in seen.workers if (w.slug, w.variant) == (provider.slug, provider.variant)]
    for worker in own:
        if worker.state == "ready" and worker.job_id is None:
            say.note(f"note: worker {worker.id} of {provider.name} is idle; a job would be sent to it, whatever fits")
    most = most_workers(provider, seen.machine)
    if len(own) >= most:
        say.note(
            f"note: {provider.name} has {say.counted(len(own), 'worker')} and may have {most}; this is about one more"
        )


def _leases(seen: Snapshot) -> dict[str, Sequence[float]]:
    charged: dict[str, list[float]] = {}
    for worker in seen.workers:
        for pool, charge_gib in worker.charges.items():
            charged.setdefault(pool, []).append(charge_gib)
    for lease in seen.leases:
        charged.setdefault(lease.pool, []).append(lease.charge_gib)
    return dict(charged)


def _loose(seen: Snapshot) -> dict[str, float]:
    charged: dict[str, float] = {}
    for lease in seen.leases:
        charged[lease.pool] = charged.get(lease.pool, 0.0) + lease.charge_gib
    return charged


def _unreturned(seen: Snapshot) -> list[dict[str, Any]]:
    """Charges whose worker is gone, as `status` has them."""
    return [vars(lease) for lease in seen.leases]


def _reading(reading: Reading) -> dict[str, Any]:
    return {"gib": reading.value, "source": reading.source, "missing": reading.missing, "age_s": reading.age_s}


def _details(machine: Machine) -> dict[str, Any]:
    """What only `machine --json` says: every reading with its source and age, every device, every holding."""
    return {
        "boot_id": machine.boot_id,
        "pressure": [
            {"percent": each.value, "source": each.source, "missing": each.missing, "age_s": each.age_s}
            for each in machine.pressure
        ],
        "host_id": machine.host_id,
        "readings": [
            {"pool": pool.id, "what": what, **_reading(reading)}
            for pool in machine.pools
            for what, reading in (("capacity", pool.capacity), ("free", pool.free), ("available", pool.available))
        ],
        "devices": [
            {
                "id": device.id, "vendor": device.vendor, "name": device.name, "slot": device.slot,
                "number": device.number, "integrated": device.integrated, "partial": device.partial,
                "display": device.display, "total": _reading(device.total), "free": _reading(device.free),
                "used": _reading(device.used), "tenants": [vars(tenant) for tenant in device.tenants],
                "tenants_missing": device.tenants_missing,
            }
            for device in machine.devices
        ],
        "holdings": [
            {
                "name": holding.name, "pid": holding.pid or None, "user": holding.user, "command": holding.command,
                "worker_id": holding.worker_id, "competes": holding.competes,
                "charges": [vars(charge) for charge in holding.charges],
            }
            for holding in machine.holdings
        ],
    }  # fmt: skip


def _page(seen: Snapshot) -> list[str]:
    """The machine for people."""
    from scheduler.cli import motion, pages
    from scheduler.clock import now_s
    from scheduler.host.machine.facts import facts

    machine = seen.machine
    found = facts(seen.contested, _leases(seen), _loose(seen))
    lines = [_count(machine), *_devices(machine), *pages.pools({"pools": found["pools"]}, now_s())]
    names = _short(machine)
    lines += ["", paint(f"{'reading':26}{'GiB':>9}  {'age':>5}  source", "bold")]
    for pool in machine.pools:
        same = pool.kind == "device"
        for what, reading in (("capacity", pool.capacity), ("free", pool.free), ("available", pool.available)):
            if not (same and what == "available"):
                lines += _reading_line(f"{what} of {names[pool.id]}", reading)
    for what, reading in zip(("some", "all"), machine.pressure, strict=False):
        if reading.value is not None or reading.failed:
            lines += _reading_line(f"memory stalls, {what}, %", reading)
    if machine.holdings:
        lines += ["", paint(f"{'holder':23}{'pid':>8} {'user':9}{'pool':14}{'charge':>8}{'used':>8} competes", "bold")]
        for holding in machine.holdings:
            lines += _holder_lines(holding, {worker.id: worker.state for worker in seen.workers}, names)
    lines += motion.unreturned(_unreturned(seen), now_s())
    lines += ["", *wrap(_competing(machine, seen.at_work), ""), *_motion(machine)]
    notes = [*machine.notes, *([machine.holdings_missing] if machine.holdings_missing else [])]
    for note in notes:
        first, *rest = wrap(note, "  ")
        lines += [f"- {first.lstrip()}", *rest]
    return lines


def _motion(machine: Machine) -> list[str]:
    """What guard and reclaim are set to, what they do, and what the running scheduler measured for them."""
    from scheduler.cli import motion
    from scheduler.clock import now_s
    from scheduler.store import peek

    whole, here = peek.status(Paths()), config.settings()
    reserves = {pool.id: pool.reserve_gib for pool in machine.pools}
    guard_on, reclaim = here.text("guard") == "on", here.text("reclaim")
    told = motion.settings(whole, reserves, guard_on=guard_on, reclaim=reclaim)
    return [*(line for text in told for line in ["", *wrap(text, "")]), *motion.acting(whole, now_s())]


def _devices(machine: Machine) -> list[str]:
    """Every device with the names that settings take, those that are left alone too."""
    if not machine.devices:
        return []
    lines = ["", paint(f"{'device':22}{'number':>6}  {'address':13} name", "bold")]
    pools = {pool.id for pool in machine.pools}
    for device in machine.devices:
        alone = f"device:{device.id}" not in pools and not device.integrated
        name = f"{device.name}{', left alone' if alone else ''}"
        number = "-" if device.number is None else device.number
        lines.append(
            f"{fill(pool_name(device.id), 21)} {number:>6}  {device.slot or '-':13} {say.cut(name, 36)}".rstrip()
        )
    return lines


def _count(machine: Machine) -> str:
    count = machine.accelerators
    if count.value is None:
        return "\n".join(wrap(f"accelerators: {count.missing or 'not read'}", ""))
    names = [pool.name for pool in machine.pools if pool.name]
    told = f": {', '.join(f'{names.count(name)} x {name}' for name in dict.fromkeys(names))}" if names else ""
    line = f"{say.counted(int(count.value), 'accelerator')}{told}, {say.counted(machine.cores, 'core')}"
    return "\n".join(wrap(line, ""))


def _reading_line(what: str, reading: Reading) -> list[str]:
    figure = "failed" if reading.failed else gib(reading.value)
    first, *rest = wrap(reading.missing or reading.source, " " * 44) or [" " * 44]
    return [f"{fill(what, 25)} {figure:>9}  {span(reading.age_s):>5}  {first.lstrip()}".rstrip(), *rest]


def _short(machine: Machine) -> dict[str, str]:
    """Pool id -> as much of it as tells it from the others."""
    short = {pool.id: pool_name(pool.id) for pool in machine.pools}
    return short if len(set(short.values())) == len(short) else {pool_id: pool_id for pool_id in short}


def _holder_lines(holding: Holding, states: dict[int, str], names: dict[str, str]) -> list[str]:
    name = holding.name
    if holding.worker_id is not None:
        name = f"{holding.name} (worker {holding.worker_id})"
    state = states.get(holding.worker_id or 0, "")
    competes = {True: "yes", False: "no", None: "?"}[holding.competes or state in ("starting", "busy")]
    pid = holding.pid if holding.pid and holding.worker_id is None else "-"
    lines = []
    for pool_id, part in holding.parts.items():
        used = gib(part.used_gib) if part.seen else "-"
        charge = "unknown" if part.charge_gib is None else gib(part.charge_gib)
        pool = names.get(pool_id, pool_id)
        lines.append(
            f"{fill(name, 22)} {pid:>8} {fill(holding.user or '-', 8)} {fill(pool, 13)}"
            f" {charge:>8}{used:>8} {competes}".rstrip()
        )
    return lines


def _competing(machine: Machine, ours: int) -> str:
    """What counts of host memory, and why (E3, E4). `ours`: how many workers of this queue load or compute."""
    count = machine.competing
    if count == 0 and ours:
        those = "worker of this queue loads or computes" if ours == 1 else "workers of this queue load or compute"
        return (
            f"{ours} {those}: of the machine's own memory only what is free counts, not what the cache would give back."
        )
    if count == 0:
        return (
            "Nobody else computes on a device: of the machine's own memory what is available counts, unless a worker "
            "of this queue loads or computes."
        )
    who = "It could not be told who else computes on a device" if count is None else (
        f"{'1 process of others computes' if count == 1 else f'{count} processes of others compute'} on a device"
    )  # fmt: skip
    return f"{who}: of the machine's own memory only what is free counts, not what the cache would give back."
