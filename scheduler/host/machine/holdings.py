"""Who holds a model on this machine, whichever queue, checkout or user started it: from the process table.

Three kinds. Keepers of schedq carry their claim in argv. Legacy resident workers are an interpreter whose script is
`*_resident_worker.py` with `--socket`; the path names provider and checkout. A shell or an editor that quotes such a
line is neither: its argv[0] is no interpreter, or the script is not its argument. A worker whose checkout was deleted
is one all the same: it was another checkout's workers that filled the machine (E2). Sockets are no evidence: they
outlive their workers, and two checkouts may share one path.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from scheduler.host.machine.processes import HostUse, Process, below, since_s, user_name
from scheduler.host.workers.protocol import CLAIM, claim_of
from scheduler.model.machine import Charge, Holding, Pool

Budget = tuple[float, float]
BudgetOf = Callable[[str], Budget | None]
"""What is declared for a slug: (device GiB, host GiB); None = nobody declared it."""

INTERPRETER = re.compile(r"(python|pypy)[\w.\-]*")
LEGACY = "_resident_worker.py"
TAKES_A_WORD = ("-W", "-X", "--check-hash-based-pycs")
HOST_KINDS = ("host", "unified")
SHOWN = 200


def script_of(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """(script, its arguments) if this is an interpreter that runs a script file; None if it is anything else."""
    if not argv or not INTERPRETER.fullmatch(os.path.basename(argv[0])):
        return None
    words = list(argv[1:])
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-c", "-m", "-") or (option[1:2] != "-" and option[-1:] in "cm"):
            return None
        if option in TAKES_A_WORD and words:
            words.pop(0)
    return (words[0], words[1:]) if words else None


def legacy_name(script: str, cwd: str = "") -> tuple[str, str] | None:
    """(slug, name) of a legacy worker's script: `slug`, `slug@tree` below a folder `worktrees`; None if it is none."""
    if not script.endswith(LEGACY):
        return None
    parts = os.path.normpath(os.path.join(cwd, script)).split("/")
    slug = parts[-3] if len(parts) >= 3 and parts[-2] == "resident" else parts[-1].removesuffix(LEGACY)
    tree = next((parts[n + 1] for n, part in enumerate(parts[:-2]) if part == "worktrees"), None)
    return slug, f"{slug}@{tree}" if tree else slug


class Holdings:
    """Reads every holding of this machine, again and again, for one queue."""

    def __init__(self, queue_id: str, budget_of: BudgetOf, proc: str = "/proc") -> None:
        self.queue_id, self.budget_of, self.proc = queue_id, budget_of, proc
        self.use = HostUse(proc)
        self._trees: dict[int, list[Process]] = {}

    def read(self, processes: dict[int, Process], pools: Sequence[Pool], now_s: float) -> tuple[Holding, ...]:
        """Every holding, by pid, with what it is charged for and uses. `now_s` is monotonic.

        What a keeper or a legacy worker started is part of it: forks show the same argv as their parent.
        """
        keepers = {pid: claim for pid, p in processes.items() if (claim := keeper_claim(p.argv)) is not None}
        self._trees.clear()
        legacy = {pid: names for pid, p in processes.items() if (names := self._legacy(p)) is not None}
        found = []
        for pid in sorted({*keepers, *legacy}):
            above = _ancestors(processes, pid)
            if pid in keepers:
                if not any(_whose(keepers[each]) == _whose(keepers[pid]) for each in above & {*keepers}):
                    found.append(self._kept(processes, processes[pid], keepers[pid], pools, now_s))
            elif not above & {*keepers, *legacy}:
                found.append(self._loose(processes, processes[pid], *legacy[pid], pools, now_s))
        self.use.forget(now_s)
        return tuple(found)

    def again(self, holdings: Sequence[Holding], now_s: float) -> tuple[Holding, ...]:
        """Holdings just read, their host use sampled once more and the smaller kept: what is owed is not too little."""
        found = []
        for holding in holdings:
            used = self.use.gib(self._trees.get(holding.pid, []), now_s)
            charges = tuple(
                replace(charge, used_gib=min(charge.used_gib, used or 0.0)) if charge.used_gib is not None else charge
                for charge in holding.charges
            )
            found.append(replace(holding, charges=charges))
        return tuple(found)

    def _kept(
        self,
        processes: dict[int, Process],
        process: Process,
        claim: dict[str, str],
        pools: Sequence[Pool],
        now_s: float,
    ) -> Holding:
        """A keeper's holding: charged what its claim says; a claim that cannot be read is an unknown one."""
        slug, variant, worker = claim.get("slug", "?"), claim.get("variant", ""), claim.get("worker", "")
        ours = claim.get("queue") == self.queue_id and process.uid == os.getuid() and worker.isdigit()
        used = self._used(processes, process.pid, below(processes, process.pid), now_s)
        said = _said(claim.get("charge", ""), pools)
        charges: list[Charge] = []
        if said is None:
            charges = _unknown(pools, used)
        else:
            device_gib, host_gib = self.budget_of(slug) or (0.0, math.inf)
            least = 0.0 if ours or used is None else used
            for pool_id, gib in said.items():
                charges += _parts(pool_id, gib, host_gib if device_gib else math.inf, least, used, pools)
        name = f"{slug}:{variant}" if variant else slug
        return self._holding(process, name, charges, int(worker) if ours else None)

    def _loose(
        self,
        processes: dict[int, Process],
        process: Process,
        slug: str,
        name: str,
        pools: Sequence[Pool],
        now_s: float,
    ) -> Holding:
        """A legacy worker's holding: charged what is declared for its slug, or unknown wherever it could be."""
        used = self._used(processes, process.pid, [process.pid, *below(processes, process.pid)], now_s)
        budget = self.budget_of(slug)
        charges: list[Charge] = []
        if budget is None:
            charges = _unknown(pools, used)
        else:
            device_gib, host_gib = budget
            for pool in pools:
                if pool.kind in HOST_KINDS:
                    charges.append(Charge(pool.id, max(host_gib, used or 0.0), used, "host"))
                if pool.kind in ("device", "unified") and device_gib > 0:
                    charges.append(Charge(pool.id, device_gib, None, "device"))
        return self._holding(process, name, charges, None)

    def _used(self, processes: dict[int, Process], pid: int, tree: list[int], now_s: float) -> float | None:
        """Host GiB of a worker's processes; 0.0 for a keeper that has none yet."""
        self._trees[pid] = [processes[each] for each in tree if each in processes]
        return self.use.gib(self._trees[pid], now_s) if tree else 0.0

    def _holding(self, process: Process, name: str, charges: list[Charge], worker_id: int | None) -> Holding:
        command = " ".join(process.argv)
        return Holding(
            name=name,
            pid=process.pid,
            user=user_name(process.uid),
            charges=tuple(charges),
            worker_id=worker_id,
            command=command if len(command) <= SHOWN else command[: SHOWN - 1] + "\u2026",
            since_s=since_s(process, self.proc),
        )

    def _legacy(self, process: Process) -> tuple[str, str] | None:
        run = script_of(process.argv)
        if run is None or not any(word == "--socket" or word.startswith("--socket=") for word in run[1]):
            return None
        cwd = "" if run[0].startswith("/") else self._cwd(process.pid)
        return legacy_name(run[0], cwd)

    def _cwd(self, pid: int) -> str:
        try:
            return os.readlink(f"{self.proc}/{pid}/cwd").removesuffix(" (deleted)")
        except OSError:
            return ""


