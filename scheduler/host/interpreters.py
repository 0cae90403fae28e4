"""Which Python a provider's environment is built with: the first that runs, has venv, and is in the declared range."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.clock import monotonic_s
from scheduler.errors import SchedqError

_PROBE = """import sys, venv, ensurepip
print("%d.%d.%d" % sys.version_info[:3])
print(getattr(sys, "_base_executable", None) or sys.executable)"""
_PROBE_S = 30.0
AGAIN_S = 60.0
_NEWEST_MINOR, _OLDEST_MINOR = 20, 8
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)(\.\*)?")


@dataclass(frozen=True)
class Interpreter:
    """A Python that was run and answered: its own file (no venv's link) and its version."""

    path: str
    version: str


def allows(declared: str, version: str) -> bool:
    """Whether `version` ("3.11.7") is inside a range like ">=3.10,<3.13"; an empty range allows all.

    SchedqError if a clause cannot be read.
    """
    for clause in filter(None, (part.strip() for part in declared.split(","))):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise SchedqError(
                f"env.python = {declared!r}: {clause!r} is no version clause; write it like '>=3.10,<3.13'"
            )
        if not _holds(match[1], match[2], match[3] is not None, version):
            return False
    return True


def _holds(operator: str, bound: str, star: bool, version: str) -> bool:
    want = tuple(map(int, bound.split(".")))
    have = tuple(map(int, version.split(".")))
    width = max(len(want), len(have))
    left, right = have + (0,) * (width - len(have)), want + (0,) * (width - len(want))
    if operator in ("==", "!="):
        same = have[: len(want)] == want if star else left == right
        return same == (operator == "==")
    if operator == "~=":
        return left >= right and have[: len(want) - 1] == want[:-1]
    return {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right}[operator]


def probe(path: str) -> Interpreter | str:
    """Run a Python and read its version; a sentence instead if it does not run or cannot build environments."""
    try:
        answer = subprocess.run(
            [path, "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else f"did not answer in {_PROBE_S:g} s"
        return f"{path}: {reason}"
    if answer.returncode != 0:
        words = answer.stderr.strip().splitlines()
        return (
            f"{path}: exit {answer.returncode}, {words[-1 if 'Error' in words[-1] else 0] if words else 'no word why'}"
        )
    version, _, base = answer.stdout.strip().partition("\n")
    return Interpreter(os.path.realpath(base or path), version)


class Answers:
    """What interpreters answer, asked on threads of their own: nobody waits, and one that hangs hangs alone.

    An answer holds while the file is as it was; a failure is asked about again after AGAIN_S.
    """

    def __init__(self, ask: Callable[[str], Interpreter | str] = probe) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._asking: set[str] = set()
        self._known: dict[str, tuple[object, float, Interpreter | str]] = {}

    def of(self, path: str) -> Interpreter | str | None:
        """What `probe` says of this file as it is now; None while that is not known yet."""
        try:
            info = os.stat(path)
        except OSError as error:
            return f"{path}: {error.strerror}"
        state = (os.path.realpath(path), info.st_ino, info.st_size, info.st_mtime_ns)
        with self._lock:
            was, at_s, answer = self._known.get(path, (None, 0.0, ""))
            known = was == state
            stale = not known or (isinstance(answer, str) and monotonic_s() - at_s > AGAIN_S)
            if stale and path not in self._asking:
                self._asking.add(path)
                threading.Thread(target=self._learn, args=(path, state), name="schedq-probe", daemon=True).start()
        return answer if known else None

    def _learn(self, path: str, state: object) -> None:
        answer: Interpreter | str = f"{path}: it could not be asked"
        try:
            answer = self._ask(path)
        finally:
            with self._lock:
                self._known[path] = (state, monotonic_s(), answer)
                self._asking.discard(path)


def _candidates() -> list[str]:
    """Ours, then every python3.X of PATH, newest first, then every python3: all places, as the first may be a shim."""
    places = [place for place in os.get_exec_path() if place]
    names = [f"python3.{minor}" for minor in range(_NEWEST_MINOR, _OLDEST_MINOR - 1, -1)] + ["python3"]
    found = [sys.executable]
    for name in names:
        for place in places:
            path = os.path.join(place, name)
            if path not in found and os.access(path, os.X_OK) and os.path.isfile(path):
                found.append(path)
    return found


def _outside_by_name(path: str, declared: str) -> bool:
    """Whether a file's name alone says that no patch level of it can be in the range: spares running it."""
    match = re.fullmatch(r"python3\.(\d+)", os.path.basename(path))
    if match is None:
        return False
    minor = match[1]
    return not any(allows(declared, f"3.{minor}.{patch}") for patch in (0, *range(1, 41)))


def choose(declared: str, given: str | None = None) -> Interpreter:
    """The interpreter to build with: the given one, else ours if it is in range, else the newest on PATH that is.

    SchedqError lists what was found and why none of it will do.
    """
    if given is not None:
        answer = probe(os.path.expanduser(given))
        if isinstance(answer, str):
            raise SchedqError(f"the Python that was named does not run: {answer}")
        if not allows(declared, answer.version):
            raise SchedqError(f"{given} is Python {answer.version}, and the provider asks for {declared}")
        return answer
    found: list[str] = []
    for path in _candidates():
        if _outside_by_name(path, declared):
            found.append(f"{path}: out of the range by its name")
            continue
        answer = probe(path)
        if isinstance(answer, Interpreter):
            if allows(declared, answer.version):
                return answer
            answer = f"{path}: Python {answer.version}"
        found.append(answer)
    raise SchedqError(
        f"no Python {declared} was found to build the environment with. Looked at:\n  "
        + "\n  ".join(found)
        + f"\nInstall one of {declared}, or put the one that you have on PATH, and ask again"
    )
