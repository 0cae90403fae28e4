"""The Python environments that providers run in: built once, found by what they hold, shared read-only.

An environment is good only while its marker, written last, still holds; a folder without one was interrupted and is
built again in place (a venv cannot be moved). The folder's flock is inherited by pip, so that what a killed install
left running is waited for. This is the only place that installs anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler import clock, config, locks
from scheduler.crash import crashpoint
from scheduler.errors import SchedqError, Temporary
from scheduler.host import interpreters
from scheduler.host.install_step import Say, Step

Spec = Mapping[str, Any]
Ask = Callable[[str], interpreters.Interpreter | str | None]

MARKER = "schedq-environment.json"


@dataclass(frozen=True)
class Environment:
    """An environment that is good: its folder, its interpreter, the hash of its declaration; fresh = built just now."""

    path: str
    python: str
    hash: str
    fresh: bool = False


def find(spec: Spec, envs: list[str] | None = None, ask: Ask | None = None) -> Environment | None:
    """The good environment of a provider, in the first folder of SCHEDQ_ENVS that has one; None if none has.

    `ask` says what an interpreter is that changed since, None = that is not known yet, and held for good.
    """
    declared = spec.get("environment")
    if not declared:
        return None
    for root in config.envs() if envs is None else envs:
        path = _folder(root, declared["hash"])
        if not _fault(path, declared["hash"], ask):
            return Environment(path, _python(path), declared["hash"])
    return None


def python_of(spec: Spec, envs: list[str] | None = None, ask: Ask | None = None) -> str | None:
    """The interpreter that a provider runs in: the declared `worker.python`, else its environment's, or None."""
    declared = spec.get("python")
    if declared:
        return _declared_python(spec)
    environment = find(spec, envs, ask)
    return environment.python if environment else None


def missing(spec: Spec, envs: list[str] | None = None, ask: Ask | None = None) -> str:
    """Why a provider is not installed and what installs it, in one sentence; empty when nothing is missing."""
    remedy = f"run: schedq install {spec['slug']}"
    for file in spec.get("files") or ():
        fault = _file_fault(spec, file)
        if fault:
            return fault
    if spec.get("python"):
        python = _declared_python(spec)
        if python is None:
            return (
                f"{spec['slug']} is not installed: worker.python = {spec['python']} in {spec.get('manifest')} "
                "is no program that can be run; install it there or correct the path"
            )
        return ""
    declared = spec.get("environment")
    if not declared:
        if spec.get("command") and not any("{python}" in word for word in spec["command"]):
            return ""
        return f"{spec['slug']} names no interpreter: its manifest {spec.get('manifest')} needs worker.python or [env]"
    faults = []
    for root in config.envs() if envs is None else envs:
        path = _folder(root, declared["hash"])
        fault = _fault(path, declared["hash"], ask)
        if not fault:
            return ""
        if os.path.isdir(path):
            faults.append(f"the environment in {path} is not whole ({fault})")
    return f"{spec['slug']} is not installed: {'; '.join(faults) or 'it has no environment yet'}; {remedy}"


def versions(spec: Spec, envs: list[str] | None = None) -> dict[str, str]:
    """What a provider's environment holds, package by package, `python` among them; empty if we did not build it."""
    environment = None if spec.get("python") else find(spec, envs, ask=lambda _: None)
    marker = _marker(environment.path) if environment else None
    if marker is None:
        return {}
    held = dict(line.split("==", 1) for line in marker["packages"] if "==" in line)
    return {"python": marker["version"], **held}


def install(spec: Spec, say: Say, *, python: str | None = None, envs: list[str] | None = None) -> Environment:
    """Build the provider's environment, or answer at once with the one that is there.

    Safe to kill at any moment and to call twice at once: the second waits and finds it done. Raises Temporary (75)
    when the network or the disk stands in the way, SchedqError (1) when the declaration does; both with the end of
    pip's words and where its log is.
    """
    declared = spec.get("environment")
    if not declared:
        raise SchedqError(
            f"{spec['slug']} has nothing to install: its manifest {spec.get('manifest')} has no [env]; "
            f"it runs in {spec.get('python') or 'no interpreter of its own'}"
        )
    there = find(spec, envs)
    if there is not None:
        return there
    path = _writable(config.envs() if envs is None else envs, declared["hash"])
    with _alone(path, say) as lock:
        if not _fault(path, declared["hash"]):
            say(f"{spec['slug']}: the environment is there, another install has finished it")
            return Environment(path, _python(path), declared["hash"])
        try:
            _build(spec, path, lock, python, say)
        except OSError as error:
            raise _disk(path, error) from None
    return Environment(path, _python(path), declared["hash"], fresh=True)


# --- what makes an environment good


def _folder(root: str, digest: str) -> str:
    return os.path.join(root, digest.rpartition(":")[2][:32])


def _python(path: str) -> str:
    return os.path.join(path, "bin", "python")


