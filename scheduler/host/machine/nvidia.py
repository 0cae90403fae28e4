"""NVIDIA's devices as the machine's snapshot has them. Their driver is asked by a child process, never by this one."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from typing import Any

from scheduler.host.machine.apart import FIRST_S, Apart
from scheduler.host.machine.kfd import FIRST_PID_NAMESPACE
from scheduler.host.machine.nvml import short
from scheduler.model.machine import GIB, MOST_GIB, Device, Reading, Tenant

DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver.py")
WITHIN_S = 2.0
PASSED = ("PATH", "LD_LIBRARY_PATH")
OWN_PIDS = "NVIDIA's driver lists processes by the machine's pids, and this is a container with pids of its own"


class Nvidia:
    """Reads every NVIDIA device, again and again; its child is started at the first read and lives until `close`.

    `notes` are the last read's: what is there and is not used, and why. `env` is added to the child's environment.
    """

    def __init__(
        self,
        within_s: float = WITHIN_S,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        first_s: float = FIRST_S,
        proc: str = "/proc",
    ) -> None:
        self.within_s, self.proc = within_s, proc
        argv = [python, "-I", "-S", DRIVER, "nvidia", str(os.getpid()), _binding_folder()]
        given = {key: os.environ[key] for key in PASSED if key in os.environ}
        self.child = Apart("the NVIDIA driver", argv, {**given, "LC_ALL": "C", **(env or {})}, first_s)
        self.notes: tuple[str, ...] = ()
        self._known: tuple[Device, ...] = ()

    def read(self) -> tuple[tuple[Device, ...], str]:
        """Every device, or why none could be read; never raises, and takes `within_s` at most."""
        answer, why = self.child.ask(self.within_s)
        self.notes = ()
        devices: tuple[Device, ...] = ()
        if answer is not None:
            try:
                why, source = str(answer["missing"]), str(answer["source"])
                devices = tuple(_device(row, source) for row in answer["devices"])
                self.notes = tuple(map(str, answer["notes"]))
            except (KeyError, TypeError, ValueError) as error:
                why = f"the NVIDIA driver's answer is not understood: {type(error).__name__}: {error}"
        if why:
            return (), why
        if _own_pids(self.proc):
            devices = tuple(replace(device, tenants=(), tenants_missing=OWN_PIDS) for device in devices)
        self._known = self._recognised(devices)
        return self._known, ""

    def close(self) -> None:
        """End the child."""
        self.child.close()

    def _recognised(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Devices that no longer tell who they are, as the one of their number told it: charges go by that name."""
        named = {device.id for device in devices if device.id}
        found = []
        for device in devices:
            before = [known for known in self._known if known.number == device.number and known.id not in named]
            if device.id:
                found.append(device)
            elif before:
                found += [_gone(known, device.total.missing) for known in before]
            else:
                found.append(replace(device, id=device.slot or f"nvidia{device.number}"))
        return tuple(found)


def _device(row: dict[str, Any], source: str) -> Device:
    """One row of the child's. KeyError, TypeError or ValueError if it is none."""
    name = str(row["id"])
    label = short(name) if name else f"device {row['number']}"
    return Device(
        id=name,
        vendor="NVIDIA",
        name=str(row["name"]),
        total=_reading(row["total"], f"{source} {label} memory"),
        free=_reading(row["free"], f"{source} {label} free memory"),
        used=_reading(row["used"], f"{source} {label} used memory"),
        tenants=tuple(_tenant(*each) for each in row["tenants"]),
        tenants_missing=str(row["tenants_missing"]),
        integrated=bool(row["integrated"]),
        partial=bool(row["partial"]),
        display=bool(row["display"]),
        slot=str(row["slot"]),
        number=None if row["number"] is None else int(row["number"]),
        seen_as=name,
        driver=str(row["driver"]),
    )


def _reading(figure: Any, source: str) -> Reading:
    value, missing = figure
    return Reading(None if value is None else _gib(value), source, str(missing))


def _tenant(pid: Any, used: Any, computes: Any) -> Tenant:
    return Tenant(int(pid), None if used is None else _gib(used), bool(computes))


def _gib(count: Any) -> float:
    """GiB of a number of bytes; ValueError if it is no amount of memory."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count <= MOST_GIB * GIB:
        raise ValueError(f"{count!r} is no number of bytes")
    return count / GIB


def _gone(device: Device, why: str) -> Device:
    """A device that was read before and cannot be now."""

    def failed(reading: Reading) -> Reading:
        return Reading(None, reading.source, why)

    total, free, used = failed(device.total), failed(device.free), failed(device.used)
    return replace(device, total=total, free=free, used=used, tenants=(), tenants_missing=why)


def _own_pids(proc: str) -> bool:
    """Whether pids here are not the machine's: a pid that the driver lists would be taken for one of ours."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != FIRST_PID_NAMESPACE
    except OSError:
        return False


def _binding_folder() -> str:
    """Where NVIDIA's Python binding is installed, for a child that sees no packages; empty if it is not."""
    found = importlib.util.find_spec("pynvml")
    return os.path.dirname(found.origin) if found and found.origin else ""
