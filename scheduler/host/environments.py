"""The Python environments that providers run in: built once, found by what they hold, shared read-only.

An environment is good only while its marker, written last, still holds; a folder without one was interrupted and is
built again in place (a venv cannot be moved). The folder's flock is inherited by pip, so that what a killed install
left running is waited for. This is the only place that installs anything. A provider whose interpreter is named runs in
that, and nothing of it is changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler import clock, config, locks
from scheduler.crash import crashpoint
from scheduler.errors import SchedqError, Temporary
from scheduler.host import from_env, holds, interpreters, marker, named_files, pip, removal
from scheduler.host.install_step import Say, Step
from scheduler.host.marker import MARKER, Ask, folder_of, python_in

Spec = Mapping[str, Any]

ANYWHERE = pip.Sources()
ALONE = "--no-deps"
REQUIREMENTS = ("requirements.txt", "requirements-no-deps.txt")


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
        path = folder_of(root, declared["hash"])
        if not marker.fault(path, declared["hash"], ask):
            return Environment(path, python_in(path), declared["hash"])
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
    fault = named_files.fault(spec)
    if fault:
        return fault
    if spec.get("python"):
        lacks = _lacking_launcher(spec)
        if lacks:
            return lacks
        python = _declared_python(spec)
        if python is None:
            return _lacking_python(spec)
        return ""
    declared = spec.get("environment")
    if not declared:
        if spec.get("command") and not any("{python}" in word for word in spec["command"]):
            return ""
        return f"{spec['slug']} names no interpreter: its manifest {spec.get('manifest')} needs worker.python or [env]"
    faults = []
    for root in config.envs() if envs is None else envs:
        path = folder_of(root, declared["hash"])
        fault = marker.fault(path, declared["hash"], ask)
        if not fault:
            return ""
        if os.path.isdir(path):
            faults.append(f"the environment in {path} is not whole ({fault})")
    return f"{spec['slug']} is not installed: {'; '.join(faults) or 'it has no environment yet'}; {remedy}"


def folder_in(spec: Spec, envs: list[str] | None = None) -> str | None:
    """The environment that a provider runs in: one that we built, or the one that its interpreter is of; else None."""
    if spec.get("python"):
        python = _declared_python(spec)
        return holds.prefix_of(python) if python and os.path.isabs(python) else None
    environment = find(spec, envs, ask=lambda _: None)
    return environment.path if environment else None


def versions(spec: Spec, envs: list[str] | None = None) -> dict[str, str]:
    """What the environment that a provider runs in holds, package by package, `python` among them.

    Of one that we built, what was installed; of another, what its files say. Empty where there is none.
    """
    path = folder_in(spec, envs)
    if path is None:
        return {}
    made = None if spec.get("python") else marker.read(path)
    if made is None:
        return holds.packages(path)
    held = dict(line.split("==", 1) for line in made["packages"] if "==" in line)
    return {"python": made["version"], **held}


def identity(spec: Spec) -> str:
    """What tells the environment that a provider runs in from every other; "" where nothing does.

    Of one that schedq builds, the hash of its declaration; of another, one over what it holds now.
    """
    if spec.get("python"):
        path = folder_in(spec)
        return holds.digest(path) if path else ""
    declared = spec.get("environment")
    return str(declared["hash"]) if declared else ""


def install(
    spec: Spec, say: Say, *, python: str | None = None, envs: list[str] | None = None, sources: pip.Sources = ANYWHERE
) -> Environment:
    """Build the provider's environment, or answer at once with the one that is there.

    Safe to kill at any moment and to call twice at once: the second waits and finds it done. `python` is the one to
    build with, `sources` where packages may come from. Raises Temporary (75) when the network or the disk stands in the
    way, SchedqError (1) when the declaration does; both with the end of pip's words and where its log is.
    """
    declared = spec.get("environment")
    if not declared:
        raise SchedqError(
            f"{spec['slug']} has nothing to install: its manifest {spec.get('manifest')} has no [env]; "
            f"it runs in {spec.get('python') or 'no interpreter of its own'}"
        )
    there = find(spec, envs)
    if there is not None:
        _refuse_other(spec, there, python)
        return there
    path = _writable(config.envs() if envs is None else envs, declared["hash"])
    with _alone(path, say) as lock:
        marker.put_back(path)
        if marker.foreign(path):
            raise SchedqError(
                f"{path} was built on a machine of another kind, {marker.foreign(path)}, and is that one's; nothing "
                "was changed. Name a folder for this machine first in SCHEDQ_ENVS, and ask again"
            )
        if not marker.fault(path, declared["hash"]):
            say(f"{spec['slug']}: the environment is there, another install has finished it, or no removal did")
            return Environment(path, python_in(path), declared["hash"])
        removal.wait_unused(path, say)
        try:
            _build(spec, path, lock, python, say, sources)
        except OSError as error:
            raise _disk(path, error) from None
    return Environment(path, python_in(path), declared["hash"], fresh=True)


def _refuse_other(spec: Spec, there: Environment, python: str | None) -> None:
    """SchedqError if it is to be built with another Python than the one that is there was."""
    if python is None:
        return
    wanted, made = interpreters.choose(spec["environment"].get("python") or "", python), marker.read(there.path)
    if made is not None and wanted.version.split(".")[:2] != made["version"].split(".")[:2]:
        raise SchedqError(
            f"{spec['slug']} is installed with Python {made['version']} in {there.path}, and {python} is "
            f"{wanted.version}; schedq uninstall {spec['slug']} takes that one away, then ask again"
        )


def _lacking_python(spec: Spec) -> str:
    """That the declared interpreter cannot be run: where it is declared, and what to do about it."""
    slug, variant = str(spec["slug"]), str(spec.get("variant") or "")
    origins = config.declared().site_origins
    for name in [f"{slug}:{variant}"] * bool(variant) + [slug]:
        file = next((origins[key] for key in (f"{name}.worker.python", f"{name}.python") if key in origins), "")
        if file:
            ours = file == config.config_files()[1]
            away = f"run: schedq providers set {name} python --unset" if ours else f"take that out of {file}"
            return (
                f"{slug} is not installed: {spec['python']}, which {file} names in [providers.{name}], is no "
                f"program that can be run; put it back there, or {away}"
            )
    return (
        f"{slug} is not installed: worker.python = {spec['python']} in {spec.get('manifest')} is no program that can "
        "be run; install it there or correct the path"
    )


def _lacking_launcher(spec: Spec) -> str:
    """Why what is to launch the worker (`wrap`) cannot be run; empty if it can, or nothing does."""
    wrap = list(spec.get("wrap") or ())
    if not wrap or shutil.which(os.path.join(str(spec.get("folder") or ""), wrap[0]) if "/" in wrap[0] else wrap[0]):
        return ""
    return (
        f"{spec['slug']} is not installed: worker.wrap in {spec.get('manifest')} starts {wrap[0]}, which is no program"
        " that can be run here; install it, or correct the path"
    )


def _declared_python(spec: Spec) -> str | None:
    """The declared interpreter as an absolute path that can be run, or None.

    Below a launcher (`wrap`) as it is declared: in a container there may be one where none is here.
    """
    declared = os.path.expandvars(os.path.expanduser(str(spec["python"])))
    if spec.get("wrap"):
        return declared
    if os.sep in declared:
        path = os.path.join(str(spec.get("folder") or ""), declared)
        return path if os.access(path, os.X_OK) and os.path.isfile(path) else None
    return shutil.which(declared)


# --- the folder, alone


def _writable(roots: list[str], digest: str) -> str:
    """The environment's folder under the first root that can be written, made if need be (0755: others may read)."""
    faults = []
    for root in roots:
        path = folder_of(root, digest)
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
                fcntl.flock(lock, fcntl.LOCK_UN)  # what the check left running has a copy
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