def _marker(path: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(path, MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError):
        return None
    known = isinstance(marker, dict) and {"hash", "python", "version", "stat", "packages"} <= marker.keys()
    return marker if known and isinstance(marker["packages"], list) else None


def _stat_of(path: str) -> list[int]:
    info = os.stat(path)
    return [info.st_size, info.st_mtime_ns]


def _fault(path: str, digest: str, ask: Ask | None = None) -> str:
    """Why the folder is no good environment of this hash; empty if it is."""
    marker = _marker(path)
    if marker is None:
        return "its installation did not finish"
    if marker["hash"] != digest:
        return "it was built for another declaration"
    python = _python(path)
    if not os.access(python, os.X_OK):
        return f"its interpreter {marker['python']} is gone"
    if os.path.realpath(python) != marker["python"]:
        return f"its interpreter was {marker['python']} and is now {os.path.realpath(python)}"
    try:
        stands = _stat_of(python) == marker["stat"]
    except OSError as error:
        return f"its interpreter {marker['python']} cannot be read: {error.strerror}"
    if not stands:
        now = (ask or interpreters.probe)(python)
        if isinstance(now, str):
            return f"its interpreter does not run: {now}"
        if now is not None and now.version.split(".")[:2] != marker["version"].split(".")[:2]:
            return f"its interpreter was Python {marker['version']} and is now {now.version}"
    return ""


def _declared_python(spec: Spec) -> str | None:
    """The declared interpreter as an absolute path that can be run, or None."""
    declared = os.path.expandvars(os.path.expanduser(str(spec["python"])))
    if os.sep in declared:
        path = os.path.join(str(spec.get("folder") or ""), declared)
        return path if os.access(path, os.X_OK) and os.path.isfile(path) else None
    return shutil.which(declared)


def _file_fault(spec: Spec, file: Mapping[str, Any]) -> str:
    path = os.path.join(str(spec.get("folder") or ""), os.path.expandvars(os.path.expanduser(str(file["path"]))))
    source = f"; get it from {file['url']}" if file.get("url") else ""
    try:
        there = os.stat(path)
    except OSError:
        return f"{spec['slug']} is not installed: its file {path} is not there{source}"
    bytes_, have = file.get("bytes"), there.st_size
    if bytes_ is not None and stat.S_ISREG(there.st_mode) and have != bytes_:
        return f"{spec['slug']} is not installed: {path} has {have} bytes, and {bytes_} are declared{source}"
    return ""


# --- the folder, alone


def _writable(roots: list[str], digest: str) -> str:
    """The environment's folder under the first root that can be written, made if need be (0755: others may read)."""
    faults = []
    for root in roots:
        path = _folder(root, digest)
        try:
            os.makedirs(root, mode=0o755, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
            if os.access(path, os.W_OK):
                os.chmod(path, 0o755)  # noqa: S103
                return path
            faults.append(f"{path}: may not be written")
        except OSError as error:
            faults.append(f"{path}: {error.strerror}")
    raise Temporary(
        "no folder for environments can be written: " + "; ".join(faults) + ". Free it, or name another in SCHEDQ_ENVS"
    )


@contextlib.contextmanager
def _alone(path: str, say: Say) -> Iterator[int]:
    """Hold the folder's lock; what holds it is named while it is waited for."""
    while True:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{path}: another install{_holder(path)} is at work on it; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(path, lock):
                yield lock
                return
        finally:
            os.close(lock)
        os.makedirs(path, mode=0o755, exist_ok=True)


def _is_at(path: str, lock: int) -> bool:
    """Whether the folder that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(path: str) -> str:
    pid = locks.holder(path)
    return f" (process {pid})" if pid else ""


# --- building


def _build(spec: Spec, path: str, lock: int, python: str | None, say: Say) -> None:
    declared = spec["environment"]
    slug, requirements, started_s = spec["slug"], list(declared.get("requirements") or ()), clock.monotonic_s()
    base = interpreters.choose(declared.get("python") or "", python)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, MARKER))
    crashpoint("environment unmarked")
    _empty(path)
    step = Step(slug, path, lock, say)
    say(f"{slug}: making an environment with Python {base.version} in {path}")
    venv = [base.path, "-I", "-m", "venv", *(() if requirements else ("--without-pip",)), path]
    step.run("the virtual environment", venv)
    crashpoint("environment empty")
    packages: list[str] = []
    if requirements:
        options = [line for line in requirements if line == "--no-deps"]
        wanted = os.path.join(path, "requirements.txt")
        with open(wanted, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in requirements if line not in options)
        pip = [_python(path), "-I", "-m", "pip", "--no-input", "--disable-pip-version-check"]
        step.run("pip", [*pip, "install", "--progress-bar", "off", "--no-color", *options, "-r", wanted])
        crashpoint("environment filled")
        packages = [line for line in step.run("pip freeze", [*pip, "freeze"]) if "==" in line or " @ " in line]
    if declared.get("check"):
        say(f"{slug}: checking it: {declared['check']}")
        step.run("the check", [_python(path), "-I", "-c", declared["check"]])
    crashpoint("environment checked")
    _write_marker(path, lock, {
        "hash": declared["hash"],
        "python": os.path.realpath(_python(path)),
        "version": base.version,
        "stat": _stat_of(_python(path)),
        "packages": packages,
        "installed_at": clock.now_at(),
    })  # fmt: skip
    held = f"{len(packages)} package{'' if len(packages) == 1 else 's'}"
    say(f"{slug}: installed in {clock.monotonic_s() - started_s:.1f} s, {held}, in {path}")


def _empty(path: str) -> None:
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _write_marker(path: str, lock: int, marker: dict[str, Any]) -> None:
    """Everything that was installed reaches the disk, then the marker does: a marker never vouches for lost files."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(lock) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = os.path.join(path, MARKER + ".tmp")
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(marker, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(aside, 0o644)
    crashpoint("environment marker aside")
    os.rename(aside, os.path.join(path, MARKER))
    os.fsync(lock)


def _disk(path: str, error: OSError) -> SchedqError:
    there = path if os.path.isdir(path) else os.path.dirname(path)
    free_gib = shutil.disk_usage(there).free / 2**30
    kind = Temporary if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO) else SchedqError
    return kind(f"the environment in {path} could not be written: {error.strerror} ({free_gib:.2f} GiB free there)")
