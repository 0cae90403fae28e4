"""A keeper's charge in its own argv, changed while it lives: what everybody reads is what is charged now.

The kernel shows a process's argv as it stands in that process's memory. The word of a charge has room for any number,
so that another one can be written over it. Standard library only: a part of the keeper.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

ROOM = 20
"""Characters that a number of GiB has in argv, blanks behind it."""


def word_of(pool: str, gib: float) -> str:
    """The word of a charge, with room for another number."""
    return f"charge={pool}:{gib!r:<{ROOM}}"


def publish(charges: Mapping[str, float], pid: str = "self") -> list[str]:
    """Write these charges over those in our own argv, GiB by pool; what could not be shown, a sentence each."""
    left = []
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            start = int(file.read().rpartition(b")")[2].split()[45])
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            argv = file.read()
        memory = os.open(f"/proc/{pid}/mem", os.O_WRONLY | os.O_CLOEXEC)
    except (OSError, ValueError, IndexError) as error:
        return [f"the charge in argv stays as it was: {error}"]
    try:
        for pool, gib in charges.items():
            begin = argv.find(b"\0" + f"charge={pool}:".encode())
            end = argv.find(b"\0", begin + 1)
            if begin < 0 or end < 0:
                left.append(f"argv has no charge on {pool}")
                continue
            begin += len(f"charge={pool}:") + 1
            text = f"{gib!r}".encode()
            if argv[begin:end].strip() == text:
                continue
            if len(text) > end - begin:
                left.append(f"argv has no room for a charge of {gib!r} GiB on {pool}")
                continue
            os.pwrite(memory, text.ljust(end - begin), start + begin)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        left += [f"argv does not show {gib!r} GiB on {pool}" for pool, gib in charges.items()
                 if f"charge={pool}:{gib!r}" not in {word.decode(errors="replace").rstrip() for word in words}
                 and not left]  # fmt: skip
    except OSError as error:
        left.append(f"the charge in argv stays as it was: {error}")
    finally:
        os.close(memory)
    return left


def show(charges: Mapping[str, float], log: Callable[[bytes], object]) -> dict[str, Any]:
    """Let everybody read these charges in our own argv, GiB by pool: the answer to whoever ordered it."""
    left = "; ".join(publish(charges))
    if left:
        log(f"schedq keeper: {left}\n".encode())
    return {"error": left} if left else {"charges": dict(charges)}