def _build(spec: Spec, path: str, lock: int, python: str | None, say: Say, sources: pip.Sources) -> None:
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
        tool = pip.Pip(python_in(path), path, sources)
        for name in tool.left_out:
            say(f"{slug}: your setting of pip's {name} is left out: what is installed, and where, is the manifest's")
        if sources.offline:
            step.offline, step.lacking = tool.where(), lambda: tool.lacking(requirements)
        for lines, name, options in zip(parted(requirements), REQUIREMENTS, ((), (ALONE,)), strict=True):
            wanted = os.path.join(path, name)
            with open(wanted, "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in tool.ready(lines))
            if any(not line.startswith("#") for line in lines):
                step.run("pip", tool.install(*options, "-r", wanted), tool.environ)
        crashpoint("environment filled")
        frozen = step.run("pip freeze", [*tool.argv, "freeze"], tool.environ)
        packages = [line for line in frozen if "==" in line or " @ " in line]
        shutil.rmtree(os.path.join(path, pip.WHEELS), ignore_errors=True)
    if declared.get("check"):
        say(f"{slug}: checking it: {declared['check']}")
        step.run("the check", [python_in(path), "-c", declared["check"]], from_env.environ_of(spec, python_in(path)))
    crashpoint("environment checked")
    marker.write(path, lock, {
        "hash": declared["hash"],
        "python": os.path.realpath(python_in(path)),
        "version": base.version,
        "machine": os.uname().machine,
        "stat": marker.stat_of(python_in(path)),
        "packages": packages,
        "installed_at": clock.now_at(),
    })  # fmt: skip
    held = f"{len(packages)} package{'' if len(packages) == 1 else 's'}"
    say(f"{slug}: installed in {clock.monotonic_s() - started_s:.1f} s, {held}, in {path}")


def parted(requirements: list[str]) -> tuple[list[str], list[str]]:
    """The requirements that bring what they ask for, and those below the line `--no-deps`, which come alone."""
    cut = requirements.index(ALONE) if ALONE in requirements else len(requirements)
    return requirements[:cut], requirements[cut + 1 :]


def _empty(path: str) -> None:
    for entry in os.scandir(path):
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def _disk(path: str, error: OSError) -> SchedqError:
    there = path if os.path.isdir(path) else os.path.dirname(path)
    free_gib = shutil.disk_usage(there).free / 2**30
    kind = Temporary if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO) else SchedqError
    return kind(f"the environment in {path} could not be written: {error.strerror} ({free_gib:.2f} GiB free there)")
