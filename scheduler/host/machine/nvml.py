"""What NVML tells of every NVIDIA device, as plain rows. For the child process alone: a driver call may never return.

A figure is (bytes, ""), or (None, "") where the driver says that there is no such figure, or (None, why). One device
that errs hides no other, and is listed itself: it may hold what is charged to it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from scheduler.clock import monotonic_s

Figure = tuple[float | None, str]
Row = dict[str, Any]
Listed = dict[int, tuple[float | None, bool]]
"""By pid: bytes (None = the driver does not say), and whether it computes."""

INTEGRATED = re.compile(r"\b(GB10|Orin|Xavier|Thor|Tegra|Jetson)\b", re.IGNORECASE)
"""Names of devices that share the machine's memory. GB100, GB200 and GH200 have their own."""

FOLDERS = (
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
)  # fmt: skip
LIBRARY = "libnvidia-ml.so.1"
RENEW_S = 30.0
"""How long a connection to the driver stands at least: a new one may have to wake every device."""

ADVICE = {
    "DRIVER_NOT_LOADED": "load it (modprobe nvidia), or reboot after an installation",
    "LIB_RM_VERSION_MISMATCH": "the driver was upgraded while the old one still runs: reboot",
    "NO_PERMISSION": "this user must be able to open /dev/nvidia*",
    "GPU_IS_LOST": "the device no longer answers on its bus: reboot, then look for Xid in the kernel's log",
    "RESET_REQUIRED": "nvidia-smi --gpu-reset while nothing uses it, or reboot",
}  # fmt: skip
RENEWING = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "GPU_IS_LOST", "RESET_REQUIRED", "LIB_RM_VERSION_MISMATCH")
LISTS = (("Compute", True), ("MPSCompute", True), ("Graphics", False))


class Absent(Exception):
    """There is no NVML here, and why: the binding or the library is missing."""


