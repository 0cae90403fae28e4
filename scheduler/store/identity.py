"""Who asks, and on which machine: from the kernel, never from the environment. Standard library only."""

from __future__ import annotations

import os

MACHINE_ID = "/etc/machine-id"


def user() -> str:
    """The name of the user that this process really runs as; the number as text if it has no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def host_id() -> str:
    """This machine's id in a queue: 16 hex digits that stay over boots and do not disclose the machine's own id.

    From /etc/machine-id; where there is none (some containers), from the host's name.
    """
    try:
        with open(MACHINE_ID, "rb") as file:
            seed = file.read(128).strip()
    except OSError:
        seed = b""
    return digest(b"schedq host " + (seed or b"name " + os.fsencode(os.uname().nodename)))[:16]


def digest(data: bytes) -> str:
    """sha256 in hex. Of little data by the interpreter's own module: OpenSSL's is faster, but takes 7 ms to load."""
    if len(data) <= 1 << 20:
        for module in ("_sha256", "_sha2"):
            try:
                return str(__import__(module).sha256(data).hexdigest())
            except ImportError:
                continue
    import hashlib

    return hashlib.sha256(data).hexdigest()
