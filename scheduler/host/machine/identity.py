"""Which machine this is and since when: the ids that processes and records are told apart by."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MACHINE_ID = "/etc/machine-id"


@dataclass(frozen=True)
class MachineIdentity:
    """`boot_id` names the time since the kernel started; `host_id` stays over boots."""

    boot_id: str
    host_id: str


def identity() -> MachineIdentity:
    """This machine and this boot. The host id is the one that store.identity writes, computed alike.

    It is derived from /etc/machine-id without disclosing it, or from the host's name where there is none.
    """
    try:
        with open(MACHINE_ID, "rb") as file:
            seed = file.read(128).strip()
    except OSError:
        seed = b""
    seed = seed or b"name " + os.fsencode(os.uname().nodename)
    with open(BOOT_ID) as boot:
        return MachineIdentity(boot.read().strip(), hashlib.sha256(b"schedq host " + seed).hexdigest()[:16])


def started(pid: int) -> float:
    """When a process started, in clock ticks since boot: with pid and boot id, who it is. 0.0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return float(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0.0
