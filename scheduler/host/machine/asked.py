"""What single processes are asked for: owner, working folder, and the few words of an environment that rules read.

An environment is read of this user's own processes only, once for each (pid, start, argv), since it is fixed when a
program starts; of it the names in `NAMES` are kept and nothing else, for the rest holds secrets.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

import psutil

from scheduler.host.machine.processes import Process, content, psutil_at
from scheduler.host.workers.devices import CUDA, ROCR
from scheduler.host.workers.protocol import MARK

CHARGED = "SCHEDQ_CHARGE_DEVICE_GIB"
"""The variable that says what a worker of this project is charged for on each of its devices."""

NAMES = (MARK, CHARGED, "VRAM_BUDGET_GB", "RAM_BUDGET_GB", CUDA, ROCR, "CUDA_DEVICE_ORDER")
_NAMES = frozenset(os.fsencode(name) for name in NAMES)

CHUNK = 1 << 14


class Asked:
    """Asks processes of one /proc, and remembers what cannot change while they live."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc
        self._environments: dict[int, tuple[Process, dict[str, str]]] = {}
        self._uids: dict[int, tuple[Process, int]] = {}
        self._names: dict[int, str] = {}

    def environment(self, process: Process) -> Mapping[str, str]:
        """Those `NAMES` that a process of this user was started with; empty if it is another's, or may not be read."""
        if not process.argv:
            return {}
        kept = self._environments.get(process.pid)
        if kept is not None and _is_same(kept[0], process):
            return kept[1]
        try:
            found = self._read(process.pid)
        except PermissionError:
            found = {}
        except OSError:
            return {}
        self._environments[process.pid] = process, found
        return found

    def uid(self, process: Process) -> int | None:
        """Whose it is; None if it went before it was asked."""
        kept = self._uids.get(process.pid)
        if kept is not None and _is_same(kept[0], process):
            return kept[1]
        try:
            uid = self._process(process.pid).uids().real
        except (psutil.Error, OSError, ValueError, IndexError):
            return None
        self._uids[process.pid] = process, uid
        return uid

    def user(self, process: Process) -> str:
        """The name of its user; the number as text if that has none, empty if it went before it was asked."""
        uid = self.uid(process)
        if uid is None:
            return ""
        if uid not in self._names:
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._names[uid] = str(uid)
        return self._names[uid]

    def cwd(self, process: Process) -> str:
        """The folder that it works in, also one that was deleted; empty if that may not be read."""
        try:
            return self._process(process.pid).cwd().removesuffix(" (deleted)")
        except (psutil.Error, OSError, ValueError, IndexError):
            return ""

    def booted_s(self) -> float | None:
        """When the kernel started, seconds since the epoch; None if it does not say."""
        try:
            with psutil_at(self.proc):
                return psutil.boot_time()
        except (OSError, RuntimeError, ValueError, IndexError):
            return None

    def forget(self, processes: Mapping[int, Process]) -> None:
        """Drop what was kept of processes that are not in this table any more."""
        self._environments = {pid: kept for pid, kept in self._environments.items() if pid in processes}
        self._uids = {pid: kept for pid, kept in self._uids.items() if pid in processes}

    def _process(self, pid: int) -> psutil.Process:
        with psutil_at(self.proc):
            return psutil.Process(pid)

    def _read(self, pid: int) -> dict[str, str]:
        found: dict[str, str] = {}
        if os.stat(f"{self.proc}/{pid}").st_uid != os.getuid():
            return found
        for word in content(f"{self.proc}/{pid}/environ", CHUNK).split(b"\0"):
            name, equals, value = word.partition(b"=")
            if equals and name in _NAMES:
                found.setdefault(os.fsdecode(name), os.fsdecode(value))
        return found


def _is_same(old: Process, process: Process) -> bool:
    """Whether it is that process still, and runs that program still."""
    return old.started == process.started and old.argv == process.argv