def own_use(holdings: Sequence[Holding]) -> dict[int, float]:
    """GiB of host memory that each of this queue's own workers was seen to use; left out where it could not be read."""
    found: dict[int, float] = {}
    for holding in holdings:
        used = [c.used_gib for c in holding.charges if c.used_gib is not None and c.part != "device"]
        if holding.worker_id is not None and used:
            found[holding.worker_id] = math.fsum(used)
    return found


def keeper_claim(argv: Sequence[str]) -> dict[str, str] | None:
    """The claim of a keeper: an interpreter whose script is followed by the keepers' word. None if it is none."""
    run = script_of(argv)
    return claim_of([CLAIM, *run[1][1:]]) if run is not None and run[1][:1] == [CLAIM] else None


def _whose(claim: dict[str, str]) -> tuple[str | None, str | None]:
    return claim.get("queue"), claim.get("worker")


def _ancestors(processes: dict[int, Process], pid: int) -> set[int]:
    found: set[int] = set()
    parent = processes[pid].parent
    while parent in processes and parent not in found and parent != pid:
        found.add(parent)
        parent = processes[parent].parent
    return found


def _said(words: str, pools: Sequence[Pool]) -> dict[str, float] | None:
    """Pool -> GiB of a claim's `charge=` words; None if any of them is no finite amount, or there are none.

    A claim on host or unified memory counts on whichever of the two this queue takes the machine to have.
    """
    host = next((pool.id for pool in pools if pool.kind in HOST_KINDS), None)
    found: dict[str, float] = {}
    for word in words.split():
        pool_id, _, amount = word.rpartition(":")
        try:
            gib = float(amount)
        except ValueError:
            return None
        if not pool_id or not math.isfinite(gib) or gib < 0:
            return None
        if host is not None and pool_id in HOST_KINDS:
            pool_id = host
        found[pool_id] = found.get(pool_id, 0.0) + gib
    return found or None


def _unknown(pools: Sequence[Pool], used: float | None) -> list[Charge]:
    """Charges of a holder that nobody declared: an unknown amount of every pool that it could be on."""
    return [Charge(pool.id, None, used if pool.kind in HOST_KINDS else None) for pool in pools]


def _parts(
    pool_id: str, gib: float, host_gib: float, least: float, used: float | None, pools: Sequence[Pool]
) -> list[Charge]:
    """A claimed amount as charges: on unified memory, what is beyond the host budget is the device's.

    `least` = a holder of others is charged at least what it was seen to use of host memory.
    """
    kind = next((pool.kind for pool in pools if pool.id == pool_id), "device")
    if kind not in HOST_KINDS:
        return [Charge(pool_id, gib, None, "device")]
    on_host = gib if kind == "host" else min(gib, host_gib)
    charges = [Charge(pool_id, max(on_host, least), used, "host")]
    if gib > on_host:
        charges.append(Charge(pool_id, gib - on_host, None, "device"))
    return charges
