"""How a keeper is started and found: its claim in argv, a session of its own, next to nothing of our environment."""

from __future__ import annotations

import os
import socket
import sys

from scheduler.host.workers import tree
from scheduler.host.workers.protocol import CLAIM, claim_of
from scheduler.host.workers.published import word_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Reserved(Protocol):
        """What is reserved for a worker: model.host.Park, or a row of the queue as its caller reads it."""

        @property
        def worker_id(self) -> int: ...
        @property
        def slug(self) -> str: ...
        @property
        def variant(self) -> str: ...
        @property
        def revision(self) -> str: ...
        @property
        def mode(self) -> str: ...
        @property
        def device(self) -> str: ...
        @property
        def charges(self) -> Mapping[str, float]: ...
        @property
        def lease_ids(self) -> Mapping[str, int]: ...


KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")


def keeper_argv(order: Reserved, queue_id: str, control: str, folder: str) -> list[str]:
    """The claim that everyone on the machine reads: who, for which queue, and GiB per pool, exact."""
    words = [*words_of(order), f"queue={queue_id}", f"control={control}"]
    return [sys.executable, "-I", "-S", KEEPER, CLAIM, *words, folder]


def words_of(order: Reserved) -> list[str]:
    """What is reserved for a worker, as its keeper's argv says it."""
    return [
        f"worker={order.worker_id}", f"slug={order.slug}", f"variant={order.variant}",
        f"revision={order.revision}", f"mode={order.mode}", f"device={order.device}",
        *(f"lease={pool}:{lease}" for pool, lease in order.lease_ids.items()),
        *(word_of(pool, gib) for pool, gib in order.charges.items()),
    ]  # fmt: skip


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


def reached(control: str, queue_id: str, worker_id: int, expected: int) -> tuple[socket.socket, int]:
    """A connection to a worker's keeper and the keeper's pid, which must be `expected` if that is not 0.

    OSError if nobody answers there, or somebody who does not claim to be this worker's keeper.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect(control)
        pid = int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
        claim = claim_of(tree.argv_of(pid)) or {}
        if (claim.get("queue"), claim.get("worker")) != (queue_id, str(worker_id)) or expected not in (0, pid):
            raise ConnectionRefusedError(f"{control} is served by process {pid}, which is not this worker's keeper")
    except OSError:
        sock.close()
        raise
    return sock, pid
