"""A torch that computes on no device, on a machine that has one: told with what to do about it."""

from __future__ import annotations

import shlex

from scheduler.cli import say
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Spec = dict[str, Any]

AMD = ("AMD", "Radeon", "Instinct")
INDEX = "https://download.pytorch.org/whl"
BUILDS = {"CUDA": ("cu126", "or cu128, cu130: nvidia-smi says what the driver runs"), "ROCm": ("rocm6.4", "")}
"""The folder of the index that has builds for a kind of device, and what else is to be known."""


class Devices:
    """The accelerators of this machine, as they were last recorded in the queue."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._asked: list[str] | None = None

    def names(self, *, ask: bool) -> list[str]:
        """What each is called; empty if there is none, or nobody can tell. `ask` the machine if none is recorded."""
        recorded = self._recorded()
        if recorded or not ask:
            return recorded
        if self._asked is None:
            self._asked = self._seen()
        return self._asked

    def _recorded(self) -> list[str]:
        try:
            facts = peek.facts(self._paths) or {}
        except SchedqError:
            return []
        if not facts.get("accelerators"):
            return []
        pools = [pool for pool in facts.get("pools") or [] if pool["kind"] in ("device", "unified")]
        return [str(pool.get("name") or "a device") for pool in pools] or ["a device"]

    def _seen(self) -> list[str]:
        from scheduler.config import settings
        from scheduler.look import look

        try:
            machine = look(self._paths, settings()).snapshot.machine
        except (SchedqError, OSError):
            return []
        return [device.name for device in machine.devices if machine.accelerators.value]


def warning(spec: Spec, devices: Devices) -> str:
    """That a provider which requires a device has a torch that cannot use this machine's; "" if nothing is wrong.

    A torch is told by the file that its build left, never imported.
    """
    from scheduler.host import environments, holds

    if spec["policy"] != "required":
        return ""
    path = environments.folder_in(spec)
    built = holds.torch(path) if path else None
    if path is None or built is None:
        return ""
    names = devices.names(ask=not (built.cuda or built.rocm))
    if not names:
        return ""
    kind = "ROCm" if all(any(word in name for word in AMD) for name in names) else "CUDA"
    if built.rocm if kind == "ROCm" else built.cuda:
        return ""
    other = {"ROCm": built.cuda and f"CUDA {built.cuda}", "CUDA": built.rocm and f"ROCm {built.rocm}"}[kind]
    built_for = f"is built for {other}" if other else f"is built without {kind}"
    return (
        f"torch {built.version} in {path} {built_for}, and this machine has {names[0]}"
        f"{f' and {len(names) - 1} more' if len(names) > 1 else ''}: it would compute on the processor, or not at all; "
        + _remedy(spec, path, built.version, kind)
    )


def _remedy(spec: Spec, path: str, version: str, kind: str) -> str:
    slug, (folder, more) = spec["slug"], BUILDS[kind]
    index = f"{INDEX}/{folder}"
    beside = f" ({more})" if more else ""
    if spec["python"]:
        plain, python = version.partition("+")[0], shlex.quote(f"{path}/bin/python")
        return (
            f"put a {kind} build into it: {python} -m pip install --force-reinstall --no-deps torch=={plain} "
            f"--index-url {index}{beside}"
        )
    pinned = [line for line in (spec["environment"] or {}).get("requirements", ()) if line.startswith("torch==")]
    if pinned and "+" in pinned[0]:
        return f"its manifest pins that build ({pinned[0]}): write torch=={version.partition('+')[0]} there, then " + (
            f"PIP_EXTRA_INDEX_URL={index} schedq install {slug}{beside}"
        )
    return f"schedq uninstall {slug}, then PIP_EXTRA_INDEX_URL={index} schedq install {slug}{beside}"


def note(spec: Spec, paths: Paths) -> None:
    """Say it on stderr, if there is anything to say."""
    told = warning(spec, Devices(paths))
    if told:
        say.note(f"warning: {told}")
