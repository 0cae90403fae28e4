"""How a keeper is started: its claim in argv, a session of its own, and next to nothing of our environment."""

from __future__ import annotations

import os
import sys

from scheduler.host.workers.protocol import CLAIM
from scheduler.model.host import Park

KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")


def keeper_argv(order: Park, queue_id: str, control: str, folder: str) -> list[str]:
    """The claim that everyone on the machine reads: who, for which queue, and GiB per pool, exact."""
    words = [
        f"worker={order.worker_id}", f"slug={order.slug}", f"variant={order.variant}", f"queue={queue_id}",
        f"revision={order.revision}", f"mode={order.mode}", f"device={order.device}",
        *(f"lease={pool}:{lease}" for pool, lease in order.lease_ids.items()),
        *(f"charge={pool}:{gib!r}" for pool, gib in order.charges.items()),
        f"control={control}",
    ]  # fmt: skip
    return [sys.executable, "-I", "-S", KEEPER, CLAIM, *words, folder]


def spawn_keeper(argv: list[str], folder: str) -> int:
    """Its pid; what it says before it has a log of its own goes to that log too. OSError if it cannot be started."""
    env = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}  # a shared libpython
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        argv[0], argv, env, setsid=True, setsigmask=[],
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.path.join(folder, "log"), append, 0o600),
        ],
    )  # fmt: skip


def reap(pid: int) -> None:
    """Let the kernel forget a keeper of ours that has ended."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
