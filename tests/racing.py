"""Schedulers that start workers against one small device, and an observer who reads the process table alone.

Two queues, each with a database, a folder and a scheduler of its own, under one user or two. Each has a provider
that takes more than half of the device, so that the two of them, whosever they are, must never be there together.
The observer knows nothing of either queue: what was let go is a keeper that has a child, and its charge is its argv's.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvml import Card, Stub

from scheduler.clock import monotonic_s
from scheduler.host.machine.holders import keeper_claim
from scheduler.host.machine.processes import children_of, table
from scheduler.rules.room import SLACK_GIB

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
IMPORTED = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))])
"""Where another interpreter of this version finds schedq and what it stands on."""

CAPACITY_GIB, RESERVE_GIB = 8.0, 0.5
CARD = Card(0, total_gib=CAPACITY_GIB + 0.5, uuid=f"GPU-{os.getpid():08x}-0000-4000-8000-00000000ace5")
"""Of this run alone: keepers of another run would be seen on a device of one name."""

WORKER = """
from schedq_worker import serve
serve(load=lambda: None, predict=lambda model, request, job: {})
"""
MANIFEST = """
slug = "{slug}"
mode = "resident"
[gpu]
policy = "required"
vram_budget_gb = {gib}
[host]
ram_budget_gb = 0.01
[worker]
python = "{python}"
script = "worker.py"
stop_grace_s = 1
idle_timeout_s = {idle_s}
[input]
accept = [".json"]
"""

SUBMITTER = """
import json, sys, time
from scheduler.config import Paths
from scheduler.store import intake, peek
from scheduler import catalog, wake
paths = Paths()
specs = {slug: catalog.load(paths).spec(slug) for slug in sys.argv[1:]}
for line in sys.stdin:
    rows = [
        {"slug": slug, "name": line.strip(), "data": b"{}", "input_name": "a.json", "input_kind": "json",
         "revision": spec["revision"]}
        for slug, spec in specs.items()
    ]
    ids = intake.submit(paths, rows)
    wake.nudge(paths)
    while {*peek.states(paths, ids).values()} - {"succeeded", "failed"} or peek.workers(paths):
        time.sleep(0.02)
    print(json.dumps([*peek.states(paths, ids).values()]), flush=True)
"""
"""Submits a job of each provider for every line that it is told; answers when they are over and no worker is left."""

UNCHECKED = """
import sys
import scheduler.rules.plan as plan
from scheduler.model.plan import Go

def let_go(desk):
    for worker in desk.living:
        if worker.state == "parked" and worker.shown and worker.id not in desk.leaving:
            desk.starts.append(Go(worker.id))
            desk.compete(worker.id)

