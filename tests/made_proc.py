"""A process table that is laid out as files, and devices whose drivers list who is on them. GiB and MiB."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders import reading

from scheduler.host.machine.holdings import Holdings
from scheduler.host.machine.processes import table
from scheduler.model.machine import Device, Holding, Pool, Reading, Tenant

BUDGETS = {"boltz": (28.0, 6.0), "capiti": (0.0, 0.5)}
RESIDENT = "/lab/remote/{slug}/resident/{slug}_resident_worker.py"


def device(id: str = "a", *tenants: Tenant, used: float | None = None, total: float = 80.0, **over: Any) -> Device:
    """A card of which as much is used as its driver attributes, unless told otherwise."""
    in_use = sum(tenant.used_gib or 0.0 for tenant in tenants) if used is None else used
    values: dict[str, Any] = {"vendor": "NVIDIA", "name": "H200", "seen_as": id, **over}
    return Device(
        id=id, total=reading(total), free=reading(total - in_use), used=reading(in_use), tenants=tenants, **values
    )


def integrated(*tenants: Tenant, **over: Any) -> Device:
    """A device that shares the machine's memory and says no figure of its own."""
    nothing = Reading(None, "driver")
    values: dict[str, Any] = {"vendor": "NVIDIA", "name": "GB10", "seen_as": "GPU-gb10", **over}
    return Device("GPU-gb10", total=nothing, free=nothing, used=nothing, tenants=tenants, integrated=True, **values)


class Table:
    """A made-up /proc, and what a queue reads from it."""

    def __init__(self, folder: Path, **over: Any) -> None:
        self.folder = folder
        (folder / "stat").write_text("cpu 1\nbtime 1000000\n")
        (folder / "1").mkdir()
        self.reader = Holdings("Q", BUDGETS.get, str(folder), **over)

    def run(
        self,
        pid: int,
        *argv: str,
        parent: int = 1,
        rss_mib: int = 0,
        state: str = "S",
        pss_mib: int | None = None,
        env: dict[str, str] | None = None,
        uid: int | None = None,
        started: int = 4200,
    ) -> None:
        """A process. `env` None = its environment may not be read."""
        place = self.folder / str(pid)
        place.mkdir()
        fields = [state, str(parent), "0", "0", *["0"] * 15, str(started), *["0"] * 30]
        (place / "stat").write_text(f"{pid} (odd ) name) {' '.join(fields)}\n")
        (place / "cmdline").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in argv))
        whose = os.getuid() if uid is None else uid
        (place / "status").write_text(
            f"Name:\tx\nUid:\t{whose}\t{whose}\t{whose}\t{whose}\n"
            f"RssAnon:\t{rss_mib * 1024} kB\nRssFile:\t999 kB\nRssShmem:\t0 kB\n"
        )
        if pss_mib is not None:
            (place / "smaps_rollup").write_text(f"h\nPss: 1 kB\nPss_Anon: {pss_mib * 1024} kB\nPss_Shmem: 0 kB\n")
        if env is not None:
            (place / "environ").write_bytes(b"".join(os.fsencode(f"{k}={v}") + b"\0" for k, v in env.items()))

    def keeper(self, pid: int, *words: str, parent: int = 1, **more: Any) -> None:
        """A keeper with these words of its claim."""
        argv = ("/opt/py/bin/python3.11", "-I", "-S", "/x/keeper.py", "--schedq-keeper", *words)
        self.run(pid, *argv, "control=/c", "/home/q/workers/1", parent=parent, rss_mib=5, **more)

    def legacy(self, pid: int, slug: str = "boltz", *words: str, path: str = "", **more: Any) -> None:
        """A legacy worker that somebody started, with these words behind its own."""
        script = path or RESIDENT.format(slug=slug)
        self.run(pid, f"/envs/{slug}/bin/python", "-u", script, "--socket", "/tmp/s", *words, **more)

    def read(self, pools: Sequence[Pool], now_s: float = 0.0, devices: Sequence[Device] = ()) -> list[Holding]:
        """Every holding, as the queue Q reads it."""
        return list(self.reader.read(table(str(self.folder)), pools, now_s, devices))


def only(found: list[Holding]) -> Holding:
    """The one that there is."""
    assert len(found) == 1, found
    return found[0]


def charged(holding: Holding) -> list[tuple[str, float | None, float | None, str]]:
    """(pool, charge, used, part) of each of its charges."""
    return [(c.pool, c.charge_gib, c.used_gib, c.part) for c in holding.charges]
