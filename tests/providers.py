"""Real providers for tests: their manifests, their environments, built once a machine, and a worker spoken to directly.

Environments lie in $SCHEDQ_TEST_ENVS, else in the temporary folder under this user's name, and stay there.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from scheduler import clock
from scheduler.config import Paths
from scheduler.host import environments
from scheduler.rules.expectation import File, Outputs, file_rules, judge

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "manifests"
KIT = ROOT / "scheduler" / "host" / "workers" / "kit"
LEGACY = ROOT / "tests" / "legacy_tree"
ENVS = os.environ.get("SCHEDQ_TEST_ENVS") or os.path.join(tempfile.gettempdir(), f"schedq-test-envs-{os.getuid()}")
SLUGS = ("anarcii", "capiti", "flash_abb", "propka", "proteinmpnn", "pyrodigal")
NEED_A_DEVICE = ("boltz",)
"""What ships and runs nowhere without a device and its weights; `pytest -m boltz` tries its code with others."""

ANSWER_S = 120.0


def declared(slug: str) -> dict[str, Any]:
    """A bundled manifest as it is written."""
    return tomllib.loads((MANIFESTS / slug / "provider.toml").read_text())


def spec_of(slug: str, home: Path) -> dict[str, Any]:
    """The catalog's spec of a bundled provider."""
    from scheduler import catalog

    return dict(catalog.load(Paths(str(home))).spec(slug))


def installed(spec: dict[str, Any]) -> str:
    """The interpreter of a provider's environment, built at first use."""
    return environments.install(spec, lambda text: print(text, file=sys.stderr), envs=[ENVS]).python


def unmet(reply: Any, expect: dict[str, Any], outputs: Path | None = None) -> list[str]:
    """The expectations of a validation case that a reply, and what lies in this folder, do not meet, in words."""
    found = Outputs()
    if outputs is not None:
        there = {str(path.relative_to(outputs)): path for path in outputs.rglob("*") if path.is_file()}
        sizes = {name: File(name, path.stat().st_size, "") for name, path in there.items()}
        globs = file_rules(expect.get("files", {}))
        found = Outputs(
            tuple(there), {glob: tuple(sizes[name] for name in there if fnmatchcase(name, glob)) for glob in globs}
        )
    return [f"{each.place}: expected {each.expected}, found {each.found}" for each in judge(expect, reply, found)]


class Worker:
    """A resident worker of a test: its process, and its socket spoken to without a keeper."""

    def __init__(
        self, python: str, script: Path, folder: Path, *args: str, before: tuple[str, ...] = (), **env: str
    ) -> None:
        self.folder = folder
        self.socket = str(folder / "w")
        self.log = open(folder / "log", "w+")  # noqa: SIM115
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(KIT),
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            **env,
        }
        self.process = subprocess.Popen(
            [python, *before, str(script), "--socket", self.socket, *args],
            cwd=script.parents[1], env=environ, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> Self:
        """Wait for its first answer."""
        deadline_s, turn = clock.monotonic_s() + ANSWER_S, threading.Event()
        while True:
            try:
                self.ask({"op": "ping"})
                return self
            except (FileNotFoundError, ConnectionRefusedError):
                assert self.process.poll() is None, self.said()
                assert clock.monotonic_s() < deadline_s, self.said()
                turn.wait(0.02)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.log.close()

    def said(self) -> str:
        """Its output so far."""
        return (self.folder / "log").read_text()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """One request's reply; progress lines that came before it are kept in `progress`."""
        self.progress: list[dict[str, Any]] = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_S)
            line.connect(self.socket)
            line.sendall(json.dumps(message).encode() + b"\n")
            with line.makefile("rb") as stream:
                for answer in stream:
                    reply = json.loads(answer)
                    if "event" not in reply:
                        return dict(reply)
                    self.progress.append(reply)
        raise AssertionError(f"no reply to {message.get('op')}: {self.said()}")

    def predict(self, source: Path, params: dict[str, Any]) -> dict[str, Any]:
        """The answer for an input file, asked as the scheduler asks; the whole reply where there is none."""
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        body = json.loads(source.read_bytes()) if source.suffix == ".json" else {}
        reply = self.ask({
            "op": "predict", "job": 1, "attempt": 1, "name": source.stem, "request": {**body, **params},
            "params": params, "input_path": str(source), "out_dir": str(out), "work_dir": str(self.folder),
        })  # fmt: skip
        return dict(reply["result"]) if reply["ok"] else reply