class Library:
    """NVML, connected to at the first round and kept; `binding` is the module pynvml."""

    def __init__(self, binding: Any, now: Callable[[], float] = monotonic_s) -> None:
        self.p, self._now = binding, now
        self._open, self._opened_s, self._renew = False, 0.0, False
        self._driver = ""

    def rows(self) -> Row:
        """Every device as `{"source", "missing", "notes", "devices"}`. `Absent` if the library cannot be loaded."""
        if self._open and self._renew and self._now() - self._opened_s >= RENEW_S:
            self._try("its end", "the NVIDIA driver", self.p.nvmlShutdown)
            self._open = False
        if not self._open:
            why = self._connect()
            if why:
                return told("NVML", [], why)
        count, why = self._try("number of devices", "the NVIDIA driver", self.p.nvmlDeviceGetCount)
        if count is None:
            return told("NVML", [], why or "the NVIDIA driver does not say how many devices there are")
        notes: list[str] = []
        devices = [row for index in range(count) for row in self._card(index, notes)]
        return told("NVML", devices, "", notes)

    def _connect(self) -> str:
        self._renew, self._opened_s = False, self._now()
        try:
            self.p.nvmlInit()
        except self.p.NVMLError as error:
            if error.value == self.p.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise Absent(f"{LIBRARY} cannot be loaded") from None
            return self._words("the NVIDIA driver", "a connection", error)
        self._open = True
        version, _ = self._try("version", "the NVIDIA driver", self.p.nvmlSystemGetDriverVersion)
        self._driver = str(version or "")
        return ""

    def _try(self, what: str, label: str, call: Callable[..., Any], *args: Any) -> tuple[Any, str]:
        """Its answer; (None, "") where it has no such thing, or not in this form; (None, why) if it errs."""
        try:
            return call(*args), ""
        except self.p.NVMLError as error:
            if error.value in (self.p.NVML_ERROR_NOT_SUPPORTED, self.p.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
                return None, ""
            return None, self._words(label, what, error)
        except Exception as error:  # a name that is no UTF-8, a binding that has no such function
            return None, f"{label}: its {what} cannot be read: {type(error).__name__}: {error}"

    def _words(self, label: str, what: str, error: Any) -> str:
        """An error of the driver as people read it: who, asked for what, the driver's words, what helps."""
        name = next((n for n in (*ADVICE, *RENEWING) if getattr(self.p, f"NVML_ERROR_{n}") == error.value), "")
        self._renew = self._renew or name in RENEWING
        advice = f": {ADVICE[name]}" if name in ADVICE else ""
        return f"{label}: asked for {'' if what.startswith('a ') else 'its '}{what}, NVML says '{error}'{advice}"

    def _card(self, index: int, notes: list[str]) -> list[Row]:
        """A card, or its instances where it is partitioned."""
        p, label = self.p, f"NVIDIA device {index}"
        handle, why = self._try("handle", label, p.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return [unread(why or f"{label}: the driver does not let it be asked", number=index)]
        uuid, no_uuid = self._try("UUID", label, p.nvmlDeviceGetUUID, handle)
        label = short(uuid) if uuid else label
        pci, _ = self._try("PCI address", label, p.nvmlDeviceGetPciInfo, handle)
        name, no_name = self._try("name", label, p.nvmlDeviceGetName, handle)
        display, no_display = self._try("display", label, p.nvmlDeviceGetDisplayActive, handle)
        mode, no_mode = self._try("MIG mode", label, p.nvmlDeviceGetMigMode, handle)
        seen = {
            "id": uuid or "", "number": index, "slot": slot(pci.busId) if pci else "", "name": name or "",
            "display": bool(display or no_display), "integrated": bool(INTEGRATED.search(name or "")),
            "driver": self._driver,
        }  # fmt: skip
        if mode and mode[0]:
            return self._instances(handle, label, seen, notes)
        doubt = ""
        if not uuid:
            doubt = no_uuid or f"{label}: the driver does not tell its UUID, so no worker could be sent to it"
        elif not name:
            doubt = f"{no_name or f'{label}: the driver tells no name'}; so it is not known if it has memory of its own"
        elif no_mode and not self._too_old("nvmlDeviceGetMigMode"):
            doubt = f"{no_mode}; so it is not known if it is partitioned"
        return [self._read(label, seen, [handle], doubt)]

    def _too_old(self, function: str) -> bool:
        """Whether the driver's library is older than that function."""
        try:
            getattr(self.p.nvmlLib, function)
        except AttributeError:
            return True
        return False

    def _instances(self, card: Any, label: str, seen: Row, notes: list[str]) -> list[Row]:
        """The instances of a partitioned card: one row for each memory, which several compute instances may share."""
        p = self.p
        count, why = self._try("number of instances", label, p.nvmlDeviceGetMaxMigDeviceCount, card)
        if count is None:
            return [unread(f"{why or f'{label}: no number of instances'}; it is partitioned (MIG)", **seen)]
        rows, memories = [], {}  # type: list[Row], dict[int, tuple[str, Row, list[Any]]]
        for number in range(count):
            try:
                handle = p.nvmlDeviceGetMigDeviceHandleByIndex(card, number)
            except p.NVMLError as error:
                if error.value not in (p.NVML_ERROR_NOT_FOUND, p.NVML_ERROR_INVALID_ARGUMENT):
                    why = self._words(f"{label}, instance {number}", "a handle", error)
                    rows.append(unread(why, **{**seen, "id": f"{seen['id']}/{number}", "partial": True}))
                continue
            here = f"{label}, instance {number}"
            uuid, no_uuid = self._try("UUID", here, p.nvmlDeviceGetUUID, handle)
            name, _ = self._try("name", here, p.nvmlDeviceGetName, handle)
            memory, no_memory = self._try("GPU instance", here, p.nvmlDeviceGetGpuInstanceId, handle)
            part = {**seen, "name": name or f"{seen['name']} MIG", "partial": True}
            part["id"] = uuid or f"{seen['id']}/{number}"
            if uuid is None or memory is None:
                rows.append(unread(no_uuid or no_memory or f"{here}: the driver does not tell which it is", **part))
            elif memory in memories:
                memories[memory][2].append(handle)
                notes.append(f"{uuid} is not used: it shares its memory with {memories[memory][1]['id']}")
            else:
                memories[memory] = (short(uuid), part, [handle])
        rows += [self._read(named, part, handles, "") for named, part, handles in memories.values()]
        if not rows:
            notes.append(
                f"{label} ({seen['name']}) is partitioned (MIG) and has no instance: create one "
                "(nvidia-smi mig -cgi PROFILE -C), or turn MIG off"
            )
        return rows

    def _read(self, label: str, seen: Row, handles: list[Any], doubt: str) -> Row:
        """A row with what changes: processes, memory, processes again, so that the smaller use of each counts."""
        first, _ = self._processes(label, handles)
        figures = self._memory(label, handles[0], bool(seen["integrated"]))
        again, missing = self._processes(label, handles)
        tenants = [[pid, *_smaller(first.get(pid), again.get(pid))] for pid in sorted({*first, *again})]
        if doubt:
            figures = dict.fromkeys(figures, (None, doubt))
        return {**unread("", **seen), **figures, "tenants": tenants, "tenants_missing": doubt or missing}

    def _memory(self, label: str, handle: Any, integrated: bool) -> dict[str, Figure]:
        """Total, free and used. The total is less what the driver keeps, where it says how much that is."""
        p = self.p
        memory, why, kept = None, "", 0
        if not self._too_old("nvmlDeviceGetMemoryInfo_v2"):
            memory, why = self._try("memory", label, p.nvmlDeviceGetMemoryInfo, handle, p.nvmlMemory_v2)
            kept = memory.reserved if memory else 0
        if memory is None and not why:
            memory, why = self._try("memory", label, p.nvmlDeviceGetMemoryInfo, handle)
        if memory is not None and not memory.total:
            memory, why = None, "" if integrated else f"{label}: NVML says that it has no memory at all"
        if memory is not None and max(memory.free, memory.used, kept) > memory.total:
            why = f"{label}: NVML says {memory.free} B free and {memory.used} B used of {memory.total} B"
            memory = None
        if memory is None:
            return dict.fromkeys(("total", "free", "used"), (None, why))
        return {"total": (memory.total - kept, ""), "free": (memory.free, ""), "used": (memory.used, "")}

    def _processes(self, label: str, handles: list[Any]) -> tuple[Listed, str]:
        """Who is on it, and why that is not all. A process in several lists holds what the largest says, not a sum."""
        found: Listed = {}
        missing = ""
        for handle in handles:
            for kind, computes in LISTS:
                listed, why = self._try("processes", label, self._list_of(kind), handle)
                if listed is None:
                    if why or kind == "Compute":
                        missing = missing or why or f"{label}: its driver does not list processes"
                    continue
                for one in listed:
                    used, before = one.usedGpuMemory, found.get(one.pid, (0, False))
                    most = None if used is None or before[0] is None else max(used, before[0])
                    found[one.pid] = (most, computes or before[1])
        return found, missing

    def _list_of(self, kind: str) -> Callable[[Any], Any]:
        name = f"nvmlDeviceGet{kind}RunningProcesses_v"
        version = 2 if self._too_old(f"{name}3") else 3
        call: Callable[[Any], Any] = getattr(self.p, f"{name}{version}")
        return call


def library() -> Library:
    """NVML by its binding; `Absent` if that is not installed. The library itself is looked for where images put it."""
    try:
        binding = importlib.import_module("pynvml")
        ctypes = importlib.import_module("ctypes")
    except ImportError as error:
        raise Absent(f"the Python package nvidia-ml-py cannot be imported ({error})") from None
    for path in (LIBRARY, *(f"{folder}/{LIBRARY}" for folder in FOLDERS)):
        try:
            ctypes.CDLL(path)  # what is loaded once is found again under its name
            break
        except OSError:
            continue
    return Library(binding)


def told(source: str, devices: list[Row], missing: str, notes: list[str] | None = None) -> Row:
    """What the child answers: every device, or why none could be read."""
    return {"source": source, "devices": devices, "missing": missing, "notes": notes or []}


def unread(why: str, **seen: Any) -> Row:
    """The row of a device that could not be read, as far as it could be seen."""
    row: Row = {
        "id": "", "number": None, "slot": "", "name": "", "display": False, "integrated": False, "partial": False,
        "driver": "",
        "total": (None, why), "free": (None, why), "used": (None, why), "tenants": [], "tenants_missing": why,
    }  # fmt: skip
    return {**row, **seen}


def short(uuid: str) -> str:
    """A UUID as far as people need it to tell devices apart: `GPU-1234abcd`, `MIG-1234abcd`."""
    return uuid[:12] if re.match(r"(GPU|MIG)-[0-9a-f]{8}-", uuid) else uuid


def slot(bus_id: str) -> str:
    """A PCI address as the kernel writes it: `00000000:01:00.0` is `0000:01:00.0`."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0') if not domain[:-4].strip('0') else domain.lstrip('0')}:{rest}" if rest else ""


def _smaller(one: tuple[float | None, bool] | None, two: tuple[float | None, bool] | None) -> tuple[float | None, bool]:
    """Of two looks at a process the smaller use; who was seen once only had none at the other look."""
    (used, computes), (other, other_computes) = one or (0.0, False), two or (0.0, False)
    least = None if used is None or other is None else min(used, other)
    return least, computes or other_computes
