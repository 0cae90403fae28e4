"""A queue on disk for a test: rows that are accepted, and what a second process needs to do the same."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.__main__ import answer
from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.store import intake, peek
from scheduler.store.connection import open_reader, open_writer
from scheduler.store.turnstile import Turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scheduler.loop import Loop

ROOT = Path(__file__).resolve().parent.parent
AT = stamp(1_700_000_000.0)


def row(**over: Any) -> dict[str, Any]:
    """A job's row as a submitter gives it; override what the test is about."""
    return {"slug": "boltz", "name": "ligand", "data": b'{"n": 1}', "params": {"seed": 1}, "revision": "r1", **over}


def submitted(paths: Paths, count: int = 1, **over: Any) -> list[int]:
    """That many jobs in the queue."""
    return intake.submit(paths, [row(**over) for _ in range(count)])


def asked(paths: Paths, question: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a fresh reader sees."""
    connection = open_reader(paths)
    try:
        return connection.execute(question, values).fetchall()
    finally:
        connection.close()


def asking(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """What makes a call in this process and answers (exit code, stdout, stderr): never a fault of schedq itself."""

    def one(*argv: str) -> tuple[int, str, str]:
        code, _fast = answer(list(argv))
        out, err = capfd.readouterr()
        assert "fault of schedq" not in err and "Traceback" not in err, err
        return code, out, err

    return one


def ticked(loop: Loop, condition: Callable[[], bool], most: int, paths: Paths) -> None:
    """Let a loop tick until that is so."""
    for _ in range(most):
        if condition():
            return
        loop.tick()
    raise AssertionError(f"not after {most} ticks; {peek.status(paths)}")


@contextmanager
def writing(paths: Paths) -> Iterator[sqlite3.Connection]:
    """A bare connection inside the turnstile, for arranging what no function of ours would do."""
    with Turnstile(paths).section():
        connection = open_writer(paths)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def scheduler(paths: Paths) -> Iterator[None]:
    """The queue's lock, held as a scheduler holds it."""
    fd = os.open(paths.lock_scheduler, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def child(code: str, *args: object, **options: Any) -> subprocess.Popen[str]:
    """Another python that runs `code` with `sys.argv[1:]` = args and can import what the tests can."""
    lines = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", lines, *map(str, args)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], timeout_s: float = 60.0) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a child, once it is over."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def steps(monkeypatch: pytest.MonkeyPatch, *, every: int = 1) -> Callable[[Callable[[], object]], int]:
    """A measure that no clock disturbs: the steps of SQLite's machine, in units of `every`, that a read takes."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    real = peek.open_reader

    def counting(where: Paths, **how: bool) -> sqlite3.Connection:
        connection = real(where, **how)
        connection.set_progress_handler(step, every)
        return connection

    def cost(read: Callable[[], object]) -> int:
        nonlocal count
        count = 0
        with monkeypatch.context() as counted:
            counted.setattr(peek, "open_reader", counting)
            read()
        return count

    return cost
