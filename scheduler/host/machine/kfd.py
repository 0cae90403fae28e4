"""What AMD's compute driver (KFD) tells: which cards can compute, in which order, and which processes are on them.

ROCm numbers its devices by the driver's nodes, leaving out those that a container may not use (their files answer
EPERM), and takes a unique id (`GPU-` and 16 hex digits) instead of a number where a node has one.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from scheduler.host.machine.sysfs import bytes_in, listed, text
from scheduler.model.machine import Tenant

FOLDER = "sys/class/kfd/kfd"
FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""How the kernel names the namespace of the machine itself; its numbers are what KFD lists."""


@dataclass(frozen=True)
class Node:
    """A card, or a partition of one, that can compute. `index` is ROCm's number; `unique` 0 = it has no unique id.

    `gfx` is the instruction set as the driver writes it (110501 is gfx1151, 0 = it does not say). `processor`: it is
    the same node as the processor's.
    """

    index: int
    gpu_id: int
    slot: str
    unique: int
    gfx: int
    processor: bool


@dataclass(frozen=True)
class Nodes:
    """Every node that can be seen. `hidden` counts those that we may not use; `missing` says what went wrong."""

    nodes: tuple[Node, ...] = ()
    hidden: int = 0
    missing: str = ""


def topology(root: str = "/") -> Nodes:
    """The nodes that can compute, in ROCm's order."""
    folder = os.path.join(root, FOLDER, "topology/nodes")
    found: list[Node] = []
    hidden, missing = 0, ""
    try:
        names = [name for name in listed(folder) if name.isascii() and name.isdigit()]
    except OSError as error:
        return Nodes(missing=f"{folder}: {error.strerror}")
    for name in names:
        try:
            gpu_id = text(f"{folder}/{name}/gpu_id")
            if gpu_id not in ("", "0"):
                found.append(_node(len(found), int(gpu_id), text(f"{folder}/{name}/properties")))
        except OSError as error:
            if error.errno == errno.EPERM:
                hidden += 1
            else:
                missing = f"{folder}/{name}: {error.strerror}"
        except ValueError as error:
            missing = f"{folder}/{name}: {error}"
    return Nodes(tuple(found), hidden, missing)


def _node(index: int, gpu_id: int, properties: str) -> Node:
    pairs = (line.split() for line in properties.splitlines())
    of = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isascii() and pair[1].isdigit()}
    if "location_id" not in of:
        raise ValueError("its properties have no location_id")
    place = of["location_id"]
    slot = f"{of.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7:x}"
    return Node(
        index=index,
        gpu_id=gpu_id,
        slot=slot,
        unique=of.get("unique_id", 0),
        gfx=of.get("gfx_target_version", 0),
        processor=of.get("cpu_cores_count", 0) > 0,
    )


def tenants(root: str, gpu_id: int, *, integrated: bool) -> tuple[tuple[Tenant, ...], str]:
    """(who computes on a card and how much of its memory each holds, why nobody knows).

    The driver lists a process on every card; here it is on those where it holds memory or has a queue. What an
    integrated device holds of the machine's own memory is not in the figure, so 0 there says nothing.
    """
    folder = os.path.join(root, FOLDER, "proc")
    try:
        if not os.path.isdir(folder):
            return (), "this kernel does not tell which processes use the card; newer ones do"
        if _namespace(root) not in ("", FIRST_PID_NAMESPACE):
            return (
                (),
                "the kernel tells which processes use the card by the machine's pids, and a container has its own",
            )
        pids = [int(name) for name in listed(folder) if name.isascii() and name.isdigit()]
    except OSError as error:
        return (), f"{folder}: {error.strerror}"
    found = []
    for pid in pids:
        held = bytes_in(f"{folder}/{pid}/vram_{gpu_id}", "")
        if held.value or (held.missing and os.path.isdir(f"{folder}/{pid}")):
            found.append(Tenant(pid, held.value))
        elif _queues(f"{folder}/{pid}/queues", gpu_id):
            found.append(Tenant(pid, None if integrated else held.value))
    return tuple(found), ""


def _queues(folder: str, gpu_id: int) -> bool:
    """Whether a process has a queue on that card; no if its queues went while they were looked at."""
    try:
        return any(text(f"{folder}/{queue}/gpuid") == str(gpu_id) for queue in listed(folder))
    except OSError:
        return False


def _namespace(root: str) -> str:
    try:
        return os.readlink(os.path.join(root, "proc/self/ns/pid"))
    except OSError:
        return ""
