"""A queue of its own for each test, driven as a person would: real processes, exit codes, what is printed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ECHO_WORKER = """
import os, signal, sys, time
from schedq_worker import serve, Refused, Later

def load():
    time.sleep(float(os.environ.get("ECHO_LOAD_S", "0")))
    if os.path.exists(os.environ.get("ECHO_BROKEN", "/nonexistent")):
        raise RuntimeError("weights are not there")
    return {"count": 0}

def predict(model, request, job):
    model["count"] += 1
    if request.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "wait_for" in request:
        n = 0
        while not os.path.exists(request["wait_for"]):
            n += 1
            if n % 20 == 0:
                job.progress(n, None, "waiting")
            time.sleep(0.01)
    if request.get("refuse"):
        raise Refused("this sequence has no residues")
    if request.get("fail"):
        raise ValueError("cannot do that")
    if request.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if request.get("write"):
        with open(os.path.join(job.out_dir, request["write"]), "w") as f:
            f.write("DATA\\n")
    print("answered", request.get("say"))
    with open(job.input_path, "rb") as f:
        size = len(f.read())
    return {"said": request.get("say"), "pid": os.getpid(), "count": model["count"], "input_bytes": size,
            "text": "ATOM      1\\n"}

serve(load=load, predict=predict)
"""

ECHO_MANIFEST = """
slug = "{slug}"
title = "Says what it is told"
mode = "resident"
[gpu]
policy = "none"
[host]
ram_budget_gb = {ram}
[worker]
python = "{python}"
script = "echo_worker.py"
env = {{ ECHO_BROKEN = "{broken}" }}
idle_timeout_s = {idle}
stop_grace_s = 2
{more}
[input]
accept = [".json"]
schema = "input.schema.json"
params = "params.schema.json"
"""

INPUT_SCHEMA = {
    "type": "object",
    "properties": {"say": {"type": "string", "minLength": 1}},
    "required": ["say"],
}
PARAMS_SCHEMA = {
    "type": "object",
    "properties": {"loud": {"type": "boolean", "default": False}, "stubborn": {"type": "boolean", "default": False}},
    "additionalProperties": False,
}


class Done:
    """What one command answered."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def json(self) -> dict:
        return json.loads(self.out)


class Queue:
    """One SCHEDQ_HOME, with a manifest folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.manifests = folder / "manifests"
        self.manifests.mkdir()
        self.env = {
            **os.environ,
            "SCHEDQ_HOME": str(self.home),
            "SCHEDQ_MANIFESTS": str(self.manifests),
            "SCHEDQ_ENVS": os.environ.get("SCHEDQ_TEST_ENVS", str(folder / "envs")),
            "SCHEDQ_RESERVE_HOST_GIB": "0.25",
            "SCHEDQ_DISK_RESERVE_GIB": "0.01",
        }
        self.env.pop("PYTHONPATH", None)
        self.begun: list[subprocess.Popen[str]] = []

    def provider(self, slug: str = "echo", *, ram: float = 0.1, idle: float = 600, more: str = "") -> Path:
        """Add a provider that echoes; its folder."""
        folder = self.manifests / slug
        folder.mkdir()
        broken = folder / "broken"
        text = ECHO_MANIFEST.format(slug=slug, ram=ram, python=sys.executable, idle=idle, more=more, broken=broken)
        (folder / "provider.toml").write_text(text)
        (folder / "echo_worker.py").write_text(ECHO_WORKER)
        (folder / "input.schema.json").write_text(json.dumps(INPUT_SCHEMA))
        (folder / "params.schema.json").write_text(json.dumps(PARAMS_SCHEMA))
        return folder

    def input(self, name: str = "a.json", **body: object) -> str:
        """An input file; its path."""
        path = self.folder / name
        path.write_text(json.dumps({"say": "hello", **body}))
        return str(path)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "scheduler", *args]

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = 60, **env: str) -> Done:
        done = subprocess.run(
            self.command(*args), env={**self.env, **env}, input=stdin, capture_output=True, text=True,
            timeout=timeout, cwd=self.folder,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """A command that goes on while the test does."""
        begun = subprocess.Popen(
            self.command(*args), env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.folder,
        )  # fmt: skip
        self.begun.append(begun)
        return begun

    def reap(self) -> None:
        """End what a test that failed has left of its commands."""
        for each in self.begun:
            each.kill()
            each.wait()
            for stream in (each.stdout, each.stderr):
                if stream is not None:
                    stream.close()

    def status(self) -> dict:
        return self("status", "--json").json

    def show(self, job: str | int) -> dict:
        return self("show", str(job), "--json").json

    def processes(self) -> list[psutil.Process]:
        """Every process that carries this queue's folder in its argv or environment."""
        found = []
        mark = str(self.home)
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                words = process.cmdline()
                environ = process.environ()
            except (psutil.Error, OSError):
                continue
            if any(mark in word for word in words) or environ.get("SCHEDQ_HOME") == mark:
                found.append(process)
        return found

    def scheduler_pid(self) -> int:
        return self.status()["scheduler"]["pid"]


def words_of(process: psutil.Process) -> list[str]:
    """A process's command line; none of one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def lives(process: psutil.Process) -> bool:
    """Whether a process is there and computes; one that has ended but was not collected yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], object], *, within_s: float = 60.0, what: str = "") -> object:
    """Wait for a condition, with a deadline: the value that made it true.

    A look at a process that ends meanwhile counts for nothing: the next one sees that it has gone.
    """
    deadline = time.monotonic() + within_s
    while True:
        value = None
        with contextlib.suppress(psutil.NoSuchProcess):
            value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or condition}")
        time.sleep(0.05)
