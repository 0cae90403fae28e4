"""Whether a provider can start on a machine at all, from recorded capacities: what `submit` refuses (P6).

The same answer as the `never` rulings of rules.admission (a test holds them together), over plain values, so that
the everyday verbs can ask without a dataclass.
"""

from __future__ import annotations

from scheduler.rules.room import fits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Pools = list[dict[str, Any]]


def ruling(spec: dict[str, Any], facts: dict[str, Any]) -> tuple[str, str]:
    """(`undeclared` | `no_device` | `too_big`, why in numbers), or two empty strings when it may start one day.

    `spec` is the catalog's; `facts` the snapshot last recorded in the queue, whose `accelerators` is their number,
    None if that could not be read. GiB. What is not known refuses nothing.
    """
    name = f"{spec['slug']}:{spec['variant']}" if spec.get("variant") else spec["slug"]
    required, count = spec["policy"] == "required", max(1, int(spec.get("count") or 1))
    device_gib, host_gib = (spec["vram_gib"] if required else 0.0), spec["ram_gib"] or 0.0
    if required and device_gib is None:
        return "undeclared", (
            f"{name} declares no vram_budget_gb: it is admitted on a measured budget or not at all; measure it with "
            f"`schedq measure {name} --write`"
        )
    pools: Pools = facts.get("pools") or []
    unified, devices = _of(pools, "unified"), _of(pools, "device")
    if required and count > 1:  # the memory of one device is unified; of partial ones a process sees one at most
        unified, devices = [], [pool for pool in devices if not pool.get("partial")]
    if required and not unified and len(devices) < count:
        there, partial = facts.get("accelerators"), len(_of(pools, "device")) - len(devices)
        if there == 0:
            why = facts.get("accelerators_source") or ""
            return "no_device", f"{name} requires an accelerator and this machine has none{why and f' ({why})'}"
        if there is None or not 0 < (there := max(1, there - partial)) < count:
            return "", ""
        why = facts.get("accelerators_source") or ""
        return "too_big", f"{name} needs {count} devices at once and this machine has {there:g}{why and f' ({why})'}"
    host = (_of(pools, "host") or unified)[:1]
    if not required:
        return _too_big(name, "host", host_gib, host, 1)
    if unified:
        return _too_big(name, "device and host", device_gib + host_gib, unified, 1)
    if any(pool["capacity_gib"] is None for pool in (*devices, *host)) or not host:
        return "", ""
    found = _too_big(name, "device", device_gib, devices, count)
    return found if found[0] else _too_big(name, "host", host_gib, host, 1)


def _of(pools: Pools, kind: str) -> Pools:
    return [pool for pool in pools if pool["kind"] == kind]


def _too_big(name: str, what: str, need_gib: float, pools: Pools, count: int) -> tuple[str, str]:
    if not pools or any(pool["capacity_gib"] is None for pool in pools):
        return "", ""
    fitting = [pool for pool in pools if fits((need_gib, pool["reserve_gib"]), pool["capacity_gib"])]
    if len(fitting) >= count:
        return "", ""
    from scheduler.rules.figures import figures, plain

    if fitting:
        return "too_big", (
            f"{name} needs {count} devices of {plain(need_gib, 2)} GiB at once and {len(fitting)} can hold that"
        )
    largest = max(pools, key=lambda pool: float(pool["capacity_gib"] - pool["reserve_gib"]))
    parts, total, capacity, _ = figures((need_gib, largest["reserve_gib"]), largest["capacity_gib"])
    return "too_big", (
        f"{name} needs {parts[0]} GiB ({what}) and {parts[1]} GiB stay reserved: {total} GiB, more than the {capacity} "
        f"GiB of {largest['id']}, the largest pool that it could use"
    )
