"""Processes of schedq itself that a verb starts: they run this very package, whatever lies in the caller's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial

from scheduler.cli import endings
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host import pip
from scheduler.host.workers import lean

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that this package was imported from."""

ENDED_S = 15.0
"""How long an installation may take to end what it runs."""


def argv(*words: str) -> list[str]:
    """A call of this schedq. `-P`: neither the folder that it is started in nor a script's comes before its own."""
    return [sys.executable, "-P", "-m", "scheduler", *words]


def environment(paths: Paths) -> dict[str, str]:
    """The caller's environment for a process that starts in /: relative places made absolute, this package found."""
    env = dict(os.environ, SCHEDQ_HOME=paths.home)
    for mark in ("SCHEDQ_WORKER", "SCHEDQ_RUN"):
        env.pop(mark, None)
    for variable in ("SCHEDQ_MANIFESTS", "SCHEDQ_ENVS", "PYTHONPATH"):
        if env.get(variable):
            env[variable] = ":".join(os.path.abspath(each) for each in env[variable].split(":") if each)
    if not _found_by_itself():
        env["PYTHONPATH"] = ROOT + (":" + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
    return env


def _found_by_itself() -> bool:
    """Whether `import scheduler` means this package also where neither script nor current folder counts."""
    places = sys.path if sys.flags.safe_path else sys.path[1:]
    named = (os.path.join("scheduler", "__init__.py"), "scheduler.py")
    having = (each for each in places if any(os.path.exists(os.path.join(each, name)) for name in named))
    return os.path.abspath(next(having, os.devnull)) == ROOT


def install(slug: str) -> None:
    """Build a provider's environment in a process of its own, its progress on stderr; it ends with this one.

    Interrupted (129, 130, 143): a signal came; it was passed on, and nothing is being installed any more.
    """
    child = subprocess.Popen(
        argv("install", slug), cwd="/", env=pip.absolute(environment(Paths())), stdin=subprocess.DEVNULL, stdout=2,
        process_group=0, preexec_fn=partial(lean.die_with, os.getpid(), signal.SIGTERM),
    )  # fmt: skip
    try:
        with endings.raised():
            code = child.wait()
    except endings.Ended as ended:
        _end(child)
        raise ended.interrupted(f"{slug} is not installed and nothing was queued") from None
    except BaseException:
        _end(child)
        raise
    if code:
        error = SchedqError(f"{slug} could not be installed (exit {code}); nothing was queued")
        error.exit_code = code if code in (2, 3, 75) else 1
        raise error


def _end(child: subprocess.Popen[bytes]) -> None:
    """Tell an installation to end, and see that it has; what it started ends with it."""
    child.terminate()
    try:
        child.wait(ENDED_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
