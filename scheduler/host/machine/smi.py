"""The same rows from nvidia-smi, only where NVML itself cannot be had. For the child process alone.

What it prints counts only if it exits with 0: a driver that errs is neither an empty machine nor a device without
totals.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import os
import shutil
import signal
import subprocess
from typing import Any

from scheduler.clock import local_stamp, monotonic_s, now_s
from scheduler.host.machine.nvml import INTEGRATED, Figure, Row, short, slot, told, unread
from scheduler.host.workers.lean import die_with

MIB = 1 << 20
FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/run/current-system/sw/bin")
CARDS = (
    "index", "uuid", "name", "pci.bus_id", "memory.total", "memory.free", "memory.used", "display_active",
    "mig.mode.current", "driver_version",
)  # fmt: skip
PROCESSES = ("gpu_uuid", "pid", "used_memory")
NOT_APPLICABLE = ("[n/a]", "n/a", "[not supported]", "not supported")
END_S = 0.2
AGAIN_S, AGAIN_MOST_S = 2.0, 60.0
SHARE = 0.7
"""What part of the deadline the program has, so that its lateness can still be told in words."""


class _Failed(Exception):
    """nvidia-smi said nothing that can be used, and why."""


class _Late(_Failed):
    """It did not answer in time."""


class Smi:
    """nvidia-smi, asked again and again; after one that was late not before a while, which doubles, is over."""

    def __init__(self) -> None:
        self._late: subprocess.Popen[str] | None = None
        self._wait_s, self._again_s, self._why = 0.0, 0.0, ""

    def rows(self, absent: str, within_s: float) -> Row:
        """Every device as `nvml.Library.rows` tells it; `absent` says why NVML is not asked. It has `within_s`."""
        if self._late is not None and self._late.poll() is None:
            hangs = f"process {self._late.pid} of nvidia-smi hangs in the kernel and cannot be ended"
            return told("nvidia-smi", [], f"NVIDIA devices cannot be read: {absent}, and {hangs}")
        if monotonic_s() < self._again_s:
            return told("nvidia-smi", [], self._why)
        try:
            found = _rows(absent, within_s)
        except _Late as late:
            self._late = late.args[1]
            self._wait_s = min(AGAIN_MOST_S, 2 * self._wait_s or AGAIN_S)
            self._again_s = monotonic_s() + self._wait_s
            at = local_stamp(now_s() + self._wait_s)[11:]
            self._why = (
                f"NVIDIA devices cannot be read: {absent}, and nvidia-smi {late.args[0]}; it is asked again at {at}"
            )
            return told("nvidia-smi", [], self._why)
        self._late, self._wait_s = None, 0.0
        return found


def _end(program: subprocess.Popen[str]) -> None:
    """Kill it with all that it started; what hangs in the kernel is not waited for."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(END_S)


def _rows(absent: str, within_s: float) -> Row:
    until_s = monotonic_s() + within_s * SHARE
    program = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *FOLDERS)))
    if program is None:
        missing = (
            f"NVIDIA devices cannot be read: {absent}, and nvidia-smi is not there either; both come with the driver"
        )
        return told("nvidia-smi", [], missing)
    try:
        cards = _asked([program, f"--query-gpu={','.join(CARDS)}"], len(CARDS), until_s)
    except _Late:
        raise
    except _Failed as failed:
        return told("nvidia-smi", [], f"NVIDIA devices cannot be read: {absent}, and nvidia-smi {failed}")
    tenants: dict[str, list[list[Any]]] = {}
    missing = ""
    try:
        for uuid, pid, used in _asked([program, f"--query-compute-apps={','.join(PROCESSES)}"], 3, until_s):
            if not pid.isdigit():
                raise _Failed(f"lists a process by {pid!r}, which is no process id")
            tenants.setdefault(uuid, []).append([int(pid), _mib(used, "")[0], True])
    except _Late:
        raise
    except _Failed as failed:
        missing = f"nvidia-smi {failed}"
    return told("nvidia-smi", [_row(card, tenants, missing) for card in cards], "")


def _row(card: list[str], tenants: dict[str, list[list[Any]]], missing: str) -> Row:
    index, uuid, name, bus_id, total, free, used, display, mig, driver = card
    known = uuid.startswith("GPU-")
    label = short(uuid) if known else f"NVIDIA device {index}"
    seen = {
        "id": uuid if known else "", "number": int(index) if index.isdigit() else None, "slot": slot(bus_id),
        "name": name, "display": display != "Disabled", "integrated": bool(INTEGRATED.search(name)),
        "driver": "" if driver.lower() in NOT_APPLICABLE else driver,
    }  # fmt: skip
    if not known:
        return unread(f"{label}: nvidia-smi says {uuid!r} for its UUID", **seen)
    if mig != "Disabled" and mig.lower() not in NOT_APPLICABLE:
        words = "is partitioned (MIG)" if mig == "Enabled" else f"may be partitioned (nvidia-smi says {mig!r})"
        return unread(f"{label}: {words}, and only NVML tells its instances: install nvidia-ml-py", **seen)
    figures = {
        "total": _mib(total, f"{label}: nvidia-smi says {total!r} for its total memory"),
        "free": _mib(free, f"{label}: nvidia-smi says {free!r} for its free memory"),
        "used": _mib(used, f"{label}: nvidia-smi says {used!r} for its used memory"),
    }
    most, left, taken = (figures[key][0] for key in ("total", "free", "used"))
    if most is not None and left is not None and taken is not None:
        figures["total"] = (min(most, left + taken), "")  # the total that it prints has what the driver keeps in it
    return {**unread("", **seen), **figures, "tenants": tenants.get(uuid, []), "tenants_missing": missing}


def _mib(text: str, why: str) -> Figure:
    """Bytes from its MiB; (None, "") where it says that there is none; (None, why) for any other words."""
    if text.isdigit():
        return float(int(text) * MIB), ""
    return None, "" if text.lower() in NOT_APPLICABLE else why


def _asked(argv: list[str], columns: int, until_s: float) -> list[list[str]]:
    """The table that it prints; `_Failed` if it is late, fails, or prints another one."""
    with_us = functools.partial(die_with, os.getpid(), signal.SIGKILL)
    try:
        program = subprocess.Popen(
            [*argv, "--format=csv,noheader,nounits"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=with_us, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise _Failed(f"cannot be run: {getattr(error, 'strerror', None) or error}") from None
    try:
        text, _ = program.communicate(timeout=max(0.01, until_s - monotonic_s()))
    except subprocess.TimeoutExpired:
        _end(program)
        raise _Late("did not answer in time", program) from None
    if program.returncode:
        said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing")
        raise _Failed(f"failed with exit status {program.returncode} and said: {said[:200]}")
    table = [[field.strip() for field in line] for line in csv.reader(text.splitlines()) if line]
    odd = next((line for line in table if len(line) != columns), None)
    if odd is not None:
        raise _Failed(f"printed what is no row of {columns} values: {', '.join(odd)[:200]}")
    return table
