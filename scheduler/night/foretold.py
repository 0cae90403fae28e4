"""When jobs that are not queued yet should have ended, by learned times and the queue as it stands.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

from scheduler.client import Client
from scheduler.clock import now_s, seconds
from scheduler.errors import SchedqError
from scheduler.rules.finish import Group, ends_s
from scheduler.store.ahead import ahead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Key = tuple[str, str]


def foretold(client: Client, rows: list[dict[str, Any]], specs: list[dict[str, Any]]) -> dict[str, Any]:
    """{"ends": {(slug, variant): in so many seconds}, "unknown": providers nobody saw run here, "ahead", "held"}.

    `rows` are the jobs that would be queued, `specs` what their providers declare. `ahead` = the jobs before them,
    `held` = those of the queue that may not start and are not counted.
    """
    found = ahead(client.paths)
    known: dict[Key, dict[str, Any] | None] = {(spec["slug"], spec["variant"]): spec for spec in specs}
    at_s = now_s()
    fresh: dict[tuple[Key, str], list[dict[str, Any]]] = {}
    for row in rows:
        fresh.setdefault(((row["slug"], row["variant"]), row.get("not_before_at") or ""), []).append(row)
    groups: list[Group] = []
    unknown: dict[str, None] = {}
    for key, (jobs, priority) in found["jobs"].items():
        if key not in known:
            known[key] = _spec(client, key)
        groups.append(_group(key, jobs, priority, known[key], found, 0.0))
    for (key, begin_at), of_it in fresh.items():
        begin_s = max(0.0, seconds(begin_at) - at_s) if begin_at else 0.0
        groups.append(_group(key, len(of_it), max(row["priority"] for row in of_it), known.get(key), found, begin_s))
    merged: dict[tuple[Key, float], Group] = {}
    for group in groups:
        which = group.key, group.begin_s
        merged[which] = _sum(merged[which], group) if which in merged else group
        if group.run_s is None or group.load_s is None:
            unknown[_name(group.key)] = None
    return {
        "ends": ends_s(list(merged.values()), _room(found["pools"])), "unknown": list(unknown),
        "ahead": sum(jobs for jobs, _ in found["jobs"].values()), "held": found["held"],
    }  # fmt: skip


def _name(key: Key) -> str:
    return f"{key[0]}:{key[1]}" if key[1] else key[0]


def _spec(client: Client, key: Key) -> dict[str, Any] | None:
    try:
        return client.spec(_name(key))
    except SchedqError:
        return None


def _group(
    key: Key, jobs: int, priority: int, spec: dict[str, Any] | None, found: dict[str, Any], begin_s: float
) -> Group:
    load_s, run_s = found["timings"].get(key, (None, None))
    gib: dict[str, float] = {}
    if spec is not None:
        device_gib = (spec["vram_gib"] or 0.0) * max(1, spec.get("count") or 1) if spec["policy"] == "required" else 0.0
        ram_gib = spec["ram_gib"] or 0.0
        unified = any(pool["kind"] == "unified" for pool in found["pools"])
        gib = {"unified": device_gib + ram_gib} if unified else {"device": device_gib, "host": ram_gib}
    workers = int((spec or {}).get("max_workers") or 1)
    return Group(key, jobs, run_s, load_s, workers, gib, priority, begin_s)


def _sum(one: Group, other: Group) -> Group:
    from dataclasses import replace

    return replace(one, jobs=one.jobs + other.jobs, priority=max(one.priority, other.priority))


def _room(pools: list[dict[str, Any]]) -> dict[str, float]:
    """GiB of each kind of pool that may be charged; a kind of which one could not be read has no limit here."""
    room: dict[str, float] = {}
    unread = {pool["kind"] for pool in pools if pool["capacity_gib"] is None}
    for pool in pools:
        if pool["kind"] not in unread:
            room[pool["kind"]] = room.get(pool["kind"], 0.0) + pool["capacity_gib"] - pool["reserve_gib"]
    return room
