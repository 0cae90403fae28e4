"""An environment that is there already, conda's or a venv, taken for a provider as it is.

Its interpreter is found and run, and the manifest's `check` is run by it as a worker would be: with what its user has
beside it. Nothing is copied, and nothing in it is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from scheduler import locks
from scheduler.errors import SchedqError, UsageError
from scheduler.host import holds, interpreters, pip
from scheduler.host.workers import lean
from scheduler.host.workers.environment import expanded

Spec = Mapping[str, Any]

KIT_NEEDS = ">=3.8"
_PINNED = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*===?\s*([^\s;#]+)", re.ASCII)
_FOLDER = "schedq-check-"
_LAST_LINES = 12
_SHOWN = 6
_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


@dataclass(frozen=True)
class Taken:
    """An environment that a provider can run in: its folder, interpreter and version, and what is worth knowing."""

    prefix: str
    python: str
    version: str
    packages: dict[str, str]
    notes: tuple[str, ...]


def python_of(path: str) -> str:
    """The interpreter of the environment in a folder, or the interpreter itself where one is named.

    UsageError if there is none.
    """
    whole = _whole(path)
    if os.path.isdir(whole):
        for name in ("python", "python3"):
            python = os.path.join(whole, "bin", name)
            if os.access(python, os.X_OK) and os.path.isfile(python):
                return python
        raise UsageError(f"{whole} is no environment: it has no bin/python; name the folder of a venv or of conda's")
    if os.access(whole, os.X_OK) and os.path.isfile(whole):
        return whole
    raise UsageError(f"{whole} is not there; name the folder of a venv or of a conda environment{_near(path)}")


def _whole(path: str) -> str:
    """The path as a configuration can hold it: absolute, its variables replaced. UsageError if none can."""
    whole = os.path.abspath(os.path.expanduser(path))
    meant = os.path.abspath(os.path.expandvars(os.path.expanduser(path)))
    try:
        meant.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{ascii(whole)[1:-1]} is no UTF-8, and a configuration holds nothing else; give the environment's folder "
            "a link by another name, and name that"
        ) from None
    if meant != whole and os.path.exists(whole):
        raise UsageError(
            f"{whole} has a $ in its name, which a configuration takes for a variable; give the environment's folder a "
            "link by another name, and name that"
        )
    return meant


def environ_of(spec: Spec, python: str) -> dict[str, str]:
    """What a provider's check runs with: the caller's, what its manifest sets and unsets, the interpreter's bin first.

    None of the caller's settings of Python are in it: a worker has none of them either.
    """
    env = {name: value for name, value in pip.clean(os.environ).items() if not name.startswith("PYTHON")}
    folder = os.path.dirname(python)
    env["PATH"] = f"{folder}:{env['PATH']}" if env.get("PATH") else folder
    for name, value in dict(spec.get("env") or {}).items():
        env[name] = expanded(str(value), env)
    for name in spec.get("unset") or ():
        env.pop(name, None)
    return env


def _near(name: str) -> str:
    """The conda environment that is called so, as the end of a sentence."""
    try:
        with open(os.path.expanduser("~/.conda/environments.txt"), encoding="utf-8") as file:
            known = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError):
        return ""
    near = [each for each in known if os.path.basename(each) == name]
    return f"; did you mean {near[0]}?" if near else ""


def taken(spec: Spec, path: str) -> Taken:
    """Look whether a provider can run in an environment. SchedqError with the last words of what failed if not."""
    python, slug = python_of(path), spec["slug"]
    environ = environ_of(spec, python)
    version = (_ran(python, _VERSION, f"{python} does not run", environ).split() or [""])[-1]
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SchedqError(
            f"{python} is no Python: asked for its version it says {version[:60]!r}; nothing was recorded"
        )
    if not interpreters.allows(KIT_NEEDS, version):
        raise SchedqError(f"{python} is Python {version}, and a worker needs {KIT_NEEDS}; nothing was recorded")
    declared = spec.get("environment") or {}
    check = str(declared.get("check") or "")
    if check:
        _ran(python, check, f"{slug}: its check does not run in {python}; nothing was recorded", environ)
    prefix = holds.prefix_of(python)
    packages = holds.packages(prefix) if prefix else {}
    return Taken(prefix or "", python, version, packages, tuple(_notes(spec, prefix, version, packages)))


def _notes(spec: Spec, prefix: str | None, version: str, packages: dict[str, str]) -> list[str]:
    declared = spec.get("environment") or {}
    told = []
    if not declared.get("check"):
        told.append(f"{spec['manifest']} declares no check: that the model's packages are there was not tried")
    if declared.get("python") and not interpreters.allows(declared["python"], version):
        told.append(f"it is Python {version}, and the manifest asks for {declared['python']}")
    odd = differing(list(declared.get("requirements") or ()), packages) if packages else []
    if odd:
        more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
        told.append(f"it holds other versions than the manifest pins: {', '.join(odd[:_SHOWN])}{more}")
    if prefix is None:
        told.append("it is neither a venv nor conda's: what it holds is not recorded with its jobs")
    else:
        scripts = _activation(prefix)
        if scripts:
            told.append(
                f"its activation would run {', '.join(scripts)}, and a worker starts without: what it needs of their "
                f"variables goes into [providers.{spec['slug']}.env] of your config.toml"
            )
    return told


def differing(requirements: list[str], packages: Mapping[str, str]) -> list[str]:
    """Where an environment has other versions than are pinned, a few words each."""
    held = {holds.plain(name): version for name, version in packages.items()}
    found = []
    for line in requirements:
        match = _PINNED.match(line)
        if match is None or "*" in match[2]:
            continue
        name, pinned = match[1], match[2]
        have = held.get(holds.plain(name))
        if have is None:
            if ";" not in line:
                found.append(f"no {name} ({pinned})")
        elif have != pinned and have.partition("+")[0] != pinned:
            found.append(f"{name} {have} instead of {pinned}")
    return found


def _activation(prefix: str) -> list[str]:
    try:
        names = sorted(os.listdir(os.path.join(prefix, "etc", "conda", "activate.d")))
    except OSError:
        return []
    return [name for name in names if name.endswith(".sh")]


def _ran(python: str, code: str, what: str, environ: Mapping[str, str]) -> str:
    """What code printed that an interpreter ran to its end, in an empty folder, leaving nothing. SchedqError else."""
    environ = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with _empty_folder() as folder, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaints:
        try:
            child = subprocess.Popen(
                [python, "-c", code], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=said,
                stderr=complaints, process_group=0,
                preexec_fn=partial(lean.die_with, os.getpid(), signal.SIGKILL),
            )  # fmt: skip
        except OSError as error:
            raise SchedqError(f"{what}: {error.strerror}") from None
        with child:
            try:
                child.wait()
            except BaseException:
                os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
                raise
        words, last_words = _read(said), _read(complaints)
    if child.returncode != 0:
        last = "\n  ".join(line for line in (words + last_words).splitlines()[-_LAST_LINES:] if line.strip())
        ended = f"signal {-child.returncode}" if child.returncode < 0 else f"exit {child.returncode}"
        raise SchedqError(f"{what} ({ended}):\n  {last}")
    return words


def _read(file: IO[bytes]) -> str:
    """What was written to a file that its writer may still have open: its place in it is left alone."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode("utf-8", "replace")


@contextlib.contextmanager
def _empty_folder() -> Iterator[str]:
    """A folder that goes with the call, its lock held; those that killed calls of this user left go too."""
    _sweep(tempfile.gettempdir())
    while True:
        folder = tempfile.mkdtemp(prefix=_FOLDER)
        with contextlib.suppress(FileNotFoundError):
            lock = locks.take(folder)
            if lock is not None and os.path.exists(folder):
                break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(below: str) -> None:
    for entry in os.scandir(below):
        if entry.name.startswith(_FOLDER) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                lock = locks.take(entry.path, patience_s=0.0)
                if lock is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)