plan.confirm_parked = let_go
from scheduler.__main__ import main
sys.exit(main())
"""
"""A planted fault: what was decided before the claim could be seen is not decided again (E27's early lock)."""


@dataclass
class Sighted:
    """What an observer saw. `most_gib`: the largest sum of charges let go; `over`: where that was too much."""

    looks: int = 0
    most_gib: float = 0.0
    over: list[str] = field(default_factory=list)
    let_go: set[tuple[str, str]] = field(default_factory=set)
    claims: set[tuple[str, str]] = field(default_factory=set)


class Observer:
    """Reads the process table again and again, on a thread of its own, until it is closed."""

    def __init__(self, pool: str, homes: Sequence[str]) -> None:
        self.pool, self.homes, self.sighted = pool, [*homes], Sighted()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> Sighted:
        """What was seen in all."""
        self._closing.set()
        self._thread.join()
        return self.sighted

    def _run(self) -> None:
        while not self._closing.wait(0.005):
            self.look()

    def look(self) -> None:
        """One look: everybody's keepers, whatever queue they are of."""
        processes = table()
        children = children_of(processes)
        present: dict[tuple[str, str], float] = {}
        for pid, process in processes.items():
            claim = keeper_claim(process.argv)
            if claim is None or not any(claim.get("folder", "").startswith(home) for home in self.homes):
                continue
            who = (claim["queue"], claim["worker"])
            self.sighted.claims.add(who)
            if children.get(pid):
                charges = dict(word.rpartition(":")[::2] for word in claim["charge"].split())
                present[who] = float(charges.get(self.pool, 0.0))
        self.sighted.looks += 1
        self.sighted.let_go |= present.keys()
        total_gib = sum(present.values())
        self.sighted.most_gib = max(self.sighted.most_gib, total_gib)
        if total_gib > CAPACITY_GIB - RESERVE_GIB + SLACK_GIB:
            self.sighted.over.append(f"{total_gib:g} GiB are let go at once: {sorted(present)}")


class Racer:
    """One queue and its scheduler. `uid` None = this user's; `launch` is a program that is run instead of schedq."""

    def __init__(
        self, folder: Path, name: str, stub: Stub, *, uid: int | None = None, launch: str = "", providers: int = 1,
        gib: float = 4.0, idle_s: float = 0.05,
    ) -> None:  # fmt: skip
        self.folder, self.uid, self.launch = folder / name, uid, launch
        self.home, self.python = str(self.folder / "home"), python_for(uid)
        self.slugs = [f"{name}{n}" for n in range(providers)]
        manifests = self.folder / "manifests"
        for slug in self.slugs:
            place = manifests / slug
            place.mkdir(parents=True)
            words = MANIFEST.format(slug=slug, gib=gib, python=self.python, idle_s=idle_s)
            (place / "provider.toml").write_text(words)
            (place / "worker.py").write_text(WORKER)
        (self.folder / "tmp").mkdir()
        if uid is not None:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, uid, uid)
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self.folder), "SCHEDQ_HOME": self.home,
            "SCHEDQ_MANIFESTS": str(manifests), "SCHEDQ_DISK_RESERVE_GIB": "0.01", "PYTHONPATH": IMPORTED,
            "TMPDIR": str(self.folder / "tmp"), "SCHEDQ_ENVS": str(self.folder / "envs"),
            "PYTHONDONTWRITEBYTECODE": "1", **stub.env(),
        }  # fmt: skip
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.submitter: subprocess.Popen[str] | None = None

    def schedq(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One verb, as its user gives it."""
        return subprocess.run(
            [self.python, "-m", "scheduler", *words], env=self.env, cwd=self.folder, capture_output=True, text=True,
            timeout=60, **as_user(self.uid),
        )  # fmt: skip

    def up(self) -> None:
        """Start its scheduler in the foreground of nobody, and what submits."""
        words = ["-c", self.launch] if self.launch else ["-m", "scheduler"]
        log = open(self.folder / "serve.log", "wb")  # noqa: SIM115
        self.scheduler = subprocess.Popen(
            [self.python, *words, "up", "--foreground"], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, **as_user(self.uid),
        )  # fmt: skip
        log.close()
        until_s = monotonic_s() + 60.0
        while not self.runs():
            assert monotonic_s() < until_s and self.scheduler.poll() is None, (self.folder / "serve.log").read_text()
        self.submitter = subprocess.Popen(
            [self.python, "-c", SUBMITTER, *self.slugs], env=self.env, cwd=self.folder, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1, **as_user(self.uid),
        )  # fmt: skip

    def runs(self) -> bool:
        """Whether its scheduler answers."""
        told = self.schedq("status", "--json").stdout
        return bool(told) and bool(json.loads(told)["scheduler"]["running"])

    def submit(self, name: str) -> None:
        """One job of each of its providers, now."""
        assert self.submitter is not None and self.submitter.stdin is not None
        self.submitter.stdin.write(f"{name}\n")

    def served(self) -> None:
        """Wait until the jobs of the last `submit` have succeeded and their workers are gone."""
        assert self.submitter is not None and self.submitter.stdout is not None
        said = self.submitter.stdout.readline()
        assert said and {*json.loads(said)} == {"succeeded"}, said or "the submitter has ended"

    def down(self) -> None:
        """End all of it."""
        if self.submitter is not None:
            self.submitter.kill()
            self.submitter.communicate()
        if self.scheduler is not None:
            with suppress(subprocess.TimeoutExpired):
                self.schedq("down", "--now")
                self.scheduler.wait(30)
            if self.scheduler.poll() is None:
                self.scheduler.kill()
            self.scheduler.wait()


def as_user(uid: int | None) -> dict[str, Any]:
    """What a process is started with that is another user's, with none of our rights."""
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}


@functools.cache
def python_for(uid: int | None) -> str:
    """An interpreter that this user may run, and that finds schedq by `IMPORTED`; "" if there is none."""
    if uid is None:
        return sys.executable
    for python in (sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")):
        if python is None:
            continue
        check = [python, "-c", "import scheduler.app, psutil, alembic, pydantic"]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": IMPORTED, "PYTHONDONTWRITEBYTECODE": "1"}
        with suppress(OSError):
            if subprocess.run(check, env=env, cwd="/", capture_output=True, **as_user(uid)).returncode == 0:
                return python
    return ""


def raced(
    folder: Path, rounds: int, *, uids: Sequence[int | None] = (None, None), launch: str = "", within_s: float = 600.0
) -> Sighted:
    """Let two schedulers start a worker each at one moment, so many rounds; what the observer saw.

    With a planted fault (`launch`) it ends when that was seen.
    """
    stub = Stub(folder).cards([CARD]).write()
    library = stub.library.resolve()
    stub.library.unlink()
    shutil.copy(library, stub.library)
    for path in (stub.library, stub.path):
        path.chmod(0o755)
    racers = [Racer(folder, name, stub, uid=uid, launch=launch) for name, uid in zip("ab", uids, strict=True)]
    observer = Observer(f"device:{CARD.id}", [racer.home for racer in racers])
    until_s = monotonic_s() + within_s
    try:
        for racer in racers:
            racer.up()
        for turn in range(rounds):
            assert monotonic_s() < until_s, f"{turn} of {rounds} rounds in {within_s:g} s"
            for racer in racers:
                racer.submit(f"round{turn}")
            for racer in racers:
                racer.served()
            if launch and observer.sighted.over:
                break
        return observer.sighted
    finally:
        observer.close()
        for racer in racers:
            racer.down()
            shutil.rmtree(racer.home, ignore_errors=True)
